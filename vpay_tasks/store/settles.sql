-- name: settle
-- The one way a run ends: every row is guarded by (id, run token), so a stale worker's
-- settle finds nothing. Rows are locked in id order; a poke that came during the run makes
-- the delay (and a finish) come back that soon.
WITH answer AS MATERIALIZED (
    SELECT id, lease, verb, delay, error, reason, place
    FROM unnest(
        %(ids)s::bigint[],
        %(leases)s::uuid[],
        %(verbs)s::text[],
        %(delays)s::float8[],
        %(errors)s::text[],
        %(reasons)s::text[]
    ) WITH ORDINALITY AS given (id, lease, verb, delay, error, reason, place)
),
held AS MATERIALIZED (
    SELECT
        given.id,
        given.lease,
        given.place,
        CASE WHEN given.verb = 'finish' AND jobs.poked IS NOT NULL THEN 'again' ELSE given.verb END
            AS verb,
        CASE
            WHEN given.verb = 'finish' THEN extract(epoch FROM jobs.poked)::float8
            ELSE least(given.delay, extract(epoch FROM jobs.poked)::float8)
        END AS delay,
        given.error,
        given.reason
    FROM vpay.jobs
    JOIN answer AS given
        ON jobs.id = given.id AND jobs.lease = given.lease
    ORDER BY jobs.id
    FOR UPDATE OF jobs
),
finished AS (
    DELETE FROM vpay.jobs
    USING held
    WHERE jobs.id = held.id
        AND held.verb = 'finish'
    RETURNING held.place
),
moved AS (
    UPDATE vpay.jobs
    SET lease = NULL,
        locked_by = NULL,
        locked_at = NULL,
        lease_until = NULL,
        started_at = NULL,
        poked = NULL,
        settled_by = held.lease,
        crashes = 0,
        failures = CASE held.verb
            WHEN 'retry' THEN failures + 1
            WHEN 'again' THEN 0
            ELSE failures
        END,
        last_error = coalesce(held.error, last_error),
        unknown_since = CASE
            WHEN held.verb = 'unknown' THEN coalesce(unknown_since, now())
            WHEN held.verb = 'park' THEN unknown_since
        END,
        run_at = CASE
            WHEN held.verb = 'park' THEN run_at
            ELSE now() + make_interval(secs => held.delay)
        END,
        due = lane IS NOT NULL AND held.verb <> 'park' AND held.delay <= 0,
        parked_at = CASE WHEN held.verb = 'park' THEN now() END,
        dead_reason = CASE WHEN held.verb = 'park' THEN held.reason END
    FROM held
    WHERE jobs.id = held.id
        AND held.verb <> 'finish'
    RETURNING held.place
)
SELECT place FROM finished
UNION ALL
SELECT place FROM moved

-- name: look_again
-- After a commit whose answer was lost. FOR UPDATE waits for a backend that is still
-- committing; a plain read could show the row as it was before.
SELECT lease, settled_by
FROM vpay.jobs
WHERE id = %(id)s::bigint
FOR UPDATE

-- name: own_transaction
-- Asked before a commit whose answer may be lost: a row that is gone tells nobody who took it.
SELECT pg_current_xact_id()::text

-- name: was_committed
-- Behind look_again: by then it has ended. One too old to be known of counts as not committed.
SELECT coalesce(pg_xact_status(%(transaction)s::text::xid8) = 'committed', false)
