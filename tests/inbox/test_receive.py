"""Deliveries are kept, once, and only then answered."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.inbox.bench import InboxBench, done, granting
from tests.inbox.signing import (
    Delivery,
    by_github,
    by_hand,
    by_standard,
    by_stripe,
    by_svix,
    by_token,
    stripe_event,
)
from vpay_tasks import telemetry
from vpay_tasks.config import WindowsTable
from vpay_tasks.inbox import Answer

PENDING = {"reference": "pi_1", "state": "PENDING", "accepted": True}


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (getattr(record, "fields", {}) for record in caplog.records)
    return [fields["action"] for fields in found if fields.get("alert")]


def counted(name: str) -> int:
    return telemetry.counts().get(name, 0)


def test_a_delivery_is_kept_with_its_job_and_answered(box: InboxBench) -> None:
    received = counted("inbox_received")
    answer = box.deliver(by_stripe(stripe_event()))
    assert (answer.status, answer.content) == (200, PENDING)
    assert json.loads(answer.body) == PENDING
    ((state, event_id, type_, reference, deliveries, account, verified_by, body),) = box.rows(
        "state, event_id, type, reference, deliveries, account, verified_by, body"
    )
    assert (state, event_id, type_) == ("accepted", "evt_1", "payment_intent.succeeded")
    assert (reference, deliveries, account) == ("pi_1", 1, "")
    assert verified_by.startswith("stripe/")
    assert bytes(body) == stripe_event()
    assert box.jobs("dedupe_key, queue, kind, lane IS NOT NULL, due") == [
        ("inbox:1", "inbox", "grant_inbox", True, True)
    ]
    assert counted("inbox_received") == received + 1


def test_twenty_copies_at_once_are_one_event_and_one_job(box: InboxBench) -> None:
    given = by_stripe(stripe_event())
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: box.deliver(given), range(20)))
    assert [answer.status for answer in answers] == [200] * 20
    assert box.rows("deliveries") == [20]
    assert len(box.jobs()) == 1


def test_a_repeat_of_what_is_done_is_answered_with_its_verdict(box: InboxBench) -> None:
    def paid(_event: Any, job: Any) -> None:
        job.verdict("PAID", "ten euros")

    given = by_stripe(stripe_event())
    with granting(paid) as seen:
        box.deliver(given)
        box.run()
        answer = box.deliver(given)
        assert answer.content == {
            "reference": "pi_1",
            "state": "PAID",
            "accepted": True,
            "reason": "ten euros",
        }
        assert box.run() == 0
    assert len(seen) == 1
    assert box.rows("state, deliveries") == [("done", 2)]


def test_a_verdict_that_comes_in_time_is_the_answer(
    box: InboxBench, eventually: Eventually
) -> None:
    given = by_stripe(stripe_event())
    with granting(done), ThreadPoolExecutor(3) as pool, box.another() as inbox:
        waiting = [
            pool.submit(inbox.receive, given.body, given.headers, "stripe") for _ in range(3)
        ]
        eventually(lambda: box.rows("deliveries") == [3])
        box.run()
        answers = [future.result() for future in waiting]
    assert [answer.content["state"] for answer in answers] == ["DONE"] * 3


def test_a_failed_first_attempt_is_still_accepted(box: InboxBench, eventually: Eventually) -> None:
    def fails(_event: Any, _job: Any) -> None:
        raise RuntimeError("the product is down")

    given = by_stripe(stripe_event())
    with granting(fails), ThreadPoolExecutor(1) as pool, box.another() as inbox:
        waiting = pool.submit(inbox.receive, given.body, given.headers, "stripe")
        eventually(lambda: box.rows("state") == ["accepted"])
        box.run()
        assert waiting.result().content == PENDING
        assert box.rows("state") == ["retrying"]
        # It has a job that waits on its ladder: a repeat is answered from the row, at once,
        # and hurries nothing.
        assert inbox.take_in(given.body, given.headers, "stripe") == Answer(200, PENDING)
        assert box.run() == 0


def test_without_a_verdict_the_answer_comes_when_it_was_promised(
    box: InboxBench, eventually: Eventually
) -> None:
    given = by_stripe(stripe_event())
    with box.another(windows=WindowsTable(inbox_answer=0.3)) as inbox:
        assert inbox.receive(given.body, given.headers, "stripe").content == PENDING
    with box.another() as inbox, ThreadPoolExecutor(1) as pool:
        # What took 60 s to arrive has no time left to wait: not 30 s from now.
        long_ago = time.monotonic() - 60
        told = pool.submit(inbox.receive, given.body, given.headers, "stripe", arrived=long_ago)
        eventually(told.done)
        assert told.result().content == PENDING


def test_what_is_kept_is_accepted_also_without_room_for_a_thread_that_looks(
    box: InboxBench,
) -> None:
    given = by_stripe(stripe_event())
    with box.another(windows=WindowsTable(inbox_answer=0.3)) as inbox:
        with inbox.db.connection():
            pass  # the pool has threads of its own
        before = threading.stack_size(1 << 46)  # more than there is: no thread starts
        try:
            assert inbox.receive(given.body, given.headers, "stripe").content == PENDING
        finally:
            threading.stack_size(before)
    assert box.rows("state") == ["accepted"]


def test_one_id_from_two_vendors_and_two_accounts_is_four_events(box: InboxBench) -> None:
    body = b'{"id": "1", "type": "t", "reference": "r"}'
    for account in ("x", "y"):
        assert box.deliver(by_hand(body), "stripe", account).status == 200
        assert box.deliver(by_token(body), "bank", account).status == 200
    assert box.rows("event_id") == ["1"] * 4
    assert len(set(box.jobs("lane"))) == 4


@pytest.mark.parametrize("id_", [None, "", 7, "x" * 129, "évt", ["evt"], "a\nb"])
def test_an_event_without_an_id_of_its_own_is_known_by_its_body(box: InboxBench, id_: Any) -> None:
    first, second = (by_stripe(stripe_event(id_, about=about)) for about in ("pi_1", "pi_2"))
    for given in (first, second, first):
        assert box.deliver(given).status == 200
    assert box.rows("deliveries") == [2, 1]
    assert all(name.startswith("sha256:") for name in box.rows("event_id"))


def test_a_github_delivery_is_known_by_what_was_signed(box: InboxBench) -> None:
    body = b'{"ref": "main", "repository": {"full_name": "a/b"}}'
    box.deliver(by_github(body, guid="one"), "github")
    box.deliver(by_github(body, guid="another", event="release"), "github")
    assert box.rows("type, reference, deliveries") == [("push", "a/b", 2)]


def test_a_standard_webhook_is_known_by_its_signed_header(box: InboxBench) -> None:
    body = '{"type": "t", "data": {"id": "d"}}'
    for id_ in ("msg_1", "msg_2", "msg_1"):
        box.deliver(by_standard(body.encode(), id_), "acme")
    assert box.rows("event_id, type, reference, deliveries") == [
        ("msg_1", "t", "d", 2),
        ("msg_2", "t", "d", 1),
    ]
    assert len(set(box.jobs("lane"))) == 1


def test_a_caught_delivery_is_no_new_event_under_an_id_that_nobody_signed(
    box: InboxBench,
) -> None:
    given = by_svix(b'{"type": "t", "data": {"id": "d"}}')
    assert box.deliver(given, "acme").status == 200
    again = Delivery(given.body, {**given.headers, "webhook-id": "msg_2"})
    assert box.deliver(again, "acme").status == 401
    assert box.rows("event_id, deliveries") == [("msg_1", 1)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b'{"id": "evt_1", "a": "\x00"}',
        b'{"id": "evt_1", "a": "\\u0000"}',
        b'{"note": "\\ud800"}',
        b'{"amount": NaN}',
        b'{"id": "a", "id": "b"}',
        b"[" * 100_000,
        b'{"a":' * 40_000,
        b"\xff\xfe\x00",
    ],
)
def test_a_body_that_verifies_and_is_no_event_is_kept_raw_and_dead(
    box: InboxBench, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        answer = box.deliver(by_hand(body))
        assert answer.status == 200
        assert answer.content == {
            "reference": None,
            "state": "DEAD",
            "accepted": True,
            "reason": "unparseable",
        }
    assert [bytes(kept) for kept in box.rows("body")] == [body]
    assert box.rows("state, reason, deliveries") == [("dead", "unparseable", 2)]
    assert box.jobs() == []
    assert alerts(caplog) == ["inbox_dead"]


def test_an_event_that_is_no_object_is_an_event_of_no_type(box: InboxBench) -> None:
    for body in (b"null", b"[]", b'"text"', b"1"):
        assert box.deliver(by_hand(body)).content["state"] == "PENDING"
    assert box.rows("type") == [""] * 4


def test_a_reference_of_any_length_is_kept_short_and_takes_its_own_turn(box: InboxBench) -> None:
    long = "r" * 1_000
    for number, about in enumerate((long + "1", long + "2", "\\ud83d\\ude00", "r\\nr")):
        body = f'{{"id": "{number}", "type": "t", "data": {{"object": {{"id": "{about}"}}}}}}'
        assert box.deliver(by_hand(body.encode())).status == 200
    assert box.rows("reference") == ["r" * 255, "r" * 255, "😀", "r\nr"]
    assert len(set(box.jobs("lane"))) == 4


def test_the_first_body_of_an_id_stands_and_the_other_is_alerted_once(
    box: InboxBench, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = stripe_event(amount=1), stripe_event(amount=2)
    box.deliver(by_stripe(first))
    for _ in range(2):
        assert box.deliver(by_stripe(other)).status == 200
    assert [bytes(body) for body in box.rows("body")] == [first]
    assert box.rows("conflicts, deliveries") == [(2, 3)]
    assert alerts(caplog) == ["inbox_conflict"]


def test_a_dead_event_that_is_delivered_again_is_granted_from_the_beginning(
    box: InboxBench,
) -> None:
    given = by_stripe(stripe_event())
    box.deliver(given)
    box.ask("DELETE FROM vpay.jobs")
    box.ask(
        "UPDATE vpay.inbox_events SET state = 'dead', reason = 'attempts_exhausted', attempts = 11,"
        " ended_at = now()"
    )
    assert box.deliver(given).content == PENDING
    assert box.rows("state, attempts") == [("accepted", 0)]
    with granting(done):
        assert box.run() == 1
    assert box.rows() == ["done"]


@pytest.mark.parametrize("state", ["accepted", "retrying"])
def test_an_event_without_a_job_gets_one_when_it_is_delivered_again(
    box: InboxBench, state: str
) -> None:
    given = by_stripe(stripe_event())
    box.deliver(given)
    box.ask("DELETE FROM vpay.jobs")
    if state == "retrying":
        box.ask(
            "UPDATE vpay.inbox_events SET state = 'retrying', attempts = 3, next_attempt_at = now()"
        )
    assert box.deliver(given).content == PENDING
    with granting(done):
        assert box.run() == 1
    assert box.rows() == ["done"]


def test_a_parked_job_runs_when_its_event_is_delivered_again(box: InboxBench) -> None:
    given = by_stripe(stripe_event())
    box.deliver(given)
    box.ask("UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'by_operator', failures = 7")
    assert box.run() == 0
    assert box.deliver(given).content == PENDING
    assert box.jobs("parked_at, dead_reason, failures") == [(None, None, 0)]
    with granting(done):
        assert box.run() == 1
    assert box.rows() == ["done"]


def test_what_is_refused_leaves_no_row_and_one_kind_of_answer(box: InboxBench) -> None:
    body = stripe_event()
    good = by_stripe(body)
    before = {reason: counted(f"inbox_refused_{reason}") for reason in ("missing", "stale")}
    refused = [
        Delivery(body),
        Delivery(body, {"Stripe-Signature": "nonsense"}),
        Delivery(body + b" ", good.headers),
        by_stripe(body, at=time.time() - 3_600),
        by_stripe(body, secret="another secret than ours"),
    ]
    answers = [box.deliver(given) for given in refused]
    assert answers == [Answer(401, {"error": "refused"})] * 5
    for reason, number in before.items():
        assert counted(f"inbox_refused_{reason}") == number + 1
    assert box.deliver(good, "nobody").status == 404
    for account in ("a/b", "ü", "x" * 65, "a\x00"):
        assert box.deliver(good, account=account).status == 404
    assert box.deliver(by_hand(b"x" * (256 * 1024 + 1))).status == 413
    assert box.rows() == []


def test_a_body_of_the_largest_size_is_kept(box: InboxBench) -> None:
    body = b'{"id": "evt_1", "filler": "' + b"x" * (256 * 1024 - 29) + b'"}'
    assert len(body) == 256 * 1024
    assert box.deliver(by_hand(body)).status == 200
    assert box.rows("octet_length(body)") == [256 * 1024]
