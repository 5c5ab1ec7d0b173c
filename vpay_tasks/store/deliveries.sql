-- name: read
-- Delivery and event in one statement, so that revision and bytes are of one moment. The
-- ages and the wait are the database's: no other clock decides.
SELECT
    deliveries.event_id,
    deliveries.merchant_id,
    deliveries.endpoint_id,
    deliveries.state,
    deliveries.attempts,
    greatest(extract(epoch FROM deliveries.next_attempt_at - now()), 0)::float8,
    deliveries.digest,
    deliveries.digest_rev,
    events.body,
    events.body_rev,
    extract(epoch FROM now())::float8
FROM vpay.webhook_deliveries AS deliveries
JOIN vpay.events ON events.id = deliveries.event_id
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
-- only at the attempt it was made for; a 2xx wins over any of them; a terminal state stays.
-- The log keeps the losers too: they were real requests.
WITH moved AS (
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
        AND (attempts = %(attempt)s::integer - 1 OR %(state)s::text = 'delivered')
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
SELECT next_attempt_at
FROM moved

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

-- name: pause_endpoint
-- The receiver said 410. Not if somebody touched the lane since the attempt began: a resume
-- is newer than the answer.
INSERT INTO vpay.lanes AS held (
    queue,
    lane,
    paused,
    changed_by,
    reason
)
VALUES (
    %(queue)s::text,
    %(lane)s::text,
    true,
    %(changed_by)s::text,
    %(reason)s::text
)
ON CONFLICT (queue, lane) DO UPDATE
SET paused = true,
    changed_by = EXCLUDED.changed_by,
    reason = EXCLUDED.reason,
    changed_at = now()
WHERE NOT held.paused
    AND held.changed_at <= to_timestamp(%(begun)s::float8)
RETURNING held.paused

-- name: endpoint_paused
SELECT paused
FROM vpay.lanes
WHERE queue = %(queue)s::text
    AND lane = %(lane)s::text

-- name: set_caps
-- What the settings say, and nothing else about the lane: a pause and who made it stay. A
-- cap that left the settings, also while no dispatcher ran, leaves its lane. In order of the
-- lane, since several dispatchers do this at once.
WITH given AS MATERIALIZED (
    SELECT
        lane,
        cap
    FROM unnest(%(lanes)s::text[], %(caps)s::integer[]) AS given (lane, cap)
    ORDER BY lane
), left_over AS MATERIALIZED (
    SELECT lanes.lane
    FROM vpay.lanes
    WHERE lanes.queue = %(queue)s::text
        AND lanes.cap IS NOT NULL
        AND NOT EXISTS (SELECT FROM given WHERE given.lane = lanes.lane)
    ORDER BY lanes.lane
    FOR UPDATE
), dropped AS (
    UPDATE vpay.lanes
    SET cap = NULL
    FROM left_over
    WHERE lanes.queue = %(queue)s::text
        AND lanes.lane = left_over.lane
)
INSERT INTO vpay.lanes AS held (
    queue,
    lane,
    cap,
    changed_by,
    changed_at
)
SELECT
    %(queue)s::text,
    given.lane,
    given.cap,
    'settings',
    to_timestamp(0)
FROM given
ORDER BY given.lane
ON CONFLICT (queue, lane) DO UPDATE
SET cap = EXCLUDED.cap
WHERE held.cap IS DISTINCT FROM EXCLUDED.cap
