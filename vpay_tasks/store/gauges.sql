-- name: queues
-- Every queue that has a job, served or not: one look into an index per queue. Not min():
-- by old statistics that may be planned as an aggregate over all that matches.
WITH RECURSIVE queues AS (
    SELECT least(
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NULL
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND due
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND NOT due
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NOT NULL
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE parked_at IS NOT NULL
                ORDER BY queue LIMIT 1)
        ) AS queue
    UNION ALL
    SELECT least(
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NULL
                    AND queue > queues.queue
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND due
                    AND queue > queues.queue
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND NOT due
                    AND queue > queues.queue
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE locked_at IS NOT NULL AND queue > queues.queue
                ORDER BY queue LIMIT 1),
            (SELECT queue FROM vpay.jobs
                WHERE parked_at IS NOT NULL AND queue > queues.queue
                ORDER BY queue LIMIT 1)
        )
    FROM queues
    WHERE queues.queue IS NOT NULL
)
SELECT queue
FROM queues
WHERE queue IS NOT NULL

-- name: jobs_by_state
-- Each part reads at most :cap rows of a queue through a partial index: with a million rows
-- waiting an exact count by kind would read them all, at every look. `capped` says that a
-- part was full, so that its figures are lower bounds. The order is that of the part's
-- index: without one the planner may read all that matches before the first row comes.
-- Broker losses are claims that never started, without the one that is under way.
WITH parts AS (
    SELECT queues.queue, priorities.part, rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN (VALUES ('ready 0', 0), ('ready 1', 1), ('ready 2', 2), ('ready 3', 3))
        AS priorities (part, priority)
    CROSS JOIN LATERAL (
        SELECT 'ready' AS state, kind, dead_reason AS reason, claims - starts AS unstarted
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NULL
            AND queue = queues.queue AND priority = priorities.priority AND run_at <= now()
        ORDER BY run_at
        LIMIT %(cap)s::bigint
    ) AS rows
    UNION ALL
    SELECT queues.queue, priorities.part, rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN (VALUES ('later 0', 0), ('later 1', 1), ('later 2', 2), ('later 3', 3))
        AS priorities (part, priority)
    CROSS JOIN LATERAL (
        SELECT 'scheduled' AS state, kind, dead_reason AS reason, claims - starts AS unstarted
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NULL
            AND queue = queues.queue AND priority = priorities.priority AND run_at > now()
        ORDER BY run_at
        LIMIT %(cap)s::bigint
    ) AS rows
    UNION ALL
    SELECT queues.queue, 'lane, due', rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN run_at <= now() THEN 'ready' ELSE 'scheduled' END AS state,
            kind, dead_reason AS reason, claims - starts AS unstarted
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND due
            AND queue = queues.queue
        ORDER BY lane, run_at
        LIMIT %(cap)s::bigint
    ) AS rows
    UNION ALL
    SELECT queues.queue, 'lane, ready', rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        SELECT 'ready' AS state, kind, dead_reason AS reason, claims - starts AS unstarted
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND NOT due
            AND queue = queues.queue AND run_at <= now()
        ORDER BY run_at
        LIMIT %(cap)s::bigint
    ) AS rows
    UNION ALL
    SELECT queues.queue, 'lane, later', rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        SELECT 'scheduled' AS state, kind, dead_reason AS reason, claims - starts AS unstarted
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND NOT due
            AND queue = queues.queue AND run_at > now()
        ORDER BY run_at
        LIMIT %(cap)s::bigint
    ) AS rows
    UNION ALL
    SELECT queues.queue, 'leased', rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN started_at IS NULL THEN 'claimed' ELSE 'running' END AS state,
            kind, dead_reason AS reason,
            claims - starts - CASE WHEN started_at IS NULL THEN 1 ELSE 0 END AS unstarted
        FROM vpay.jobs
        WHERE locked_at IS NOT NULL AND queue = queues.queue
        ORDER BY lane
        LIMIT %(cap)s::bigint
    ) AS rows
    UNION ALL
    SELECT queues.queue, 'parked', rows.state, rows.kind, rows.reason, rows.unstarted
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        SELECT 'parked' AS state, kind, dead_reason AS reason, claims - starts AS unstarted
        FROM vpay.jobs
        WHERE parked_at IS NOT NULL AND queue = queues.queue
        ORDER BY parked_at
        LIMIT %(cap)s::bigint
    ) AS rows
),
counted AS (
    SELECT queue, part, state, kind, reason,
        count(*) AS jobs,
        sum(greatest(unstarted, 0)) AS losses,
        sum(count(*)) OVER (PARTITION BY queue, part) >= %(cap)s::bigint AS capped
    FROM parts
    GROUP BY queue, part, state, kind, reason
)
SELECT queue, kind, state, reason,
    sum(jobs)::bigint,
    sum(losses)::bigint,
    bool_or(capped)
