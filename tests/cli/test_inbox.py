"""`vpay-tasks inbox …`, on events that were delivered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Call
from tests.inbox.bench import InboxBench, done, granting
from tests.inbox.signing import by_hand, by_stripe, stripe_event
from vpay_tasks.store.db import Database


@pytest.fixture
def box(database: Database, dsn: str) -> Iterator[InboxBench]:
    bench = InboxBench(database, dsn)
    yield bench
    bench.close()


def die(box: InboxBench) -> None:
    box.ask("DELETE FROM vpay.jobs")
    box.ask(
        "UPDATE vpay.inbox_events SET state = 'dead', reason = 'attempts_exhausted', attempts = 11,"
        " last_error = 'RuntimeError: no', ended_at = now(), next_attempt_at = NULL"
    )


def test_events_are_listed_and_filtered(vpay: Call, box: InboxBench) -> None:
    assert vpay("inbox", "list").out == "No event.\n"
    box.deliver(by_stripe(stripe_event("evt_1", about="pi_1")))
    box.deliver(by_stripe(stripe_event("evt_2", "charge.refunded", about="pi\x1b[2J")), account="x")
    box.deliver(by_hand(b"no json"))
    out = vpay("inbox", "list").out
    assert "evt_1" in out
    assert "stripe/x" in out
    assert "dead (unparseable)" in out
    assert "\x1b" not in out
    assert "\x1b" not in vpay("inbox", "show", "2").out
    ((digest,),) = box.ask("SELECT event_id FROM vpay.inbox_events WHERE state = 'dead'")
    assert digest[:35] + "…" in out  # a list's lines fit; the rest is told where there is room
    assert digest in vpay("inbox", "show", "3").out
    assert max(map(len, out.splitlines())) < 200
    for words, number in (
        (["--state", "dead"], 1),
        (["--vendor", "stripe"], 3),
        (["--vendor", "nobody"], 0),
        (["--type", "charge.refunded"], 1),
        (["--reference", "pi_1"], 1),
        (["--event", "evt_2"], 1),
        (["--limit", "2"], 2),
    ):
        assert len(vpay("inbox", "list", "--json", *words).json["events"]) == number
    assert vpay("inbox", "list", "--limit", "0").code == 64


def test_one_event_is_shown_without_its_body_unless_that_is_asked_for(
    vpay: Call, box: InboxBench
) -> None:
    box.deliver(by_stripe(stripe_event()))
    out = vpay("inbox", "show", "1").out
    assert "Event 1 from stripe: evt_1" in out
    assert "pi_1" in out
    assert "amount" not in out
    found = vpay("inbox", "show", "1", "--json").json
    assert (found["state"], found["deliveries"], found["job"]) == ("accepted", 1, 1)
    assert "body" not in found
    assert vpay("inbox", "show", "2").code == 1


def test_the_body_comes_as_it_was_sent(vpay: Call, box: InboxBench) -> None:
    box.deliver(by_stripe(stripe_event()))
    assert vpay("inbox", "show", "1", "--body").out == stripe_event().decode()


def test_the_dead_are_granted_again_from_the_beginning(vpay: Call, box: InboxBench) -> None:
    for number in range(3):
        box.deliver(by_stripe(stripe_event(f"evt_{number}", about=f"pi_{number}")))
    die(box)
    assert vpay("inbox", "retry", "--dry-run").out == "3 events would be granted.\n"
    assert box.rows() == ["dead"] * 3
    assert vpay("inbox", "retry", "1").out == "1 event will be granted.\n"
    assert box.rows("state, attempts") == [("accepted", 0), ("dead", 11), ("dead", 11)]
    assert vpay("inbox", "retry").out == "2 events will be granted.\n"
    with granting(done):
        while box.run():
            pass
    assert box.rows() == ["done"] * 3


def test_a_dry_run_says_what_a_run_would_and_changes_nothing(vpay: Call, box: InboxBench) -> None:
    for number in range(3):
        box.deliver(by_stripe(stripe_event(f"evt_{number}", about=f"pi_{number}")))
    die(box)
    box.ask(
        "UPDATE vpay.inbox_events SET state = 'done', verdict = 'DONE', reason = NULL WHERE id = 2"
    )
    box.ask("UPDATE vpay.inbox_events SET body = '' WHERE id = 3")
    for words, verb in ((["--dry-run"], "would"), ([], "will")):
        told = vpay("inbox", "retry", *words, "1", "1", "2", "3", "99")
        assert (told.code, told.out) == (1, f"1 event {verb} be granted.\n")
        assert told.err == (
            "no event 2 is accepted, retrying, dead\n"
            "event 3 has no body: bodies of the dead go after 90 days, and come back when their"
            " vendor sends them again\n"
            "no event 99 is accepted, retrying, dead\n"
        )
        assert len(box.jobs()) == (verb == "will")
    assert box.rows() == ["accepted", "done", "dead"]


def test_one_that_waits_on_its_ladder_is_due_now(vpay: Call, box: InboxBench) -> None:
    def fails(_event: object, _job: object) -> None:
        raise RuntimeError("no")

    box.deliver(by_stripe(stripe_event()))
    with granting(fails):
        box.run()
    assert box.run() == 0
    assert vpay("inbox", "retry", "1").code == 0
    assert box.rows("state, attempts") == [("accepted", 0)]
    with granting(done):
        assert box.run() == 1
    assert box.rows() == ["done"]


def test_what_is_done_is_granted_again_only_by_a_replay(vpay: Call, box: InboxBench) -> None:
    box.deliver(by_stripe(stripe_event()))
    with granting(done) as seen:
        box.run()
        refused = vpay("inbox", "retry", "1", "7")
        assert refused.code == 1
        assert refused.err == (
            "no event 1 is accepted, retrying, dead\nno event 7 is accepted, retrying, dead\n"
        )
        assert box.run() == 0
        assert vpay("inbox", "replay", "1").code == 0
        assert box.run() == 1
    assert len(seen) == 2
    assert box.rows() == ["done"]


def test_ignored_events_are_granted_once_there_is_somebody_to_do_it(
    vpay: Call, box: InboxBench
) -> None:
    box.deliver(by_stripe(stripe_event("evt_1", "charge.refunded")))
    box.run()
    assert box.rows() == ["ignored"]
    words = ["inbox", "replay", "--state", "ignored", "--type", "charge.refunded"]
    assert vpay(*words).out == "1 event will be granted.\n"
    with granting(done):
        box.run()
    assert box.rows() == ["done"]


@pytest.mark.parametrize(
    "words",
    [
        ["replay"],
        ["replay", "--vendor", "stripe"],
        ["retry", "1", "--vendor", "stripe"],
        ["retry", "--state", "done"],
        ["replay", "x"],
    ],
)
def test_a_choice_that_could_be_meant_in_two_ways_is_a_wrong_call(
    vpay: Call, words: list[str]
) -> None:
    assert vpay("inbox", *words).code == 64
