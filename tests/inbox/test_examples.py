"""The examples and the manual of the inbox do what they say."""

from __future__ import annotations

import importlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.conftest import Eventually
from tests.house import ROOT
from tests.inbox.bench import InboxBench
from tests.inbox.signing import STANDARD, STRIPE, Delivery, by_standard, by_stripe
from tests.web.client import Client
from vpay_tasks import config
from vpay_tasks.inbox.registry import GRANTS
from vpay_tasks.inbox.vendors import build

MANUAL = (ROOT / "docs" / "inbox.md").read_text("utf-8")


@pytest.fixture
def shop(box: InboxBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[InboxBench]:
    """The bench with the example's grants and its table, as its own text makes it."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(GRANTS, "_grants", {})
    sys.modules.pop("stripe_orders", None)
    module = importlib.import_module("stripe_orders")
    table = re.search(r"CREATE TABLE orders \(.*?\);", module.__doc__ or "", re.DOTALL)
    assert table is not None
    box.ask(table[0])
    yield box
    sys.modules.pop("stripe_orders", None)


def place(shop: InboxBench, order: str, amount: int = 1000) -> None:
    shop.ask("INSERT INTO orders (id, amount, currency) VALUES (%s, %s, 'eur')", order, amount)


def event(id_: str, type_: str, object_: dict[str, Any]) -> Delivery:
    body = {"id": id_, "object": "event", "type": type_, "data": {"object": object_}}
    return by_stripe(json.dumps(body).encode())


def session(id_: str, order: str = "o1", **more: Any) -> Delivery:
    object_ = {
        "id": f"cs_{id_}",
        "object": "checkout.session",
        "client_reference_id": order,
        "amount_total": 1000,
        "currency": "eur",
        "payment_status": "paid",
        "payment_intent": "pi_1",
    }
    return event(id_, "checkout.session.completed", {**object_, **more})


def intent(id_: str, type_: str, order: str = "o1", **more: Any) -> Delivery:
    object_ = {
        "id": "pi_1",
        "object": "payment_intent",
        "amount_received": 1000,
        "currency": "eur",
        "metadata": {"order": order},
    }
    return event(id_, f"payment_intent.{type_}", {**object_, **more})


def run_all(shop: InboxBench) -> None:
    while shop.run():
        pass


def orders(shop: InboxBench) -> list[tuple[Any, ...]]:
    return shop.ask("SELECT id, state, paid_by FROM orders ORDER BY id")


def verdicts(shop: InboxBench) -> list[str]:
    return [
        verdict or reason or state for state, verdict, reason in shop.rows("state, verdict, reason")
    ]


def test_an_order_is_paid_once_by_whichever_event_is_first(shop: InboxBench) -> None:
    place(shop, "o1")
    for given in (
        intent("e1", "created"),
        intent("e2", "succeeded"),
        session("e3"),
        session("e3"),
        intent("e4", "canceled"),
        intent("e5", "payment_failed"),
    ):
        assert shop.deliver(given).status == 200
        run_all(shop)
    assert orders(shop) == [("o1", "paid", "pi_1")]
    assert verdicts(shop) == ["NOTED", "PAID", "CLOSED", "CLOSED", "NOTED"]
    # All about one payment: they take turns.
    assert len(set(shop.rows("lane"))) == 1


def test_a_cancelled_order_is_not_paid_and_an_unpaid_session_pays_none(shop: InboxBench) -> None:
    place(shop, "o1")
    shop.deliver(session("e1", payment_status="unpaid"))
    run_all(shop)
    assert orders(shop) == [("o1", "due", None)]
    shop.deliver(intent("e2", "canceled"))
    run_all(shop)
    shop.deliver(intent("e3", "succeeded"))
    run_all(shop)
    assert orders(shop) == [("o1", "canceled", None)]
    assert verdicts(shop) == [
        "UNPAID",
        "CANCELED",
        "paid by pi_1 though it is canceled: to be refunded",
    ]


def test_an_event_that_is_faster_than_its_order_waits_for_it(shop: InboxBench) -> None:
    shop.deliver(intent("e1", "succeeded"))
    run_all(shop)
    assert shop.rows("state, attempts") == [("retrying", 1)]
    place(shop, "o1")
    shop.make_due()
    run_all(shop)
    assert orders(shop) == [("o1", "paid", "pi_1")]


def test_another_amount_and_a_second_payment_are_for_a_person(shop: InboxBench) -> None:
    place(shop, "o1")
    place(shop, "o2")
    shop.deliver(intent("e1", "succeeded", amount_received=1))
    shop.deliver(intent("e2", "succeeded", currency="xaf"))
    shop.deliver(session("e3", "o2", payment_intent="pi_2"))
    run_all(shop)
    shop.deliver(session("e4", "o2", payment_intent="pi_3"))
    run_all(shop)
    assert orders(shop) == [("o1", "due", None), ("o2", "paid", "pi_2")]
    assert shop.rows() == ["dead", "dead", "done", "dead"]


def test_the_fastapi_application_takes_deliveries_in(
    shop: InboxBench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    path = tmp_path / "vpay.toml"
    path.write_text(
        f'[database]\nurl = "{shop.database.url}"\n[windows]\ninbox_answer = 30\n'
        f'[inbox.stripe]\nscheme = "stripe"\nsecrets = ["{STRIPE}"]\n'
    )
    monkeypatch.setenv("VPAY_CONFIG", str(path))
    sys.modules.pop("fastapi_app", None)
    module = importlib.import_module("fastapi_app")
    server = uvicorn.Server(uvicorn.Config(module.app, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started)
        client = Client(server.servers[0].sockets[0].getsockname()[1])
        place(shop, "o1")
        given = session("e1")
        told: list[Any] = []
        sender = threading.Thread(
            target=lambda: told.append(client.send("/webhooks/stripe", given.body, **given.headers))
        )
        sender.start()
        eventually(lambda: shop.rows() == ["accepted"])
        run_all(shop)
        sender.join(20)
        assert told[0].body == {"reference": "pi_1", "state": "PAID", "accepted": True}
        assert client.send("/webhooks/stripe", b"{}").status == 401
        assert client.send("/webhooks/nobody", b"{}").status == 404
    finally:
        server.should_exit = True
        thread.join(20)


def test_the_settings_of_the_manual_are_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", MANUAL, re.DOTALL | re.MULTILINE)
    secret = tmp_path / "stripe"
    secret.write_text(STRIPE)
    path = tmp_path / "vpay.toml"
    path.write_text(text.replace("/run/secrets/stripe", str(secret)))
    environment = {
        "ACME_NEW": STANDARD,
        "ACME_OLD": STANDARD,
        "VPAY_DATABASE_URL": "postgresql:///x",
    }
    faults: list[str] = []
    assert sorted(build(config.read(path, environment).inbox, faults)) == ["acme", "stripe"]
    assert faults == []


def test_the_grant_of_the_manual_grants(box: InboxBench, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", MANUAL, re.DOTALL | re.MULTILINE)
    monkeypatch.setattr(GRANTS, "_grants", {})
    exec(compile(code, "manual", "exec"), {})
    box.ask("CREATE TABLE orders (id text PRIMARY KEY, state text)")
    box.ask("INSERT INTO orders VALUES ('7', 'due')")
    box.deliver(by_standard(b'{"type": "invoice.paid", "data": {"order": "7"}}'), "acme")
    box.run()
    assert box.rows("state, verdict") == [("done", "PAID")]
    assert box.ask("SELECT state FROM orders") == [("paid",)]
