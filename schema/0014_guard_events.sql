-- What a process in a role of its own (schema/roles.sql) may do to what was told: take a person
-- out of an event, and sweep what is old. Workers need UPDATE and DELETE on these tables for
-- that; without a guard, one that was taken over could tell merchants anything under an id they
-- know, or leave no trace of a delivery. Whoever owns a table could switch its triggers off, so
-- an owner, who mends by hand, is not asked.

CREATE FUNCTION vpay.guard_event() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
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

CREATE FUNCTION vpay.guard_what_was_told() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
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

CREATE FUNCTION vpay.guard_inbox_event() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
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

-- For the columns that an erasure writes; a fan-out writes others, and is asked nothing.
CREATE TRIGGER guard_event
    BEFORE UPDATE OF id, merchant_id, type, object_id, customer_id, livemode, created_at, body,
        body_rev, redacted
    ON vpay.events
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_event();
CREATE TRIGGER guard_event_stays
    BEFORE DELETE ON vpay.events
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_event();
CREATE TRIGGER guard_delivery_stays
    BEFORE DELETE ON vpay.webhook_deliveries
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_what_was_told();
CREATE TRIGGER guard_attempt_stays
    BEFORE DELETE ON vpay.delivery_attempts
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_what_was_told();
CREATE TRIGGER guard_inbox_event_stays
    BEFORE DELETE ON vpay.inbox_events
    FOR EACH ROW EXECUTE FUNCTION vpay.guard_inbox_event();

ALTER FUNCTION vpay.refuse_leaving_a_terminal_state() SET search_path = pg_catalog;
