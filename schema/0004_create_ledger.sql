-- The ledger: where money stands, in double entry (spec 2).

-- One row moves one amount from the debited to the credited account. So debits equal credits
-- by the shape of the row, for each transaction and each currency: there is no sum to check
-- when a transaction ends, and no half of an entry that could be missing. A transaction with
-- more legs is several rows. Balance = credits - debits.
CREATE TABLE vpay.ledger_entries (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    posted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    amount      bigint NOT NULL,
    currency    text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    debit       text COLLATE "C" NOT NULL,
    credit      text COLLATE "C" NOT NULL,
    merchant_id text COLLATE "C" NOT NULL,
    charge_id   text COLLATE "C" NOT NULL REFERENCES vpay.charges (id),
    -- One capture per charge, and one fee.
    CONSTRAINT entry_once_per_charge UNIQUE (charge_id, kind),
    -- Closed: a kind joins this list with the accounts that it moves between. What is payable
    -- names its merchant, and so does what it was earned by: merchant_id is never null.
    CONSTRAINT entry_moves_between_its_accounts CHECK (
        (kind = 'capture' AND debit = 'payer_clearing' AND credit = 'merchant_payable')
        OR (kind = 'fee' AND debit = 'payer_clearing' AND credit = 'platform_fee_revenue')
    ),
    CONSTRAINT entry_amount_in_range CHECK (amount BETWEEN 1 AND 9007199254740991),
    CONSTRAINT entry_currency_is_iso CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT entry_merchant_has_length CHECK (length(merchant_id) BETWEEN 1 AND 64)
);

CREATE FUNCTION vpay.refuse_changing_the_ledger() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only appended to: post the opposite'
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE ON vpay.ledger_entries
    FOR EACH ROW EXECUTE FUNCTION vpay.refuse_changing_the_ledger();
CREATE TRIGGER entries_stay_all BEFORE TRUNCATE ON vpay.ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION vpay.refuse_changing_the_ledger();

CREATE FUNCTION vpay.guard_ledger_entry() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
DECLARE
    charged record;
    posted bigint;
BEGIN
    SELECT charges.state, charges.amount, charges.currency, intents.merchant_id
        INTO charged
        FROM vpay.charges
        JOIN vpay.payment_intents AS intents ON intents.id = charges.payment_intent_id
        WHERE charges.id = NEW.charge_id;
    IF (charged.state, charged.currency, charged.merchant_id)
        IS DISTINCT FROM ('succeeded', NEW.currency, NEW.merchant_id)
    THEN
        RAISE EXCEPTION 'only what a charge brought in is posted, to its merchant'
            USING ERRCODE = 'check_violation';
    END IF;
    SELECT sum(entries.amount)
        INTO posted
        FROM vpay.ledger_entries AS entries
        WHERE entries.charge_id = NEW.charge_id;
    IF posted > charged.amount THEN
        RAISE EXCEPTION 'more would be posted than the charge brought in'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END
$$;

-- After, so that a row which ON CONFLICT leaves out is not judged.
CREATE TRIGGER guard_ledger_entry AFTER INSERT ON vpay.ledger_entries
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_ledger_entry();

-- Posts what no settlement has posted: charges that succeeded before this table was there,
-- or under a release before it while workers are replaced. Safe to repeat; answers how many.
-- The doctor names it as its remedy.
CREATE FUNCTION vpay.post_missing_captures() RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog
AS $$
    WITH posted AS (
        INSERT INTO vpay.ledger_entries (
            posted_at, amount, currency, kind, debit, credit, merchant_id, charge_id
        )
        SELECT charges.updated_at, charges.amount, charges.currency, 'capture',
            'payer_clearing', 'merchant_payable', intents.merchant_id, charges.id
        FROM vpay.charges
        JOIN vpay.payment_intents AS intents ON intents.id = charges.payment_intent_id
        WHERE charges.state = 'succeeded'
            AND NOT EXISTS (
                SELECT FROM vpay.ledger_entries AS entries
                WHERE entries.charge_id = charges.id
            )
        ORDER BY charges.updated_at
        ON CONFLICT (charge_id, kind) DO NOTHING
        RETURNING 1
    )
    SELECT count(*) FROM posted
$$;

SELECT vpay.post_missing_captures();
