"""A kept event is granted: once, by its own ladder, in its reference's turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.factories import claimed
from tests.inbox.bench import InboxBench, done, granting
from tests.inbox.signing import by_hand, by_standard, by_stripe, stripe_event
from tests.inbox.test_receive import alerts, counted
from tests.webhooks.world import HandRun
from vpay_tasks import Again, Done, Park
from vpay_tasks.core.task import REGISTRY
from vpay_tasks.errors import Configuration, Conflict, InvalidRequest, Rail
from vpay_tasks.handlers.grant_inbox import grant_inbox
from vpay_tasks.inbox import lane
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Abandon


@pytest.fixture
def effects(box: InboxBench) -> InboxBench:
    box.ask("CREATE TABLE public.effects (event_id text NOT NULL)")
    return box


def written(box: InboxBench) -> list[str]:
    return [event_id for (event_id,) in box.ask("SELECT event_id FROM public.effects")]


def in_its_transaction(event: Any, job: Any) -> Done:
    with job.finishing() as tx:
        tx.execute("INSERT INTO public.effects VALUES (%s)", (event.id,))
        job.verdict("PAID")
    return Done()


def test_a_grant_commits_its_writes_the_mark_and_the_jobs_end_together(
    effects: InboxBench,
) -> None:
    with granting(in_its_transaction) as seen:
        effects.deliver(by_stripe(stripe_event()))
        assert effects.run() == 1
        # Run again by hand, as a copy of its message might: nothing is left to do.
        effects.ask(
            "INSERT INTO vpay.jobs (queue, kind, payload)"
            " VALUES ('inbox', 'grant_inbox', '{\"inbox_id\": 1}')"
        )
        assert effects.run() == 1
    (event,) = seen
    assert (event.vendor, event.account, event.id) == ("stripe", "", "evt_1")
    assert event.type == "payment_intent.succeeded"
    assert event.reference == "pi_1"
    assert event.raw == stripe_event()
    assert event.json["data"]["object"]["amount"] == 1000
    assert event.received_at.tzinfo is not None
    assert "amount" not in repr(event)
    assert written(effects) == ["evt_1"]
    assert effects.rows("state, verdict, attempts") == [("done", "PAID", 0)]
    assert effects.jobs() == []


def test_a_grant_that_breaks_in_its_transaction_leaves_nothing_but_a_counted_failure(
    effects: InboxBench,
) -> None:
    def breaks(event: Any, job: Any) -> None:
        with job.finishing() as tx:
            tx.execute("INSERT INTO public.effects VALUES (%s)", (event.id,))
            raise RuntimeError("half way")

    effects.deliver(by_stripe(stripe_event()))
    with granting(breaks):
        effects.run()
    assert written(effects) == []
    assert effects.rows("state, attempts, last_error") == [
        ("retrying", 1, "RuntimeError: half way")
    ]
    with granting(in_its_transaction):
        effects.make_due()
        effects.run()
    assert written(effects) == ["evt_1"]
    assert effects.rows("state, attempts") == [("done", 1)]


def test_a_grant_that_abandons_its_transaction_may_still_end(effects: InboxBench) -> None:
    def thinks_better_of_it(event: Any, job: Any) -> None:
        with job.finishing() as tx:
            tx.execute("INSERT INTO public.effects VALUES (%s)", (event.id,))
            if written(effects) == []:
                raise Abandon
        job.verdict("CLOSED")

    effects.deliver(by_stripe(stripe_event()))
    with granting(thinks_better_of_it):
        effects.run()
    assert written(effects) == []
    assert effects.rows("state, verdict") == [("done", "CLOSED")]
    assert effects.jobs() == []


def test_what_a_grant_raises_after_its_end_changes_nothing(effects: InboxBench) -> None:
    def raises_late(event: Any, job: Any) -> None:
        in_its_transaction(event, job)
        raise RuntimeError("too late")

    effects.deliver(by_stripe(stripe_event()))
    failures = counted("inbox_failures")
    with granting(raises_late):
        effects.run()
    assert counted("inbox_failures") == failures
    assert effects.rows("state, attempts, last_error") == [("done", 0, None)]
    assert effects.jobs() == []


def test_an_event_that_is_over_takes_the_grants_writes_back(effects: InboxBench) -> None:
    def overtaken(event: Any, job: Any) -> None:
        effects.ask(
            "UPDATE vpay.inbox_events SET state = 'done', verdict = 'FIRST', ended_at = now()"
        )
        with pytest.raises(Conflict):
            in_its_transaction(event, job)
        raise RuntimeError("and gives up")

    effects.deliver(by_stripe(stripe_event()))
    with granting(overtaken):
        effects.run()
    assert written(effects) == []
    assert effects.rows("state, verdict, attempts") == [("done", "FIRST", 0)]
    effects.make_due()
    effects.run()
    assert effects.jobs() == []


def test_a_grant_whose_lease_is_lost_writes_nothing_and_counts_nothing(
    effects: InboxBench,
) -> None:
    def loses(event: Any, job: Any) -> None:
        effects.ask("UPDATE vpay.jobs SET lease = gen_random_uuid()")
        in_its_transaction(event, job)

    effects.deliver(by_stripe(stripe_event()))
    with granting(loses):
        effects.run()
    assert written(effects) == []
    assert effects.rows("state, attempts") == [("accepted", 0)]


def test_a_failed_attempt_of_a_run_that_slept_counts_nothing(box: InboxBench) -> None:
    def sleeps(_event: Any, _job: Any) -> None:
        box.ask(
            "UPDATE vpay.inbox_events SET state = 'retrying', attempts = 1,"
            " next_attempt_at = now() + interval '1 hour'"
        )
        raise RuntimeError("long after another run had failed")

    box.deliver(by_stripe(stripe_event()))
    with granting(sleeps):
        box.run()
    assert box.rows("attempts, next_attempt_at > now() + interval '50 minutes'") == [(1, True)]


def test_every_exception_walks_the_ladder_to_the_eleventh_attempt(
    box: InboxBench, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[BaseException] = [
        RuntimeError("a bug"),
        Rail("no answer"),
        InvalidRequest("never works"),
        Configuration("wrong"),
        SystemExit(3),
        KeyboardInterrupt(),
        Conflict("another"),
        ValueError("\x00"),
    ]
    attempts: list[int] = []

    def fails(_event: Any, job: Any) -> None:
        attempts.append(job.attempt)
        raise errors[job.attempt % len(errors)]

    box.deliver(by_stripe(stripe_event()))
    waits = []
    with granting(fails):
        for _ in range(11):
            assert box.run() == 1
            waits += box.ask(
                "SELECT extract(epoch FROM next_attempt_at - now())::float8, run_at >="
                " next_attempt_at - interval '1 second' FROM vpay.inbox_events, vpay.jobs"
            )
            box.make_due()
        assert box.run() == 0
    assert attempts == list(range(1, 12))
    rungs = [2, 4, 8, 16, 30, 60, 300, 1_800, 7_200, 86_400]
    assert len(waits) == 10
    for rung, (wait, job_waits) in zip(rungs, waits, strict=True):
        assert rung - 2 <= wait <= rung * 1.1
        assert job_waits
    assert box.rows("state, reason, attempts") == [("dead", "attempts_exhausted", 11)]
    assert box.jobs() == []
    assert alerts(caplog).count("inbox_dead") == 1


def test_a_crash_before_the_ladders_wait_is_settled_shortens_no_wait(box: InboxBench) -> None:
    def fails(_event: Any, _job: Any) -> None:
        raise RuntimeError("no")

    box.deliver(by_stripe(stripe_event()))
    with granting(fails) as seen:
        box.run()
        box.ask("UPDATE vpay.inbox_events SET next_attempt_at = now() + interval '1 hour'")
        box.ask("UPDATE vpay.jobs SET run_at = now(), due = true")
        assert box.run() == 1
    assert len(seen) == 1
    assert box.jobs("run_at > now() + interval '50 minutes'") == [True]


def test_again_is_no_failure_and_park_is_the_end(
    box: InboxBench, caplog: pytest.LogCaptureFixture
) -> None:
    answers: Iterator[Any] = iter([Again(60), Park("the order was never placed\x00")])
    box.deliver(by_stripe(stripe_event()))
    with granting(lambda _event, _job: next(answers)):
        box.run()
        assert box.rows("state, attempts") == [("accepted", 0)]
        assert box.jobs("run_at > now() + interval '50 seconds'") == [True]
        box.make_due()
        box.run()
    assert box.rows("state, reason") == [("dead", "the order was never placed ")]
    assert alerts(caplog) == ["inbox_dead"]


def test_an_answer_that_is_none_is_a_failure(box: InboxBench) -> None:
    box.deliver(by_stripe(stripe_event()))
    answer: Any = "PAID"
    with granting(lambda _event, _job: answer):
        box.run()
    ((state, error),) = box.rows("state, last_error")
    assert state == "retrying"
    assert "a grant answers Done, Again, Park or None, not str" in error


def test_types_that_nobody_grants_are_ignored(box: InboxBench) -> None:
    given = by_stripe(stripe_event())
    box.deliver(given)
    with granting(done, type_="charge.*"):
        box.run()
    assert box.rows() == ["ignored"]
    assert box.jobs() == []
    assert box.deliver(given).content["state"] == "IGNORED"
    assert box.jobs() == []


def test_an_unparseable_event_that_is_armed_again_is_dead_again(box: InboxBench) -> None:
    box.deliver(by_hand(b"no json"))
    box.ask("UPDATE vpay.inbox_events SET state = 'accepted', reason = NULL, ended_at = NULL")
    box.deliver(by_hand(b"no json"))
    with granting(done) as seen:
        box.run()
    assert box.rows("state, reason") == [("dead", "unparseable")]
    assert seen == []


def test_what_was_verified_at_its_receipt_is_granted_whenever_its_turn_comes(
    box: InboxBench,
) -> None:
    given = by_stripe(stripe_event())
    box.deliver(given)
    # Six minutes pass: for the row, its job, and the signature, whose time is outside by now.
    box.ask("UPDATE vpay.inbox_events SET received_at = received_at - interval '6 minutes'")
    box.ask("UPDATE vpay.jobs SET run_at = run_at - interval '6 minutes'")
    with granting(done) as seen:
        box.run()
    assert box.rows() == ["done"]
    assert len(seen) == 1


def test_events_about_one_reference_take_turns_and_none_is_dropped(box: InboxBench) -> None:
    for number in (1, 2, 3):
        box.deliver(by_stripe(stripe_event(f"evt_{number}")))
    box.deliver(by_stripe(stripe_event("evt_4", about="pi_2")))
    with granting(done) as seen:
        assert [box.run() for _ in range(4)] == [2, 1, 1, 0]
    assert sorted(event.id for event in seen) == ["evt_1", "evt_2", "evt_3", "evt_4"]
    assert box.rows() == ["done"] * 4


def test_a_reference_is_busy_across_processes_and_free_while_one_waits_on_its_ladder(
    box: InboxBench, eventually: Eventually
) -> None:
    gate, begun = threading.Event(), threading.Event()

    def held(event: Any, _job: Any) -> None:
        if event.id == "evt_1":
            begun.set()
            gate.wait(20)
            raise RuntimeError("and fails")

    box.deliver(by_stripe(stripe_event("evt_1")))
    with granting(held) as seen, ThreadPoolExecutor(1) as pool:
        running = pool.submit(box.run)
        assert begun.wait(20)
        assert box.deliver(by_stripe(stripe_event("evt_2"))).status == 200
        assert box.run() == 0
        gate.set()
        assert running.result() == 1
        # The first waits on its ladder: the second goes by.
        assert box.run() == 1
    assert [event.id for event in seen] == ["evt_1", "evt_2"]
    assert box.rows() == ["retrying", "done"]


def test_a_task_of_the_users_in_a_references_lane_takes_turns_with_its_grants(
    box: InboxBench,
) -> None:
    box.deliver(by_stripe(stripe_event()))
    with box.database.transaction() as tx:
        jobs.enqueue(tx, grant_inbox, {"inbox_id": 7}, lane=lane("stripe", "", "pi_1"))
    with box.database.connection() as connection:
        assert len(claimed(connection, "inbox").messages) == 1
        assert claimed(connection, "inbox").messages == []


@pytest.mark.parametrize("late", [{"cancelled": True}, {"held": False}])
def test_a_run_that_woke_too_late_grants_nothing(box: InboxBench, late: dict[str, bool]) -> None:
    box.deliver(by_stripe(stripe_event()))
    run = HandRun(box.database, **late)  # type: ignore[arg-type]
    with granting(done) as seen:
        assert grant_inbox(run, box.worker.runner.context, inbox_id=1) == Again(1.0)
        assert seen == []
        box.run()
    assert len(seen) == 1


def test_a_row_that_is_gone_ends_its_job(box: InboxBench) -> None:
    box.deliver(by_stripe(stripe_event()))
    box.ask("DELETE FROM vpay.inbox_events")
    assert box.run() == 1
    assert box.jobs() == []


def test_a_verdict_is_a_word(box: InboxBench) -> None:
    def says_too_much(_event: Any, job: Any) -> None:
        with pytest.raises(InvalidRequest):
            job.verdict("paid in full")
        job.verdict("PAID", "x" * 1_000 + "\x00")

    box.deliver(by_standard(b'{"type": "t", "data": {"id": "d"}}'), "acme")
    with granting(says_too_much, "acme"):
        box.run()
    assert box.rows("state, verdict, length(reason)") == [("done", "PAID", 255)]


def test_the_kinds_of_the_inbox_are_declared() -> None:
    assert {"grant_inbox", "scan_inbox"} <= set(REGISTRY.names())
