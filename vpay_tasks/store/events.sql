-- name: append
-- In the transaction of the transition it reports, by nothing else.
INSERT INTO vpay.events (
    id,
    merchant_id,
    type,
    object_id,
    customer_id,
    livemode,
    body
)
VALUES (
    %(event_id)s::text,
    %(merchant_id)s::text,
    %(type)s::text,
    %(object_id)s::text,
    %(customer_id)s::text,
    %(livemode)s::boolean,
    %(body)s::bytea
)

-- name: take_turn
-- A statement of its own, first in the transaction: what follows gets its snapshot behind
-- the lock, and the lock goes only once the commit is visible. So list_seq, taken under it,
-- is in commit order. 86 ('V') is this project's class of advisory locks.
SELECT pg_advisory_xact_lock(86, hashtext('vpay fan-out'))

-- name: page
-- SKIP LOCKED: an event that someone holds (an erasure) stops nobody.
SELECT
    id,
    merchant_id,
    type
FROM vpay.events
WHERE fanout_state = 'pending'
ORDER BY seq
LIMIT %(page)s::integer
FOR UPDATE SKIP LOCKED

-- name: flip
-- Deliveries come from the rows that this very flip returned: an event that another pass
-- moved first can't be fanned out twice. A delivery that stands already keeps its own job.
WITH held AS MATERIALIZED (
    SELECT seq
    FROM vpay.events
    WHERE id = ANY(%(event_ids)s::text[])
        AND fanout_state = 'pending'
    ORDER BY seq
    FOR UPDATE SKIP LOCKED
), numbered AS MATERIALIZED (
    SELECT
        seq,
        nextval('vpay.event_list_seq') AS list_seq
    FROM held
), flipped AS (
    UPDATE vpay.events
    SET fanout_state = 'done',
        list_seq = numbered.list_seq
    FROM numbered
    WHERE events.seq = numbered.seq
    RETURNING events.id, events.merchant_id, events.seq
), wanted AS (
    SELECT
        given.delivery_id,
        given.endpoint_id,
        flipped.id AS event_id,
        flipped.merchant_id,
        flipped.seq
    FROM flipped
    JOIN unnest(
        %(for_events)s::text[],
        %(endpoint_ids)s::text[],
        %(delivery_ids)s::text[]
    ) AS given (event_id, endpoint_id, delivery_id)
        ON given.event_id = flipped.id
    ORDER BY flipped.seq, given.endpoint_id
), made AS (
    INSERT INTO vpay.webhook_deliveries (
        id,
        event_id,
        merchant_id,
        endpoint_id
    )
    SELECT
        delivery_id,
        event_id,
        merchant_id,
        endpoint_id
    FROM wanted
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
SELECT
    (SELECT count(*) FROM flipped)::integer,
    (SELECT count(*) FROM made)::integer

-- name: count_failure
-- In a transaction of its own, since the one that failed is gone. At the limit the event
-- leaves the drain, is listed, and waits for an operator; the caller alerts when told so.
WITH held AS MATERIALIZED (
    SELECT seq
    FROM vpay.events
    WHERE id = %(event_id)s::text
        AND fanout_state = 'pending'
    FOR UPDATE SKIP LOCKED
)
UPDATE vpay.events
SET fanout_attempts = fanout_attempts + 1,
    fanout_state = CASE
        WHEN fanout_attempts + 1 >= %(limit)s::integer THEN 'failed'
        ELSE 'pending'
    END,
    list_seq = CASE
        WHEN fanout_attempts + 1 >= %(limit)s::integer THEN nextval('vpay.event_list_seq')
    END
FROM held
WHERE events.seq = held.seq
RETURNING events.fanout_state = 'failed'

-- name: page_of_customer
-- What an erasure has still to look at. Locked in the drain's own order.
SELECT
    seq,
    body
FROM vpay.events
WHERE customer_id = %(customer_id)s::text
    AND NOT redacted
ORDER BY seq
LIMIT %(page)s::integer
FOR UPDATE

-- name: redact
-- A newer revision: the digest of a delivery under way is stamped anew, and its next attempt
-- sends these bytes. What said nothing stays as it was signed.
WITH given AS MATERIALIZED (
    SELECT
        seq,
        body
    FROM unnest(%(seqs)s::bigint[], %(bodies)s::bytea[]) AS given (seq, body)
)
UPDATE vpay.events
SET redacted = true,
    body_rev = CASE WHEN events.body = given.body THEN body_rev ELSE body_rev + 1 END,
    body = given.body
FROM given
WHERE events.seq = given.seq
RETURNING events.seq

-- name: page_behind
-- A page of the oldest behind the cursor, whatever their age: seq and age go together, so a
-- young one says that what follows is young, and nothing beyond the page is read.
SELECT
    seq,
    created_at < now() - make_interval(secs => %(keep)s::float8)
FROM vpay.events
WHERE seq > %(after)s::bigint
ORDER BY seq
LIMIT %(page)s::integer

-- name: sweep_old
-- By arrays, so that the planner expects a few rows of tables that have millions, and a
-- delivery's state is looked at behind its event: by the index of the pending ones, all of
-- them would be read. What a delivery still waits to send stays, and what somebody holds. A
-- replay holds its delivery: judged as it was before, a pending one would go.
WITH told AS MATERIALIZED (
    SELECT
        id,
        event_id
    FROM vpay.webhook_deliveries
    WHERE event_id = ANY(ARRAY(
        SELECT id
        FROM vpay.events
        WHERE seq = ANY(%(seqs)s::bigint[])
    ))
), held AS MATERIALIZED (
    SELECT
        id,
        state
    FROM vpay.webhook_deliveries
    WHERE id = ANY(ARRAY(SELECT id FROM told))
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT told.event_id
    FROM told
    LEFT JOIN held ON held.id = told.id
    WHERE held.state IS NULL OR held.state = 'pending'
), old AS MATERIALIZED (
    SELECT
        seq,
        id
    FROM vpay.events
    WHERE seq = ANY(%(seqs)s::bigint[])
        AND fanout_state <> 'pending'
        AND id <> ALL(ARRAY(SELECT event_id FROM waiting))
    ORDER BY seq
    LIMIT %(page)s::integer
    FOR UPDATE SKIP LOCKED
), attempts AS (
    DELETE FROM vpay.delivery_attempts
    WHERE delivery_id = ANY(ARRAY(
        SELECT id
        FROM vpay.webhook_deliveries
        WHERE event_id = ANY(ARRAY(SELECT id FROM old))
    ))
), deliveries AS (
    DELETE FROM vpay.webhook_deliveries
    WHERE event_id = ANY(ARRAY(SELECT id FROM old))
)
DELETE FROM vpay.events
WHERE seq = ANY(ARRAY(SELECT seq FROM old))
RETURNING seq

-- name: rearm
-- An operator's: back among the pending, with all its tries, and listed again once it is
-- fanned out or failed anew.
UPDATE vpay.events
SET fanout_state = 'pending',
    fanout_attempts = 0,
    list_seq = NULL
WHERE id = %(event_id)s::text
    AND fanout_state = 'failed'
RETURNING id
