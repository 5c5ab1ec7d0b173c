-- name: now
-- The database's clock is the only one that decides anything.
SELECT clock_timestamp() AT TIME ZONE 'UTC'
