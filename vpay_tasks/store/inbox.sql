-- name: keep
-- One row however often and by how many processes at once: a repeat waits for the row's lock
-- and counts. The first body stands, whatever comes after it.
INSERT INTO vpay.inbox_events AS kept (
    vendor,
    account,
    event_id,
    type,
    reference,
    lane,
    verified_by,
    digest,
    body,
    state,
    reason,
    ended_at
)
VALUES (
    %(vendor)s::text,
    %(account)s::text,
    %(event_id)s::text,
    %(type)s::text,
    %(reference)s::text,
    %(lane)s::text,
    %(verified_by)s::text,
    %(digest)s::bytea,
    %(body)s::bytea,
    CASE WHEN %(unparseable)s::text IS NULL THEN 'accepted' ELSE 'dead' END,
    %(unparseable)s::text,
    CASE WHEN %(unparseable)s::text IS NOT NULL THEN now() END
)
ON CONFLICT (vendor, account, event_id) DO UPDATE
SET deliveries = kept.deliveries + 1,
    delivered_at = now(),
    conflicts = kept.conflicts + (kept.digest <> EXCLUDED.digest)::integer,
    body = CASE
        WHEN kept.body = '' AND kept.digest = EXCLUDED.digest THEN EXCLUDED.body
        ELSE kept.body
    END
RETURNING
    kept.id,
    kept.state,
    kept.verdict,
    kept.reason,
    kept.reference,
    kept.lane,
    kept.deliveries,
    kept.digest = %(digest)s::bytea,
    kept.conflicts

-- name: read
-- The wait is the database's: no other clock decides.
SELECT
    vendor,
    account,
    event_id,
    type,
    reference,
    state,
    attempts,
    deliveries,
    received_at AT TIME ZONE 'UTC',
    coalesce(greatest(extract(epoch FROM next_attempt_at - now()), 0), 0)::float8,
    body
FROM vpay.inbox_events
WHERE id = %(row_id)s::bigint

-- name: outcomes
-- What became of rows that somebody waits for, of those that are over or have failed once.
SELECT
    id,
    state,
    verdict,
    reason
FROM vpay.inbox_events
WHERE id = ANY(%(row_ids)s::bigint[])
    AND state <> 'accepted'

-- name: fail
-- Fenced on the attempts that were read: a run that slept through another's counts nothing.
UPDATE vpay.inbox_events
SET state = 'retrying',
    attempts = attempts + 1,
    last_error = %(error)s::text,
    next_attempt_at = now() + make_interval(secs => %(delay)s::float8)
WHERE id = %(row_id)s::bigint
    AND ended_at IS NULL
    AND attempts = %(attempts)s::integer
RETURNING id

-- name: end
-- In the transaction that also ends the job, behind the handler's own writes. A row that is
-- over already moves nothing, and takes those writes back.
UPDATE vpay.inbox_events
SET state = %(state)s::text,
    verdict = %(verdict)s::text,
    reason = %(reason)s::text,
    attempts = attempts + %(failed)s::integer,
    last_error = coalesce(%(error)s::text, last_error),
    next_attempt_at = NULL,
    ended_at = now()
WHERE id = %(row_id)s::bigint
    AND ended_at IS NULL
RETURNING id

-- name: rearm
-- The walk begins anew, whatever the row had come to; but not without its bytes.
UPDATE vpay.inbox_events
SET state = 'accepted',
    verdict = NULL,
    reason = NULL,
    attempts = 0,
    next_attempt_at = NULL,
    ended_at = NULL
WHERE id = %(row_id)s::bigint
    AND state = ANY(%(states)s::text[])
    AND body <> ''
RETURNING lane

