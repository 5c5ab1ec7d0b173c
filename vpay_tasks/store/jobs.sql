-- name: enqueue
-- DO NOTHING, never DO UPDATE: an upsert that moved run_at would turn a back-off ladder
-- into a hot loop. A row without a delay is due at once, also in its lane's walk.
INSERT INTO vpay.jobs (queue, kind, dedupe_key, payload, priority, lane, run_at, due)
VALUES (
    %(queue)s::text,
    %(kind)s::text,
    %(dedupe_key)s::text,
    %(payload)s::jsonb,
    %(priority)s::smallint,
    %(lane)s::text,
    now() + make_interval(secs => %(delay)s::float8),
    %(lane)s::text IS NOT NULL AND %(delay)s::float8 <= 0
)
ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
RETURNING id

-- name: find_by_key
SELECT id
FROM vpay.jobs
WHERE dedupe_key = %(dedupe_key)s::text

-- name: pull_forward
-- One statement for every case: a row that settles while this waits for it is judged anew
-- by its newest version, so a nudge can't fall between "running" and "waiting". What is added
-- to the payload of a row that runs is for its next run.
UPDATE vpay.jobs
SET payload = payload || %(adding)s::jsonb,
    run_at = CASE
        WHEN lease IS NULL THEN least(run_at, now() + make_interval(secs => %(wait)s::float8))
        ELSE run_at
    END,
    due = CASE
        WHEN lease IS NULL THEN due OR (lane IS NOT NULL AND %(wait)s::float8 <= 0)
        ELSE due
    END,
    poked = CASE
        WHEN started_at IS NULL THEN poked
        ELSE least(poked, make_interval(secs => %(floor)s::float8))
    END
WHERE dedupe_key = %(dedupe_key)s::text
    AND parked_at IS NULL
    AND (
        (lease IS NULL AND run_at > now() + make_interval(secs => %(wait)s::float8))
        OR (started_at IS NOT NULL
            AND (poked IS NULL OR poked > make_interval(secs => %(floor)s::float8)))
        OR NOT payload @> %(adding)s::jsonb
    )
RETURNING id

-- name: stands_by
-- The other side of pull_forward, without a lock or a write.
SELECT
    parked_at IS NOT NULL
    OR (
        payload @> %(adding)s::jsonb
        AND CASE
            WHEN lease IS NULL THEN run_at <= now() + make_interval(secs => %(wait)s::float8)
            WHEN started_at IS NULL THEN true
            ELSE coalesce(poked <= make_interval(secs => %(floor)s::float8), false)
        END
    )
FROM vpay.jobs
WHERE dedupe_key = %(dedupe_key)s::text

-- name: unpark
-- What was waited for has come again: a parked job of it runs, from the ladder's beginning.
UPDATE vpay.jobs
SET parked_at = NULL,
    dead_reason = NULL,
    unknown_since = NULL,
    failures = 0,
    crashes = 0,
    run_at = now(),
    due = lane IS NOT NULL
WHERE dedupe_key = %(dedupe_key)s::text
    AND parked_at IS NOT NULL
RETURNING id

-- name: wake
-- Sent by itself, never in a transaction that writes: notifying commits are serialised
-- database-wide, and a full queue would fail the commit.
SELECT pg_notify('vpay_jobs', '')

-- name: listen
LISTEN vpay_jobs

-- name: start
-- The swap that lets one copy of a message run. It waits for a row that somebody holds, and
-- then judges the row as it is. A worker that doesn't know a kind leaves unknown_since be. A
-- swap that overrules our own start, whose answer was lost, is that start and no second one.
WITH held AS MATERIALIZED (
    SELECT jobs.id, given.place
    FROM vpay.jobs
    JOIN unnest(%(ids)s::bigint[], %(leases)s::uuid[])
        WITH ORDINALITY AS given (id, lease, place)
        ON jobs.id = given.id AND jobs.lease = given.lease
    ORDER BY jobs.id
    FOR UPDATE OF jobs
)
UPDATE vpay.jobs
SET lease = %(run)s::uuid,
    locked_by = %(worker)s::text,
    started_at = now(),
    lease_until = now() + make_interval(secs => %(run_lease)s::float8),
    starts = starts + (started_at IS NULL)::integer,
    poked = NULL,
    unknown_since = CASE WHEN kind = ANY(%(known)s::text[]) THEN NULL ELSE unknown_since END
FROM held
WHERE jobs.id = held.id
RETURNING
    held.place,
    jobs.id,
    jobs.kind,
    jobs.queue,
    jobs.payload,
    jobs.failures,
    jobs.crashes,
    coalesce(extract(epoch FROM now() - jobs.unknown_since), 0)::float8

-- name: release
-- Gives rows back by token, without a crash: claimed and not started, or started and
-- abandoned by a process that ends in the next instruction.
WITH held AS MATERIALIZED (
    SELECT jobs.id
    FROM vpay.jobs
    JOIN unnest(%(ids)s::bigint[], %(leases)s::uuid[]) AS given (id, lease)
        ON jobs.id = given.id AND jobs.lease = given.lease
    ORDER BY jobs.id
    FOR UPDATE OF jobs
)
UPDATE vpay.jobs
SET lease = NULL,
    locked_by = NULL,
    locked_at = NULL,
    lease_until = NULL,
    started_at = NULL,
    poked = NULL,
    due = lane IS NOT NULL
FROM held
WHERE jobs.id = held.id
RETURNING jobs.id

-- name: adopt_unknown
-- A deploy brought the code: rows parked for want of it run again.
UPDATE vpay.jobs
SET parked_at = NULL,
    dead_reason = NULL,
    unknown_since = NULL,
    run_at = now(),
    due = lane IS NOT NULL
WHERE id IN (
    SELECT id
    FROM vpay.jobs
    WHERE parked_at IS NOT NULL
        AND dead_reason = 'unknown_kind'
        AND kind = ANY(%(kinds)s::text[])
    ORDER BY queue, parked_at
    LIMIT 500
    FOR UPDATE SKIP LOCKED
)
RETURNING id