FROM counted
GROUP BY queue, kind, state, reason
ORDER BY queue, kind, state, reason

-- name: queue_ages
-- The oldest ready row per queue, each found at the front of an index. Rows with a lane are
-- walked lane by lane; past 10,000 lanes that are due at once the age is a lower bound.
WITH fronts AS (
    SELECT queues.queue, front.run_at
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN (VALUES (0), (1), (2), (3)) AS priorities (priority)
    CROSS JOIN LATERAL (
        SELECT min(run_at) AS run_at
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NULL
            AND queue = queues.queue AND priority = priorities.priority
    ) AS front
    UNION ALL
    SELECT queues.queue, front.run_at
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        SELECT min(run_at) AS run_at
        FROM vpay.jobs
        WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND NOT due
            AND queue = queues.queue
    ) AS front
    UNION ALL
    SELECT queues.queue, walked.run_at
    FROM unnest(%(queues)s::text[]) AS queues (queue)
    CROSS JOIN LATERAL (
        WITH RECURSIVE lanes AS (
            (
                SELECT lane, run_at
                FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND due
                    AND queue = queues.queue
                ORDER BY lane, run_at
                LIMIT 1
            )
            UNION ALL
            SELECT next.lane, next.run_at
            FROM lanes
            CROSS JOIN LATERAL (
                SELECT lane, run_at
                FROM vpay.jobs
                WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND due
                    AND queue = queues.queue AND lane > lanes.lane
                ORDER BY lane, run_at
                LIMIT 1
            ) AS next
        )
        SELECT run_at
        FROM lanes
        LIMIT 10000
    ) AS walked
)
SELECT queue, extract(epoch FROM now() - min(run_at))::double precision
FROM fronts
WHERE run_at <= now()
GROUP BY queue
ORDER BY queue

-- name: parked_jobs
-- The latest dead letters of all queues, found at the end of each queue's part of the index.
SELECT latest.id, queues.queue, latest.kind, latest.dedupe_key, latest.dead_reason,
    latest.last_error, latest.starts, latest.failures,
    extract(epoch FROM now() - latest.parked_at)::double precision
FROM unnest(%(queues)s::text[]) AS queues (queue)
CROSS JOIN LATERAL (
    SELECT id, kind, dedupe_key, dead_reason, last_error, starts, failures, parked_at
    FROM vpay.jobs
    WHERE parked_at IS NOT NULL AND queue = queues.queue
    ORDER BY parked_at DESC
    LIMIT %(limit)s::bigint
) AS latest
ORDER BY latest.parked_at DESC, latest.id
LIMIT %(limit)s::bigint

-- name: jobs_estimate
-- The planner's figure for the whole table, as old as the last vacuum or analyze.
SELECT nullif(reltuples, -1)::bigint
FROM pg_catalog.pg_class
WHERE oid = 'vpay.jobs'::regclass

-- name: worker_stats
-- A worker that holds a lock is alive while Postgres sees it; one behind a transaction
-- pooler can only be judged by its pulse (every 0.5 s, so ten in a row were missed).
SELECT id, host, pid, queues, threads, draining, holds_lock,
    extract(epoch FROM clock_timestamp() - seen_at)::double precision,
    extract(epoch FROM clock_timestamp() - started_at)::double precision,
    CASE
        WHEN holds_lock THEN EXISTS (
            SELECT FROM pg_catalog.pg_locks
            WHERE locktype = 'advisory' AND granted
                AND classid = 87 AND objid = (hashtext(workers.id)::bigint & 4294967295)::oid
                AND objsubid = 2
                AND database = (SELECT oid FROM pg_catalog.pg_database
                    WHERE datname = current_database())
        )
        ELSE clock_timestamp() - seen_at < interval '5 s'
    END,
    stats
FROM vpay.workers
ORDER BY seen_at DESC, id
LIMIT %(limit)s::bigint

-- name: unset
-- What our sessions ask for when they begin, or behind a transaction pooler the role has.
SELECT name
FROM pg_catalog.pg_settings
WHERE (name IN ('idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout')
        AND setting = '0')
    OR (name = 'jit' AND setting = 'on')
    -- It silences the warning that a commit's standby does not have it.
    OR (name = 'client_min_messages' AND setting = 'error')
ORDER BY name
