-- name: open_attempt
-- Committed before the call: a submit that nobody remembers is money that nobody can name.
INSERT INTO vpay.provider_requests (charge_id)
VALUES (%(charge_id)s::text)
RETURNING id

-- name: close_attempt
-- An answer is written once.
UPDATE vpay.provider_requests
SET answered_at = clock_timestamp(),
    class = %(class)s::text,
    code = %(code)s::text,
    detail = %(detail)s::text
WHERE id = %(id)s::bigint
    AND class IS NULL
RETURNING id

-- name: of_charge
SELECT
    id,
    class,
    code,
    detail
FROM vpay.provider_requests
WHERE charge_id = %(charge_id)s::text
ORDER BY id

-- name: sweep_words
UPDATE vpay.provider_requests
SET detail = NULL
WHERE id = ANY(ARRAY(
    SELECT id
    FROM vpay.provider_requests
    WHERE detail IS NOT NULL
        AND answered_at < now() - make_interval(secs => %(keep)s::float8)
    ORDER BY answered_at
    LIMIT %(page)s::integer
    FOR UPDATE SKIP LOCKED
))
RETURNING id