-- name: scan
-- Rows that wait with no job to act on them: somebody deleted it. Row and job end in one
-- commit, so a row that is seen waiting without its job has none.
WITH orphans AS MATERIALIZED (
    SELECT
        id,
        lane
    FROM vpay.inbox_events AS kept
    WHERE ended_at IS NULL
        AND NOT EXISTS (
            SELECT
            FROM vpay.jobs
            WHERE dedupe_key = %(key_prefix)s::text || kept.id
        )
    ORDER BY received_at
    LIMIT %(page)s::integer
)
INSERT INTO vpay.jobs (
    queue,
    kind,
    priority,
    dedupe_key,
    lane,
    due,
    payload
)
SELECT
    %(queue)s::text,
    %(kind)s::text,
    %(priority)s::smallint,
    %(key_prefix)s::text || orphans.id,
    orphans.lane,
    true,
    jsonb_build_object('inbox_id', orphans.id)
FROM orphans
ORDER BY orphans.id
ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
RETURNING id

-- name: sweep_inbox
-- Those that somebody holds are left for the next time. A literal limit (PAGE): by a parameter
-- the planner expects a tenth of the table, and reads it whole.
WITH over AS MATERIALIZED (
    SELECT id
    FROM vpay.inbox_events
    WHERE state IN ('done', 'ignored')
        AND ended_at < now() - make_interval(secs => %(age)s::float8)
    ORDER BY ended_at
    LIMIT 500
    FOR UPDATE SKIP LOCKED
)
DELETE FROM vpay.inbox_events AS held
USING over
WHERE held.id = over.id
RETURNING held.id

-- name: sweep_bodies
-- Of what was given up and nobody took up: it may name a payer. The row stays, so that a repeat
-- is known as one, and a repeat of the same bytes brings them back. A literal limit as above.
UPDATE vpay.inbox_events
SET body = '',
    last_error = NULL
WHERE id = ANY(ARRAY(
    SELECT id
    FROM vpay.inbox_events
    WHERE state = 'dead'
        AND ended_at < now() - make_interval(secs => %(keep)s::float8)
        AND body <> ''
    ORDER BY ended_at
    LIMIT 500
    FOR UPDATE SKIP LOCKED
))
RETURNING id

-- name: page
-- The newest first, without a body: who may list need not read those. A filter that is null
-- lets everything through.
SELECT
    id,
    vendor,
    account,
    event_id,
    type,
    reference,
    state,
    verdict,
    reason,
    attempts,
    deliveries,
    conflicts,
    last_error,
    verified_by,
    received_at AT TIME ZONE 'UTC',
    delivered_at AT TIME ZONE 'UTC',
    next_attempt_at AT TIME ZONE 'UTC',
    ended_at AT TIME ZONE 'UTC'
FROM vpay.inbox_events
WHERE (%(row_id)s::bigint IS NULL OR id = %(row_id)s::bigint)
    AND (%(state)s::text IS NULL OR state = %(state)s::text)
    AND (%(vendor)s::text IS NULL OR vendor = %(vendor)s::text)
    AND (%(type)s::text IS NULL OR type = %(type)s::text)
    AND (%(reference)s::text IS NULL OR reference = left(%(reference)s::text, 255))
    AND (%(event_id)s::text IS NULL OR event_id = %(event_id)s::text)
    AND (%(before)s::bigint IS NULL OR id < %(before)s::bigint)
ORDER BY id DESC
LIMIT %(limit)s::integer

-- name: body
SELECT body
FROM vpay.inbox_events
WHERE id = %(row_id)s::bigint

-- name: waiting
-- For alarms, at every scrape: each from the front of its partial index, counting stops at
-- :cap. The age is that of the oldest that is neither granted nor given up.
SELECT
    (
        SELECT extract(epoch FROM now() - received_at)::float8
        FROM vpay.inbox_events
        WHERE ended_at IS NULL
        ORDER BY received_at
        LIMIT 1
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM vpay.inbox_events
            WHERE ended_at IS NULL
            ORDER BY received_at
            LIMIT %(cap)s::bigint
        ) AS open
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM vpay.inbox_events
            WHERE state = 'dead'
            ORDER BY ended_at
            LIMIT %(cap)s::bigint
        ) AS dead
    )
