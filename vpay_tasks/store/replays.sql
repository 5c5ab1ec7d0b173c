-- name: newest
-- For a person: the newest first within each endpoint. A filter that is NULL leaves all.
SELECT
    deliveries.id,
    deliveries.event_id,
    events.type,
    deliveries.merchant_id,
    deliveries.endpoint_id,
    deliveries.state,
    deliveries.attempts,
    deliveries.replays,
    deliveries.last_status,
    extract(epoch FROM now() - deliveries.created_at)::float8,
    extract(epoch FROM deliveries.next_attempt_at - now())::float8
FROM vpay.webhook_deliveries AS deliveries
JOIN vpay.events ON events.id = deliveries.event_id
WHERE (%(merchant_id)s::text IS NULL OR deliveries.merchant_id = %(merchant_id)s::text)
    AND (%(endpoint_id)s::text IS NULL OR deliveries.endpoint_id = %(endpoint_id)s::text)
    AND (%(event_id)s::text IS NULL OR deliveries.event_id = %(event_id)s::text)
    AND (%(states)s::text[] IS NULL OR deliveries.state = ANY(%(states)s::text[]))
    AND (%(types)s::text[] IS NULL OR events.type = ANY(%(types)s::text[]))
    AND (%(since)s::timestamptz IS NULL OR deliveries.created_at >= %(since)s::timestamptz)
ORDER BY
    deliveries.merchant_id DESC,
    deliveries.endpoint_id DESC,
    deliveries.created_at DESC,
    deliveries.id DESC
LIMIT %(limit)s::integer

-- name: page_matching
-- The ids of a replay, oldest first, from where the last page ended. What is made while it
-- runs is not part of it: one that is slower than the day's events would never end.
SELECT
    deliveries.merchant_id,
    deliveries.endpoint_id,
    deliveries.created_at,
    deliveries.id
FROM vpay.webhook_deliveries AS deliveries
WHERE (%(merchant_id)s::text IS NULL OR deliveries.merchant_id = %(merchant_id)s::text)
    AND (%(endpoint_id)s::text IS NULL OR deliveries.endpoint_id = %(endpoint_id)s::text)
    AND (%(event_id)s::text IS NULL OR deliveries.event_id = %(event_id)s::text)
    AND (%(states)s::text[] IS NULL OR deliveries.state = ANY(%(states)s::text[]))
    -- A value, looked up by its key: an EXISTS may be answered by hashing all events.
    AND (%(types)s::text[] IS NULL OR (
        SELECT events.type
        FROM vpay.events
        WHERE events.id = deliveries.event_id
    ) = ANY(%(types)s::text[]))
    AND (%(since)s::timestamptz IS NULL OR deliveries.created_at >= %(since)s::timestamptz)
    AND deliveries.created_at <= %(until)s::timestamptz
    AND (deliveries.merchant_id, deliveries.endpoint_id, deliveries.created_at, deliveries.id) > (
        %(after_merchant)s::text,
        %(after_endpoint)s::text,
        %(after_created)s::timestamptz,
        %(after_id)s::text
    )
ORDER BY
    deliveries.merchant_id,
    deliveries.endpoint_id,
    deliveries.created_at,
    deliveries.id
LIMIT %(page)s::integer

-- name: page_missed
-- Events of a merchant that were fanned out without this endpoint: it was not there yet, or
-- did not name their type. A page of the walk along the merchant's events, whatever is missed
-- among them, so that a statement costs the same where nothing is; its last row says where to
-- go on. Each event's delivery is looked up by its key.
WITH walked AS MATERIALIZED (
    SELECT
        created_at,
        seq,
        id,
        type,
        fanout_state
    FROM vpay.events
    WHERE merchant_id = %(merchant_id)s::text
        AND (created_at, seq) > (%(after_created)s::timestamptz, %(after_seq)s::bigint)
    ORDER BY created_at, seq
    LIMIT %(page)s::integer
), judged AS (
    SELECT
        walked.created_at,
        walked.seq,
        walked.id,
        walked.fanout_state = 'done'
            AND walked.type = ANY(%(types)s::text[])
            AND delivery.id IS NULL AS missed,
        row_number() OVER (ORDER BY walked.created_at, walked.seq) AS place,
        count(*) OVER () AS seen
    FROM walked
    LEFT JOIN LATERAL (
        SELECT deliveries.id
        FROM vpay.webhook_deliveries AS deliveries
        WHERE deliveries.event_id = walked.id
            AND deliveries.endpoint_id = %(endpoint_id)s::text
        LIMIT 1
    ) AS delivery ON true
)
SELECT
    created_at,
    seq,
    id,
    missed,
    seen
FROM judged
WHERE missed
    OR place = seen
ORDER BY place

