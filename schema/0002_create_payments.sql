-- Payment intents, charges, submit attempts: the record of money (spec 2).

CREATE TABLE vpay.payment_intents (
    id                 text COLLATE "C" PRIMARY KEY,
    merchant_id        text COLLATE "C" NOT NULL,
    customer_id        text COLLATE "C",
    amount             bigint NOT NULL,
    currency           text COLLATE "C" NOT NULL,
    status             text COLLATE "C" NOT NULL DEFAULT 'requires_payment_method',
    amount_received    bigint NOT NULL DEFAULT 0,
    amount_refunded    bigint NOT NULL DEFAULT 0,
    -- A failure code; its message is looked up where it is shown.
    last_payment_error text COLLATE "C",
    metadata           jsonb NOT NULL DEFAULT '{}',
    livemode           boolean NOT NULL DEFAULT false,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT intent_status_known CHECK (
        status IN ('requires_payment_method', 'requires_action', 'processing', 'succeeded',
            'canceled')
    ),
    -- 2^53 - 1: receivers that read JSON numbers as doubles would round a larger amount.
    CONSTRAINT intent_amount_in_range CHECK (amount BETWEEN 1 AND 9007199254740991),
    CONSTRAINT intent_received_when_succeeded CHECK (
        amount_received = CASE WHEN status = 'succeeded' THEN amount ELSE 0 END
    ),
    CONSTRAINT intent_refunded_within_received CHECK (
        amount_refunded BETWEEN 0 AND amount_received
    ),
    CONSTRAINT intent_currency_is_iso CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT intent_last_error_known CHECK (
        last_payment_error IN ('insufficient_funds', 'payer_timeout', 'payer_declined',
            'invalid_payer', 'payer_limit_reached', 'payer_account_blocked', 'invalid_payee',
            'payee_account_blocked', 'provider_account_blocked', 'provider_unavailable',
            'provider_error')
    ),
    CONSTRAINT intent_metadata_is_object CHECK (jsonb_typeof(metadata) = 'object'),
    CONSTRAINT intent_names_have_length CHECK (
        length(id) BETWEEN 4 AND 64 AND length(merchant_id) BETWEEN 1 AND 64
        AND length(customer_id) BETWEEN 1 AND 64
    )
);

CREATE TABLE vpay.charges (
    id                    text COLLATE "C" PRIMARY KEY,
    -- One charge per intent, for ever: a retry is a new intent.
    payment_intent_id     text COLLATE "C" NOT NULL REFERENCES vpay.payment_intents (id),
    provider_code         text COLLATE "C" NOT NULL,
    provider_reference_id text COLLATE "C" NOT NULL,
    provider_ref_extra    jsonb NOT NULL DEFAULT '{}',
    redirect_url          text,
    return_url            text,
    state                 text COLLATE "C" NOT NULL DEFAULT 'submitting',
    amount                bigint NOT NULL,
    currency              text COLLATE "C" NOT NULL,
    -- Encrypted; the masked copy is for people.
    payer_ref             text,
    payer_masked          text,
    failure_code          text COLLATE "C",
    failure_raw           text,
    provider_txn_id       text,
    polls                 integer NOT NULL DEFAULT 0,
    last_asked_at         timestamptz,
    not_found_streak      integer NOT NULL DEFAULT 0,
    first_not_found_at    timestamptz,
    contradicted_at       timestamptz,
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT charge_one_per_intent UNIQUE (payment_intent_id),
    CONSTRAINT charge_reference_unique UNIQUE (provider_code, provider_reference_id),
    CONSTRAINT charge_state_known CHECK (
        state IN ('submitting', 'submitted', 'pending', 'unresolved', 'succeeded', 'failed')
    ),
    CONSTRAINT charge_amount_in_range CHECK (amount BETWEEN 1 AND 9007199254740991),
    CONSTRAINT charge_currency_is_iso CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT charge_failure_code_known CHECK (
        failure_code IN ('insufficient_funds', 'payer_timeout', 'payer_declined',
            'invalid_payer', 'payer_limit_reached', 'payer_account_blocked', 'invalid_payee',
            'payee_account_blocked', 'provider_account_blocked', 'provider_unavailable',
            'provider_error')
    ),
    CONSTRAINT charge_failed_has_code CHECK ((state = 'failed') = (failure_code IS NOT NULL)),
    CONSTRAINT charge_raw_only_when_failed CHECK (failure_raw IS NULL OR state = 'failed'),
    CONSTRAINT charge_txn_only_when_succeeded CHECK (
        provider_txn_id IS NULL OR state = 'succeeded'
    ),
    CONSTRAINT charge_extra_is_object CHECK (jsonb_typeof(provider_ref_extra) = 'object'),
    CONSTRAINT charge_payer_is_masked CHECK ((payer_ref IS NULL) = (payer_masked IS NULL)),
    CONSTRAINT charge_counters_only_count CHECK (polls >= 0 AND not_found_streak >= 0),
    CONSTRAINT charge_streak_has_start CHECK (
        (not_found_streak = 0) = (first_not_found_at IS NULL)
    ),
    CONSTRAINT charge_texts_have_length CHECK (
        length(id) BETWEEN 4 AND 64 AND length(provider_code) BETWEEN 1 AND 64
        AND length(provider_reference_id) BETWEEN 1 AND 128
        AND length(provider_txn_id) BETWEEN 1 AND 128 AND length(failure_raw) <= 2000
        AND length(redirect_url) BETWEEN 1 AND 2048 AND length(return_url) BETWEEN 1 AND 2048
    )
) WITH (fillfactor = 80);

