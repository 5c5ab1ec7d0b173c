-- name: try_lock
-- The proof of life of one process: held by its pulse's session, so it goes when the
-- process goes. In pg_locks: classid 87, objid hashtext(id).
SELECT pg_try_advisory_lock(87, hashtext(%(id)s::text))

-- name: pulse
INSERT INTO vpay.workers AS known (
    id, host, pid, queues, threads, draining, holds_lock, slowest_pulse, stats, seen_at
)
VALUES (
    %(id)s::text,
    %(host)s::text,
    %(pid)s::integer,
    %(queues)s::text[],
    %(threads)s::integer,
    %(draining)s::boolean,
    %(holds_lock)s::boolean,
    make_interval(secs => %(slowest)s::float8),
    %(stats)s::jsonb,
    clock_timestamp()
)
ON CONFLICT (id) DO UPDATE
SET draining = excluded.draining,
    holds_lock = excluded.holds_lock,
    slowest_pulse = excluded.slowest_pulse,
    stats = excluded.stats,
    seen_at = excluded.seen_at

-- name: leave
-- The row stays a day: its last counters are still to be collected.
UPDATE vpay.workers
SET draining = true,
    holds_lock = false,
    stats = %(stats)s::jsonb
WHERE id = %(id)s::text

-- name: sweep_dead
DELETE FROM vpay.workers
WHERE id IN (
    SELECT id
    FROM vpay.workers
    WHERE seen_at < now() - interval '1 day'
    ORDER BY id
    LIMIT 500
)
