-- name: pause_gone
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

-- name: pause
-- An operator's: whatever the lane was before. One that is paused keeps its own reason.
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
RETURNING held.lane

-- name: resume
-- The circuit closes with it: whoever resumes an endpoint wants it tried now, and what it
-- missed before is no sign of what it does next.
UPDATE vpay.lanes
SET paused = false,
    silent = 0,
    circuit_until = NULL,
    circuit_trips = 0,
    changed_by = %(changed_by)s::text,
    reason = NULL,
    changed_at = now()
WHERE queue = %(queue)s::text
    AND lane = %(lane)s::text
    AND (paused OR circuit_trips > 0)
RETURNING lane

-- name: is_paused
SELECT paused
FROM vpay.lanes
WHERE queue = %(queue)s::text
    AND lane = %(lane)s::text

-- name: note_silence
-- An attempt without any HTTP answer. The last of a row of them opens the circuit, a silent
-- probe keeps it open for twice as long; one that began before it opened says nothing new.
INSERT INTO vpay.lanes AS held (
    queue,
    lane,
    silent,
    changed_by,
    changed_at
)
VALUES (
    %(queue)s::text,
    %(lane)s::text,
    1,
    'circuit',
    to_timestamp(0)
)
ON CONFLICT (queue, lane) DO UPDATE
SET silent = held.silent + 1,
    circuit_trips = CASE
        WHEN held.silent + 1 >= %(silent_max)s::integer THEN held.circuit_trips + 1
        ELSE 0
    END,
    circuit_until = CASE
        WHEN held.silent + 1 >= %(silent_max)s::integer THEN now() + make_interval(
            secs => least(
                %(open)s::float8 * 2 ^ least(held.circuit_trips, 20),
                %(open_max)s::float8
            )
        )
    END
WHERE held.circuit_trips = 0
    OR held.circuit_until <= to_timestamp(%(begun)s::float8)
RETURNING held.circuit_trips, extract(epoch FROM held.circuit_until - now())::float8

-- name: first_to_tell
-- Of many deliveries that are given up, the one whose run tells somebody.
INSERT INTO vpay.lanes AS held (
    queue,
    lane,
    exhausted_told_at,
    changed_by,
    changed_at
)
VALUES (
    %(queue)s::text,
    %(lane)s::text,
    now(),
    'exhausted',
    to_timestamp(0)
)
ON CONFLICT (queue, lane) DO UPDATE
SET exhausted_told_at = now()
WHERE held.exhausted_told_at IS NULL
    OR held.exhausted_told_at <= now() - make_interval(secs => %(every)s::float8)
RETURNING held.lane

-- name: standing
-- What a person asks of an endpoint: its lane, what is pending (counted up to a cap, in the
-- order of its index, so the oldest is the first), and the status of the latest attempt among
-- its newest deliveries and the oldest that wait.
SELECT
    asked.merchant_id,
    asked.endpoint_id,
    coalesce(lanes.paused, false),
    lanes.changed_by,
    lanes.reason,
    extract(epoch FROM now() - lanes.changed_at)::float8,
    coalesce(lanes.circuit_trips, 0),
    extract(epoch FROM lanes.circuit_until - now())::float8,
    waiting.pending::integer,
    extract(epoch FROM now() - waiting.oldest)::float8,
    (
        SELECT seen.last_status
        FROM (
            (
                SELECT
                    attempted_at,
                    last_status
                FROM vpay.webhook_deliveries
                WHERE merchant_id = asked.merchant_id
                    AND endpoint_id = asked.endpoint_id
                ORDER BY created_at DESC, id DESC
                LIMIT 100
            )
            UNION ALL
            (
                SELECT
                    attempted_at,
                    last_status
                FROM vpay.webhook_deliveries
                WHERE merchant_id = asked.merchant_id
                    AND endpoint_id = asked.endpoint_id
                    AND state = 'pending'
                ORDER BY created_at, id
                LIMIT 100
            )
        ) AS seen
        WHERE seen.attempted_at IS NOT NULL
        ORDER BY seen.attempted_at DESC
        LIMIT 1
    )
FROM unnest(%(merchant_ids)s::text[], %(endpoint_ids)s::text[])
    WITH ORDINALITY AS asked (merchant_id, endpoint_id, place)
LEFT JOIN vpay.lanes
    ON lanes.queue = %(queue)s::text
    AND lanes.lane = asked.merchant_id || '/' || asked.endpoint_id
CROSS JOIN LATERAL (
    SELECT
        count(*) AS pending,
        min(first.created_at) AS oldest
    FROM (
        SELECT created_at
        FROM vpay.webhook_deliveries
        WHERE merchant_id = asked.merchant_id
            AND endpoint_id = asked.endpoint_id
            AND state = 'pending'
        ORDER BY created_at, id
        LIMIT %(cap)s::integer
    ) AS first
) AS waiting
ORDER BY asked.place

-- name: waiting_endpoints
-- Endpoints with anything pending, in the settings or not: one step of the index for each.
WITH RECURSIVE walk AS (
    (
        SELECT
            merchant_id,
            endpoint_id
        FROM vpay.webhook_deliveries
        WHERE state = 'pending'
        ORDER BY merchant_id, endpoint_id
        LIMIT 1
    )
    UNION ALL
    SELECT
        following.merchant_id,
        following.endpoint_id
    FROM walk
    CROSS JOIN LATERAL (
        SELECT
            merchant_id,
            endpoint_id
        FROM vpay.webhook_deliveries
        WHERE state = 'pending'
            AND (merchant_id, endpoint_id) > (walk.merchant_id, walk.endpoint_id)
        ORDER BY merchant_id, endpoint_id
        LIMIT 1
    ) AS following
)
SELECT
    merchant_id,
    endpoint_id
FROM walk
LIMIT 1000

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
