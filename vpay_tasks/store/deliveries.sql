-- name: read
-- Delivery and event in one statement, so that revision and bytes are of one moment. The
-- ages and the wait are the database's: no other clock decides.
SELECT
    deliveries.event_id,
    deliveries.merchant_id,
    deliveries.endpoint_id,
    deliveries.state,
    deliveries.attempts,
    deliveries.ladder_from,
    greatest(extract(epoch FROM deliveries.next_attempt_at - now()), 0)::float8,
    coalesce(lanes.paused OR lanes.circuit_until > now(), false),
    deliveries.digest,
    deliveries.digest_rev,
    events.body,
    events.body_rev,
    extract(epoch FROM now())::float8
FROM vpay.webhook_deliveries AS deliveries
JOIN vpay.events ON events.id = deliveries.event_id
LEFT JOIN vpay.lanes
    ON lanes.queue = %(queue)s::text
    AND lanes.lane = deliveries.merchant_id || '/' || deliveries.endpoint_id
WHERE deliveries.id = %(delivery_id)s::text

-- name: stamp
-- Before the first signed POST of a revision. Fenced on what was read: a run that slept
-- through another's attempt finds the row moved on, and sends nothing.
UPDATE vpay.webhook_deliveries
SET digest = %(digest)s::bytea,
    digest_rev = %(revision)s::integer
WHERE id = %(delivery_id)s::text
    AND state = 'pending'
    AND attempts = %(attempts)s::integer
    AND coalesce(digest_rev, 0) < %(revision)s::integer
RETURNING id

-- name: record
-- One statement, so one commit: the delivery and the log can't disagree. A failure counts
-- only at the attempt it was made for, and on the ladder that it read: one that slept through
-- a replay would end what the replay has just begun. A 2xx wins over any of them; a terminal
-- state stays.
-- The log keeps the losers too: they were real requests. Any answer, also one that comes too
-- late to count, ends the endpoint's silence and closes its circuit: its lane is locked
-- before the delivery, as everywhere, and only when there is something to forget.
WITH troubled AS MATERIALIZED (
    SELECT
        lanes.queue,
        lanes.lane,
        lanes.circuit_trips
    FROM vpay.webhook_deliveries AS own
    JOIN vpay.lanes
        ON lanes.queue = %(queue)s::text
        AND lanes.lane = own.merchant_id || '/' || own.endpoint_id
    WHERE own.id = %(delivery_id)s::text
        AND %(status)s::smallint IS NOT NULL
        AND (lanes.silent > 0 OR lanes.circuit_trips > 0)
    FOR UPDATE OF lanes
), heard AS (
    UPDATE vpay.lanes
    SET silent = 0,
        circuit_until = NULL,
        circuit_trips = 0
    FROM troubled
    WHERE lanes.queue = troubled.queue
        AND lanes.lane = troubled.lane
    RETURNING troubled.circuit_trips > 0 AS closes
), moved AS (
    UPDATE vpay.webhook_deliveries
    SET state = %(state)s::text,
        attempts = greatest(attempts, %(attempt)s::integer),
        attempted_at = now(),
        next_attempt_at = now() + make_interval(secs => %(delay)s::float8),
        ended_at = CASE WHEN %(state)s::text <> 'pending' THEN now() END,
        last_status = %(status)s::smallint,
        last_excerpt = %(excerpt)s::text
    WHERE id = %(delivery_id)s::text
        AND state = 'pending'
        AND (%(state)s::text = 'delivered' OR (
            attempts = %(attempt)s::integer - 1
            AND ladder_from = %(ladder_from)s::integer
        ))
        AND (SELECT count(*) FROM heard) >= 0
    RETURNING next_attempt_at
), logged AS (
    INSERT INTO vpay.delivery_attempts (
        delivery_id,
        attempt,
        begun_at,
        duration_ms,
        status,
        counted,
        address,
        config_hash,
        key_ids,
        digest,
        excerpt,
        next_attempt_at
    )
    SELECT
        %(delivery_id)s::text,
        %(attempt)s::integer,
        to_timestamp(%(begun)s::float8),
        %(duration_ms)s::integer,
        %(status)s::smallint,
        EXISTS (SELECT FROM moved),
        %(address)s::text,
        %(config_hash)s::text,
        %(key_ids)s::text[],
        %(digest)s::bytea,
        %(excerpt)s::text,
        (SELECT moved.next_attempt_at FROM moved)
)
SELECT
    EXISTS (SELECT FROM moved),
    coalesce((SELECT bool_or(heard.closes) FROM heard), false)

-- name: poison
-- The stored bytes are not those that were signed before: nothing is sent any more.
UPDATE vpay.webhook_deliveries
SET state = 'poisoned',
    next_attempt_at = NULL,
    ended_at = now(),
    last_excerpt = %(excerpt)s::text
WHERE id = %(delivery_id)s::text
    AND state = 'pending'
    AND attempts = %(attempts)s::integer
RETURNING id

-- name: sweep_words
-- What receivers answered to events that stay longer than the rest, because a delivery still
-- waits: they may have said back what they were sent.
WITH deliveries AS MATERIALIZED (
    SELECT id
    FROM vpay.webhook_deliveries
    WHERE event_id = ANY(ARRAY(
        SELECT id
        FROM vpay.events
        WHERE seq = ANY(%(seqs)s::bigint[])
        LIMIT %(page)s::integer
    ))
), emptied AS (
    UPDATE vpay.delivery_attempts
    SET excerpt = ''
    WHERE delivery_id = ANY(ARRAY(SELECT id FROM deliveries))
        AND begun_at < now() - make_interval(secs => %(keep)s::float8)
        AND excerpt <> ''
)
UPDATE vpay.webhook_deliveries
SET last_excerpt = NULL
WHERE id = ANY(ARRAY(SELECT id FROM deliveries))
    AND attempted_at < now() - make_interval(secs => %(keep)s::float8)
    AND last_excerpt IS NOT NULL