-- What the backstop scan walks, oldest first; terminal charges are the millions.
CREATE INDEX charges_live ON vpay.charges (updated_at)
    WHERE state IN ('submitting', 'submitted', 'pending', 'unresolved');
CREATE INDEX charges_contradicted ON vpay.charges (contradicted_at)
    WHERE contradicted_at IS NOT NULL;

-- One row per submit, written before the call; no class yet means that the rail may have it.
CREATE TABLE vpay.provider_requests (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge_id   text COLLATE "C" NOT NULL REFERENCES vpay.charges (id),
    sent_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    answered_at timestamptz,
    class       text COLLATE "C",
    code        text COLLATE "C",
    detail      text,
    CONSTRAINT request_class_known CHECK (class IN ('accepted', 'declined', 'unknown')),
    CONSTRAINT request_code_known CHECK (
        code IN ('insufficient_funds', 'payer_timeout', 'payer_declined', 'invalid_payer',
            'payer_limit_reached', 'payer_account_blocked', 'invalid_payee',
            'payee_account_blocked', 'provider_account_blocked', 'provider_unavailable',
            'provider_error')
    ),
    CONSTRAINT request_answer_is_whole CHECK ((class IS NULL) = (answered_at IS NULL)),
    CONSTRAINT request_declined_has_code CHECK (
        (class IS NOT DISTINCT FROM 'declined') = (code IS NOT NULL)
    ),
    CONSTRAINT request_detail_has_length CHECK (length(detail) <= 2000)
);

CREATE INDEX provider_requests_charge ON vpay.provider_requests (charge_id, id);

-- Who writes wrongly here moves money: the last word is the database's, not the code's.
CREATE FUNCTION vpay.guard_charge() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'a charge is never deleted' USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.id, NEW.payment_intent_id, NEW.provider_code, NEW.provider_reference_id, NEW.amount,
            NEW.currency, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.payment_intent_id, OLD.provider_code,
            OLD.provider_reference_id, OLD.amount, OLD.currency, OLD.created_at)
    THEN
        RAISE EXCEPTION 'what a charge is for never changes' USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.state IN ('succeeded', 'failed')
        AND (NEW.state, NEW.failure_code, NEW.failure_raw, NEW.provider_txn_id)
            IS DISTINCT FROM (OLD.state, OLD.failure_code, OLD.failure_raw, OLD.provider_txn_id)
    THEN
        RAISE EXCEPTION 'a charge never leaves a terminal state'
            USING ERRCODE = 'check_violation';
    END IF;
    IF array_position(
            ARRAY['submitting', 'submitted', 'pending', 'unresolved', 'succeeded', 'failed'],
            NEW.state::text)
        < array_position(
            ARRAY['submitting', 'submitted', 'pending', 'unresolved', 'succeeded', 'failed'],
            OLD.state::text)
    THEN
        RAISE EXCEPTION 'a charge only moves forward' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_charge BEFORE UPDATE OR DELETE ON vpay.charges
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_charge();

CREATE FUNCTION vpay.guard_payment_intent() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    IF (NEW.id, NEW.merchant_id, NEW.amount, NEW.currency, NEW.livemode, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.amount, OLD.currency, OLD.livemode,
            OLD.created_at)
    THEN
        RAISE EXCEPTION 'what a payment intent is for never changes'
            USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status IN ('succeeded', 'canceled') AND NEW.status <> OLD.status THEN
        RAISE EXCEPTION 'a payment intent never leaves a terminal status'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_payment_intent BEFORE UPDATE ON vpay.payment_intents
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_payment_intent();
