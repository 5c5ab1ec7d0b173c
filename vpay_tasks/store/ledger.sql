-- name: post_capture
-- In the settlement's transaction, behind the charge's swap: amount, currency and merchant are
-- the rows' own, so no caller can post another sum. A fee is taken out of the same amount.
INSERT INTO vpay.ledger_entries (
    charge_id,
    merchant_id,
    currency,
    amount,
    kind,
    debit,
    credit
)
SELECT
    charges.id,
    intents.merchant_id,
    charges.currency,
    leg.amount,
    leg.kind,
    'payer_clearing',
    leg.credit
FROM vpay.charges
JOIN vpay.payment_intents AS intents ON intents.id = charges.payment_intent_id
CROSS JOIN LATERAL (
    VALUES
        ('capture', 'merchant_payable', charges.amount - %(fee)s::bigint),
        ('fee', 'platform_fee_revenue', %(fee)s::bigint)
) AS leg (kind, credit, amount)
WHERE charges.id = %(charge_id)s::text
    AND charges.state = 'succeeded'
    AND charges.amount > %(fee)s::bigint
    AND leg.amount <> 0
ON CONFLICT (charge_id, kind) DO NOTHING
RETURNING kind

-- name: books
-- Conservation by currency, all of it in one snapshot. Both tables are read whole, each once:
-- an index for this would cost every payment a write, for a question that people ask by hand.
WITH succeeded AS (
    SELECT
        currency,
        count(*) AS charges,
        sum(amount) AS amount
    FROM vpay.charges
    WHERE state = 'succeeded'
    GROUP BY currency
), posted AS (
    SELECT
        currency,
        count(*) FILTER (WHERE kind = 'capture') AS captures,
        sum(amount) FILTER (WHERE debit = 'payer_clearing') AS captured,
        sum(amount) FILTER (WHERE credit = 'merchant_payable') AS payable,
        sum(amount) FILTER (WHERE credit = 'platform_fee_revenue') AS fees
    FROM vpay.ledger_entries
    GROUP BY currency
)
SELECT
    currency,
    coalesce(succeeded.charges, 0),
    coalesce(succeeded.amount, 0),
    coalesce(posted.captures, 0),
    coalesce(posted.captured, 0),
    coalesce(posted.payable, 0),
    coalesce(posted.fees, 0)
FROM succeeded
FULL JOIN posted USING (currency)
ORDER BY currency
