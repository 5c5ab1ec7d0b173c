-- What the migrations of this folder make, dumped by `make schema` and tested equal.
-- Read it; never run or edit it.

CREATE SCHEMA vpay;

CREATE FUNCTION vpay.guard_charge() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION vpay.guard_checkout_session() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    IF OLD.status <> 'open' AND NEW.status <> OLD.status THEN
        RAISE EXCEPTION 'a checkout session never leaves a terminal status'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION vpay.guard_customer() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    IF OLD.erased_at IS NOT NULL AND NEW.erased_at IS DISTINCT FROM OLD.erased_at THEN
        RAISE EXCEPTION 'a customer who was erased stays erased' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.last_used_at < OLD.last_used_at THEN
        RAISE EXCEPTION 'a last use only moves forward' USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.id, NEW.merchant_id, NEW.livemode, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.livemode, OLD.created_at)
    THEN
        RAISE EXCEPTION 'whose customer it is never changes' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION vpay.guard_event() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    said jsonb;
    thing jsonb;
BEGIN
    IF pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'DELETE' THEN
        -- The floor of windows.keep_events, too.
        IF OLD.created_at > now() - interval '1 day' THEN
            RAISE EXCEPTION 'an event stays for a day at least' USING ERRCODE = 'check_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF (NEW.id, NEW.merchant_id, NEW.type, NEW.object_id, NEW.livemode, NEW.created_at)
            IS DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.type, OLD.object_id, OLD.livemode,
                OLD.created_at)
        OR NEW.customer_id IS DISTINCT FROM OLD.customer_id
        OR NEW.body_rev NOT BETWEEN OLD.body_rev AND OLD.body_rev + 1
        OR (OLD.redacted AND NOT NEW.redacted)
    THEN
        RAISE EXCEPTION 'what an event tells never changes' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.body = OLD.body THEN
        RETURN NEW;
    END IF;
    said := convert_from(OLD.body, 'UTF8')::jsonb;
    thing := said #> '{data,object}';
    SELECT jsonb_object_agg(
            key,
            CASE
                WHEN key IN ('name', 'email', 'phone') THEN 'null'::jsonb
                WHEN key = 'metadata' THEN '{}'::jsonb
                ELSE value
            END)
        INTO thing
        FROM jsonb_each(thing);
    IF NOT NEW.redacted
        OR NEW.body_rev <> OLD.body_rev + 1
        OR convert_from(NEW.body, 'UTF8')::jsonb
            IS DISTINCT FROM jsonb_set(said, '{data,object}', thing)
    THEN
        RAISE EXCEPTION 'an event is rewritten for one reason: without the person it names'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION vpay.guard_inbox_event() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    IF OLD.state NOT IN ('done', 'ignored')
        AND NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER')
    THEN
        RAISE EXCEPTION 'what a vendor sent stays until it is granted'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION vpay.guard_ledger_entry() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION vpay.guard_payment_intent() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION vpay.guard_what_was_told() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
DECLARE
    told text := CASE TG_TABLE_NAME WHEN 'webhook_deliveries' THEN to_jsonb(OLD) ->> 'event_id' END;
BEGIN
    IF pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
        RETURN OLD;
    END IF;
    IF TG_TABLE_NAME = 'delivery_attempts' THEN
        SELECT event_id
            INTO told
            FROM vpay.webhook_deliveries
            WHERE id = to_jsonb(OLD) ->> 'delivery_id';
    END IF;
    -- By its event's age, since a replay is younger; one that is gone was old enough.
    IF EXISTS (
        SELECT
        FROM vpay.events
        WHERE id = told
            AND created_at > now() - interval '1 day'
    ) THEN
        RAISE EXCEPTION 'what became of an event stays for a day at least'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION vpay.post_missing_captures() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog'
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

CREATE FUNCTION vpay.refuse_changing_the_ledger() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only appended to: post the opposite'
        USING ERRCODE = 'check_violation';
END
$$;

