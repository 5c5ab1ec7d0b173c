-- name: insert
INSERT INTO vpay.checkout_sessions (
    id,
    merchant_id,
    payment_intent_id,
    url,
    client_secret,
    livemode,
    expires_at
)
VALUES (
    %(id)s::text,
    %(merchant_id)s::text,
    %(payment_intent_id)s::text,
    %(url)s::text,
    %(client_secret)s::bytea,
    %(livemode)s::boolean,
    clock_timestamp() + make_interval(secs => %(expires_in)s::float8)
)
ON CONFLICT (payment_intent_id) DO NOTHING
RETURNING
    id,
    merchant_id,
    payment_intent_id,
    status,
    payment_status,
    url,
    livemode,
    created_at,
    updated_at,
    expires_at

-- name: read
SELECT
    id,
    merchant_id,
    payment_intent_id,
    status,
    payment_status,
    url,
    livemode,
    created_at,
    updated_at,
    expires_at
FROM vpay.checkout_sessions
WHERE id = %(id)s::text

-- name: by_secret
SELECT client_secret = %(client_secret)s::bytea
FROM vpay.checkout_sessions
WHERE id = %(id)s::text

-- name: expired_of_intent
-- By its time, too: the sweep that says so may be an hour late.
SELECT id
FROM vpay.checkout_sessions
WHERE payment_intent_id = %(payment_intent_id)s::text
    AND (status = 'expired' OR (status = 'open' AND expires_at <= clock_timestamp()))

-- name: complete
-- In the settlement's transaction: the intent's lock is its own.
UPDATE vpay.checkout_sessions
SET status = 'complete',
    payment_status = 'paid',
    updated_at = clock_timestamp()
WHERE payment_intent_id = %(payment_intent_id)s::text
    AND status = 'open'
RETURNING id

-- name: page_due
-- Those that are being paid are passed over: a page of them would hide who is behind.
SELECT
    sessions.expires_at,
    sessions.id,
    sessions.payment_intent_id
FROM vpay.checkout_sessions AS sessions
WHERE sessions.status = 'open'
    AND sessions.expires_at <= now()
    AND (sessions.expires_at, sessions.id) > (%(after_at)s::timestamptz, %(after_id)s::text)
    AND NOT EXISTS (
        SELECT
        FROM vpay.charges
        WHERE charges.payment_intent_id = sessions.payment_intent_id
            AND charges.state IN ('submitting', 'submitted', 'pending', 'unresolved')
    )
ORDER BY
    sessions.expires_at,
    sessions.id
LIMIT %(page)s::integer

-- name: expire
-- Judged anew, behind the intent's lock: a confirm of this very moment keeps it open.
UPDATE vpay.checkout_sessions AS sessions
SET status = 'expired',
    updated_at = clock_timestamp()
WHERE sessions.id = %(id)s::text
    AND sessions.status = 'open'
    AND (NOT %(only_due)s::boolean OR sessions.expires_at <= clock_timestamp())
    AND NOT EXISTS (
        SELECT
        FROM vpay.charges
        WHERE charges.payment_intent_id = sessions.payment_intent_id
            AND charges.state IN ('submitting', 'submitted', 'pending', 'unresolved')
    )
RETURNING
    sessions.id,
    sessions.merchant_id,
    sessions.payment_intent_id,
    sessions.status,
    sessions.payment_status,
    sessions.url,
    sessions.livemode,
    sessions.created_at,
    sessions.updated_at,
    sessions.expires_at
