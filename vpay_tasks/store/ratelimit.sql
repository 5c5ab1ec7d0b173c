-- name: count_attempt
-- The upsert is the main statement and the sweep hangs on it: the other way round two of
-- them deadlocked. What others hold is passed over, and this very row is the upsert's. An
-- array is made once; a subquery that is joined may be run anew, and then takes more than 32.
WITH swept AS (
    DELETE FROM vpay.rate_limits
    WHERE ctid = ANY(ARRAY(
        SELECT ctid
        FROM vpay.rate_limits
        WHERE elapses_at <= now()
            AND id <> %(id)s::bytea
        ORDER BY elapses_at
        LIMIT 32
        FOR UPDATE SKIP LOCKED
    ))
)
INSERT INTO vpay.rate_limits AS counted (id, scope, attempts, elapses_at)
VALUES (
    %(id)s::bytea,
    %(scope)s::text,
    1,
    now() + make_interval(secs => %(window)s::float8)
)
ON CONFLICT (id) DO UPDATE
SET attempts = CASE WHEN counted.elapses_at <= now() THEN 1 ELSE counted.attempts + 1 END,
    elapses_at = CASE
        WHEN counted.elapses_at <= now() THEN excluded.elapses_at
        ELSE counted.elapses_at
    END
RETURNING counted.attempts

-- name: sweep_rate_limits
DELETE FROM vpay.rate_limits
WHERE ctid = ANY(ARRAY(
    SELECT ctid
    FROM vpay.rate_limits
    WHERE elapses_at <= now()
    ORDER BY elapses_at
    LIMIT %(page)s::integer
    FOR UPDATE SKIP LOCKED
))
RETURNING 1