CREATE FUNCTION vpay.refuse_leaving_a_terminal_state() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    RAISE EXCEPTION 'delivery % is %: nothing leaves a terminal state', OLD.id, OLD.state
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TABLE vpay.charges (
    id text NOT NULL COLLATE pg_catalog."C",
    payment_intent_id text NOT NULL COLLATE pg_catalog."C",
    provider_code text NOT NULL COLLATE pg_catalog."C",
    provider_reference_id text NOT NULL COLLATE pg_catalog."C",
    provider_ref_extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    redirect_url text,
    return_url text,
    state text DEFAULT 'submitting'::text NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    currency text NOT NULL COLLATE pg_catalog."C",
    payer_ref text,
    payer_masked text,
    failure_code text COLLATE pg_catalog."C",
    failure_raw text,
    provider_txn_id text,
    polls integer DEFAULT 0 NOT NULL,
    last_asked_at timestamp with time zone,
    not_found_streak integer DEFAULT 0 NOT NULL,
    first_not_found_at timestamp with time zone,
    contradicted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT charge_amount_in_range CHECK (((amount >= 1) AND (amount <= '9007199254740991'::bigint))),
    CONSTRAINT charge_counters_only_count CHECK (((polls >= 0) AND (not_found_streak >= 0))),
    CONSTRAINT charge_currency_is_iso CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT charge_extra_is_object CHECK ((jsonb_typeof(provider_ref_extra) = 'object'::text)),
    CONSTRAINT charge_failed_has_code CHECK (((state = 'failed'::text) = (failure_code IS NOT NULL))),
    CONSTRAINT charge_failure_code_known CHECK ((failure_code = ANY (ARRAY['insufficient_funds'::text, 'payer_timeout'::text, 'payer_declined'::text, 'invalid_payer'::text, 'payer_limit_reached'::text, 'payer_account_blocked'::text, 'invalid_payee'::text, 'payee_account_blocked'::text, 'provider_account_blocked'::text, 'provider_unavailable'::text, 'provider_error'::text]))),
    CONSTRAINT charge_payer_is_masked CHECK (((payer_ref IS NULL) = (payer_masked IS NULL))),
    CONSTRAINT charge_raw_only_when_failed CHECK (((failure_raw IS NULL) OR (state = 'failed'::text))),
    CONSTRAINT charge_state_known CHECK ((state = ANY (ARRAY['submitting'::text, 'submitted'::text, 'pending'::text, 'unresolved'::text, 'succeeded'::text, 'failed'::text]))),
    CONSTRAINT charge_streak_has_start CHECK (((not_found_streak = 0) = (first_not_found_at IS NULL))),
    CONSTRAINT charge_texts_have_length CHECK ((((length(id) >= 4) AND (length(id) <= 64)) AND ((length(provider_code) >= 1) AND (length(provider_code) <= 64)) AND ((length(provider_reference_id) >= 1) AND (length(provider_reference_id) <= 128)) AND ((length(provider_txn_id) >= 1) AND (length(provider_txn_id) <= 128)) AND (length(failure_raw) <= 2000) AND ((length(redirect_url) >= 1) AND (length(redirect_url) <= 2048)) AND ((length(return_url) >= 1) AND (length(return_url) <= 2048)))),
    CONSTRAINT charge_txn_only_when_succeeded CHECK (((provider_txn_id IS NULL) OR (state = 'succeeded'::text)))
)
WITH (fillfactor='80');

CREATE TABLE vpay.checkout_sessions (
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    livemode boolean DEFAULT false NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    payment_intent_id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'open'::text NOT NULL COLLATE pg_catalog."C",
    payment_status text DEFAULT 'unpaid'::text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL,
    client_secret bytea NOT NULL,
    CONSTRAINT session_complete_when_paid CHECK (((status = 'complete'::text) = (payment_status = 'paid'::text))),
    CONSTRAINT session_payment_status_known CHECK ((payment_status = ANY (ARRAY['unpaid'::text, 'paid'::text]))),
    CONSTRAINT session_secret_is_sha256 CHECK ((octet_length(client_secret) = 32)),
    CONSTRAINT session_status_known CHECK ((status = ANY (ARRAY['open'::text, 'complete'::text, 'expired'::text]))),
    CONSTRAINT session_texts_have_length CHECK ((((length(id) >= 4) AND (length(id) <= 64)) AND ((length(merchant_id) >= 1) AND (length(merchant_id) <= 64)) AND ((length(url) >= 1) AND (length(url) <= 2048))))
);

CREATE TABLE vpay.client_assertions (
    expires_at timestamp with time zone NOT NULL,
    id bytea NOT NULL,
    CONSTRAINT assertion_id_is_sha256 CHECK ((octet_length(id) = 32))
);

