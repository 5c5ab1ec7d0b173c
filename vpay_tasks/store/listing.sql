-- name: page_listed
-- A merchant's events as they were listed, from behind a place: the bytes as they are stored.
SELECT
    list_seq,
    id,
    type,
    created_at,
    body
FROM vpay.events
WHERE merchant_id = %(merchant_id)s::text
    AND list_seq > %(after)s::bigint
ORDER BY list_seq
LIMIT %(limit)s::integer

-- name: place_of
SELECT list_seq
FROM vpay.events
WHERE id = %(event_id)s::text
    AND merchant_id = %(merchant_id)s::text
    AND list_seq IS NOT NULL

-- name: listed_body
SELECT body
FROM vpay.events
WHERE id = %(event_id)s::text
    AND merchant_id = %(merchant_id)s::text
    AND list_seq IS NOT NULL

-- name: newest
-- For a person. A filter that is NULL leaves all.
SELECT
    id,
    merchant_id,
    type,
    object_id,
    fanout_state,
    fanout_attempts,
    body_rev,
    created_at,
    (
        SELECT count(*)
        FROM vpay.webhook_deliveries
        WHERE webhook_deliveries.event_id = events.id
    )::integer
FROM vpay.events
WHERE (%(event_id)s::text IS NULL OR id = %(event_id)s::text)
    AND (%(merchant_id)s::text IS NULL OR merchant_id = %(merchant_id)s::text)
    AND (%(state)s::text IS NULL OR fanout_state = %(state)s::text)
    AND (%(types)s::text[] IS NULL OR type = ANY(%(types)s::text[]))
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
ORDER BY seq DESC
LIMIT %(limit)s::integer
