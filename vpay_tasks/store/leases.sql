-- name: renew
-- Skips locked rows: a renewal never waits, and "not renewed" does not mean lost.
WITH held AS MATERIALIZED (
    SELECT jobs.id
    FROM vpay.jobs
    JOIN unnest(%(ids)s::bigint[], %(leases)s::uuid[]) AS given (id, lease)
        ON jobs.id = given.id AND jobs.lease = given.lease
    ORDER BY jobs.id
    FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE vpay.jobs
SET lease_until = now() + make_interval(secs => %(run_lease)s::float8)
FROM held
WHERE jobs.id = held.id
RETURNING jobs.id, jobs.lease

-- name: still_held
-- A plain read: a row that settles just now still shows our token, and is then no loss.
SELECT jobs.id, jobs.lease
FROM vpay.jobs
JOIN unnest(%(ids)s::bigint[], %(leases)s::uuid[]) AS given (id, lease)
    ON jobs.id = given.id AND jobs.lease = given.lease

-- name: reap_expired
-- Rows past their lease. Claimed ones never ran and lose nothing; running ones crashed; a
-- nudge that came during the run is kept. In
-- the order of the leased rows' own index, so that nothing else is read, whatever the
-- statistics say; one that skips locked rows waits for nobody, so it needs no order by id.
WITH held AS MATERIALIZED (
    SELECT id, started_at IS NOT NULL AS ran
    FROM vpay.jobs
    WHERE locked_at IS NOT NULL
        AND lease_until < now()
    ORDER BY queue, lane
    LIMIT 500
    FOR UPDATE SKIP LOCKED
)
UPDATE vpay.jobs
SET lease = NULL,
    locked_by = NULL,
    locked_at = NULL,
    lease_until = NULL,
    started_at = NULL,
    poked = NULL,
    crashes = crashes + held.ran::integer,
    run_at = CASE
        WHEN held.ran AND crashes >= 1 THEN
            now() + least(
                random() * least(10 * 2 ^ least(crashes - 1, 30), 3600) * interval '1 second',
                poked
            )
        ELSE run_at
    END,
    due = lane IS NOT NULL AND NOT (held.ran AND crashes >= 1),
    parked_at = CASE
        WHEN held.ran AND crashes + 1 >= %(max_crashes)s::integer
            AND NOT kind = ANY(%(protected)s::text[]) THEN now()
    END,
    dead_reason = CASE
        WHEN held.ran AND crashes + 1 >= %(max_crashes)s::integer
            AND NOT kind = ANY(%(protected)s::text[]) THEN 'crashed'
    END
FROM held
WHERE jobs.id = held.id
RETURNING
    jobs.id,
    jobs.kind,
    jobs.queue,
    jobs.crashes,
    CASE WHEN held.ran THEN 'run_expired' ELSE 'claim_expired' END,
    jobs.parked_at IS NOT NULL

-- name: reap_gone
-- Running rows of workers whose session lock is gone and who have been silent: killed
-- processes. After an outage every seen_at is old, so silence counts from this session's
-- own beginning, and a session younger than the settling time frees nothing at all.
WITH own AS MATERIALIZED (
    SELECT backend_start
    FROM pg_stat_activity
    WHERE pid = pg_backend_pid()
),
silent AS MATERIALIZED (
    SELECT workers.id
    FROM vpay.workers
    CROSS JOIN own
    WHERE workers.holds_lock
        AND now() - own.backend_start > make_interval(secs => %(settling)s::float8)
        AND now() - greatest(workers.seen_at, own.backend_start)
            > greatest(make_interval(secs => %(silence)s::float8), 3 * workers.slowest_pulse)
),
gone AS MATERIALIZED (
    SELECT silent.id
    FROM silent
    WHERE NOT EXISTS (
        SELECT 1
        FROM pg_locks
        JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE pg_locks.locktype = 'advisory'
            AND pg_locks.granted
            AND pg_database.datname = current_database()
            AND pg_locks.classid = 87
            AND pg_locks.objid::bigint = hashtext(silent.id)::bigint & 4294967295
            AND pg_locks.objsubid = 2
    )
),
held AS MATERIALIZED (
    -- Nobody gone, which is nearly always: no job is looked at. Else as in reap_expired.
    SELECT id
    FROM vpay.jobs
    WHERE locked_at IS NOT NULL
        AND started_at IS NOT NULL
        AND (SELECT count(*) FROM gone) > 0
        AND locked_by = ANY(ARRAY(SELECT id FROM gone))
    ORDER BY queue, lane
    LIMIT 500
    FOR UPDATE SKIP LOCKED
)
UPDATE vpay.jobs
SET lease = NULL,
    locked_by = NULL,
    locked_at = NULL,
    lease_until = NULL,
    started_at = NULL,
    poked = NULL,
    crashes = crashes + 1,
    run_at = CASE
        WHEN crashes >= 1 THEN
            now() + least(
                random() * least(10 * 2 ^ least(crashes - 1, 30), 3600) * interval '1 second',
                poked
            )
        ELSE run_at
    END,
    due = lane IS NOT NULL AND crashes < 1,
    parked_at = CASE
        WHEN crashes + 1 >= %(max_crashes)s::integer
            AND NOT kind = ANY(%(protected)s::text[]) THEN now()
    END,
    dead_reason = CASE
        WHEN crashes + 1 >= %(max_crashes)s::integer
            AND NOT kind = ANY(%(protected)s::text[]) THEN 'crashed'
    END
FROM held
WHERE jobs.id = held.id
RETURNING
    jobs.id,
    jobs.kind,
    jobs.queue,
    jobs.crashes,
    'worker_gone',
    jobs.parked_at IS NOT NULL
