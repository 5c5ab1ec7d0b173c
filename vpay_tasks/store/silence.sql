-- name: at_work
-- A session that waits for its client has sent its answer, or never had the question; any other
-- owes it still, also a commit that waits for a standby. NULL: not ours to see.
SELECT CASE
        WHEN backend_type IS NOT NULL
            THEN backend_type = 'client backend' AND wait_event_type IS DISTINCT FROM 'Client'
    END
FROM pg_catalog.pg_stat_activity
WHERE pid = %(pid)s::integer

-- name: old_work
-- Behind a pooler nobody knows which session is whose: whether any of this login's waits for a
-- standby, or has been at work for longer than an answer may take. NULL: not ours to see.
SELECT CASE
        WHEN bool_or(
            wait_event = 'SyncRep'
            OR (
                wait_event_type IS DISTINCT FROM 'Client'
                AND xact_start < clock_timestamp() - make_interval(secs => %(seconds)s::float8)
            )
        ) THEN true
        WHEN bool_or(backend_type IS NULL) THEN NULL
        ELSE false
    END
FROM pg_catalog.pg_stat_activity
WHERE usename = session_user
    AND pid <> pg_backend_pid()
