-- name: claim
-- Takes a free key, an expired one, or one whose holder let its lease pass without an answer.
-- Waits for nobody but another claim of the same key that is just being written.
INSERT INTO vpay.idempotency_keys AS held (
    merchant_id,
    key,
    fingerprint,
    claim,
    lease_until,
    expires_at
)
VALUES (
    %(merchant_id)s::text,
    %(key)s::text,
    %(fingerprint)s::bytea,
    %(claim)s::uuid,
    now() + make_interval(secs => %(lease)s::float8),
    now() + make_interval(secs => %(keep)s::float8)
)
ON CONFLICT (merchant_id, key) DO UPDATE
SET fingerprint = excluded.fingerprint,
    claim = excluded.claim,
    lease_until = excluded.lease_until,
    expires_at = excluded.expires_at,
    status = NULL,
    answer = NULL,
    created_at = now()
WHERE held.expires_at <= now()
    OR (
        held.answer IS NULL
        AND held.lease_until <= now()
        AND held.fingerprint = excluded.fingerprint
    )
RETURNING held.claim

-- name: standing
-- What stands where a claim was not won.
SELECT
    fingerprint = %(fingerprint)s::bytea,
    status,
    answer,
    greatest(extract(epoch FROM lease_until - now()), 0)::float8
FROM vpay.idempotency_keys
WHERE merchant_id = %(merchant_id)s::text
    AND key = %(key)s::text

-- name: complete
-- In the transaction that makes what the answer speaks of. Whoever lost its claim meanwhile
-- finds nothing, and must roll back.
UPDATE vpay.idempotency_keys
SET status = %(status)s::smallint,
    answer = %(answer)s::bytea
WHERE merchant_id = %(merchant_id)s::text
    AND key = %(key)s::text
    AND claim = %(claim)s::uuid
    AND answer IS NULL
RETURNING key

-- name: give_back
-- The request failed and changed nothing: the next one with its key may begin at once.
DELETE FROM vpay.idempotency_keys
WHERE merchant_id = %(merchant_id)s::text
    AND key = %(key)s::text
    AND claim = %(claim)s::uuid
    AND answer IS NULL
RETURNING key

-- name: sweep_idempotency_keys
-- By place: locked rows don't move, and no statistics make it read the rest.
DELETE FROM vpay.idempotency_keys
WHERE ctid = ANY(ARRAY(
    SELECT ctid
    FROM vpay.idempotency_keys
    WHERE expires_at <= now()
    ORDER BY expires_at
    LIMIT %(page)s::integer
    FOR UPDATE SKIP LOCKED
))
RETURNING 1
