"""What the database itself refuses about money, and the swaps that may lose."""

from __future__ import annotations

import itertools

import psycopg
import pytest

from tests.payment_kit import (
    make_attempt,
    make_charge,
    make_intent,
    read_attempts,
    read_charge,
    read_intent,
    scalar,
)
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, IntentStatus, State
from vpay_tasks.errors import Conflict, InvalidRequest
from vpay_tasks.store import attempts, charges, intents
from vpay_tasks.store.db import Database

LIVE = [State.SUBMITTING, State.SUBMITTED, State.PENDING, State.UNRESOLVED]
TERMINAL = [State.SUCCEEDED, State.FAILED]


def refuses(database: Database, change: str, charge: Charge) -> bool:
    with database.connection() as connection:
        try:
            query = f"UPDATE vpay.charges SET {change} WHERE id = %s"
            connection.execute(query.encode(), (charge.id,))
        except psycopg.errors.CheckViolation:
            return True
        return False


def test_the_database_refuses_to_leave_a_terminal_state(database: Database) -> None:
    for before, after in itertools.product(TERMINAL, State):
        charge = make_charge(database, state=before)
        code = "'payer_timeout'" if after is State.FAILED else "NULL"
        change = f"state = '{after.value}', failure_code = {code}"
        assert refuses(database, change, charge) == (after is not before), (before, after)
        assert read_charge(database, charge.id).state is before


def test_the_database_lets_a_live_charge_only_move_forward(database: Database) -> None:
    for before, after in itertools.product(LIVE, LIVE):
        charge = make_charge(database, state=before)
        forward = LIVE.index(after) >= LIVE.index(before)
        assert refuses(database, f"state = '{after.value}'", charge) != forward, (before, after)


CHANGES = [
    "amount = 1",
    "currency = 'XAF'",
    "provider_reference_id = 'other'",
    "provider_code = 'x'",
    "created_at = now()",
    "id = 'ch_other'",
    "state = 'paid'",
    "state = 'failed'",
    "failure_code = 'payer_timeout'",
    "provider_txn_id = '1'",
    "failure_raw = 'x'",
    "polls = -1",
    "not_found_streak = 1",
    "payer_masked = NULL",
    "provider_ref_extra = '[]'",
    "state = 'succeeded', provider_txn_id = ''",
]


def test_the_database_refuses_a_charge_that_makes_no_sense(database: Database) -> None:
    charge = make_charge(database)
    assert [change for change in CHANGES if not refuses(database, change, charge)] == []


def test_what_settled_a_charge_never_changes(database: Database) -> None:
    paid = make_charge(database, state=State.SUCCEEDED, provider_txn_id="1")
    assert refuses(database, "provider_txn_id = '2'", paid)
    assert not refuses(database, "contradicted_at = now()", paid)


def test_the_database_refuses_to_delete_a_charge(database: Database) -> None:
    for state in State:
        charge = make_charge(database, state=state)
        with database.connection() as connection, pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("DELETE FROM vpay.charges WHERE id = %s", (charge.id,))


def test_an_intent_has_one_charge_for_ever_failed_or_not(database: Database) -> None:
    intent = make_intent(database)
    make_charge(database, intent, state=State.FAILED)
    with database.transaction() as tx:
        second = charges.insert(
            tx,
            id="ch_second",
            payment_intent_id=intent.id,
            provider_code="mtn_momo",
            provider_reference_id="another",
            return_url=None,
            amount=1000,
            currency="EUR",
            payer_ref=None,
            payer_masked=None,
        )
    assert second is None


def test_a_reference_names_one_charge_of_a_rail(database: Database) -> None:
    make_charge(database, reference="one")
    with pytest.raises(Conflict):
        make_charge(database, reference="one")


def test_a_charge_without_an_intent_is_the_callers_fault(database: Database) -> None:
    with database.connection() as tx, pytest.raises(InvalidRequest):
        attempts.open_attempt(tx, "ch_nobody")
    assert scalar(database, "SELECT count(*) FROM vpay.provider_requests") == 0


def test_the_database_refuses_to_leave_a_terminal_intent(database: Database) -> None:
    changes = ["status = 'requires_action'", "status = 'canceled'", "amount = 1"]
    intent = make_intent(database)
    with database.transaction() as tx:
        assert intents.succeed(tx, intent.id) is not None
    for change in changes:
        query = f"UPDATE vpay.payment_intents SET {change} WHERE id = %s"
        with database.connection() as connection, pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(query.encode(), (intent.id,))


def test_an_intent_leaves_no_terminal_status_even_with_amounts_that_fit(
    database: Database,
) -> None:
    canceled, paid = make_intent(database), make_intent(database)
    with database.transaction() as tx:
        assert intents.cancel(tx, canceled.id) is not None
        assert intents.succeed(tx, paid.id) is not None
    for before, status in itertools.product((canceled, paid), IntentStatus):
        if status is read_intent(database, before.id).status:
            continue
        received = "amount" if status is IntentStatus.SUCCEEDED else "0"
        change = f"status = '{status.value}', amount_received = {received}"
        query = f"UPDATE vpay.payment_intents SET {change} WHERE id = %s"
        refused = pytest.raises(psycopg.errors.CheckViolation, match="terminal status")
        with database.connection() as connection, refused:
            connection.execute(query.encode(), (before.id,))