CREATE TABLE vpay.customers (
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_used_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    erased_at timestamp with time zone,
    redaction_done_at timestamp with time zone,
    livemode boolean DEFAULT false NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    name text,
    email text,
    phone text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT customer_erased_holds_nothing CHECK (((erased_at IS NULL) OR ((name IS NULL) AND (email IS NULL) AND (phone IS NULL) AND (metadata = '{}'::jsonb)))),
    CONSTRAINT customer_metadata_is_object CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT customer_redacted_once_erased CHECK (((redaction_done_at IS NULL) OR (erased_at IS NOT NULL))),
    CONSTRAINT customer_texts_have_length CHECK ((((length(id) >= 4) AND (length(id) <= 64)) AND ((length(merchant_id) >= 1) AND (length(merchant_id) <= 64)) AND ((length(name) >= 1) AND (length(name) <= 255)) AND ((length(email) >= 3) AND (length(email) <= 320)) AND ((length(phone) >= 3) AND (length(phone) <= 32))))
);

CREATE TABLE vpay.delivery_attempts (
    id bigint NOT NULL,
    begun_at timestamp with time zone NOT NULL,
    next_attempt_at timestamp with time zone,
    duration_ms integer NOT NULL,
    attempt integer NOT NULL,
    status smallint,
    counted boolean NOT NULL,
    delivery_id text NOT NULL COLLATE pg_catalog."C",
    address text,
    config_hash text,
    key_ids text[] NOT NULL,
    digest bytea,
    excerpt text NOT NULL,
    CONSTRAINT attempt_counts_from_one CHECK (((attempt >= 1) AND (duration_ms >= 0))),
    CONSTRAINT excerpt_is_short CHECK ((length(excerpt) <= 2000))
)
WITH (autovacuum_analyze_scale_factor='0.02');

