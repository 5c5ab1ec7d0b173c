"""The same for the rows of money and of what is told about it: a swap moves its own row, from
the states that it may leave, and writes the columns that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.payment_kit import make_attempt, make_charge, make_intent, scalar
from tests.store.tables import changes, everything
from tests.webhooks.world import append_many, rows
from vpay_tasks.core import kinds
from vpay_tasks.core.charge import AttemptClass, FailureCode, IntentStatus, State
from vpay_tasks.store import attempts, charges, deliveries, events, intents
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.store.deliveries import Attempt
from vpay_tasks.store.events import Wanted

LIVE = {State.SUBMITTING, State.SUBMITTED, State.PENDING, State.UNRESOLVED}


def asked(tx: Connection, id_: str, streak: str, seen: int = 2) -> bool:
    return charges.asked(
        tx,
        id_,
        from_state=State.SUBMITTED,
        to_state=State.PENDING,
        streak=streak,  # type: ignore[arg-type]
        seen=seen,
    )


def sent_again(tx: Connection, id_: str) -> bool:
    charges.restart_streak(tx, id_)
    return True


SWAPS: dict[str, tuple[Callable[[Connection, str], bool], set[State], set[str]]] = {
    "submitted": (
        lambda tx, id_: charges.submitted(tx, id_, key_material={"a": "b"}, redirect_url="u"),
        {State.SUBMITTING},
        {"state", "provider_ref_extra", "redirect_url", "updated_at"},
    ),
    "succeed": (
        lambda tx, id_: charges.succeed(tx, id_, txn_id="t"),
        LIVE,
        {"state", "provider_txn_id", "updated_at"},
    ),
    "fail": (
        lambda tx, id_: charges.fail(tx, id_, code=FailureCode.PAYER_TIMEOUT, raw="r"),
        LIVE,
        {"state", "failure_code", "failure_raw", "updated_at"},
    ),
    "asked again": (
        lambda tx, id_: asked(tx, id_, "as_it_was"),
        LIVE,
        {"polls", "last_asked_at", "updated_at"},
    ),
    "not found": (
        lambda tx, id_: asked(tx, id_, "longer"),
        LIVE,
        {"polls", "last_asked_at", "updated_at", "not_found_streak"},
    ),
    "not found before": (
        lambda tx, id_: asked(tx, id_, "longer", seen=1),
        LIVE,
        {"polls", "last_asked_at", "updated_at"},
    ),
    "found": (
        lambda tx, id_: asked(tx, id_, "over"),
        LIVE,
        {"polls", "last_asked_at", "updated_at", "not_found_streak", "first_not_found_at"},
    ),
    "sent again": (
        sent_again,
        {State.SUBMITTING},
        {"updated_at", "not_found_streak", "first_not_found_at"},
    ),
    "contradicted": (charges.contradicted, set(State), {"contradicted_at"}),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_swap_of_a_charge_moves_that_charge_from_where_it_may(
    database: Database, swap: str
) -> None:
    move, leaves, columns = SWAPS[swap]
    for state in State:
        mine, _ = (
            make_charge(database, state=state, not_found_streak=2, not_found_for=60.0)
            for _ in range(2)
        )
        with database.connection() as connection:
            before = everything(connection, "charges")
            won = move(connection, mine.id)
            told = changes(before, everything(connection, "charges"))
        expected = columns | {"state"} if "asked" in swap or "found" in swap else columns
        if state is not State.SUBMITTED:
            expected = columns
        assert {id_: set(new) for id_, new in told.items()} == (
            {mine.id: expected} if state in leaves else {}
        ), state
        assert won is (state in leaves) or swap == "sent again"


def test_a_streak_of_none_is_not_begun_anew_and_a_contradiction_is_noted_once(
    database: Database,
) -> None:
    mine = make_charge(database)
    with database.connection() as connection:
        before = everything(connection, "charges")
        charges.restart_streak(connection, mine.id)
        assert changes(before, everything(connection, "charges")) == {}
        assert charges.contradicted(connection, mine.id)
        assert not charges.contradicted(connection, mine.id)


WAITING = {IntentStatus.REQUIRES_PAYMENT_METHOD}
UNPAID = {*WAITING, IntentStatus.REQUIRES_ACTION, IntentStatus.PROCESSING}
MOVES: dict[str, tuple[Callable[[Connection, str], object], set[IntentStatus], set[str]]] = {
    "advance": (
        lambda tx, id_: intents.advance(tx, id_, IntentStatus.PROCESSING),
        WAITING,
        {"status", "updated_at"},
    ),
    "succeed": (
        intents.succeed,
        UNPAID,
        {"status", "amount_received", "last_payment_error", "updated_at"},
    ),
    "fall_back": (
        lambda tx, id_: intents.fall_back(tx, id_, FailureCode.PAYER_TIMEOUT),
        UNPAID,
        {"status", "last_payment_error", "updated_at"},
    ),
    "cancel": (intents.cancel, WAITING, {"status", "updated_at"}),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_move_of_an_intent_moves_that_intent_from_where_it_may(
    database: Database, move: str
) -> None:
    go, leaves, columns = MOVES[move]
    for status in IntentStatus:
        mine, _ = make_intent(database), make_intent(database)
        with database.transaction() as tx:
            tx.execute("SET LOCAL session_replication_role = replica")
            tx.execute(
                "UPDATE vpay.payment_intents SET status = %s, amount_received ="
                " CASE WHEN %s = 'succeeded' THEN amount ELSE 0 END, last_payment_error ="
                " CASE WHEN %s <> 'succeeded' THEN 'invalid_payer' END",
                (status.value,) * 3,
            )
        with database.connection() as connection:
            before = everything(connection, "payment_intents")
            won = bool(go(connection, mine.id))
            told = changes(before, everything(connection, "payment_intents"))
        expected = columns
        if move == "fall_back" and status in WAITING:
            expected = columns - {"status"}
        assert {id_: set(new) for id_, new in told.items()} == (
            {mine.id: expected} if status in leaves else {}
        ), status
        assert won is (status in leaves)


@pytest.mark.parametrize(("streak", "seen"), [("as_it_was", 0), ("longer", 1), ("over", 0)])
def test_a_streak_that_does_not_begin_has_no_beginning(
    database: Database, streak: str, seen: int
) -> None:
    mine = make_charge(database)
    with database.connection() as connection:
        before = everything(connection, "charges")
        assert asked(connection, mine.id, streak, seen)
        told = changes(before, everything(connection, "charges"))
    assert set(told[mine.id]) == {"polls", "last_asked_at", "updated_at"}


def test_an_answer_is_written_to_its_own_submit_and_once(database: Database) -> None:
    charge = make_charge(database)
    make_attempt(database, charge, None)
    make_attempt(database, charge, None)
    with database.connection() as connection:
        before = everything(connection, "provider_requests")
        mine = min(before)
        assert attempts.close_attempt(connection, mine, AttemptClass.UNKNOWN, detail="why")
        assert not attempts.close_attempt(connection, mine, AttemptClass.ACCEPTED)
        told = changes(before, everything(connection, "provider_requests"))
    assert told[mine].pop("answered_at") is not None
    assert told == {mine: {"class": "unknown", "detail": "why"}}


def two_deliveries(database: Database, assignments: str = "") -> None:
    """`del_1` and `del_2`: of one event each, to endpoints `main` and `other`."""
    first, second = append_many(database, 2)
    with database.transaction() as tx:
        wanted = [Wanted(first, "main", "del_1"), Wanted(second, "other", "del_2")]
        assert events.flip(tx, [first, second], wanted).deliveries == 2
        if assignments:
            tx.execute(f"UPDATE vpay.webhook_deliveries SET {assignments}".encode())
        queue = kinds.DELIVER_WEBHOOK.queue
        for lane_queue, lane in ((queue, "acme/main"), (queue, "acme/other"), ("x", "acme/main")):
            tx.execute(
                "INSERT INTO vpay.lanes (queue, lane, silent, circuit_trips, circuit_until)"
                " VALUES (%s, %s, 2, 1, now() + interval '1 min')",
                (lane_queue, lane),
            )


def attempt(status: int | None) -> Attempt:
    return Attempt(1, begun=1_764_000_000.5, seconds=0.25, status=status, excerpt="no")


@pytest.mark.parametrize("state", ["pending", "delivered", "exhausted"])
@pytest.mark.parametrize("status", [500, None])
def test_a_record_moves_its_own_delivery_and_the_lane_of_its_own_endpoint(
    database: Database, state: Any, status: int | None
) -> None:
    two_deliveries(database)
    with database.connection() as connection:
        before = everything(connection, "webhook_deliveries")
        recorded = deliveries.record(connection, "del_1", attempt(status), state=state, delay=9.0)
        told = changes(before, everything(connection, "webhook_deliveries"))
        heard = connection.execute(
            "SELECT queue, lane, silent, circuit_trips, circuit_until IS NULL FROM vpay.lanes"
        ).fetchall()
    assert recorded.counted
    assert recorded.closed is (status is not None)
    columns = {"attempts", "attempted_at", "last_excerpt"}
    columns |= {"last_status"} if status else set()
    columns |= {"next_attempt_at"} if state == "pending" else {"state", "ended_at"}
    assert {id_: set(new) for id_, new in told.items()} == {"del_1": columns}
    queue, quiet = kinds.DELIVER_WEBHOOK.queue, (2, 1, False)
    assert {(queue_, lane): tuple(rest) for queue_, lane, *rest in heard} == {
        (queue, "acme/main"): (0, 0, True) if status else quiet,
        (queue, "acme/other"): quiet,
        ("x", "acme/main"): quiet,
    }


@pytest.mark.parametrize(("silent", "trips", "closed"), [(2, 0, False), (0, 1, True)])
def test_an_answer_ends_a_silence_and_a_circuit_each_by_itself(
    database: Database, silent: int, trips: int, closed: bool
) -> None:
    two_deliveries(database)
    with database.connection() as connection:
        connection.execute(
            "UPDATE vpay.lanes SET silent = %s, circuit_trips = %s WHERE lane = 'acme/main'",
            (silent, trips),
        )
        recorded = deliveries.record(connection, "del_1", attempt(200), state="delivered", delay=0)
        assert recorded.closed is closed
    left = "SELECT silent + circuit_trips FROM vpay.lanes WHERE queue = 'webhooks' AND lane = %s"
    assert rows(database, left, "acme/main") == [(0,)]


@pytest.mark.parametrize("state", ["delivered", "exhausted", "gone", "poisoned"])
def test_what_is_over_is_neither_stamped_nor_recorded_nor_poisoned(
    database: Database, state: str
) -> None:
    two_deliveries(database, f"state = '{state}', ended_at = now()")
    with database.connection() as connection:
        found = deliveries.read(connection, "del_1")
        assert found is not None
        before = everything(connection, "webhook_deliveries")
        assert not deliveries.stamp(connection, found, b"d" * 32)
        assert not deliveries.poison(connection, found, "why")
        for end in ("pending", "delivered"):
            recorded = deliveries.record(
                connection,
                "del_1",
                attempt(200),
                state=end,
                delay=9.0,
            )
            assert not recorded.counted
        assert changes(before, everything(connection, "webhook_deliveries")) == {}
    assert scalar(database, "SELECT count(*) FROM vpay.delivery_attempts WHERE NOT counted") == 2


def test_a_stamp_and_a_poisoning_move_their_own_delivery_as_it_was_read(
    database: Database,
) -> None:
    two_deliveries(database)
    with database.connection() as connection:
        found = deliveries.read(connection, "del_1")
        assert found is not None
        before = everything(connection, "webhook_deliveries")
        assert deliveries.stamp(connection, found, b"d" * 32)
        told = changes(before, everything(connection, "webhook_deliveries"))
        assert {id_: set(new) for id_, new in told.items()} == {"del_1": {"digest", "digest_rev"}}
        assert not deliveries.stamp(connection, found, b"e" * 32), "of that revision it is one"
        connection.execute("UPDATE vpay.events SET body_rev = 2")
        newer = deliveries.read(connection, "del_1")
        assert newer is not None
        connection.execute("UPDATE vpay.webhook_deliveries SET attempts = 1")
        before = everything(connection, "webhook_deliveries")
        assert not deliveries.stamp(connection, newer, b"d" * 32), "another has had its turn"
        assert not deliveries.poison(connection, newer, "why")
        assert changes(before, everything(connection, "webhook_deliveries")) == {}
        newer = deliveries.read(connection, "del_1")
        assert newer is not None
        assert deliveries.poison(connection, newer, "why")
        told = changes(before, everything(connection, "webhook_deliveries"))
    assert {id_: set(new) for id_, new in told.items()} == {
        "del_1": {"state", "ended_at", "last_excerpt"}
    }


def test_a_flip_moves_the_pending_ones_of_the_events_that_it_names(database: Database) -> None:
    mine, done, failed, other = append_many(database, 4)
    with database.connection() as connection:
        for id_, state in ((done, "done"), (failed, "failed")):
            connection.execute(
                "UPDATE vpay.events SET fanout_state = %s, list_seq = -length(%s) WHERE id = %s",
                (state, state, id_),
            )
        before = everything(connection, "events")
        wanted = [Wanted(id_, "main", f"del_{id_}") for id_ in (mine, done, failed, other)]
        flipped = events.flip(connection, [mine, done, failed], wanted)
        told = changes(before, everything(connection, "events"))
    assert (flipped.events, flipped.deliveries) == (1, 1)
    assert {id_: set(new) for id_, new in told.items()} == {mine: {"fanout_state", "list_seq"}}
    assert rows(database, "SELECT event_id, endpoint_id FROM vpay.webhook_deliveries") == [
        (mine, "main")
    ]
    assert rows(database, "SELECT lane, payload ->> 'delivery_id' FROM vpay.jobs") == [
        ("acme/main", f"del_{mine}")
    ]


@pytest.mark.parametrize(
    ("state", "tried", "counted", "rearmed"),
    [
        ("pending", 3, {"fanout_attempts"}, set()),
        ("pending", 4, {"fanout_attempts", "fanout_state", "list_seq"}, set()),
        ("done", 4, set(), set()),
        ("failed", 5, set(), {"fanout_attempts", "fanout_state", "list_seq"}),
    ],
)
def test_failures_are_counted_of_what_is_pending_and_what_was_given_up_is_rearmed(
    database: Database, state: str, tried: int, counted: set[str], rearmed: set[str]
) -> None:
    mine, _ = append_many(database, 2)
    with database.connection() as connection:
        connection.execute(
            "UPDATE vpay.events SET fanout_state = %s, fanout_attempts = %s,"
            " list_seq = CASE WHEN %s <> 'pending' THEN -seq END",
            (state, tried, state),
        )
        for write, columns in ((events.count_failure, counted), (events.rearm, rearmed)):
            connection.execute("BEGIN")
            before = everything(connection, "events")
            write(connection, mine)
            told = changes(before, everything(connection, "events"))
            connection.execute("ROLLBACK")
            assert {id_: set(new) for id_, new in told.items()} == (
                {mine: columns} if columns else {}
            )


def test_a_reference_and_a_callbacks_key_name_the_charge_of_their_own_rail(
    database: Database,
) -> None:
    make_charge(database, reference="other", provider_ref_extra='{"callback_key": "l"}')
    mine = make_charge(database, reference="r", provider_ref_extra='{"callback_key": "k"}')
    with database.connection() as connection:
        for rail, found in (("mtn_momo", mine.id), ("orange_money", None)):
            assert charges.find_by_reference(connection, rail, "r") == found
            assert charges.find_by_callback_key(connection, rail, "k") == found
        assert charges.find_by_reference(connection, "mtn_momo", "s") is None
        assert charges.find_by_callback_key(connection, "mtn_momo", "m") is None


def test_what_is_read_of_a_charge_and_its_intent_is_theirs(database: Database) -> None:
    ages_ = (60_000.0, 6_000.0, 600.0)
    pairs = [
        make_charge(database, age=age, not_found_for=age / 2, not_found_streak=1) for age in ages_
    ]
    with database.connection() as connection:
        for charge, age in zip(pairs, ages_, strict=True):
            found = charges.of_intent(connection, charge.payment_intent_id)
            assert found == charge
            intent = intents.read(connection, charge.payment_intent_id)
            assert intent is not None
            assert intent.id == charge.payment_intent_id
            ages = charges.ages(connection, charge.id)
            assert age <= ages.charge < age * 5
            assert age / 2 <= ages.not_found < age * 5
            connection.execute("BEGIN")
            before = everything(connection, "charges")
            charges.asking(connection, charge.id)
            told = changes(before, everything(connection, "charges"))
            connection.execute("ROLLBACK")
            assert {id_: set(new) for id_, new in told.items()} == {charge.id: {"last_asked_at"}}
