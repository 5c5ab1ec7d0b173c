-- name: at_work
-- A session whose statement runs, or whose commit waits for a standby, owes its answer still.
-- One that waits for its client has sent it, or never had the question. Everybody sees this much
-- of sessions of one's own role.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_stat_activity
    WHERE pid = %(pid)s::integer
        AND state = 'active'
        AND wait_event_type IS DISTINCT FROM 'Client'
)

-- name: commits_wait
-- Behind a pooler nobody knows which session is whose.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_stat_activity
    WHERE wait_event = 'SyncRep'
)
