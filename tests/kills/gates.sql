-- Places at which a process of ours can be stopped, from outside: triggers on the product's
-- tables. A gate names one write of one row; the first session that comes to it waits for an
-- advisory lock that the test holds, or is refused.

CREATE SCHEMA kills;

CREATE TABLE kills.gates (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    place text NOT NULL,
    in_commit boolean NOT NULL,
    kind text NOT NULL,
    about text NOT NULL,
    -- The SQLSTATE of the refusal; null: wait.
    raises text,
    -- What kills.refused will say to the one that is refused: it survives a rollback.
    refusal bigint
);

CREATE SEQUENCE kills.refused;

-- What became of every job, charge, event and delivery, in the transactions that did it.
CREATE TABLE kills.trail (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    about text,
    word text NOT NULL,
    row_id text NOT NULL,
    application text NOT NULL DEFAULT current_setting('application_name')
);

-- What a row is about: an intent, a vendor's event, or a singleton's kind.
CREATE FUNCTION kills.about(what text, row_ jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT CASE what
        WHEN 'charges' THEN row_ ->> 'payment_intent_id'
        WHEN 'provider_requests' THEN (
            SELECT payment_intent_id FROM vpay.charges WHERE id = row_ ->> 'charge_id')
        WHEN 'events' THEN row_ ->> 'object_id'
        WHEN 'webhook_deliveries' THEN (
            SELECT object_id FROM vpay.events WHERE id = row_ ->> 'event_id')
        WHEN 'inbox_events' THEN row_ ->> 'event_id'
        WHEN 'poll_charge' THEN (
            SELECT payment_intent_id FROM vpay.charges WHERE id = row_ -> 'payload' ->> 'charge_id')
        WHEN 'resubmit_charge' THEN (
            SELECT payment_intent_id FROM vpay.charges WHERE id = row_ -> 'payload' ->> 'charge_id')
        WHEN 'deliver_webhook' THEN (
            SELECT object_id
            FROM vpay.webhook_deliveries AS deliveries
            JOIN vpay.events ON events.id = deliveries.event_id
            WHERE deliveries.id = row_ -> 'payload' ->> 'delivery_id')
        WHEN 'grant_inbox' THEN (
            SELECT event_id FROM vpay.inbox_events
            WHERE id = (row_ -> 'payload' ->> 'inbox_id')::bigint)
        ELSE what
    END
$$;

-- What a write does to its row, in a word; null for what nobody asks about.
CREATE FUNCTION kills.word(what text, op text, old_ jsonb, new_ jsonb) RETURNS text
LANGUAGE sql AS $$
    SELECT CASE what
        WHEN 'charges' THEN CASE
            WHEN op = 'INSERT' THEN 'written'
            WHEN old_ ->> 'state' = new_ ->> 'state' THEN NULL
            WHEN new_ ->> 'state' IN ('succeeded', 'failed') THEN 'settled'
            ELSE new_ ->> 'state'
        END
        WHEN 'provider_requests' THEN CASE op WHEN 'INSERT' THEN 'begun' ELSE 'answered' END
        WHEN 'events' THEN CASE
            WHEN op = 'INSERT' THEN 'written'
            WHEN old_ ->> 'fanout_state' <> new_ ->> 'fanout_state' THEN 'flipped'
        END
        WHEN 'webhook_deliveries' THEN CASE
            WHEN op = 'INSERT' THEN 'written'
            WHEN old_ -> 'digest' <> new_ -> 'digest' THEN 'stamped'
            WHEN old_ -> 'attempts' <> new_ -> 'attempts' THEN 'recorded'
        END
        WHEN 'inbox_events' THEN CASE
            WHEN op = 'INSERT' THEN 'kept'
            WHEN old_ ->> 'state' <> new_ ->> 'state' THEN new_ ->> 'state'
        END
        WHEN 'jobs' THEN CASE
            WHEN op = 'DELETE' THEN 'end'
            WHEN op = 'INSERT' THEN NULL
            WHEN old_ ->> 'lease' IS NULL AND new_ ->> 'lease' IS NOT NULL THEN 'claim'
            WHEN old_ ->> 'started_at' IS NULL AND new_ ->> 'started_at' IS NOT NULL THEN 'start'
            WHEN new_ ->> 'lease' IS NOT NULL AND old_ ->> 'lease' <> new_ ->> 'lease'
                THEN 'overruled'
            WHEN old_ ->> 'lease' IS NULL OR new_ ->> 'lease' IS NOT NULL THEN NULL
            WHEN new_ ->> 'settled_by' = old_ ->> 'lease' THEN CASE
                WHEN new_ ->> 'parked_at' IS NOT NULL THEN 'parked'
                WHEN (new_ ->> 'failures')::integer > (old_ ->> 'failures')::integer THEN 'retry'
                ELSE 'again'
            END
            WHEN current_setting('application_name') <> 'vpay reap' THEN 'release'
            WHEN old_ ->> 'started_at' IS NULL THEN 'claim_expired'
            WHEN (old_ ->> 'lease_until')::timestamptz < now() THEN 'run_expired'
            ELSE 'worker_gone'
        END
    END
$$;

-- lock_timeout: ours is a wait that no product's limit is meant for.
CREATE FUNCTION kills.pass(what text, word_ text, committing boolean, about_ text) RETURNS void
LANGUAGE plpgsql SET lock_timeout = 0 AS $$
DECLARE
    gate kills.gates;
BEGIN
    SELECT * INTO gate
    FROM kills.gates
    WHERE kind = what AND place = word_ AND in_commit = committing AND about = about_;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF gate.raises IS NOT NULL THEN
        IF nextval('kills.refused') = gate.refusal THEN
            RAISE EXCEPTION 'refused by a test' USING ERRCODE = gate.raises;
        END IF;
    ELSIF pg_try_advisory_xact_lock(4712, gate.id) THEN
        PERFORM pg_advisory_xact_lock_shared(4711, gate.id);
    END IF;
END
$$;

CREATE FUNCTION kills.gate() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_ jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    new_ jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    row_ jsonb := coalesce(new_, old_);
    word_ text := kills.word(TG_TABLE_NAME, TG_OP, old_, new_);
    what text := CASE TG_TABLE_NAME WHEN 'jobs' THEN row_ ->> 'kind' ELSE TG_TABLE_NAME END;
BEGIN
    IF word_ IS NOT NULL THEN
        PERFORM kills.pass(what, word_, TG_ARGV[0]::boolean, kills.about(what, row_));
        IF TG_WHEN = 'AFTER' AND NOT TG_ARGV[0]::boolean THEN
            INSERT INTO kills.trail (kind, about, word, row_id)
            VALUES (what, kills.about(what, row_), word_, row_ ->> 'id');
        END IF;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$$;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'charges', 'provider_requests', 'events', 'webhook_deliveries', 'inbox_events', 'jobs'
    ] LOOP
        -- AFTER: then a session that waits has written its row, and holds its lock.
        EXECUTE format('CREATE TRIGGER kills_gate AFTER INSERT OR UPDATE OR DELETE ON vpay.%I'
            ' FOR EACH ROW EXECUTE FUNCTION kills.gate(''false'')', name);
        EXECUTE format('CREATE CONSTRAINT TRIGGER kills_commit AFTER INSERT OR UPDATE OR DELETE'
            ' ON vpay.%I DEFERRABLE INITIALLY DEFERRED'
            ' FOR EACH ROW EXECUTE FUNCTION kills.gate(''true'')', name);
    END LOOP;
END
$$;