-- name: make_missed
-- As the fan-out makes them: a delivery and its job, or neither, and none twice.
WITH made AS (
    INSERT INTO vpay.webhook_deliveries (
        id,
        event_id,
        merchant_id,
        endpoint_id
    )
    SELECT
        given.delivery_id,
        events.id,
        events.merchant_id,
        %(endpoint_id)s::text
    FROM unnest(%(event_ids)s::text[], %(delivery_ids)s::text[]) AS given (event_id, delivery_id)
    JOIN vpay.events
        ON events.id = given.event_id
        AND events.merchant_id = %(merchant_id)s::text
    ON CONFLICT (event_id, endpoint_id) DO NOTHING
    RETURNING id, merchant_id, endpoint_id
), queued AS (
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
        %(key_prefix)s::text || made.id,
        made.merchant_id || '/' || made.endpoint_id,
        true,
        jsonb_build_object('delivery_id', made.id)
    FROM made
    ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
)
SELECT count(*)::integer
FROM made

-- name: replay
-- The jobs first, in id order as everywhere: one that is leased may be at its POST, or about
-- to end with its delivery, so that delivery is left alone. While the others are locked nobody
-- can claim them; then the deliveries, which a late record may hold. A job that stands is made
-- due – a parked one too: whoever replays it wants it tried – and a missing one is made.
-- Attempts go on counting, and the ladder begins anew where they stand.
WITH job AS MATERIALIZED (
    SELECT
        jobs.id,
        jobs.lease IS NOT NULL AS busy,
        given.id AS delivery_id
    FROM unnest(%(ids)s::text[]) AS given (id)
    JOIN vpay.jobs ON jobs.dedupe_key = %(key_prefix)s::text || given.id
    ORDER BY jobs.id
    FOR UPDATE OF jobs
), held AS MATERIALIZED (
    SELECT deliveries.id
    FROM vpay.webhook_deliveries AS deliveries
    WHERE deliveries.id = ANY(%(ids)s::text[])
        AND deliveries.id <> ALL(ARRAY(SELECT job.delivery_id FROM job WHERE job.busy))
    ORDER BY deliveries.id
    FOR UPDATE
), moved AS (
    UPDATE vpay.webhook_deliveries AS deliveries
    SET state = 'pending',
        replays = deliveries.replays + 1,
        ladder_from = deliveries.attempts,
        next_attempt_at = NULL,
        ended_at = NULL
    FROM held
    WHERE deliveries.id = held.id
    RETURNING deliveries.id, deliveries.merchant_id, deliveries.endpoint_id
), freed AS (
    UPDATE vpay.jobs
    SET run_at = now(),
        due = true,
        parked_at = NULL,
        dead_reason = NULL,
        unknown_since = NULL,
        failures = 0,
        crashes = 0
    FROM job
    JOIN moved ON moved.id = job.delivery_id
    WHERE jobs.id = job.id
), queued AS (
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
        %(key_prefix)s::text || moved.id,
        moved.merchant_id || '/' || moved.endpoint_id,
        true,
        jsonb_build_object('delivery_id', moved.id)
    FROM moved
    WHERE moved.id <> ALL(ARRAY(SELECT job.delivery_id FROM job))
    ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
)
SELECT
    (SELECT count(*) FROM moved)::integer,
    (SELECT count(*) FROM job WHERE job.busy)::integer

-- name: facts
-- One delivery, with its event and its job, for a person.
SELECT
    deliveries.id,
    deliveries.event_id,
    events.type,
    deliveries.merchant_id,
    deliveries.endpoint_id,
    deliveries.state,
    deliveries.attempts,
    deliveries.replays,
    deliveries.created_at,
    deliveries.next_attempt_at,
    deliveries.ended_at,
    encode(deliveries.digest, 'hex'),
    deliveries.digest_rev,
    events.body_rev,
    CASE
        WHEN jobs.id IS NULL THEN NULL
        WHEN jobs.parked_at IS NOT NULL THEN 'parked: ' || jobs.dead_reason
        WHEN jobs.started_at IS NOT NULL THEN 'running'
        WHEN jobs.locked_at IS NOT NULL THEN 'claimed'
        WHEN jobs.run_at > now() THEN 'scheduled'
        ELSE 'ready'
    END
FROM vpay.webhook_deliveries AS deliveries
JOIN vpay.events ON events.id = deliveries.event_id
LEFT JOIN vpay.jobs ON jobs.dedupe_key = %(key_prefix)s::text || deliveries.id
WHERE deliveries.id = %(delivery_id)s::text

-- name: attempts_of
SELECT
    attempt,
    begun_at,
    duration_ms,
    status,
    counted,
    address,
    key_ids,
    encode(digest, 'hex'),
    next_attempt_at,
    excerpt
FROM vpay.delivery_attempts
WHERE delivery_id = %(delivery_id)s::text
ORDER BY id
LIMIT %(limit)s::integer
