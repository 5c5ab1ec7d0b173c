-- name: server
SELECT current_setting('server_version_num')::integer,
    pg_is_in_recovery(),
    current_user,
    current_database()

-- name: risky_settings
-- Each of these may lose a commit that was answered, or let dead rows pile up. A `local` commit
-- is on this server's disk: enough, unless a standby was to have it, too. The values are those of
-- our own role here.
SELECT name, setting, source
FROM pg_catalog.pg_settings
WHERE (name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum')
        AND setting = 'off')
    OR (name = 'synchronous_commit' AND setting = 'local'
        AND current_setting('synchronous_standby_names') <> '')
ORDER BY name

-- name: settings_of_logins
-- What other logins that may look into our schema bring along, as ALTER ROLE left it: their
-- sessions are not ours to ask. What was set for this database alone wins over the rest; of one's
-- own role risky_settings tells, and gauges' unset. A value is kept as it was typed.
SELECT role, here, name, value
FROM (
    SELECT DISTINCT ON (logins.rolname, typed.name)
        logins.rolname AS role,
        held.setdatabase <> 0 AS here,
        typed.name,
        CASE WHEN typed.value IN ('false', 'no', '0') THEN 'off' ELSE typed.value END AS value
    FROM pg_catalog.pg_db_role_setting AS held
    JOIN pg_catalog.pg_roles AS logins ON logins.oid = held.setrole
    CROSS JOIN unnest(held.setconfig) AS line
    CROSS JOIN LATERAL (
        SELECT split_part(line, '=', 1), lower(split_part(line, '=', 2))
    ) AS typed (name, value)
    WHERE logins.rolcanlogin
        AND logins.rolname <> session_user
        AND has_schema_privilege(logins.oid, 'vpay', 'USAGE')
        AND held.setdatabase IN (
            0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
        )
        AND typed.name IN ('synchronous_commit', 'client_min_messages')
    ORDER BY logins.rolname, typed.name, held.setdatabase DESC
) AS settings
WHERE (name = 'synchronous_commit' AND value = 'off')
    OR (name = 'synchronous_commit' AND value = 'local'
        AND current_setting('synchronous_standby_names') <> '')
    -- Nothing is above it: Postgres took `fatal` and `panic` away.
    OR (name = 'client_min_messages' AND value = 'error')
ORDER BY name DESC, role
LIMIT %(cap)s::bigint

-- name: idle_transactions
-- Sessions that opened a transaction and went silent: they may hold locks.
SELECT pid, application_name,
    extract(epoch FROM clock_timestamp() - state_change)::double precision AS seconds
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database()
    AND starts_with(state, 'idle in transaction')
    AND clock_timestamp() - state_change > make_interval(secs => %(silence)s::float8)
ORDER BY seconds DESC
LIMIT 10

-- name: commits_waiting
-- Commits that their synchronous standbys have not confirmed: how many, and for how long the
-- oldest has waited.
SELECT count(*),
    max(extract(epoch FROM clock_timestamp() - query_start))::double precision
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database()
    AND wait_event = 'SyncRep'
HAVING count(*) > 0

-- name: missing_keys
SELECT wanted.key
FROM unnest(%(keys)s::text[]) AS wanted (key)
WHERE NOT EXISTS (
        SELECT FROM vpay.jobs
        WHERE dedupe_key = wanted.key
    )
ORDER BY wanted.key

-- name: closed_lanes
SELECT queue, lane, paused
FROM vpay.lanes
WHERE paused OR circuit_until > now()
ORDER BY paused DESC, queue, lane
LIMIT %(cap)s::bigint

-- name: given_up
-- Deliveries that ended undelivered within a day, as far as the last 10,000 attempts tell:
-- a delivery ends with an attempt, and attempts have an order while deliveries have none.
SELECT deliveries.state, count(*)
FROM (
    SELECT DISTINCT delivery_id
    FROM (
        SELECT delivery_id
        FROM vpay.delivery_attempts
        ORDER BY id DESC
        LIMIT 10000
    ) AS attempts
) AS latest
JOIN vpay.webhook_deliveries AS deliveries ON deliveries.id = latest.delivery_id
WHERE deliveries.state IN ('exhausted', 'gone', 'poisoned')
    AND deliveries.ended_at > now() - interval '1 day'
GROUP BY deliveries.state
ORDER BY deliveries.state
