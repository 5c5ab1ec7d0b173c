-- name: page
-- Payers' numbers as they are stored, in pages by the charge's id. Ids are random, so a charge
-- that is written meanwhile may be behind the page: whoever wants all goes through twice.
SELECT
    id,
    payer_ref
FROM vpay.charges
WHERE id > %(after)s::text
    AND payer_ref IS NOT NULL
ORDER BY id
LIMIT %(page)s::integer

-- name: swap
-- One text for another, where the first still stands: two that do this at once, or a worker
-- beside them, undo nothing of each other. updated_at stays, for the payment has not moved.
WITH held AS MATERIALIZED (
    SELECT
        charges.id,
        given.sealed
    FROM vpay.charges
    JOIN unnest(%(ids)s::text[], %(stood)s::text[], %(sealed)s::text[])
        AS given (id, stood, sealed)
        ON charges.id = given.id AND charges.payer_ref = given.stood
    ORDER BY charges.id
    FOR NO KEY UPDATE OF charges
)
UPDATE vpay.charges
SET payer_ref = held.sealed
FROM held
WHERE charges.id = held.id
RETURNING charges.id
