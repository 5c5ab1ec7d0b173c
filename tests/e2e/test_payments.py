"""A payment from confirm to the merchant's endpoint, by real processes, through faults."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet, Process
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.stub_rail import StubRail
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_tasks import config, payments, wiring

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
KEY = "bm90LWEtc2VjcmV0LWJ1dC0zMi1ieXRlcy1sb25nISE="
FIRST_POLL, THIRD_POLL, NO_FUNDS = "46733123601", "46733123602", "46733123611"
TEN_MINUTES = 600.0


@pytest.fixture
def rail(tmp_path: Path) -> Iterator[StubRail]:
    with StubRail(journal=tmp_path / "rail.jsonl") as rail:
        yield rail


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[StubReceiver]:
    with StubReceiver(
        [Endpoint("shop", "main", secrets=(SECRET,))], journal=tmp_path / "receiver.jsonl"
    ) as receiver:
        yield receiver


class Shop:
    """A merchant's application beside the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        settings = config.read(fleet.write(), {})
        self.db = wiring.database(settings)
        self.rail = wiring.rails(settings)["mtn_momo"]

    def pays(self, payer: str) -> str:
        """Confirm a payment; its intent's id."""
        with self.db.transaction() as tx:
            intent = payments.create_intent(tx, "shop", 1_000, "EUR")
        answer = payments.confirm(self.db, intent.id, rail=self.rail, payer=payer)
        assert isinstance(answer, payments.Confirmed)
        return intent.id


@pytest.fixture
def shop(fleet: Fleet, rail: StubRail, receiver: StubReceiver) -> Iterator[Shop]:
    fleet.config |= {
        "rails": {
            "mtn_momo": {
                "base_url": rail.url,
                "api_user": rail.credentials.api_user,
                "api_key": rail.credentials.api_key,
                "subscription_key": rail.credentials.subscription_key,
            }
        },
        "keys": {"payer_ref": [KEY]},
        "merchants": [
            {
                "id": "shop",
                "endpoints": [
                    {
                        "id": "main",
                        "url": receiver.endpoint_url("shop", "main"),
                        "secrets": [SECRET],
                    }
                ],
            }
        ],
        "ladders": {"poll": [0.2], "delivery": [0.2]},
    }
    shop = Shop(fleet)
    yield shop
    shop.db.close()


def status(board: Board, intent: str) -> str:
    ((found,),) = board.ask("SELECT status FROM vpay.payment_intents WHERE id = %(id)s", id=intent)
    return str(found)


def events(board: Board, intent: str) -> list[str]:
    rows = board.ask("SELECT type FROM vpay.events WHERE object_id = %(id)s", id=intent)
    return [row[0] for row in rows]


def posts(receiver: StubReceiver) -> list[bytes]:
    return [seen.request.body for seen in receiver.requests("/hooks/*")]


def delivered(board: Board) -> bool:
    return bool(board.ask("SELECT 1 FROM vpay.webhook_deliveries WHERE state = 'delivered'"))


def test_payments_are_settled_as_the_rail_says_and_the_merchant_is_told_once(
    fleet: Fleet, shop: Shop, board: Board, receiver: StubReceiver, eventually: Eventually
) -> None:
    fleet.dispatcher()
    fleet.workers(threads=4)
    good, slow, bad = shop.pays(FIRST_POLL), shop.pays(THIRD_POLL), shop.pays(NO_FUNDS)
    eventually(lambda: len(receiver.requests("/hooks/*")) == 3)
    eventually(lambda: not board.ask("SELECT 1 FROM vpay.jobs WHERE queue = 'webhooks'"))
    assert [status(board, intent) for intent in (good, slow, bad)] == [
        "succeeded", "succeeded", "requires_payment_method",
    ]  # fmt: skip
    assert events(board, good) == ["payment_intent.succeeded"]
    assert events(board, bad) == ["payment_intent.payment_failed"]
    stored = board.ask("SELECT body FROM vpay.events")
    assert {hashlib.sha256(body).hexdigest() for body in posts(receiver)} == {
        hashlib.sha256(body).hexdigest() for (body,) in stored
    }
    assert [seen.status for seen in receiver.requests("/hooks/*")] == [200] * 3


@pytest.mark.parametrize("group", [False, True], ids=["one process", "whole group"])
def test_a_worker_told_to_stop_mid_delivery_ends_it_and_posts_once(
    fleet: Fleet,
    shop: Shop,
    board: Board,
    receiver: StubReceiver,
    eventually: Eventually,
    group: bool,
) -> None:
    fleet.dispatcher()
    workers = fleet.workers(threads=4)
    with receiver.hold("/hooks/*") as held:
        shop.pays(FIRST_POLL)
        held.wait()
        _stop(workers, group=group)
        eventually(lambda: workers.said("drain"))
    assert workers.wait() == 0
    assert len(posts(receiver)) == 1
    assert delivered(board)
    assert not board.ask("SELECT 1 FROM vpay.jobs WHERE lease IS NOT NULL")


def _stop(workers: Process, *, group: bool) -> None:
    if group:
        workers.signal_group(signal.SIGTERM)
    else:
        workers.signal(signal.SIGTERM)


def test_a_delivery_whose_grace_is_over_is_posted_again_with_the_same_bytes(
    fleet: Fleet, shop: Shop, board: Board, receiver: StubReceiver, eventually: Eventually
) -> None:
    fleet.config["worker"] |= {"grace": 0.5, "run_lease": TEN_MINUTES}
    fleet.dispatcher()
    workers = fleet.workers(threads=4)
    with receiver.hold("/hooks/*", times=1) as held:
        shop.pays(FIRST_POLL)
        held.wait()
        workers.signal(signal.SIGTERM)
        assert workers.wait() == 1
        assert workers.said("grace_over")
        assert board.ask(
            "SELECT 1 FROM vpay.jobs WHERE kind = 'deliver_webhook' AND lease IS NULL"
            " AND crashes = 0 AND failures = 0"
        )
        fleet.workers(threads=4)
        eventually(lambda: delivered(board))
    first, second = posts(receiver)
    assert first == second
