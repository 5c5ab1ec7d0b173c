-- Written beside the product's tables, by triggers, in the transactions that they tell of: what
-- was rolled back leaves no line here, and what was committed can't be without one.

CREATE SCHEMA audit;

-- Every write that grants, takes or ends a lease, or counts, or ends a job. `session` is who
-- wrote it; `settled_by` the token that the settle presented, which only rows that stay can tell.
CREATE TABLE audit.jobs (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    session text NOT NULL DEFAULT current_setting('application_name'),
    op text NOT NULL,
    job_id bigint NOT NULL,
    kind text NOT NULL,
    old_lease uuid,
    old_locked_by text,
    old_started boolean NOT NULL,
    old_settled_by uuid,
    lease uuid,
    locked_by text,
    started boolean NOT NULL,
    settled_by uuid,
    claims integer NOT NULL,
    starts integer NOT NULL,
    dead_reason text
);
CREATE INDEX ON audit.jobs (job_id, seq);

CREATE FUNCTION audit.job() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog' AS $$
DECLARE
    now_row vpay.jobs := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO audit.jobs (
        op, job_id, kind, old_lease, old_locked_by, old_started, old_settled_by,
        lease, locked_by, started, settled_by, claims, starts, dead_reason
    )
    VALUES (
        TG_OP, now_row.id, now_row.kind,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.lease END,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.locked_by END,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.started_at IS NOT NULL ELSE false END,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.settled_by END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.lease END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.locked_by END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.started_at IS NOT NULL ELSE false END,
        now_row.settled_by, now_row.claims, now_row.starts, now_row.dead_reason
    );
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_made AFTER INSERT OR DELETE ON vpay.jobs
    FOR EACH ROW EXECUTE FUNCTION audit.job();
CREATE TRIGGER audit_moved AFTER UPDATE ON vpay.jobs
    FOR EACH ROW
    WHEN ((OLD.lease, OLD.started_at, OLD.settled_by, OLD.claims, OLD.starts, OLD.failures,
            OLD.crashes, OLD.parked_at)
        IS DISTINCT FROM (NEW.lease, NEW.started_at, NEW.settled_by, NEW.claims, NEW.starts,
            NEW.failures, NEW.crashes, NEW.parked_at))
    EXECUTE FUNCTION audit.job();

-- Every state that a charge has had, and the transaction that gave it.
CREATE TABLE audit.charges (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    session text NOT NULL DEFAULT current_setting('application_name'),
    charge_id text NOT NULL,
    payment_intent_id text NOT NULL,
    amount bigint NOT NULL,
    currency text NOT NULL,
    old_state text,
    state text NOT NULL
);
CREATE INDEX ON audit.charges (charge_id, seq);

CREATE FUNCTION audit.charge() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog' AS $$
BEGIN
    INSERT INTO audit.charges (charge_id, payment_intent_id, amount, currency, old_state, state)
    VALUES (
        NEW.id, NEW.payment_intent_id, NEW.amount, NEW.currency,
        CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state
    );
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_made AFTER INSERT ON vpay.charges
    FOR EACH ROW EXECUTE FUNCTION audit.charge();
CREATE TRIGGER audit_moved AFTER UPDATE ON vpay.charges
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION audit.charge();

-- Every event, and the transaction that wrote it.
CREATE TABLE audit.events (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    event_id text NOT NULL,
    type text NOT NULL,
    object_id text NOT NULL
);
CREATE INDEX ON audit.events (object_id);

CREATE FUNCTION audit.event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog' AS $$
BEGIN
    INSERT INTO audit.events (event_id, type, object_id) VALUES (NEW.id, NEW.type, NEW.object_id);
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_made AFTER INSERT ON vpay.events
    FOR EACH ROW EXECUTE FUNCTION audit.event();

-- Only what went down: a counter that may only grow leaves nothing here. Its columns are the
-- trigger's arguments.
CREATE TABLE audit.went_down (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    session text NOT NULL DEFAULT current_setting('application_name'),
    about text NOT NULL,
    row_id text NOT NULL,
    counter text NOT NULL,
    old_value numeric NOT NULL,
    value numeric
);

CREATE FUNCTION audit.counters() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog' AS $$
DECLARE
    was jsonb := to_jsonb(OLD);
    is_now jsonb := to_jsonb(NEW);
BEGIN
    INSERT INTO audit.went_down (about, row_id, counter, old_value, value)
    SELECT TG_TABLE_NAME, was ->> 'id', counter, (was ->> counter)::numeric,
        (is_now ->> counter)::numeric
    FROM unnest(TG_ARGV) AS counter
    WHERE coalesce((is_now ->> counter)::numeric, -1) < (was ->> counter)::numeric;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_counters AFTER UPDATE ON vpay.jobs FOR EACH ROW
    WHEN (NEW.claims < OLD.claims OR NEW.starts < OLD.starts)
    EXECUTE FUNCTION audit.counters('claims', 'starts');
CREATE TRIGGER audit_counters AFTER UPDATE ON vpay.charges FOR EACH ROW
    WHEN (NEW.polls < OLD.polls)
    EXECUTE FUNCTION audit.counters('polls');
CREATE TRIGGER audit_counters AFTER UPDATE ON vpay.webhook_deliveries FOR EACH ROW
    WHEN ((NEW.attempts, NEW.replays, NEW.ladder_from, coalesce(NEW.digest_rev, -1))
        IS DISTINCT FROM (OLD.attempts, OLD.replays, OLD.ladder_from, coalesce(OLD.digest_rev, -1)))
    EXECUTE FUNCTION audit.counters('attempts', 'replays', 'ladder_from', 'digest_rev');
CREATE TRIGGER audit_counters AFTER UPDATE ON vpay.events FOR EACH ROW
    EXECUTE FUNCTION audit.counters('body_rev', 'fanout_attempts', 'seq', 'list_seq');
CREATE TRIGGER audit_counters AFTER UPDATE ON vpay.inbox_events FOR EACH ROW
    EXECUTE FUNCTION audit.counters('deliveries', 'conflicts');
