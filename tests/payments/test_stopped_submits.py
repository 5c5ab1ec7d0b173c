"""Submits that are slow, or whose process is stopped and wakes behind its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from tests.conftest import Eventually
from tests.payment_kit import force, make_intent, read_charge, scalar
from tests.payments.poll_kit import Polls, about
from tests.payments.process_kit import RAILS, Point, Submits
from tests.payments.resubmit_kit import classes, denied
from tests.rails.benches import BENCHES, MTN
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.core.charge import AttemptClass, State
from vpay_tasks.payments import Confirmation, Confirmed, confirm
from vpay_tasks.store.db import Database

DEADLINE_S = 3.0


@pytest.fixture
def submits(tmp_path: Path, database: Database, stub: StubRail) -> Iterator[Submits]:
    submits = Submits(tmp_path, database, stub)
    submits.within(DEADLINE_S)
    yield submits
    submits.end()


@pytest.mark.parametrize("code", RAILS)
@pytest.mark.parametrize(("age", "wait"), [(3.7, 57), (40, 21), (44.9, 16), (59.5, 2)])
def test_a_confirm_inside_its_call_is_not_disturbed_by_whoever_has_claimed_its_poll(
    database: Database, stub: StubRail, polls: Polls, code: str, age: float, wait: int
) -> None:
    bench = BENCHES[code]
    intent = make_intent(database, 3601, bench.currency)
    wish = bench.order()
    answers: list[Confirmation] = []

    def work() -> None:
        answers.append(
            confirm(
                database,
                intent.id,
                rail=bench.rail(stub),
                payer=wish.payer,
                return_url=wish.return_url,
            )
        )

    with stub.hold(bench.submits) as hold:
        thread = threading.Thread(target=work)
        thread.start()
        hold.wait()
        charge = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))
        with database.transaction() as tx:
            force(tx, charge.id, age=age)
        row = polls.run(charge)
        assert wait - 1 <= about(row) <= wait + 1
        assert read_charge(database, charge.id) == charge
        assert stub.requests(bench.statuses) == []
    thread.join()
    (answer,) = answers
    assert isinstance(answer, Confirmed)
    assert answer.charge.state is State.SUBMITTED


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("behind_its_row", "mtn_momo"),
        pytest.param("before_its_row", "mtn_momo", marks=pytest.mark.more(seconds=8)),
        pytest.param("behind_its_row", "orange_money", marks=pytest.mark.more(seconds=8)),
        pytest.param("before_its_row", "orange_money", marks=pytest.mark.more(seconds=8)),
    ],
)
def test_a_confirm_that_was_stopped_past_its_deadline_calls_nobody_when_it_wakes(
    database: Database, submits: Submits, eventually: Eventually, where: str, code: str
) -> None:
    bench = BENCHES[code]
    intent = make_intent(database, 3601, bench.currency)
    with getattr(Point(submits, bench, eventually), where)(database) as reached:
        process = submits.confirm(code, intent.id)
        reached()
        process.signal_group(SIGSTOP)
        woken_at = time.monotonic() + DEADLINE_S
    eventually(lambda: time.monotonic() > woken_at)
    process.signal_group(SIGCONT)
    assert process.wait() == 0
    assert "said Processing" in process.log.read_text()
    assert submits.stub.requests(bench.submits) == []
    charge = read_charge(database, scalar(database, "SELECT id FROM vpay.charges"))
    assert charge.state is State.SUBMITTING
    assert classes(database, charge) == [AttemptClass.UNKNOWN]


@pytest.mark.parametrize(
    "where",
    ["behind_its_row", pytest.param("before_its_row", marks=pytest.mark.more(seconds=8))],
)
def test_a_resubmit_that_was_stopped_past_its_deadline_calls_nobody_when_it_wakes(
    database: Database, submits: Submits, polls: Polls, eventually: Eventually, where: str
) -> None:
    charge = denied(database)
    polls.run(charge)
    with getattr(Point(submits, MTN, eventually), where)(database) as reached:
        process = submits.resubmit(charge, 1)
        reached()
        process.signal_group(SIGSTOP)
        woken_at = time.monotonic() + DEADLINE_S
    eventually(lambda: time.monotonic() > woken_at)
    if where == "behind_its_row":  # before it, whoever is stopped holds the charge
        assert polls.resubmit(charge) is None  # the job's next run, beside the stopped one
    process.signal_group(SIGCONT)
    assert process.wait() == 0
    assert "said Done" in process.log.read_text()
    assert classes(database, charge) == [None, AttemptClass.UNKNOWN]
    if where == "before_its_row":
        assert polls.resubmit(charge) is None
    assert submits.stub.requests(MTN.submits) == []
    assert classes(database, charge) == [None, AttemptClass.UNKNOWN]
