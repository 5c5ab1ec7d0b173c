-- Five roles, each with what its processes need and no more. Run it as whoever ran
-- `vpay-tasks migrate` (or a superuser), and again after each migration; safe to repeat:
--
--   psql -f schema/roles.sql
--   CREATE ROLE worker_1 LOGIN PASSWORD … IN ROLE vpay_worker;
--
-- vpay_owner       owns nothing yet: give it the schema to migrate as it (see below)
-- vpay_dispatcher  vpay-dispatch: jobs, lanes, workers; counts of the rest
-- vpay_worker      dramatiq vpay_tasks.actors, and applications that confirm payments
-- vpay_web         uvicorn vpay_tasks.web:app: callbacks, the inbox, events to read
-- vpay_operator    people: everything to read but what identifies a payer
--
-- Nobody but the owner changes tables, deletes a charge, an intent, a submit or a ledger entry,
-- an event of the last day or what became of it, rewrites an event (but to take a person out), or
-- writes the record of migrations. To have migrations run as vpay_owner:
--   ALTER SCHEMA vpay OWNER TO vpay_owner;  REASSIGN OWNED BY old_owner TO vpay_owner;

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['vpay_owner', 'vpay_dispatcher', 'vpay_worker', 'vpay_web',
        'vpay_operator']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        END IF;
    END LOOP;
END
$$;

-- What an earlier version of this file gave is taken back first.
REVOKE ALL ON SCHEMA vpay FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA vpay
    FROM PUBLIC, vpay_dispatcher, vpay_worker, vpay_web, vpay_operator;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA vpay
    FROM PUBLIC, vpay_dispatcher, vpay_worker, vpay_web, vpay_operator;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA vpay
    FROM PUBLIC, vpay_dispatcher, vpay_worker, vpay_web, vpay_operator;

GRANT USAGE ON SCHEMA vpay TO vpay_dispatcher, vpay_worker, vpay_web, vpay_operator;
GRANT SELECT ON vpay.migrations TO vpay_dispatcher, vpay_worker, vpay_web, vpay_operator;

-- The dispatcher. It never sees a body, a payer or a rail's key material.
-- Of a job not its payload; what a job is, it can't change.
GRANT SELECT (id, run_at, created_at, locked_at, lease_until, started_at, unknown_since, parked_at,
        lease, settled_by, claims, starts, failures, crashes, priority, due, queue, kind, lane,
        dedupe_key, locked_by, poked, dead_reason, last_error),
    UPDATE (run_at, locked_at, lease_until, started_at, unknown_since, parked_at, lease, settled_by,
        claims, failures, crashes, due, locked_by, poked, dead_reason, last_error)
    ON vpay.jobs TO vpay_dispatcher;
-- It seeds the sweeps and scans.
GRANT INSERT (queue, kind, dedupe_key, payload, priority, lane, run_at, due)
    ON vpay.jobs TO vpay_dispatcher;
GRANT SELECT, INSERT, UPDATE ON vpay.lanes TO vpay_dispatcher;
GRANT SELECT, DELETE ON vpay.workers TO vpay_dispatcher;
GRANT SELECT (id, state, provider_code, polls, contradicted_at, created_at, updated_at)
    ON vpay.charges TO vpay_dispatcher;
GRANT SELECT (seq, id, merchant_id, type, created_at, fanout_state, fanout_attempts)
    ON vpay.events TO vpay_dispatcher;
GRANT SELECT (id, merchant_id, endpoint_id, state, created_at, next_attempt_at, attempts)
    ON vpay.webhook_deliveries TO vpay_dispatcher;
GRANT SELECT (state, received_at, ended_at) ON vpay.inbox_events TO vpay_dispatcher;
-- Who holds the xmin horizon is told by the age of other roles' transactions.
GRANT pg_read_all_stats TO vpay_dispatcher, vpay_operator;