ALTER TABLE vpay.delivery_attempts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME vpay.delivery_attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE SEQUENCE vpay.event_list_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE vpay.events (
    seq bigint NOT NULL,
    list_seq bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    body_rev integer DEFAULT 1 NOT NULL,
    fanout_attempts smallint DEFAULT 0 NOT NULL,
    livemode boolean NOT NULL,
    fanout_state text DEFAULT 'pending'::text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    object_id text NOT NULL COLLATE pg_catalog."C",
    customer_id text COLLATE pg_catalog."C",
    body bytea NOT NULL,
    redacted boolean DEFAULT false NOT NULL,
    CONSTRAINT body_size CHECK (((octet_length(body) >= 2) AND (octet_length(body) <= 262144))),
    CONSTRAINT event_names_have_length CHECK ((((length(id) >= 1) AND (length(id) <= 64)) AND ((length(merchant_id) >= 1) AND (length(merchant_id) <= 64)) AND ((length(object_id) >= 1) AND (length(object_id) <= 255)) AND ((length(customer_id) >= 1) AND (length(customer_id) <= 255)))),
    CONSTRAINT fanout_state_known CHECK ((fanout_state = ANY (ARRAY['pending'::text, 'done'::text, 'failed'::text]))),
    CONSTRAINT listed_once_settled CHECK (((fanout_state = 'pending'::text) = (list_seq IS NULL))),
    CONSTRAINT revisions_only_count CHECK (((body_rev >= 1) AND (fanout_attempts >= 0))),
    CONSTRAINT type_documented CHECK ((type = ANY (ARRAY['payment_intent.succeeded'::text, 'payment_intent.payment_failed'::text, 'payment_intent.canceled'::text, 'checkout.session.expired'::text, 'customer.created'::text, 'customer.updated'::text, 'customer.deleted'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.02');

ALTER TABLE vpay.events ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME vpay.events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE vpay.idempotency_keys (
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    claim uuid NOT NULL,
    status smallint,
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea NOT NULL,
    answer bytea,
    CONSTRAINT answer_is_whole CHECK (((answer IS NULL) = (status IS NULL))),
    CONSTRAINT answer_size CHECK ((octet_length(answer) <= 262144)),
    CONSTRAINT fingerprint_is_sha256 CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT idempotency_names_have_length CHECK ((((length(merchant_id) >= 1) AND (length(merchant_id) <= 64)) AND ((length(key) >= 1) AND (length(key) <= 255)))),
    CONSTRAINT lease_ends_before_the_row CHECK ((lease_until <= expires_at)),
    CONSTRAINT status_is_http CHECK (((status >= 100) AND (status <= 599)))
);

CREATE TABLE vpay.inbox_events (
    id bigint NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone DEFAULT now() NOT NULL,
    next_attempt_at timestamp with time zone,
    ended_at timestamp with time zone,
    deliveries bigint DEFAULT 1 NOT NULL,
    conflicts bigint DEFAULT 0 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    state text DEFAULT 'accepted'::text NOT NULL COLLATE pg_catalog."C",
    vendor text NOT NULL COLLATE pg_catalog."C",
    account text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    event_id text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    reference text,
    lane text NOT NULL COLLATE pg_catalog."C",
    verified_by text NOT NULL,
    verdict text,
    reason text,
    last_error text,
    digest bytea NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT inbox_body_size CHECK ((octet_length(body) <= 262144)),
    CONSTRAINT inbox_counters_only_count CHECK (((deliveries >= 1) AND (conflicts >= 0) AND (attempts >= 0))),
    CONSTRAINT inbox_dead_say_why CHECK (((state <> 'dead'::text) OR (reason IS NOT NULL))),
    CONSTRAINT inbox_digest_is_sha256 CHECK ((octet_length(digest) = 32)),
    CONSTRAINT inbox_end_says_when CHECK (((state = ANY (ARRAY['accepted'::text, 'retrying'::text])) = (ended_at IS NULL))),
    CONSTRAINT inbox_names_have_length CHECK ((((length(vendor) >= 1) AND (length(vendor) <= 64)) AND (length(account) <= 64) AND ((length(event_id) >= 1) AND (length(event_id) <= 128)) AND (length(type) <= 128) AND ((length(reference) >= 1) AND (length(reference) <= 255)) AND ((length(lane) >= 1) AND (length(lane) <= 255)) AND ((length(verified_by) >= 1) AND (length(verified_by) <= 64)) AND ((length(verdict) >= 1) AND (length(verdict) <= 64)) AND (length(reason) <= 255) AND (length(last_error) <= 2000))),
    CONSTRAINT inbox_state_known CHECK ((state = ANY (ARRAY['accepted'::text, 'retrying'::text, 'done'::text, 'ignored'::text, 'dead'::text]))),
    CONSTRAINT inbox_verdict_is_of_the_done CHECK (((state = 'done'::text) = (verdict IS NOT NULL))),
    CONSTRAINT inbox_waits_only_to_retry CHECK (((state = 'retrying'::text) = (next_attempt_at IS NOT NULL)))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.02');

ALTER TABLE vpay.inbox_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME vpay.inbox_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE vpay.jobs (
    id bigint NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    locked_at timestamp with time zone,
    lease_until timestamp with time zone,
    started_at timestamp with time zone,
    unknown_since timestamp with time zone,
    parked_at timestamp with time zone,
    lease uuid,
    settled_by uuid,
    claims integer DEFAULT 0 NOT NULL,
    starts integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    priority smallint DEFAULT 2 NOT NULL,
    due boolean DEFAULT false NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    lane text COLLATE pg_catalog."C",
    dedupe_key text COLLATE pg_catalog."C",
    locked_by text,
    poked interval,
    dead_reason text,
    last_error text,
    payload jsonb NOT NULL,
    CONSTRAINT counters_only_count CHECK (((claims >= 0) AND (starts >= 0) AND (failures >= 0) AND (crashes >= 0))),
    CONSTRAINT dead_reason_known CHECK ((dead_reason = ANY (ARRAY['poisoned'::text, 'misconfigured'::text, 'not_implemented'::text, 'rejected'::text, 'crashed'::text, 'unknown_kind'::text, 'attempts_exhausted'::text, 'by_task'::text, 'by_operator'::text]))),
    CONSTRAINT lease_is_whole CHECK ((((lease IS NULL) AND (locked_by IS NULL) AND (locked_at IS NULL) AND (lease_until IS NULL) AND (started_at IS NULL)) OR ((lease IS NOT NULL) AND (locked_by IS NOT NULL) AND (locked_at IS NOT NULL) AND (lease_until IS NOT NULL)))),
    CONSTRAINT names_have_length CHECK ((((length(queue) >= 1) AND (length(queue) <= 64)) AND ((length(kind) >= 1) AND (length(kind) <= 64)) AND ((length(lane) >= 1) AND (length(lane) <= 255)) AND ((length(dedupe_key) >= 1) AND (length(dedupe_key) <= 255)) AND (length(last_error) <= 2000))),
    CONSTRAINT parked_has_reason_and_no_lease CHECK ((((parked_at IS NULL) AND (dead_reason IS NULL)) OR ((parked_at IS NOT NULL) AND (dead_reason IS NOT NULL) AND (lease IS NULL)))),
    CONSTRAINT payload_is_object CHECK ((jsonb_typeof(payload) = 'object'::text)),
    CONSTRAINT payload_size CHECK ((octet_length((payload)::text) <= 131072)),
    CONSTRAINT priority_in_range CHECK (((priority >= 0) AND (priority <= 3)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE vpay.jobs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME vpay.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE vpay.lanes (
    queue text NOT NULL COLLATE pg_catalog."C",
    lane text NOT NULL COLLATE pg_catalog."C",
    cap integer,
    paused boolean DEFAULT false NOT NULL,
    circuit_until timestamp with time zone,
    circuit_trips integer DEFAULT 0 NOT NULL,
    changed_by text,
    reason text,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    silent integer DEFAULT 0 NOT NULL,
    exhausted_told_at timestamp with time zone,
    CONSTRAINT cap_is_positive CHECK ((cap >= 1)),
    CONSTRAINT silence_only_counts CHECK ((silent >= 0)),
    CONSTRAINT trips_only_count CHECK ((circuit_trips >= 0))
);

CREATE TABLE vpay.ledger_entries (
    id bigint NOT NULL,
    posted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    amount bigint NOT NULL,
    currency text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    debit text NOT NULL COLLATE pg_catalog."C",
    credit text NOT NULL COLLATE pg_catalog."C",
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    charge_id text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT entry_amount_in_range CHECK (((amount >= 1) AND (amount <= '9007199254740991'::bigint))),
    CONSTRAINT entry_currency_is_iso CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT entry_merchant_has_length CHECK (((length(merchant_id) >= 1) AND (length(merchant_id) <= 64))),
    CONSTRAINT entry_moves_between_its_accounts CHECK ((((kind = 'capture'::text) AND (debit = 'payer_clearing'::text) AND (credit = 'merchant_payable'::text)) OR ((kind = 'fee'::text) AND (debit = 'payer_clearing'::text) AND (credit = 'platform_fee_revenue'::text))))
);

ALTER TABLE vpay.ledger_entries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME vpay.ledger_entries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE vpay.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE vpay.payment_intents (
    id text NOT NULL COLLATE pg_catalog."C",
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    customer_id text COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    currency text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'requires_payment_method'::text NOT NULL COLLATE pg_catalog."C",
    amount_received bigint DEFAULT 0 NOT NULL,
    amount_refunded bigint DEFAULT 0 NOT NULL,
    last_payment_error text COLLATE pg_catalog."C",
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    livemode boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT intent_amount_in_range CHECK (((amount >= 1) AND (amount <= '9007199254740991'::bigint))),
    CONSTRAINT intent_currency_is_iso CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT intent_last_error_known CHECK ((last_payment_error = ANY (ARRAY['insufficient_funds'::text, 'payer_timeout'::text, 'payer_declined'::text, 'invalid_payer'::text, 'payer_limit_reached'::text, 'payer_account_blocked'::text, 'invalid_payee'::text, 'payee_account_blocked'::text, 'provider_account_blocked'::text, 'provider_unavailable'::text, 'provider_error'::text]))),
    CONSTRAINT intent_metadata_is_object CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT intent_names_have_length CHECK ((((length(id) >= 4) AND (length(id) <= 64)) AND ((length(merchant_id) >= 1) AND (length(merchant_id) <= 64)) AND ((length(customer_id) >= 1) AND (length(customer_id) <= 64)))),
    CONSTRAINT intent_received_when_succeeded CHECK ((amount_received =
CASE
    WHEN (status = 'succeeded'::text) THEN amount
    ELSE (0)::bigint
END)),
    CONSTRAINT intent_refunded_within_received CHECK (((amount_refunded >= 0) AND (amount_refunded <= amount_received))),
    CONSTRAINT intent_status_known CHECK ((status = ANY (ARRAY['requires_payment_method'::text, 'requires_action'::text, 'processing'::text, 'succeeded'::text, 'canceled'::text])))
);

CREATE TABLE vpay.provider_requests (
    id bigint NOT NULL,
    charge_id text NOT NULL COLLATE pg_catalog."C",
    sent_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    answered_at timestamp with time zone,
    class text COLLATE pg_catalog."C",
    code text COLLATE pg_catalog."C",
    detail text,
    CONSTRAINT request_answer_is_whole CHECK (((class IS NULL) = (answered_at IS NULL))),
    CONSTRAINT request_class_known CHECK ((class = ANY (ARRAY['accepted'::text, 'declined'::text, 'unknown'::text]))),
    CONSTRAINT request_code_known CHECK ((code = ANY (ARRAY['insufficient_funds'::text, 'payer_timeout'::text, 'payer_declined'::text, 'invalid_payer'::text, 'payer_limit_reached'::text, 'payer_account_blocked'::text, 'invalid_payee'::text, 'payee_account_blocked'::text, 'provider_account_blocked'::text, 'provider_unavailable'::text, 'provider_error'::text]))),
    CONSTRAINT request_declined_has_code CHECK (((NOT (class IS DISTINCT FROM 'declined'::text)) = (code IS NOT NULL))),
    CONSTRAINT request_detail_has_length CHECK ((length(detail) <= 2000))
);

ALTER TABLE vpay.provider_requests ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME vpay.provider_requests_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE vpay.rate_limits (
    attempts bigint NOT NULL,
    elapses_at timestamp with time zone NOT NULL,
    id bytea NOT NULL,
    scope text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT rate_limit_counts_from_one CHECK ((attempts >= 1)),
    CONSTRAINT rate_limit_id_is_sha256 CHECK ((octet_length(id) = 32)),
    CONSTRAINT rate_limit_scope_has_length CHECK (((length(scope) >= 1) AND (length(scope) <= 64)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');

CREATE TABLE vpay.webhook_deliveries (
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    next_attempt_at timestamp with time zone,
    attempted_at timestamp with time zone,
    ended_at timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    digest_rev integer,
    last_status smallint,
    state text DEFAULT 'pending'::text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    event_id text NOT NULL COLLATE pg_catalog."C",
    merchant_id text NOT NULL COLLATE pg_catalog."C",
    endpoint_id text NOT NULL COLLATE pg_catalog."C",
    digest bytea,
    last_excerpt text,
    replays integer DEFAULT 0 NOT NULL,
    ladder_from integer DEFAULT 0 NOT NULL,
    CONSTRAINT attempts_only_count CHECK ((attempts >= 0)),
    CONSTRAINT delivery_names_have_length CHECK ((((length(id) >= 1) AND (length(id) <= 64)) AND ((length(merchant_id) >= 1) AND (length(merchant_id) <= 64)) AND ((length(endpoint_id) >= 1) AND (length(endpoint_id) <= 64)) AND (length(last_excerpt) <= 2000))),
    CONSTRAINT delivery_state_known CHECK ((state = ANY (ARRAY['pending'::text, 'delivered'::text, 'exhausted'::text, 'gone'::text, 'poisoned'::text]))),
    CONSTRAINT digest_is_sha256 CHECK ((octet_length(digest) = 32)),
    CONSTRAINT digest_names_its_revision CHECK (((digest IS NULL) = (digest_rev IS NULL))),
    CONSTRAINT ended_says_when CHECK (((state = 'pending'::text) = (ended_at IS NULL))),
    CONSTRAINT ended_waits_for_nothing CHECK (((state = 'pending'::text) OR (next_attempt_at IS NULL))),
    CONSTRAINT ladder_begins_at_an_attempt CHECK (((ladder_from >= 0) AND (ladder_from <= attempts))),
    CONSTRAINT replays_only_count CHECK ((replays >= 0))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.02');

CREATE TABLE vpay.workers (
    id text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL,
    pid integer NOT NULL,
    queues text[] NOT NULL,
    threads integer NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    holds_lock boolean DEFAULT false NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    slowest_pulse interval DEFAULT '00:00:00'::interval NOT NULL,
    stats jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT threads_positive CHECK ((threads >= 1))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

ALTER TABLE ONLY vpay.charges
    ADD CONSTRAINT charge_one_per_intent UNIQUE (payment_intent_id);

ALTER TABLE ONLY vpay.charges
    ADD CONSTRAINT charge_reference_unique UNIQUE (provider_code, provider_reference_id);

ALTER TABLE ONLY vpay.charges
    ADD CONSTRAINT charges_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.checkout_sessions
    ADD CONSTRAINT checkout_sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.client_assertions
    ADD CONSTRAINT client_assertions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.delivery_attempts
    ADD CONSTRAINT delivery_attempts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.ledger_entries
    ADD CONSTRAINT entry_once_per_charge UNIQUE (charge_id, kind);

ALTER TABLE ONLY vpay.events
    ADD CONSTRAINT events_id_key UNIQUE (id);

ALTER TABLE ONLY vpay.events
    ADD CONSTRAINT events_list_seq_key UNIQUE (list_seq);

ALTER TABLE ONLY vpay.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY vpay.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (merchant_id, key);

ALTER TABLE ONLY vpay.inbox_events
    ADD CONSTRAINT inbox_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (queue, lane);

ALTER TABLE ONLY vpay.ledger_entries
    ADD CONSTRAINT ledger_entries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY vpay.webhook_deliveries
    ADD CONSTRAINT one_per_event_and_endpoint UNIQUE (event_id, endpoint_id);

ALTER TABLE ONLY vpay.inbox_events
    ADD CONSTRAINT one_per_vendor_account_and_id UNIQUE (vendor, account, event_id);

ALTER TABLE ONLY vpay.payment_intents
    ADD CONSTRAINT payment_intents_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.provider_requests
    ADD CONSTRAINT provider_requests_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.rate_limits
    ADD CONSTRAINT rate_limits_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.checkout_sessions
    ADD CONSTRAINT session_one_per_intent UNIQUE (payment_intent_id);

ALTER TABLE ONLY vpay.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY vpay.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX charges_callback_key ON vpay.charges USING btree (provider_code, ((provider_ref_extra ->> 'callback_key'::text))) WHERE ((provider_ref_extra ->> 'callback_key'::text) IS NOT NULL);

CREATE INDEX charges_contradicted ON vpay.charges USING btree (contradicted_at) WHERE (contradicted_at IS NOT NULL);

CREATE INDEX charges_unresolved ON vpay.charges USING btree (created_at) WHERE (state = 'unresolved'::text);

CREATE INDEX charges_untouched ON vpay.charges USING btree (updated_at, id) WHERE (state = ANY (ARRAY['submitting'::text, 'submitted'::text, 'pending'::text, 'unresolved'::text]));

CREATE INDEX charges_with_words ON vpay.charges USING btree (updated_at) WHERE (failure_raw IS NOT NULL);

CREATE INDEX checkout_sessions_open ON vpay.checkout_sessions USING btree (expires_at) WHERE (status = 'open'::text);

CREATE INDEX client_assertions_expiry ON vpay.client_assertions USING btree (expires_at);

CREATE INDEX customers_idle ON vpay.customers USING btree (last_used_at) WHERE (erased_at IS NULL);

CREATE INDEX customers_to_redact ON vpay.customers USING btree (erased_at) WHERE ((erased_at IS NOT NULL) AND (redaction_done_at IS NULL));

CREATE INDEX deliveries_of_endpoint ON vpay.webhook_deliveries USING btree (merchant_id, endpoint_id, created_at, id);

CREATE INDEX deliveries_pending ON vpay.webhook_deliveries USING btree (merchant_id, endpoint_id, created_at, id) WHERE (state = 'pending'::text);

CREATE INDEX delivery_attempts_of ON vpay.delivery_attempts USING btree (delivery_id, id);

CREATE INDEX events_of_merchant ON vpay.events USING btree (merchant_id, list_seq) WHERE (list_seq IS NOT NULL);

CREATE INDEX events_of_object ON vpay.events USING btree (object_id, seq);

CREATE INDEX events_pending ON vpay.events USING btree (seq) WHERE (fanout_state = 'pending'::text);

CREATE INDEX events_since ON vpay.events USING btree (merchant_id, created_at, seq);

CREATE INDEX events_to_redact ON vpay.events USING btree (customer_id, seq) WHERE ((customer_id IS NOT NULL) AND (NOT redacted));

CREATE INDEX idempotency_keys_expiry ON vpay.idempotency_keys USING btree (expires_at);

CREATE INDEX inbox_dead ON vpay.inbox_events USING btree (ended_at) WHERE (state = 'dead'::text);

CREATE INDEX inbox_open ON vpay.inbox_events USING btree (received_at) WHERE (ended_at IS NULL);

CREATE INDEX inbox_over ON vpay.inbox_events USING btree (ended_at) WHERE (state = ANY (ARRAY['done'::text, 'ignored'::text]));

CREATE UNIQUE INDEX jobs_dedupe_key ON vpay.jobs USING btree (dedupe_key) WHERE (dedupe_key IS NOT NULL);

CREATE INDEX jobs_lane ON vpay.jobs USING btree (queue, lane, run_at) WHERE ((locked_at IS NULL) AND (parked_at IS NULL) AND (lane IS NOT NULL) AND due);

CREATE INDEX jobs_lane_waiting ON vpay.jobs USING btree (queue, run_at) WHERE ((locked_at IS NULL) AND (parked_at IS NULL) AND (lane IS NOT NULL) AND (NOT due));

CREATE INDEX jobs_leased ON vpay.jobs USING btree (queue, lane) WHERE (locked_at IS NOT NULL);

CREATE INDEX jobs_parked ON vpay.jobs USING btree (queue, parked_at) WHERE (parked_at IS NOT NULL);

CREATE INDEX jobs_ready ON vpay.jobs USING btree (queue, priority, run_at) WHERE ((locked_at IS NULL) AND (parked_at IS NULL) AND (lane IS NULL));

CREATE INDEX payment_intents_of_customer ON vpay.payment_intents USING btree (customer_id) WHERE (customer_id IS NOT NULL);

CREATE INDEX provider_requests_charge ON vpay.provider_requests USING btree (charge_id, id);

CREATE INDEX provider_requests_with_words ON vpay.provider_requests USING btree (answered_at) WHERE ((detail IS NOT NULL) AND (answered_at IS NOT NULL));

CREATE INDEX rate_limits_elapsed ON vpay.rate_limits USING btree (elapses_at);

CREATE TRIGGER entries_stay BEFORE DELETE OR UPDATE ON vpay.ledger_entries FOR EACH ROW EXECUTE FUNCTION vpay.refuse_changing_the_ledger();

CREATE TRIGGER entries_stay_all BEFORE TRUNCATE ON vpay.ledger_entries FOR EACH STATEMENT EXECUTE FUNCTION vpay.refuse_changing_the_ledger();

CREATE TRIGGER guard_attempt_stays BEFORE DELETE ON vpay.delivery_attempts FOR EACH ROW EXECUTE FUNCTION vpay.guard_what_was_told();

CREATE TRIGGER guard_charge BEFORE DELETE OR UPDATE ON vpay.charges FOR EACH ROW EXECUTE FUNCTION vpay.guard_charge();

CREATE TRIGGER guard_checkout_session BEFORE UPDATE ON vpay.checkout_sessions FOR EACH ROW EXECUTE FUNCTION vpay.guard_checkout_session();

CREATE TRIGGER guard_customer BEFORE UPDATE ON vpay.customers FOR EACH ROW EXECUTE FUNCTION vpay.guard_customer();

CREATE TRIGGER guard_delivery_stays BEFORE DELETE ON vpay.webhook_deliveries FOR EACH ROW EXECUTE FUNCTION vpay.guard_what_was_told();

CREATE TRIGGER guard_event BEFORE UPDATE OF id, merchant_id, type, object_id, customer_id, livemode, created_at, body, body_rev, redacted ON vpay.events FOR EACH ROW EXECUTE FUNCTION vpay.guard_event();

CREATE TRIGGER guard_event_stays BEFORE DELETE ON vpay.events FOR EACH ROW EXECUTE FUNCTION vpay.guard_event();

CREATE TRIGGER guard_inbox_event_stays BEFORE DELETE ON vpay.inbox_events FOR EACH ROW EXECUTE FUNCTION vpay.guard_inbox_event();

CREATE TRIGGER guard_ledger_entry AFTER INSERT ON vpay.ledger_entries FOR EACH ROW EXECUTE FUNCTION vpay.guard_ledger_entry();

CREATE TRIGGER guard_payment_intent BEFORE UPDATE ON vpay.payment_intents FOR EACH ROW EXECUTE FUNCTION vpay.guard_payment_intent();

CREATE TRIGGER terminal_states_stay BEFORE UPDATE ON vpay.webhook_deliveries FOR EACH ROW WHEN (((old.state <> 'pending'::text) AND (new.state IS DISTINCT FROM old.state) AND (NOT ((new.state = 'pending'::text) AND (new.replays = (old.replays + 1)) AND (new.attempts = old.attempts))))) EXECUTE FUNCTION vpay.refuse_leaving_a_terminal_state();

ALTER TABLE ONLY vpay.charges
    ADD CONSTRAINT charges_payment_intent_id_fkey FOREIGN KEY (payment_intent_id) REFERENCES vpay.payment_intents(id);

ALTER TABLE ONLY vpay.checkout_sessions
    ADD CONSTRAINT checkout_sessions_payment_intent_id_fkey FOREIGN KEY (payment_intent_id) REFERENCES vpay.payment_intents(id);

ALTER TABLE ONLY vpay.delivery_attempts
    ADD CONSTRAINT delivery_attempts_delivery_id_fkey FOREIGN KEY (delivery_id) REFERENCES vpay.webhook_deliveries(id);

ALTER TABLE ONLY vpay.payment_intents
    ADD CONSTRAINT intent_customer_exists FOREIGN KEY (customer_id) REFERENCES vpay.customers(id);

ALTER TABLE ONLY vpay.ledger_entries
    ADD CONSTRAINT ledger_entries_charge_id_fkey FOREIGN KEY (charge_id) REFERENCES vpay.charges(id);

ALTER TABLE ONLY vpay.provider_requests
    ADD CONSTRAINT provider_requests_charge_id_fkey FOREIGN KEY (charge_id) REFERENCES vpay.charges(id);

ALTER TABLE ONLY vpay.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_event_id_fkey FOREIGN KEY (event_id) REFERENCES vpay.events(id);
