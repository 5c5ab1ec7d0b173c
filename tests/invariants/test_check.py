"""Each promise is broken by hand, one after the other, and the checker says so: a check that
can't fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.invariants import NAMES, Bounds, check
from tests.invariants.check import QUESTIONS, statements
from tests.invariants.journals import exposure
from tests.invariants.whole import Whole
from vpay_tasks.store.db import connect


def test_a_whole_database_breaks_no_promise_twice_over(made: Whole) -> None:
    for _ in range(2):
        found = check(made.connection, **made.evidence, bounds=SLOW)
        assert found == {name: [] for name in NAMES}


SLOW = Bounds(margin=600)
"""The one database grows old while the tests run: its own rows may be due for as long."""
UNGUARDED = "SET session_replication_role = replica; "
"""As a bug below the guards would write: no trigger, ours neither."""
LOOSE = "ALTER TABLE vpay.charges DISABLE TRIGGER guard_charge; "
UNPAID = """
UPDATE vpay.payment_intents
SET status = 'requires_payment_method', amount_received = 0
WHERE status = 'succeeded'; """
LOOSE_INTENT = "ALTER TABLE vpay.payment_intents DISABLE TRIGGER guard_payment_intent; "
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
}
"""By statement, and way if there are several: what breaks it, and a part of the sentence that
tells. I12 needs a session of its own, below."""


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_a_promise_is_told(whole: Whole, name: str) -> None:
    breaking, told = BREAKS[name]
    whole.connection.execute(breaking.encode())
    # A row of an unguarded table may break what others promise, too.
    found = check(whole.connection, **whole.evidence, at_rest=name.endswith("at_rest"))
    invariant = name.partition("_")[0].upper()
    assert any(told in sentence for sentence in found[invariant]), found


def test_every_check_of_the_database_is_broken_here() -> None:
    known = {one.name for group in statements().values() for one in group}
    broken = {name.partition(" ")[0] for name in BREAKS}
    assert broken <= known
    assert known - broken == {"i12_no_transaction_idles", "i12_nothing_is_held_at_rest"}
    asked = {name.partition("_")[0].upper() for name in known} | QUESTIONS.keys()
    assert asked == set(NAMES)


Change = Callable[[dict[str, Any]], object]


def _more(field: str, **line: Any) -> Change:
    return lambda evidence: evidence[field].append(line)


def _again(field: str, place: int, **change: Any) -> Change:
    return lambda evidence: evidence[field].append({**evidence[field][place], **change})


def _without(field: str, place: int) -> Change:
    return lambda evidence: evidence[field].pop(place)


FACT = {"vendor": "stripe", "account": "", "event": "e9", "status": 200}
OUTSIDE: dict[str, tuple[str, Change, str]] = {
    "a commit that is gone": (
        "I1",
        _more("producer", order="9", what="charge", id="ch_gone", how="committed"),
        "the charge ch_gone was committed and is gone",
    ),
    "a refusal that was committed": (
        "I1",
        _again("producer", 0, order="9", how="refused"),
        "was refused and is there",
    ),
    "a delivery nobody got": ("I5", _without("receivers", 0), "its receiver answered no 2xx"),
    "a post of nothing": ("I5", _again("receivers", 0, event="evt_0"), "there is no delivery"),
    "other bytes": ("I6", _again("receivers", 0, sha256="00"), "was posted with 2 bodies"),
    "a bad signature": (
        "I6",
        _again("receivers", 0, verified=False, why="stripe refuses"),
        "did not verify: stripe refuses",
    ),
    "a second prompt": ("I10", _again("rail", 1), "had the effect 'prompt' 2 times"),
    "money moved twice": ("I10", _again("rail", 2), "had the effect 'moved' 2 times"),
    "money moved for nobody": ("I10", _again("rail", 2, reference="r9"), "and no charge has"),
    "success without money": ("I10", _without("rail", 2), "succeeded, and the rail moved nothing"),
    "a 2xx before the commit": (
        "I11",
        _more("vendors", **FACT),
        "was answered 200 and is not kept",
    ),
    "a second effect": (
        "I11",
        lambda evidence: evidence["grants"].update({("stripe", "", "e9"): 2}),
        "had its effect 2 times",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_journal_that_tells_another_story_is_told(whole: Whole, case: str) -> None:
    invariant, change, told = OUTSIDE[case]
    change(whole.evidence)
    found = check(whole.connection, **whole.evidence)
    assert any(told in sentence for sentence in found[invariant]), found
    assert [name for name in NAMES if found[name]] == [invariant]


def test_a_done_vendors_event_without_its_effect_is_told(whole: Whole) -> None:
    done = VENDORS_EVENT.format(more=", state, verdict, ended_at", values=", 'done', 'ok', now()")
    whole.connection.execute(done.encode())
    assert check(whole.connection, **whole.evidence)["I11"] == [
        "event e1 of stripe is done and had no effect"
    ]


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            '"amount_received":1000',
            '"amount_received":1001',
            "amount received 1001, and it is 1000",
        ),
        ('"code":"payer_timeout"', '"code":"payer_declined"', "failure code 'payer_declined'"),
        ('"object":"event"', "", "can't be read: JSONDecodeError"),
    ],
)
def test_an_event_that_tells_another_story_is_told(
    whole: Whole, was: str, now: str, told: str
) -> None:
    whole.connection.execute(
        "UPDATE vpay.events SET body = convert_to(replace(convert_from(body, 'UTF8'), %s, %s),"
        " 'UTF8')",
        (was, now),
    )
    assert any(told in sentence for sentence in check(whole.connection, **whole.evidence)["I4"])


def test_submissions_beyond_the_first_are_exposure_and_no_violation(whole: Whole) -> None:
    rail = whole.evidence["rail"]
    rail.append(rail[0])
    assert exposure(rail) == 1
    assert check(whole.connection, **whole.evidence)["I10"] == []


@pytest.mark.parametrize(
    ("late", "told"),
    [
        ("run_at = now() - interval '1 hour'", "is due and 36"),
        (f"{CLAIMED} - interval '1 hour'", "is claimed and 36"),
        (f"{CLAIMED} - interval '1 hour', started_at = now()", "is running and 36"),
    ],
)
def test_what_waits_too_long_is_told(whole: Whole, late: str, told: str) -> None:
    whole.connection.execute(f"UPDATE vpay.jobs SET {late} WHERE id = {JOB}".encode())
    (sentence,) = check(whole.connection, **whole.evidence, bounds=SLOW)["I7"]
    assert told in sentence
    assert check(whole.connection, **whole.evidence, bounds=replace(SLOW, lag=7_200))["I7"] == []


def test_a_closed_lane_waits_on_purpose(whole: Whole) -> None:
    whole.connection.execute(
        b"INSERT INTO vpay.lanes (queue, lane, paused) VALUES ('default', 'l', true);"
        b" UPDATE vpay.jobs SET lane = 'l', run_at = now() - interval '1 hour' WHERE id = "
        + JOB.encode()
    )
    assert check(whole.connection, **whole.evidence, bounds=SLOW)["I7"] == []


def test_a_transaction_that_idles_is_told(made: Whole, eventually: Any) -> None:
    with connect(made.database.url, application="vpay worker") as session:
        session.execute("BEGIN")
        session.execute("SELECT 1")
        (told,) = eventually(lambda: check(made.connection)["I12"])
        assert "(vpay worker) has been idle in a transaction since" in told
        # In the same words at each look: a soak takes for broken what it is told twice.
        since = "SELECT state_change::text FROM pg_stat_activity WHERE pid = %s"
        row = made.connection.execute(since, (session.info.backend_pid,)).fetchone()
        assert row is not None
        assert told.endswith(f"since {row[0]}")
        session.execute("ROLLBACK")
    assert check(made.connection)["I12"] == []


def test_a_session_that_outlives_its_process_is_told(made: Whole) -> None:
    with connect(made.database.url, application="vpay worker w_1") as session:
        session.execute("SELECT pg_advisory_lock(1)")
        assert check(made.connection)["I12"] == []
        told = " ".join(check(made.connection, ended=True)["I12"])
        assert "(vpay worker w_1) is still there, with 1 advisory locks" in told


def test_a_secret_that_can_be_read_is_told(whole: Whole, tmp_path: Path) -> None:
    canaries = {"the broker's password": "canary-4711", "a key": "canary-4712"}
    log = tmp_path / "logs" / "worker.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (1 << 20) + b"redis://w:canary-4711@host")
    asked = {**whole.evidence, "canaries": canaries, "artefacts": tmp_path}
    assert check(whole.connection, **asked)["I13"] == [
        "the broker's password is readable in logs/worker.log"
    ]
    whole.connection.execute(b"UPDATE vpay.events SET body = body || 'canary-4712'")
    whole.connection.execute(
        f"UPDATE vpay.jobs SET last_error = 'canary-4711' WHERE id = {JOB}".encode()
    )
    assert check(whole.connection, **asked)["I13"] == [
        "a key is readable in 2 rows of vpay.events.body",
        "the broker's password is readable in 1 rows of vpay.jobs.last_error",
        "the broker's password is readable in logs/worker.log",
    ]


def test_books_that_do_not_balance_are_told(whole: Whole) -> None:
    whole.connection.execute((UNGUARDED + "DELETE FROM vpay.ledger_entries").encode())
    (sentence,) = check(whole.connection, **whole.evidence)["I14"]
    assert sentence == (
        "in EUR 1 charges brought in 1000, 0 captures posted 0, and 0 payable and 0 in fees were"
        " credited"
    )
