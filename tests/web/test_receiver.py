"""Vendors' webhooks over real HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.conftest import Eventually
from tests.e2e import proxy
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
from tests.web.client import Client, Told
from tests.web.conftest import Serve
from vpay_tasks.config import WindowsTable
from vpay_tasks.store.db import Database

AT_ONCE = WindowsTable(inbox_answer=0.001)
"""No verdict is waited for."""


@pytest.fixture
def box(database: Database, dsn: str) -> Iterator[InboxBench]:
    bench = InboxBench(database, dsn)
    yield bench
    bench.close()


def post(client: Client, given: Delivery, path: str = "stripe") -> Told:
    return client.send(f"/inbox/{path}", given.body, **given.headers)


@pytest.mark.parametrize(
    ("vendor", "sign"),
    [
        ("stripe", by_stripe),
        ("acme", by_standard),
        ("acme", by_svix),
        ("github", by_github),
        ("bank", by_token),
    ],
)
def test_what_a_vendors_package_signs_is_kept_and_answered(
    box: InboxBench, serve: Serve, vendor: str, sign: Callable[[bytes], Delivery]
) -> None:
    with serve(windows=AT_ONCE) as client:
        for path in (vendor, f"{vendor}/account"):
            told = post(client, sign(stripe_event()), path)
            assert told.status == 200
            assert told.body["state"] == "PENDING"
            assert told.body["accepted"] is True
    assert box.rows("vendor, account") == [(vendor, ""), (vendor, "account")]


def test_the_verdict_is_the_answer_when_it_comes_in_time(
    box: InboxBench, serve: Serve, eventually: Eventually
) -> None:
    with (
        serve(windows=WindowsTable(inbox_answer=30)) as client,
        granting(done),
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(post, client, by_stripe(stripe_event()))
        eventually(lambda: box.rows() == ["accepted"])
        box.run()
        told = waiting.result()
        assert told.body == {"reference": "pi_1", "state": "DONE", "accepted": True}
        assert post(client, by_stripe(stripe_event())).body == told.body


def test_those_who_wait_for_a_verdict_keep_nobody_from_being_kept(
    box: InboxBench, serve: Serve, eventually: Eventually
) -> None:
    with (
        serve(windows=WindowsTable(inbox_answer=30), threads=1) as client,
        granting(done),
        ThreadPoolExecutor(21) as pool,
    ):
        waiting = [
            pool.submit(post, client, by_stripe(stripe_event(f"evt_{n}", about=f"pi_{n}")))
            for n in range(20)
        ]
        eventually(lambda: box.rows() == ["accepted"] * 20)
        # Twenty wait, and the only thread is free for another.
        last = pool.submit(post, client, by_stripe(stripe_event("last", about="pi_last")))
        eventually(lambda: box.rows() == ["accepted"] * 21)
        while box.run():
            pass
        assert {told.result().body["state"] for told in [*waiting, last]} == {"DONE"}


def test_a_flood_of_slow_bodies_keeps_no_delivery_from_being_kept(
    box: InboxBench, serve: Serve
) -> None:
    drip = (
        b"POST /inbox/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + b"{" * 1_000
    )
    with serve(windows=AT_ONCE, threads=1, body_deadline=60) as client, ExitStack() as lines:
        for _ in range(200):
            line = client.socket()
            lines.callback(line.close)
            line.sendall(drip)
        assert post(client, by_stripe(stripe_event())).status == 200
    assert box.rows() == ["accepted"]


def test_what_is_refused_is_refused_in_one_way_and_leaves_no_row(
    box: InboxBench, serve: Serve
) -> None:
    good = by_stripe(stripe_event())
    with serve(windows=AT_ONCE, body_deadline=0.3) as client:
        for given in (
            Delivery(good.body),
            Delivery(good.body + b" ", good.headers),
            by_stripe(good.body, at=1),
            by_stripe(good.body, secret="x" * 20),
        ):
            told = post(client, given)
            assert (told.status, told.body) == (401, {"error": "refused"})
        twice = b"Stripe-Signature: " + good.headers["Stripe-Signature"].encode() + b"\r\n"
        answer = client.bytes_back(
            b"POST /inbox/stripe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            + twice * 2
            + b"Content-Length: %d\r\n\r\n" % len(good.body)
            + good.body
        )
        assert b" 401 " in answer
        assert post(client, good, "nobody").status == 404
        assert post(client, good, "stripe/a%2Fb").status == 404
        assert post(client, good, "stripe/a/b").status == 404
        assert client.get("/inbox/stripe").status == 405
        assert post(client, by_hand(b"x" * 262_145)).status == 413
        slow = b"POST /inbox/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{"
        assert b" 408 " in client.bytes_back(slow)
    assert box.rows() == []


def test_a_body_is_never_decompressed(box: InboxBench, serve: Serve) -> None:
    packed = gzip.compress(stripe_event())
    given = by_hand(packed)
    with serve(windows=AT_ONCE) as client:
        told = client.send("/inbox/stripe", packed, **{**given.headers, "Content-Encoding": "gzip"})
    assert (told.status, told.body["reason"]) == (200, "unparseable")
    assert [bytes(body) for body in box.rows("body")] == [packed]


def test_a_postgres_that_is_down_is_a_503_and_its_vendor_sends_again(
    box: InboxBench, serve: Serve, dsn: str, eventually: Eventually
) -> None:
    given = by_stripe(stripe_event())
    with (
        proxy.before(dsn) as (line, through),
        serve(windows=AT_ONCE, url=through, patience=1.0) as client,
    ):
        line.refuse()
        assert post(client, given).status == 503
        line.accept_again()
        eventually(lambda: post(client, given).status == 200)
    assert box.rows() == ["accepted"]
