"""What breaks each promise that is asked of the database."""

from __future__ import annotations

UNGUARDED = "SET session_replication_role = replica; "
"""As a bug below the guards would write: no trigger, ours neither."""
LOOSE = "ALTER TABLE vpay.charges DISABLE TRIGGER guard_charge; "
UNPAID = """
UPDATE vpay.payment_intents
SET status = 'requires_payment_method', amount_received = 0
WHERE status = 'succeeded'; """
LOOSE_INTENT = "ALTER TABLE vpay.payment_intents DISABLE TRIGGER guard_payment_intent; "
AGAIN = """
INSERT INTO vpay.ledger_entries (amount, currency, kind, debit, credit, merchant_id, charge_id)
SELECT {amount}, currency, {kind}, debit, {credit}, merchant_id, charge_id
FROM vpay.ledger_entries; """
OTHER = "00000000-0000-4000-8000-000000000000"
JOB = "(SELECT min(id) FROM vpay.jobs WHERE queue = 'default')"
CLAIMED = "lease = gen_random_uuid(), locked_by = 'd_1', locked_at = now(), lease_until = now()"
RUN = f"{CLAIMED}, started_at = now()"
VENDORS_EVENT = """
INSERT INTO vpay.inbox_events (vendor, event_id, type, lane, verified_by, digest, body{more})
VALUES ('stripe', 'e1', 't', 'l', 'stripe', sha256('x'), 'x'{values}); """