def test_a_charge_in_any_live_state_succeeds_once(database: Database) -> None:
    late = FailureCode.PAYER_TIMEOUT
    for state in LIVE:
        charge = make_charge(database, state=state)
        with database.connection() as connection:
            assert charges.succeed(connection, charge.id, txn_id="t-1")
            assert not charges.succeed(connection, charge.id, txn_id="t-2")
            assert not charges.fail(connection, charge.id, code=late, raw="too late")
        settled = read_charge(database, charge.id)
        assert (settled.state, settled.provider_txn_id) == (State.SUCCEEDED, "t-1")


def test_submitted_is_won_once_and_merges_what_it_brings(database: Database) -> None:
    charge = make_charge(
        database, provider_ref_extra='{"kept": "1", "both": "old"}', redirect_url="https://old"
    )
    with database.connection() as connection:
        won = [
            charges.submitted(
                connection, charge.id, key_material={"both": "new", "b": "2"}, redirect_url=None
            )
            for _ in range(2)
        ]
    after = read_charge(database, charge.id)
    assert won == [True, False]
    assert after.provider_ref_extra == {"kept": "1", "both": "new", "b": "2"}
    assert after.redirect_url == "https://old"


def test_an_ask_moves_only_the_state_that_it_was_judged_by(database: Database) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    with database.connection() as connection:
        assert charges.asked(
            connection,
            charge.id,
            from_state=State.SUBMITTING,
            to_state=State.PENDING,
            streak="over",
            seen=0,
        )
    after = read_charge(database, charge.id)
    assert (after.state, after.polls) == (State.SUBMITTED, 1)


def test_a_streak_counts_grows_older_and_ends(database: Database) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    seen, began = [], []
    with database.connection() as connection:
        row = charge
        for streak in ("longer", "as_it_was", "longer", "over", "longer"):
            charges.asked(
                connection,
                charge.id,
                from_state=State.SUBMITTED,
                to_state=State.SUBMITTED,
                streak=streak,
                seen=row.not_found_streak,
            )
            row = read_charge(database, charge.id)
            seen.append((row.not_found_streak, charges.ages(connection, charge.id).not_found > 0))
            began.append(scalar(database, "SELECT first_not_found_at FROM vpay.charges"))
    assert seen == [(1, True), (1, True), (2, True), (0, False), (1, True)]
    # Its age is that of its first NotFound, not of its last.
    assert began[0] == began[1] == began[2] < began[4]


@pytest.mark.parametrize("state", TERMINAL)
def test_an_ask_about_a_settled_charge_writes_nothing(database: Database, state: State) -> None:
    charge = make_charge(database, state=state)
    with database.connection() as connection:
        assert not charges.asked(
            connection,
            charge.id,
            from_state=state,
            to_state=State.PENDING,
            streak="longer",
            seen=0,
        )
    assert read_charge(database, charge.id) == charge


def test_a_not_found_lengthens_only_the_streak_that_its_poll_has_seen(database: Database) -> None:
    charge = make_charge(database)
    with database.connection() as connection:
        for seen in (0, 1, None, 2):
            if seen is None:
                charges.restart_streak(connection, charge.id)
                continue
            # The last one's rail was asked before the streak began anew.
            assert charges.asked(
                connection,
                charge.id,
                from_state=State.SUBMITTING,
                to_state=State.SUBMITTING,
                streak="longer",
                seen=seen,
            )
        assert charges.ages(connection, charge.id).not_found == 0
    after = read_charge(database, charge.id)
    assert (after.not_found_streak, after.polls) == (0, 3)


def test_an_answer_to_a_submit_is_written_once(database: Database) -> None:
    charge = make_charge(database)
    make_attempt(database, charge, AttemptClass.ACCEPTED)
    attempt = read_attempts(database, charge)[0]
    with database.connection() as connection:
        assert not attempts.close_attempt(connection, attempt.id, AttemptClass.UNKNOWN)
    assert read_attempts(database, charge) == [attempt]


@pytest.mark.parametrize("status", [IntentStatus.PROCESSING, IntentStatus.REQUIRES_ACTION])
def test_an_intent_advances_once_and_comes_back_with_its_error(
    database: Database, status: IntentStatus
) -> None:
    intent = make_intent(database)
    with database.connection() as connection:
        assert intents.advance(connection, intent.id, status)
        assert not intents.advance(connection, intent.id, status)
        assert intents.cancel(connection, intent.id) is None
        assert intents.fall_back(connection, intent.id, FailureCode.PAYER_DECLINED) is not None
    after = read_intent(database, intent.id)
    assert after.status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert after.last_payment_error is FailureCode.PAYER_DECLINED
