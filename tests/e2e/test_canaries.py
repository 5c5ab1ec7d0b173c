"""Every secret and every payer's number is one that is recognised, and stands nowhere."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.canaries import Search
from tests.conftest import Eventually
from tests.e2e.planted import PAYERS, SECRETS, Planted
from tests.inbox.signing import by_stripe, by_token, stripe_event
from tests.ingest import KEY, ingest
from tests.invariants import secrets
from tests.web.client import Client
from vpay_tasks import config, payments, wiring
from vpay_tasks.errors import VpayError

UNPAID = "SELECT 1 FROM vpay.charges WHERE provider_code = 'mtn_momo' AND state <> 'succeeded'"
CANARIES = {**SECRETS, **PAYERS, "sentry key": KEY}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    with ingest() as server, Planted(tmp_path, server) as planted:
        monkeypatch.setenv("VPAY_CONFIG", str(planted.fleet.write()))
        yield planted


@pytest.mark.more(seconds=40)
def test_no_secret_and_no_payer_stands_in_anything_that_is_written_said_or_sent(
    planted: Planted, eventually: Eventually
) -> None:
    fleet, ask = planted.fleet, _asker(planted)
    dispatcher = fleet.dispatcher()
    first = fleet.workers(processes=1, threads=4)
    web, client = fleet.web()
    eventually(client.is_up)
    _pay(planted)
    _be_told(client)
    eventually(lambda: ask("SELECT 1 FROM vpay.webhook_deliveries WHERE state = 'exhausted'"))
    # What breaks says most: a worker dies, then both servers do.
    first.signal_group(signal.SIGKILL)
    second = fleet.workers(processes=1, threads=4)
    eventually(lambda: second.said("boot"))
    planted.postgres.kill()
    planted.valkey.kill()
    eventually(lambda: [line for line in dispatcher.lines() if line.get("alert")])
    with suppress(VpayError):
        _pay(planted)
    planted.postgres.start()
    planted.valkey.start()
    planted.lock()
    _pay(planted)
    eventually(lambda: not ask(UNPAID), within=60)
    eventually(planted.ingest.events)
    _look(planted, client)
    for pid in planted.pids():
        assert list(Search(CANARIES).in_process(pid)) == []
        if pid != second.pid:  # Dramatiq's master, which reads no settings
            assert _core_limit(pid) == "0"
    second.signal_group(signal.SIGTERM)
    web.signal(signal.SIGTERM)
    dispatcher.signal(signal.SIGTERM)
    assert (second.wait(), dispatcher.wait()) == (0, 0)
    web.wait()
    # First the server's log: what the database is asked stands in it, too.
    assert list(secrets.in_files(planted.artefacts, CANARIES)) == []
    with psycopg.connect(planted.postgres.url()) as connection:
        assert list(secrets.in_database(connection, CANARIES)) == []
    _was_worth_it(planted)


def _asker(planted: Planted) -> Callable[[str], list[tuple[object, ...]]]:
    def ask(query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(planted.postgres.url()) as connection:
            return connection.execute(query.encode()).fetchall()

    return ask


def _pay(planted: Planted) -> None:
    """By every number there is, and over the rail that refuses our credentials."""
    settings = config.read(planted.fleet.write(), {})
    rails = wiring.rails(settings)
    db = wiring.database(settings)
    try:
        for number in (*PAYERS.values(), f"+{PAYERS['payer']}"):
            with db.transaction() as tx:
                intent = payments.create_intent(tx, "shop", 1_000, "EUR")
            with suppress(VpayError):
                payments.confirm(db, intent.id, rail=rails["mtn_momo"], payer=number)
        with db.transaction() as tx:
            intent = payments.create_intent(tx, "shop", 1_000, "XAF")
        with suppress(VpayError):
            back = "https://shop.example/back"
            payments.confirm(db, intent.id, rail=rails["orange_money"], return_url=back)
    finally:
        db.close()


def _be_told(client: Client) -> None:
    """Vendors' deliveries, good and forged, and a merchant that reads events."""
    good = by_stripe(stripe_event(), secret=SECRETS["inbox secret"])
    assert client.send("/inbox/stripe", good.body, **good.headers).status == 200
    forged = {"stripe-signature": f"t=1,v1={SECRETS['inbox secret']}"}
    assert client.send("/inbox/stripe", good.body, **forged).status == 401
    token = by_token(b'{"id": "b_1", "type": "paid"}', token=SECRETS["inbox token"])
    assert client.send("/inbox/bank", token.body, **token.headers).status == 200
    wrong = {"X-Token": SECRETS["api key"]}
    assert client.send("/inbox/bank", token.body, **wrong).status == 401
    for key, status in ((SECRETS["api key"], 200), (SECRETS["inbox token"] + "x" * 9, 401)):
        assert client.get("/v1/events", authorization=f"Bearer {key}").status == status
    client.send(f"/provider/mtn_momo/callback?payer={PAYERS['payer']}", b'{"financial')


def _look(planted: Planted, client: Client) -> None:
    """Everything that a person or a monitor may ask for."""
    ids = [row[0] for row in _asker(planted)("SELECT id FROM vpay.charges")]
    for words in (
        *(("status",), ("doctor",), ("charges",), ("charges", "--unresolved")),
        *(("deliveries", "list"), ("endpoints", "list"), ("events", "list"), ("inbox", "list")),
        *(("charges", "show", str(id_)) for id_ in ids[:3]),
        ("inbox", "show", "1", "--body"),
    ):
        for more in ((), ("--json",)):
            assert planted.run(*words, *more) in {0, 1}
    assert planted.run("endpoints", "ping", "shop", "echo") in {0, 1}
    for number, envelope in enumerate(planted.ingest.envelopes):
        (planted.artefacts / f"envelope-{number}").write_bytes(envelope)
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{planted.metrics_port}/metrics")
    (planted.artefacts / "metrics-dispatcher").write_bytes(metrics.read())
    (planted.artefacts / "metrics-web").write_text(str(client.get("/metrics").body), "utf-8")


def _core_limit(pid: int) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("Max core file size")]
    return line.split()[4]


def _was_worth_it(planted: Planted) -> None:
    """That there was something to find: all of it was used, and each artefact is there."""
    rail = (planted.hidden / "rail.jsonl").read_text()
    assert PAYERS["payer"] in rail
    for name, holds in {
        "broker.commands": b"POP",
        "postgres/postgres.log": b"INSERT INTO",
        "metrics-dispatcher": b"vpay_jobs",
        "metrics-web": b"vpay_callbacks",
        "cli-status-json.txt": b"{",
        "envelope-0": b"event_id",
    }.items():
        assert holds in (planted.artefacts / name).read_bytes(), name
    assert json.loads((planted.artefacts / "cli-status-json.txt").read_text())
