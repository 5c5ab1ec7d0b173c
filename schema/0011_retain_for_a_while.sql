-- What may hold a payer's words goes after a while; the record of money stays (spec 5).

-- Written once, when a charge fails, and taken away once: few rows, no hot path.
CREATE INDEX charges_with_words ON vpay.charges (updated_at) WHERE failure_raw IS NOT NULL;
CREATE INDEX provider_requests_with_words ON vpay.provider_requests (answered_at)
    WHERE detail IS NOT NULL AND answered_at IS NOT NULL;

-- As before, but for one thing: a rail's words may be taken away from a charge that is over.
CREATE OR REPLACE FUNCTION vpay.guard_charge() RETURNS trigger
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
        AND ((NEW.state, NEW.failure_code, NEW.provider_txn_id)
                IS DISTINCT FROM (OLD.state, OLD.failure_code, OLD.provider_txn_id)
            OR NEW.failure_raw <> OLD.failure_raw
            OR (NEW.failure_raw IS NOT NULL AND OLD.failure_raw IS NULL))
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