BREAKS: dict[str, tuple[str, str]] = {
    "i1_live_charges_have_a_poll": (
        "DELETE FROM vpay.jobs WHERE kind = 'poll_charge'",
        "no job asks about it",
    ),
    "i1_pending_deliveries_have_a_job": (
        UNGUARDED + "UPDATE vpay.webhook_deliveries SET state = 'pending', ended_at = NULL;"
        " DELETE FROM vpay.jobs WHERE kind = 'deliver_webhook'",
        "is pending and no job delivers it",
    ),
    "i1_kept_vendor_events_have_a_job": (
        VENDORS_EVENT.format(more="", values=""),
        "is accepted and no job grants it",
    ),
    "i1_no_job_vanishes": (
        UNGUARDED + "DELETE FROM vpay.jobs WHERE queue = 'default'",
        "was never settled, and is gone",
    ),
    "i1_nothing_waits_at_rest": ("SELECT 1", "is still submitting"),
    "i2_a_charge_ends_once": (
        LOOSE + "UPDATE vpay.charges SET state = 'pending', provider_txn_id = NULL"
        " WHERE state = 'succeeded';"
        " UPDATE vpay.charges SET state = 'succeeded' WHERE state = 'pending'",
        "entered a terminal state 2 times: succeeded, succeeded",
    ),
    "i2_no_charge_leaves_its_end": (
        LOOSE + "UPDATE vpay.charges SET state = 'failed', failure_code = 'payer_timeout',"
        " provider_txn_id = NULL WHERE state = 'succeeded'",
        "left succeeded for failed",
    ),
    "i2_charges_only_move_forward": (
        LOOSE + "UPDATE vpay.charges SET state = 'pending' WHERE state = 'submitting';"
        " UPDATE vpay.charges SET state = 'submitted' WHERE state = 'pending'",
        "went from pending to submitted",
    ),
    "i2_a_charge_and_its_intent_agree": (
        LOOSE_INTENT + UNPAID,
        "is succeeded; its intent is requires_payment_method and has received 0",
    ),
    "i3_an_outcome_carries_the_current_token": (
        f"UPDATE vpay.jobs SET {RUN} WHERE id = {JOB};"
        " UPDATE vpay.jobs SET settled_by = gen_random_uuid(), lease = NULL, locked_by = NULL,"
        f" locked_at = NULL, lease_until = NULL, started_at = NULL WHERE id = {JOB}",
        "with a token that was not its own",
    ),
    "i3_an_outcome_carries_the_current_token (again)": (
        "SET LOCAL application_name = 'vpay worker w_1 settle';"
        f" UPDATE vpay.jobs SET {RUN}, settled_by = '{OTHER}' WHERE id = {JOB};"
        " UPDATE vpay.jobs SET lease = NULL, locked_by = NULL, locked_at = NULL,"
        f" lease_until = NULL, started_at = NULL WHERE id = {JOB}",
        "was settled by vpay worker w_1 settle with a token that was not its own",
    ),
    "i3_only_a_run_ends_a_job": (
        f"DELETE FROM vpay.jobs WHERE id = {JOB}",
        "was ended by tests invariants while it was free",
    ),
    "i3_a_claim_is_started_once": (
        f"UPDATE vpay.jobs SET {RUN} WHERE id = {JOB};"
        " UPDATE vpay.jobs SET lease = gen_random_uuid(), locked_by = 'w_2', starts = starts"
        f" WHERE id = {JOB}",
        "was started by w_2 while d_1 ran it",
    ),
    "i3_a_lease_is_taken_from_nobody": (
        f"UPDATE vpay.jobs SET {CLAIMED} WHERE id = {JOB};"
        f" UPDATE vpay.jobs SET {CLAIMED} WHERE id = {JOB}",
        "was claimed by d_1 while d_1 held it",
    ),
    "i3_a_token_is_granted_once": (
        " ".join(
            f"UPDATE vpay.jobs SET {RUN}, lease = '{'0' * 31}{digit}' WHERE id = {JOB};"
            for digit in "121"
        ).replace("lease = gen_random_uuid(), ", ""),
        "was granted one token 2 times",
    ),
    "i4_a_transition_has_its_event": (
        "UPDATE vpay.charges SET state = 'succeeded' WHERE state = 'submitting'",
        "became succeeded, and its transaction wrote 0 events about it",
    ),
    "i4_an_event_has_its_transition": (
        "INSERT INTO vpay.events (livemode, id, merchant_id, type, object_id, body)"
        " SELECT livemode, 'evt_again', merchant_id, type, object_id, body FROM vpay.events"
        " WHERE type = 'payment_intent.succeeded'",
        "and no charge moved in its transaction",
    ),
    "i4_no_event_is_gone": (
        UNGUARDED + "DELETE FROM vpay.events WHERE type = 'payment_intent.succeeded'",
        "was written and is gone",
    ),
    "i5_every_endpoint_has_its_delivery": (
        UNGUARDED + "DELETE FROM vpay.webhook_deliveries",
        "was fanned out and has no delivery to m_1/main",
    ),
    "i5_fan_outs_never_fail": (
        "UPDATE vpay.events SET fanout_state = 'failed'",
        "could not be fanned out",
    ),
    "i5_one_delivery_an_endpoint": (
        "ALTER TABLE vpay.webhook_deliveries DROP CONSTRAINT one_per_event_and_endpoint;"
        " INSERT INTO vpay.webhook_deliveries (id, event_id, merchant_id, endpoint_id, state,"
        " ended_at) SELECT 'del_again', event_id, merchant_id, endpoint_id, 'exhausted', now()"
        " FROM vpay.webhook_deliveries LIMIT 1",
        "has 2 deliveries to m_1/main",
    ),
    "i5_what_is_delivered_was_answered": (
        "UPDATE vpay.delivery_attempts SET status = 500",
        "no attempt of it was answered with a 2xx",
    ),
    "i5_what_is_given_up_was_tried": (
        UNGUARDED + "UPDATE vpay.webhook_deliveries SET state = 'exhausted'",
        "is exhausted after 1 attempts that count",
    ),
    "i5_what_is_given_up_was_tried (again)": (
        UNGUARDED + "UPDATE vpay.webhook_deliveries SET state = 'gone'",
        "is gone after 1 attempts that count",
    ),
    "i6_what_is_signed_is_what_is_stored": (
        "UPDATE vpay.events SET body = body || ' '",
        "signed other bytes than event",
    ),
    "i6_all_attempts_signed_the_same": (
        "INSERT INTO vpay.delivery_attempts (begun_at, duration_ms, attempt, counted, delivery_id,"
        " key_ids, digest, excerpt) SELECT now(), 1, 2, true, id, '{}', sha256('y'), ''"
        " FROM vpay.webhook_deliveries",
        "signed 2 different bodies",
    ),
    "i6_nothing_is_poisoned": (
        UNGUARDED + "UPDATE vpay.webhook_deliveries SET state = 'poisoned'",
        "is poisoned",
    ),
    "i8_protected_kinds_are_never_parked": (
        "UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'crashed', crashes = 5, starts = 5,"
        " claims = 5 WHERE kind = 'poll_charge'",
        "(poll_charge) is parked: crashed",
    ),
    "i8_a_dead_letter_has_its_evidence": (
        f"UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'crashed' WHERE id = {JOB}",
        "is parked as crashed after 1 starts, 1 failures, 0 crashes",
    ),
    "i9_no_counter_goes_down": (
        f"UPDATE vpay.jobs SET claims = claims - 1, starts = starts - 1 WHERE id = {JOB}",
        "claims of jobs",
    ),
    "i9_what_starts_was_claimed": (
        f"UPDATE vpay.jobs SET starts = claims + 1 WHERE id = {JOB}",
        "has 2 starts of 1 claims",
    ),
    "i11_a_fact_is_kept_once": (
        "ALTER TABLE vpay.inbox_events DROP CONSTRAINT one_per_vendor_account_and_id; "
        + VENDORS_EVENT.format(more=", state, verdict, ended_at", values=", 'done', 'ok', now()")
        * 2,
        "is kept 2 times",
    ),
    "i14_charges_are_conserved": (
        LOOSE + "UPDATE vpay.charges SET amount = amount + 1 WHERE state = 'submitting'",
        "in EUR charges of 3000 were made, and there are 3001",
    ),
    "i14_what_succeeded_was_received": (
        LOOSE_INTENT + UNPAID,
        "in EUR charges of 1000 succeeded, and intents received 0",
    ),
    "i14_a_success_is_posted_whole": (
        UNGUARDED + "DELETE FROM vpay.ledger_entries",
        "brought in 1000 EUR, and 0 captures and what was kept of them post 0",
    ),
    "i14_a_success_is_posted_whole (less)": (
        UNGUARDED + "UPDATE vpay.ledger_entries SET amount = 999",
        "brought in 1000 EUR, and 1 captures and what was kept of them post 999",
    ),
    "i14_a_success_is_posted_whole (twice)": (
        "ALTER TABLE vpay.ledger_entries DROP CONSTRAINT entry_once_per_charge;"
        f" {UNGUARDED} {AGAIN.format(kind='kind', credit='credit', amount=500)}"
        " UPDATE vpay.ledger_entries SET amount = 500",
        "brought in 1000 EUR, and 2 captures and what was kept of them post 1000",
    ),
    "i14_only_a_success_is_posted": (
        UNGUARDED + "UPDATE vpay.ledger_entries SET charge_id = c.id FROM vpay.charges AS c"
        " WHERE c.state = 'failed'",
        ", which is failed",
    ),
    "i14_only_a_success_is_posted (other money)": (
        UNGUARDED + "UPDATE vpay.ledger_entries SET currency = 'XAF'",
        "posts 1000 XAF of charge",
    ),
    "i14_what_is_posted_is_owed_to_its_merchant": (
        UNGUARDED + "UPDATE vpay.ledger_entries SET merchant_id = 'm_2'",
        "from payer_clearing to merchant_payable of m_2",
    ),
    "i14_what_is_posted_is_owed_to_its_merchant (to us)": (
        "ALTER TABLE vpay.ledger_entries DROP CONSTRAINT entry_moves_between_its_accounts;"
        f" {UNGUARDED} UPDATE vpay.ledger_entries SET credit = 'platform_fee_revenue'",
        "(capture) of charge",
    ),
}
"""By statement, and way if there are several: what breaks it, and a part of the sentence that
tells. I12 needs a session of its own."""
