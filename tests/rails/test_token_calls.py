"""Rails with bearer tokens: when one is minted, and what happens without one."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.rails.benches import BENCHES, Bench
from vpay_sandbox.httpd import Answer, Hangup, Reply
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks.errors import Rail
from vpay_tasks.rails.port import Accepted, RailPort, SubmitAnswer, Unknown
from vpay_tasks.rails.token import Token, TokenCache


def in_time() -> float:
    return time.monotonic() + 20


def submit(bench: Bench, rail: RailPort, **changes: Any) -> SubmitAnswer:
    return rail.submit(bench.order(**changes), deadline=in_time())


WITH_TOKENS = [bench for bench in BENCHES.values() if bench.tokens]
with_tokens = pytest.mark.parametrize("bench", WITH_TOKENS, ids=lambda bench: bench.code)


@with_tokens
def test_a_token_that_expired_early_is_replaced_and_the_same_reference_sent(
    bench: Bench, stub: StubRail
) -> None:
    rail = bench.rail(stub)
    submit(bench, rail)
    stub.expire_tokens()
    wish = bench.order()
    assert isinstance(rail.submit(wish, deadline=in_time()), Accepted)
    assert bench.tokens is not None
    assert len(stub.requests(bench.tokens)) == 2
    sent = [seen.request for seen in stub.requests(bench.submits)[1:]]
    assert [wish.reference in request.body.decode() for request in sent] == [True, True]


@with_tokens
def test_a_token_that_ends_within_the_minute_is_used_once(bench: Bench, stub: StubRail) -> None:
    rail = bench.rail(stub)
    stub.tokens.ttl_s = 30
    for _ in range(2):
        assert isinstance(submit(bench, rail), Accepted)
    assert len(stub.requests(bench.tokens or "")) == 2


@with_tokens
def test_many_threads_mint_one_token(bench: Bench, stub: StubRail) -> None:
    rail = bench.rail(stub)
    barrier = threading.Barrier(6)
    answers: list[SubmitAnswer] = []

    def one() -> None:
        barrier.wait()
        answers.append(submit(bench, rail))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(answer) for answer in answers] == [Accepted] * 6
    assert len(stub.requests(bench.tokens or "")) == 1


def test_a_thread_whose_deadline_passes_while_another_mints_goes_without() -> None:
    minting, done = threading.Event(), threading.Event()

    def mint(deadline: float) -> Token:
        minting.set()
        done.wait(5)
        return Token("t", 3600)

    cache = TokenCache(mint)
    first = threading.Thread(target=cache.get, args=("i",), kwargs=wish(20))
    first.start()
    assert minting.wait(20)
    with pytest.raises(Rail, match="no token in time"):
        cache.get("i", **wish(0.1))
    done.set()
    first.join()
    assert cache.get("i", **wish(0.1)) == "t"


def wish(patience: float) -> dict[str, Any]:
    return {"refused": None, "deadline": time.monotonic() + patience}


@with_tokens
@pytest.mark.parametrize(
    "answer",
    [
        Hangup(),
        Reply(500),
        Reply(401),
        Reply(200, b"<html>Request Rejected</html>"),
        Reply(200, b'{"access_token":"","expires_in":3600}'),
        Reply(200, b'{"access_token":"a b","expires_in":3600}'),
        Reply(200, b'{"access_token":"a\\r\\nX: y","expires_in":3600}'),
        Reply(200, b'{"access_token":"t","expires_in":"soon"}'),
        Reply(200, b'{"access_token":"t","expires_in":true}'),
        Reply(200, b'{"access_token":"t","expires_in":"1e9"}'),
        Reply(200, b'{"expires_in":3600}'),
        Reply(302, headers={"Location": "/elsewhere"}),
    ],
    ids=range(12),
)
def test_without_a_token_nothing_is_submitted_and_nothing_is_known(
    bench: Bench, stub: StubRail, answer: Answer
) -> None:
    rail = bench.rail(stub)
    stub.script(bench.tokens or "", answer)
    unknown = submit(bench, rail)
    assert isinstance(unknown, Unknown)
    assert isinstance(unknown.error, Rail)
    assert stub.requests(bench.submits) == []
    assert isinstance(submit(bench, rail), Accepted)
