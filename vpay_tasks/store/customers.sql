-- name: insert
INSERT INTO vpay.customers (
    id,
    merchant_id,
    name,
    email,
    phone,
    metadata,
    livemode
)
VALUES (
    %(id)s::text,
    %(merchant_id)s::text,
    %(name)s::text,
    %(email)s::text,
    %(phone)s::text,
    %(metadata)s::jsonb,
    %(livemode)s::boolean
)
RETURNING
    id,
    merchant_id,
    name,
    email,
    phone,
    metadata,
    livemode,
    created_at,
    updated_at,
    last_used_at,
    erased_at IS NOT NULL

-- name: lock
-- A statement of its own: what is read after it gets a snapshot taken behind the lock.
SELECT merchant_id
FROM vpay.customers
WHERE id = %(id)s::text
FOR UPDATE

-- name: read
SELECT
    id,
    merchant_id,
    name,
    email,
    phone,
    metadata,
    livemode,
    created_at,
    updated_at,
    last_used_at,
    erased_at IS NOT NULL
FROM vpay.customers
WHERE id = %(id)s::text

-- name: write
-- Under the row's lock, or what was read to be merged may be old.
UPDATE vpay.customers
SET name = %(name)s::text,
    email = %(email)s::text,
    phone = %(phone)s::text,
    metadata = %(metadata)s::jsonb,
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND erased_at IS NULL
RETURNING
    id,
    merchant_id,
    name,
    email,
    phone,
    metadata,
    livemode,
    created_at,
    updated_at,
    last_used_at,
    erased_at IS NOT NULL

-- name: touch
-- Only forward, whoever comes late.
UPDATE vpay.customers
SET last_used_at = greatest(last_used_at, clock_timestamp())
WHERE id = %(id)s::text
    AND erased_at IS NULL
RETURNING id

-- name: page_idle
SELECT
    last_used_at,
    id
FROM vpay.customers
WHERE erased_at IS NULL
    AND last_used_at <= now() - make_interval(secs => %(idle)s::float8)
    AND (last_used_at, id) > (%(after_at)s::timestamptz, %(after_id)s::text)
ORDER BY
    last_used_at,
    id
LIMIT %(page)s::integer

-- name: page_to_redact
SELECT
    erased_at,
    id
FROM vpay.customers
WHERE erased_at IS NOT NULL
    AND redaction_done_at IS NULL
    AND (erased_at, id) > (%(after_at)s::timestamptz, %(after_id)s::text)
ORDER BY
    erased_at,
    id
LIMIT %(page)s::integer

-- name: idle
-- Judged anew, behind the lock: a purchase of this very moment saves the customer.
SELECT erased_at IS NULL
    AND last_used_at <= now() - make_interval(secs => %(idle)s::float8)
FROM vpay.customers
WHERE id = %(id)s::text

-- name: erase
UPDATE vpay.customers
SET name = NULL,
    email = NULL,
    phone = NULL,
    metadata = '{}',
    erased_at = clock_timestamp(),
    updated_at = clock_timestamp()
WHERE id = %(id)s::text
    AND erased_at IS NULL
RETURNING
    id,
    merchant_id,
    name,
    email,
    phone,
    metadata,
    livemode,
    created_at,
    updated_at,
    last_used_at,
    erased_at IS NOT NULL

-- name: forget_intents
-- What the merchant wrote about the payments of this customer.
UPDATE vpay.payment_intents
SET metadata = '{}'
WHERE id = ANY(ARRAY(
    SELECT id
    FROM vpay.payment_intents
    WHERE customer_id = %(id)s::text
        AND metadata <> '{}'
    ORDER BY id
    LIMIT %(page)s::integer
    FOR UPDATE
))
RETURNING id

-- name: redaction_done
UPDATE vpay.customers
SET redaction_done_at = clock_timestamp()
WHERE id = %(id)s::text
    AND erased_at IS NOT NULL
    AND redaction_done_at IS NULL
RETURNING id

-- name: delete_unreferenced
-- Once nothing is left to redact: until then this row is what remembers to.
DELETE FROM vpay.customers
WHERE id = %(id)s::text
    AND redaction_done_at IS NOT NULL
    AND NOT EXISTS (
        SELECT
        FROM vpay.payment_intents
        WHERE customer_id = %(id)s::text
    )
RETURNING id
