-- name: horizon
-- Who keeps vacuum from removing dead rows of this database: the oldest of each sort. Rows
-- of vpay.jobs die by the thousand, and claims read past those that can't be removed.
-- Sessions of other databases hold nothing here; vacuum itself is left out, as Postgres
-- does. A commit that waits for its standby is told apart: it is not to be ended. No text of
-- any query. A role without pg_read_all_stats sees no start of others'
-- transactions: seconds is then null, and only the age in transactions tells.
(
    SELECT 'session', pid, application_name,
        CASE WHEN wait_event = 'SyncRep' THEN 'waits for a standby' ELSE state END,
        extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds,
        greatest(age(backend_xmin), age(backend_xid))::bigint AS transactions
    FROM pg_catalog.pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        AND pid <> pg_backend_pid()
        AND (datname = current_database() OR datname IS NULL)
        AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_stat_progress_vacuum AS vacuums
            WHERE vacuums.pid = pg_stat_activity.pid
        )
    ORDER BY seconds DESC NULLS LAST, transactions DESC
    LIMIT 10
)
UNION ALL
(
    SELECT 'prepared', NULL, gid, 'prepared',
        extract(epoch FROM clock_timestamp() - prepared)::double precision,
        age(transaction)::bigint
    FROM pg_catalog.pg_prepared_xacts
    WHERE database = current_database()
    ORDER BY prepared
    LIMIT 10
)
UNION ALL
(
    SELECT 'slot', active_pid, slot_name, CASE WHEN active THEN 'active' ELSE 'unused' END,
        NULL, age(xmin)::bigint
    FROM pg_catalog.pg_replication_slots
    WHERE xmin IS NOT NULL
    ORDER BY age(xmin) DESC
    LIMIT 10
)

-- name: dispatchers
-- A dispatcher asks every 50 ms, and every 5 s while it backs off; so a session that has
-- asked nothing for 15 s belongs to one that is stopped or stuck. What may not be seen of
-- another role's session (null) counts for it.
SELECT count(*),
    count(*) FILTER (
        WHERE state_change IS NULL
            OR state = 'active'
            OR clock_timestamp() - state_change < make_interval(secs => %(silence)s::float8)
    )
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database()
    AND starts_with(application_name, 'vpay dispatch ')

-- name: jobs_table
SELECT n_dead_tup,
    extract(epoch FROM
        clock_timestamp() - greatest(last_vacuum, last_autovacuum))::double precision
FROM pg_catalog.pg_stat_user_tables
WHERE relid = 'vpay.jobs'::regclass

-- name: overdue_leases
-- Reapers look every 5 s: a lease that ended 15 s ago has been seen by none. Read through
-- the index of leased rows, which holds what is in the broker and in the workers only.
SELECT queue, count(*)
FROM (
    SELECT queue
    FROM vpay.jobs
    WHERE locked_at IS NOT NULL
        AND lease_until < now() - interval '15 s'
    ORDER BY queue, lane
    LIMIT %(cap)s::bigint
) AS late
GROUP BY queue
ORDER BY queue

-- name: charges_in_doubt
-- Each through its partial index; counting stops at :cap.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT FROM vpay.charges
            WHERE state = 'unresolved'
            ORDER BY created_at
            LIMIT %(cap)s::bigint
        ) AS unresolved
    ),
    (
        SELECT count(*)
        FROM (
            SELECT FROM vpay.charges
            WHERE contradicted_at IS NOT NULL
            ORDER BY contradicted_at
            LIMIT %(cap)s::bigint
        ) AS contradicted
    )

-- name: takes_writes
-- Not on a standby, nor on a primary that was made read-only.
SELECT NOT current_setting('transaction_read_only')::boolean