-- Workers and applications write the record of money, and delete none of it.
GRANT SELECT, INSERT, UPDATE, DELETE ON vpay.jobs, vpay.customers, vpay.idempotency_keys,
    vpay.client_assertions, vpay.rate_limits TO vpay_worker;
GRANT SELECT, INSERT, UPDATE ON vpay.lanes, vpay.workers TO vpay_worker;
GRANT SELECT, INSERT, UPDATE ON vpay.payment_intents, vpay.charges, vpay.provider_requests,
    vpay.checkout_sessions TO vpay_worker;
GRANT SELECT, INSERT ON vpay.ledger_entries TO vpay_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON vpay.webhook_deliveries, vpay.delivery_attempts,
    vpay.inbox_events TO vpay_worker;
GRANT SELECT, INSERT, DELETE, UPDATE (list_seq, body_rev, fanout_attempts, fanout_state, body,
        redacted)
    ON vpay.events TO vpay_worker;
GRANT USAGE ON vpay.event_list_seq TO vpay_worker;

-- The web process takes hints and keeps what vendors send; it moves no money.
-- It moves jobs up and may add to what they are to look at; it takes no lease.
GRANT SELECT, INSERT, UPDATE (payload, run_at, due, poked, parked_at, dead_reason, unknown_since,
        failures, crashes)
    ON vpay.jobs TO vpay_web;
GRANT SELECT (id, payment_intent_id, provider_code, provider_reference_id, provider_ref_extra,
        state, last_asked_at, created_at, updated_at)
    ON vpay.charges TO vpay_web;
-- For the lock that a callback takes; all it could write is when the rail was asked last.
GRANT UPDATE (last_asked_at) ON vpay.charges TO vpay_web;
GRANT SELECT, INSERT, UPDATE ON vpay.inbox_events TO vpay_web;
GRANT SELECT ON vpay.events TO vpay_web;

-- People read. Of an event not its body, which holds a customer's name, address and number, nor
-- of an intent what the merchant wrote beside it, nor of a job what an application gave to
-- it, or the token that settles it.
GRANT SELECT (id, run_at, created_at, locked_at, lease_until, started_at, unknown_since, parked_at,
        claims, starts, failures, crashes, priority, due, queue, kind, lane, dedupe_key, locked_by,
        poked, dead_reason, last_error)
    ON vpay.jobs TO vpay_operator;
GRANT SELECT ON vpay.lanes, vpay.workers, vpay.provider_requests, vpay.ledger_entries,
    vpay.webhook_deliveries, vpay.delivery_attempts TO vpay_operator;
GRANT SELECT (seq, list_seq, created_at, body_rev, fanout_attempts, livemode, fanout_state, id,
        merchant_id, type, object_id, customer_id, redacted)
    ON vpay.events TO vpay_operator;
GRANT SELECT (id, merchant_id, customer_id, amount, currency, status, amount_received,
        amount_refunded, last_payment_error, livemode, created_at, updated_at)
    ON vpay.payment_intents TO vpay_operator;
GRANT SELECT (id, payment_intent_id, provider_code, provider_reference_id, return_url, state,
        amount, currency, payer_masked, failure_code, failure_raw, provider_txn_id, polls,
        last_asked_at, not_found_streak, first_not_found_at, contradicted_at, created_at,
        updated_at)
    ON vpay.charges TO vpay_operator;
GRANT SELECT (id, merchant_id, created_at, updated_at, last_used_at, erased_at,
        redaction_done_at, livemode)
    ON vpay.customers TO vpay_operator;
GRANT SELECT (id, merchant_id, payment_intent_id, status, payment_status, livemode, created_at,
        updated_at, expires_at)
    ON vpay.checkout_sessions TO vpay_operator;
GRANT SELECT (id, vendor, account, event_id, type, reference, lane, state, verdict, reason,
        verified_by, received_at, delivered_at, next_attempt_at, ended_at, deliveries, conflicts,
        attempts, last_error, digest)
    ON vpay.inbox_events TO vpay_operator;
