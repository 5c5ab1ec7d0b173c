"""Submits whose process is killed: what they leave, and how it ends. Real kills only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.conftest import Eventually
from tests.payment_kit import events, make_intent, read_charge, read_intent, scalar
from tests.payments.poll_kit import Polls
from tests.payments.process_kit import Point, Submits, until_it_ends
from tests.payments.resubmit_kit import classes, denied, unsent
from tests.rails.benches import MTN, ORANGE, Bench
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import FailureCode, IntentStatus, State
from vpay_tasks.store.db import Database


@pytest.fixture
def submits(tmp_path: Path, database: Database, stub: StubRail) -> Iterator[Submits]:
    submits = Submits(tmp_path, database, stub)
    yield submits
    submits.end()


# Where it is killed; rows left, submits that the rail gets in the end, questions, by the push
# rail's recovery.
POINTS = [
    ("before_its_row", 0, 1, 1),
    ("behind_its_row", 1, 1, 4),
    ("before_the_rail_has_it", 1, 2, 4),
    ("once_the_rail_has_it", 1, 1, 1),
    ("with_the_answer_in_hand", 1, 1, 1),
]
SLOW = pytest.mark.more(seconds=4)


@pytest.mark.parametrize(
    ("where", "rows", "sent", "asked"),
    [POINTS[1], *(pytest.param(*point, marks=SLOW) for point in (POINTS[0], *POINTS[2:]))],
)
def test_a_confirm_that_is_killed_leaves_a_push_that_is_paid_once(
    database: Database,
    submits: Submits,
    polls: Polls,
    eventually: Eventually,
    where: str,
    rows: int,
    sent: int,
    asked: int,
) -> None:
    intent = make_intent(database)
    killed(submits, MTN, intent.id, where, database, eventually)
    charge = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))
    assert charge.state is State.SUBMITTING
    assert classes(database, charge) == [None] * rows
    until_it_ends(database, polls, charge)
    reference = charge.provider_reference_id
    assert read_charge(database, charge.id).state is State.SUCCEEDED
    assert [
        seen.request.headers["x-reference-id"] for seen in submits.stub.requests(MTN.submits)
    ] == [reference] * sent
    assert len(submits.stub.requests(MTN.statuses)) == asked
    assert submits.effects("prompt") == [reference]
    assert submits.effects("moved") == [reference]
    assert events(database) == [("payment_intent.succeeded", intent.id)]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        pytest.param(point[0], point[1], marks=() if point[0] == "once_the_rail_has_it" else SLOW)
        for point in POINTS
    ],
)
def test_a_confirm_that_is_killed_leaves_a_dead_order_that_its_intent_is_free_of(
    database: Database,
    submits: Submits,
    polls: Polls,
    eventually: Eventually,
    where: str,
    rows: int,
) -> None:
    intent = make_intent(database, 3601, "XAF")
    killed(submits, ORANGE, intent.id, where, database, eventually)
    charge = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))
    assert charge.state is State.SUBMITTING
    assert classes(database, charge) == [None] * rows
    sent = len(submits.stub.requests(ORANGE.submits))
    until_it_ends(database, polls, charge)
    assert read_charge(database, charge.id).failure_code is FailureCode.PROVIDER_UNAVAILABLE
    assert read_intent(database, intent.id).status is IntentStatus.REQUIRES_PAYMENT_METHOD
    assert len(submits.stub.requests(ORANGE.submits)) == sent  # none is ordered anew
    assert submits.stub.requests(ORANGE.statuses) == []
    assert submits.effects("moved") == []
    assert events(database) == [("payment_intent.payment_failed", intent.id)]


@pytest.mark.parametrize(
    ("where", "sent"),
    [
        pytest.param("before_its_row", 1, marks=SLOW),
        ("behind_its_row", 1),
        pytest.param("before_the_rail_has_it", 2, marks=SLOW),
        pytest.param("once_the_rail_has_it", 1, marks=SLOW),
        pytest.param("with_the_answer_in_hand", 1, marks=SLOW),
    ],
)
@pytest.mark.parametrize("make", [unsent, pytest.param(denied, marks=SLOW)])
def test_a_resubmit_that_is_killed_is_not_repeated_by_its_job(
    database: Database,
    submits: Submits,
    polls: Polls,
    eventually: Eventually,
    where: str,
    sent: int,
    make: object,
) -> None:
    charge = make(database)  # type: ignore[operator] # one of two makers of charges
    seen = len(classes(database, charge))
    polls.run(charge)
    point = getattr(Point(submits, MTN, eventually), where)
    with point(database) as reached:
        process = submits.resubmit(charge, seen)
        reached()
        process.signal_group(SIGKILL)
        process.wait()
    before = len(submits.stub.requests(MTN.submits))
    rows = classes(database, charge)
    assert polls.resubmit(charge) is None  # the job's next run
    if where == "before_its_row":
        assert rows == [None] * seen
    else:
        assert rows == classes(database, charge) == [None] * (seen + 1)
        assert len(submits.stub.requests(MTN.submits)) == before
    until_it_ends(database, polls, charge)
    assert read_charge(database, charge.id).state is State.SUCCEEDED
    reference = charge.provider_reference_id
    assert [
        request.request.headers["x-reference-id"] for request in submits.stub.requests(MTN.submits)
    ] == [reference] * sent
    assert submits.effects("prompt") == submits.effects("moved") == [reference]
    assert events(database) == [("payment_intent.succeeded", charge.payment_intent_id)]


def killed(
    submits: Submits,
    bench: Bench,
    intent: str,
    where: str,
    database: Database,
    eventually: Eventually,
) -> None:
    """A confirm, killed there."""
    point = getattr(Point(submits, bench, eventually), where)
    with point(database) as reached:
        process = submits.confirm(bench.code, intent)
        reached()
        process.signal_group(SIGKILL)
        process.wait()
    gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'vpay%%'"
    eventually(lambda: scalar(database, gone) == 0)
