-- name: in_doubt
-- Charges that wait for a person: without a word for a day, or contradicted. Oldest first.
WITH wanted AS MATERIALIZED (
    (
        SELECT id
        FROM vpay.charges
        WHERE state = 'unresolved'
        ORDER BY created_at
        LIMIT %(cap)s::integer
    )
    UNION
    (
        SELECT id
        FROM vpay.charges
        WHERE contradicted_at IS NOT NULL
        ORDER BY contradicted_at
        LIMIT %(cap)s::integer
    )
)
SELECT
    charges.id,
    charges.provider_code,
    charges.state,
    charges.contradicted_at IS NOT NULL,
    charges.amount,
    charges.currency,
    extract(epoch FROM clock_timestamp() - charges.created_at)::float8,
    charges.polls,
    extract(epoch FROM clock_timestamp() - charges.last_asked_at)::float8,
    extract(epoch FROM jobs.run_at - clock_timestamp())::float8,
    jobs.dead_reason,
    jobs.started_at IS NOT NULL,
    count(*) OVER ()
FROM wanted
JOIN vpay.charges ON charges.id = wanted.id
LEFT JOIN vpay.jobs ON jobs.dedupe_key = %(prefix)s::text || charges.id
ORDER BY charges.created_at, charges.id
LIMIT %(rows)s::integer

-- name: live
-- Of the longest untouched, as many as :cap, the oldest.
WITH wanted AS MATERIALIZED (
    SELECT id
    FROM vpay.charges
    WHERE state IN ('submitting', 'submitted', 'pending', 'unresolved')
    ORDER BY updated_at, id
    LIMIT (SELECT %(cap)s::integer)
)
SELECT
    charges.id,
    charges.provider_code,
    charges.state,
    charges.contradicted_at IS NOT NULL,
    charges.amount,
    charges.currency,
    extract(epoch FROM clock_timestamp() - charges.created_at)::float8,
    charges.polls,
    extract(epoch FROM clock_timestamp() - charges.last_asked_at)::float8,
    extract(epoch FROM jobs.run_at - clock_timestamp())::float8,
    jobs.dead_reason,
    jobs.started_at IS NOT NULL,
    count(*) OVER ()
FROM wanted
JOIN vpay.charges ON charges.id = wanted.id
LEFT JOIN vpay.jobs ON jobs.dedupe_key = %(prefix)s::text || charges.id
ORDER BY charges.created_at, charges.id
LIMIT %(rows)s::integer

-- name: named
-- A charge by what a person may have of it: its id, its intent's, the rail's reference.
SELECT id
FROM vpay.charges
WHERE id = %(name)s::text
    OR payment_intent_id = %(name)s::text
    OR (provider_code = ANY(%(rails)s::text[]) AND provider_reference_id = %(name)s::text)
LIMIT 1

-- name: case_of
-- Without the payer's number, the rail's key material and the payment page: none of them helps
-- a person, and each must not be on a screen.
SELECT
    clock_timestamp(),
    charges.id,
    charges.payment_intent_id,
    intents.merchant_id,
    intents.status,
    intents.created_at,
    intents.updated_at,
    charges.provider_code,
    charges.provider_reference_id,
    charges.state,
    charges.amount,
    charges.currency,
    charges.payer_masked,
    charges.failure_code,
    charges.failure_raw,
    charges.provider_txn_id,
    charges.polls,
    charges.last_asked_at,
    charges.not_found_streak,
    charges.contradicted_at,
    charges.created_at,
    charges.updated_at
FROM vpay.charges
JOIN vpay.payment_intents AS intents ON intents.id = charges.payment_intent_id
WHERE charges.id = %(charge_id)s::text

-- name: submits
SELECT
    sent_at,
    answered_at,
    class,
    code,
    detail
FROM vpay.provider_requests
WHERE charge_id = %(charge_id)s::text
ORDER BY id

-- name: jobs_of
SELECT
    id,
    kind,
    run_at,
    started_at,
    parked_at,
    dead_reason,
    failures,
    crashes,
    last_error
FROM vpay.jobs
WHERE dedupe_key = ANY(%(keys)s::text[])
ORDER BY id

-- name: postings
SELECT
    posted_at,
    kind,
    amount,
    debit,
    credit
FROM vpay.ledger_entries
WHERE charge_id = %(charge_id)s::text
ORDER BY id

-- name: events_of
SELECT
    created_at,
    id,
    type,
    fanout_state
FROM vpay.events
WHERE object_id = %(intent_id)s::text
ORDER BY seq
LIMIT %(rows)s::integer

-- name: deliveries_of
SELECT
    deliveries.created_at,
    deliveries.id,
    deliveries.event_id,
    deliveries.endpoint_id,
    deliveries.state,
    deliveries.attempts,
    deliveries.next_attempt_at
FROM vpay.webhook_deliveries AS deliveries
WHERE deliveries.event_id = ANY(%(event_ids)s::text[])
ORDER BY deliveries.created_at, deliveries.id
LIMIT %(rows)s::integer

-- name: attempts_of
SELECT
    attempts.begun_at,
    attempts.delivery_id,
    attempts.attempt,
    attempts.status,
    attempts.duration_ms,
    attempts.counted,
    attempts.excerpt
FROM vpay.delivery_attempts AS attempts
WHERE attempts.delivery_id = ANY(%(delivery_ids)s::text[])
ORDER BY attempts.id
LIMIT %(rows)s::integer
