-- name: insert
-- One charge per intent: of two confirms at once the index lets one through.
INSERT INTO vpay.charges (
    id,
    payment_intent_id,
    provider_code,
    provider_reference_id,
    return_url,
    amount,
    currency,
    payer_ref,
    payer_masked
)
VALUES (
    %(id)s::text,
    %(payment_intent_id)s::text,
    %(provider_code)s::text,
    %(provider_reference_id)s::text,
    %(return_url)s::text,
    %(amount)s::bigint,
    %(currency)s::text,
    %(payer_ref)s::text,
    %(payer_masked)s::text
)
ON CONFLICT (payment_intent_id) DO NOTHING
RETURNING
    id,
    payment_intent_id,
    provider_code,
    provider_reference_id,
    provider_ref_extra,
    redirect_url,
    return_url,
    state,
    amount,
    currency,
    payer_ref,
    payer_masked,
    failure_code,
    provider_txn_id,
    polls,
    not_found_streak

-- name: read
SELECT
    id,
    payment_intent_id,
    provider_code,
    provider_reference_id,
    provider_ref_extra,
    redirect_url,
    return_url,
    state,
    amount,
    currency,
    payer_ref,
    payer_masked,
    failure_code,
    provider_txn_id,
    polls,
    not_found_streak
FROM vpay.charges
WHERE id = %(id)s::text

-- name: of_intent
SELECT
    id,
    payment_intent_id,
    provider_code,
    provider_reference_id,
    provider_ref_extra,
    redirect_url,
    return_url,
    state,
    amount,
    currency,
    payer_ref,
    payer_masked,
    failure_code,
    provider_txn_id,
    polls,
    not_found_streak
FROM vpay.charges
WHERE payment_intent_id = %(payment_intent_id)s::text

-- name: find_by_reference
SELECT id
FROM vpay.charges
WHERE provider_code = %(provider_code)s::text
    AND provider_reference_id = %(reference)s::text

-- name: find_by_callback_key
-- Of a rail that gives one key twice, any: what follows is a question, not a verdict.
SELECT id
FROM vpay.charges
WHERE provider_code = %(provider_code)s::text
    AND provider_ref_extra ->> 'callback_key' = %(key)s::text
LIMIT 1

-- name: next_ask
-- Callbacks at any pace cost one ask per floor. And none before the window in which the
-- charge is still its confirm's is over: such a poll would ask nothing and only come back.
SELECT
    state,
    EXTRACT(EPOCH FROM greatest(
        now(),
        last_asked_at + make_interval(secs => %(floor)s::float8),
        CASE WHEN state = 'submitting' THEN
            created_at + make_interval(secs => %(window)s::float8)
        END
    ) - now())::float8
FROM vpay.charges
WHERE id = %(id)s::text

-- name: asking
-- Before the ask and of any state: a run that is killed in the middle has asked, too, and so
-- has one whose answer ends the charge.
UPDATE vpay.charges
SET last_asked_at = clock_timestamp()
WHERE id = %(id)s::text

-- name: ages
-- By the clock that wrote the instants; no other one has a say.
SELECT
    EXTRACT(EPOCH FROM clock_timestamp() - created_at)::float8,
    COALESCE(EXTRACT(EPOCH FROM clock_timestamp() - first_not_found_at), 0)::float8
FROM vpay.charges
WHERE id = %(id)s::text

-- name: lock
-- A statement of its own: what is read after it gets a snapshot taken behind the lock.
SELECT state
FROM vpay.charges
WHERE id = %(id)s::text
FOR UPDATE

-- name: submitted
-- The swap by which the rail's acceptance counts. Key material is merged key by key and a
-- missing URL blanks none: a late answer must not undo an early one.
UPDATE vpay.charges
SET state = 'submitted',
    provider_ref_extra = provider_ref_extra || %(key_material)s::jsonb,
    redirect_url = COALESCE(%(redirect_url)s::text, redirect_url),
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND state = 'submitting'
RETURNING id

-- name: succeed
UPDATE vpay.charges
SET state = 'succeeded',
    provider_txn_id = %(txn_id)s::text,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND state IN ('submitting', 'submitted', 'pending', 'unresolved')
RETURNING id

-- name: fail
UPDATE vpay.charges
SET state = 'failed',
    failure_code = %(code)s::text,
    failure_raw = %(raw)s::text,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND state IN ('submitting', 'submitted', 'pending', 'unresolved')
RETURNING id

-- name: asked
-- One ask that ended nothing. The state moves only if it is still what the answer was judged
-- by. A NotFound lengthens the streak that its poll has seen: one that a resubmit began anew
-- meanwhile is about another submit. Another answer ends it, and no answer says nothing.
UPDATE vpay.charges
SET polls = polls + 1,
    last_asked_at = clock_timestamp(),
    state = CASE WHEN state = %(from_state)s::text THEN %(to_state)s::text ELSE state END,
    not_found_streak = CASE
        WHEN %(streak)s::text = 'over' THEN 0
        WHEN %(streak)s::text = 'longer' AND not_found_streak = %(seen)s::integer
            THEN not_found_streak + 1
        ELSE not_found_streak
    END,
    first_not_found_at = CASE
        WHEN %(streak)s::text = 'over' THEN NULL
        WHEN %(streak)s::text = 'longer' AND not_found_streak = %(seen)s::integer
            THEN COALESCE(first_not_found_at, clock_timestamp())
        ELSE first_not_found_at
    END,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND state IN ('submitting', 'submitted', 'pending', 'unresolved')
RETURNING id

-- name: restart_streak
-- In the transaction that writes a submit: what was not found before it proves nothing of it.
UPDATE vpay.charges
SET not_found_streak = 0,
    first_not_found_at = NULL,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND state = 'submitting'
    AND not_found_streak > 0

-- name: contradicted
-- Written once, so that one page is sent.
UPDATE vpay.charges
SET contradicted_at = clock_timestamp()
WHERE id = %(id)s::text
    AND contradicted_at IS NULL
RETURNING id

-- name: sweep_words
-- A rail's own words may name a payer; the code of the failure stays.
UPDATE vpay.charges
SET failure_raw = NULL
WHERE id = ANY(ARRAY(
    SELECT id
    FROM vpay.charges
    WHERE failure_raw IS NOT NULL
        AND updated_at < now() - make_interval(secs => %(keep)s::float8)
    ORDER BY updated_at
    LIMIT %(page)s::integer
    FOR UPDATE SKIP LOCKED
))
RETURNING id
