-- name: wait_at_most
-- For this transaction only: a caller with a deadline can't sit behind a lock until the
-- session's own limits are met.
SELECT
    set_config('lock_timeout', %(milliseconds)s::text, true),
    set_config('statement_timeout', %(milliseconds)s::text, true)
