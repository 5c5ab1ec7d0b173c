-- name: insert
INSERT INTO vpay.payment_intents (
    id,
    merchant_id,
    customer_id,
    amount,
    currency,
    metadata,
    livemode
)
VALUES (
    %(id)s::text,
    %(merchant_id)s::text,
    %(customer_id)s::text,
    %(amount)s::bigint,
    %(currency)s::text,
    %(metadata)s::jsonb,
    %(livemode)s::boolean
)
RETURNING
    id,
    merchant_id,
    customer_id,
    amount,
    currency,
    status,
    amount_received,
    amount_refunded,
    last_payment_error,
    metadata,
    livemode,
    created_at,
    updated_at

-- name: lock
-- A statement of its own: what is read after it gets a snapshot taken behind the lock.
SELECT id
FROM vpay.payment_intents
WHERE id = %(id)s::text
FOR UPDATE

-- name: read
SELECT
    id,
    merchant_id,
    customer_id,
    amount,
    currency,
    status,
    amount_received,
    amount_refunded,
    last_payment_error,
    metadata,
    livemode,
    created_at,
    updated_at
FROM vpay.payment_intents
WHERE id = %(id)s::text

-- name: advance
-- The rail has it: the payer's turn.
UPDATE vpay.payment_intents
SET status = %(status)s::text,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND status = 'requires_payment_method'
RETURNING id

-- name: succeed
-- Still requires_payment_method after a crash between a submit and its bookkeeping: the
-- money came all the same.
UPDATE vpay.payment_intents
SET status = 'succeeded',
    amount_received = amount,
    last_payment_error = NULL,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND status IN ('requires_payment_method', 'requires_action', 'processing')
RETURNING
    id,
    merchant_id,
    customer_id,
    amount,
    currency,
    status,
    amount_received,
    amount_refunded,
    last_payment_error,
    metadata,
    livemode,
    created_at,
    updated_at

-- name: fall_back
-- Its charge failed.
UPDATE vpay.payment_intents
SET status = 'requires_payment_method',
    last_payment_error = %(error)s::text,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND status IN ('requires_payment_method', 'requires_action', 'processing')
RETURNING
    id,
    merchant_id,
    customer_id,
    amount,
    currency,
    status,
    amount_received,
    amount_refunded,
    last_payment_error,
    metadata,
    livemode,
    created_at,
    updated_at

-- name: cancel
UPDATE vpay.payment_intents
SET status = 'canceled',
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND status = 'requires_payment_method'
RETURNING
    id,
    merchant_id,
    customer_id,
    amount,
    currency,
    status,
    amount_received,
    amount_refunded,
    last_payment_error,
    metadata,
    livemode,
    created_at,
    updated_at
