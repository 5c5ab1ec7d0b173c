"""Roles: what each process may do, by running it as its role; and what it may not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import Board
from tests.e2e.fleet import Fleet, Process
from tests.e2e.test_payments import FIRST_POLL, Shop, rail, receiver, shop
from tests.inbox.signing import TABLES, by_stripe, stripe_event
from tests.payment_kit import make_charge
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_tasks.core.charge import State
from vpay_tasks.runtime.metrics import Metrics
from vpay_tasks.store.db import Database

__all__ = ["rail", "receiver", "shop"]

MAIN: Final = "import sys; from vpay_tasks.cli import main; sys.exit(main())"
ROLES: Final = ("dispatcher", "worker", "web", "operator")
FILE: Final = Path(__file__).parents[2] / "schema" / "roles.sql"


@pytest.fixture
def logins(dsn: str, database: Database) -> dict[str, str]:
    """Each role's URL: a login of its own, as an operator would make it."""
    urls = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(2):  # safe to repeat
            connection.execute(FILE.read_bytes())
        for role in ROLES:
            exists = "SELECT FROM pg_roles WHERE rolname = %s"
            if connection.execute(exists, (f"a_{role}",)).fetchone() is None:
                make = f"CREATE ROLE a_{role} LOGIN PASSWORD 'p' IN ROLE vpay_{role}"
                connection.execute(make.encode())
            parts = urlsplit(dsn)
            place = parts.netloc.rpartition("@")[2]
            urls[role] = urlunsplit(parts._replace(netloc=f"a_{role}:p@{place}"))
    return urls


NOBODY = [
    "DELETE FROM vpay.charges",
    "DELETE FROM vpay.payment_intents",
    "DELETE FROM vpay.provider_requests",
    "DELETE FROM vpay.checkout_sessions",
    "UPDATE vpay.ledger_entries SET amount = 1",
    "DELETE FROM vpay.ledger_entries",
    "INSERT INTO vpay.migrations (number, name, sha256) VALUES (99, 'x', 'x')",
    "DELETE FROM vpay.migrations",
    "ALTER TABLE vpay.jobs ADD COLUMN x int",
    "ALTER TABLE vpay.charges DISABLE TRIGGER guard_charge",
    "TRUNCATE vpay.jobs",
    "DROP TABLE vpay.workers",
    "CREATE TABLE vpay.mine (id int)",
    "SET session_replication_role = replica",
]
"""Not even a worker may."""

MONEY = [
    "UPDATE vpay.charges SET polls = 9",
    "UPDATE vpay.payment_intents SET status = 'succeeded'",
    "INSERT INTO vpay.events (id, merchant_id, type, object_id, livemode, body)"
    " VALUES ('evt_1', 'm', 'payment_intent.succeeded', 'pi_1', false, '{}')",
    "UPDATE vpay.events SET body = '{}'",
    "UPDATE vpay.webhook_deliveries SET state = 'delivered'",
    "SELECT payer_ref FROM vpay.charges",
    "SELECT email FROM vpay.customers",
    "SELECT client_secret FROM vpay.checkout_sessions",
    "INSERT INTO vpay.ledger_entries DEFAULT VALUES",
]
"""Only workers, and applications, may."""

REFUSED = {
    "worker": [*NOBODY, "DELETE FROM vpay.lanes", "DELETE FROM vpay.workers"],
    "dispatcher": [
        *NOBODY,
        *MONEY,
        "SELECT body FROM vpay.events",
        "SELECT body FROM vpay.inbox_events",
        "SELECT provider_ref_extra FROM vpay.charges",
        "DELETE FROM vpay.jobs",
    ],
    "web": [
        *NOBODY,
        *MONEY,
        "DELETE FROM vpay.jobs",
        "UPDATE vpay.lanes SET paused = true",
        "SELECT * FROM vpay.payment_intents",
        "SELECT * FROM vpay.delivery_attempts",
        "DELETE FROM vpay.inbox_events",
    ],
    "operator": [
        *NOBODY,
        *MONEY,
        "UPDATE vpay.jobs SET run_at = now()",
        "INSERT INTO vpay.jobs (queue, kind, payload) VALUES ('q', 'k', '{}')",
        "SELECT provider_ref_extra FROM vpay.charges",
        "SELECT body FROM vpay.inbox_events",
        "UPDATE vpay.lanes SET paused = true",
        "SELECT body FROM vpay.events",
        "SELECT metadata FROM vpay.payment_intents",
    ],
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_not_do_what_its_processes_never_do(
    logins: dict[str, str], database: Database, role: str
) -> None:
    make_charge(database, state=State.PENDING)
    allowed = []
    with psycopg.connect(logins[role], autocommit=True) as connection:
        for statement in REFUSED[role]:
            try:
                connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege:
                continue
            allowed.append(statement)
    assert allowed == []


def test_a_dispatcher_may_read_all_that_it_exports(logins: dict[str, str]) -> None:
    database = Database(logins["dispatcher"], size=1)
    samples = [s for family in Metrics(database).collect() for s in family.samples]
    assert [s.value for s in samples if s.name == "vpay_up"] == [1.0]
    database.close()


LOOKS = [
    ("status",),
    ("doctor",),
    ("charges",),
    ("charges", "--unresolved"),
    ("endpoints", "list"),
    ("deliveries", "list"),
    ("events", "list"),
    ("inbox", "list"),
    ("inbox", "show", "1"),
]
"""What a person's role is for."""


def _command(fleet: Fleet, *words: str) -> tuple[int, str]:
    run = fleet.start("look", [sys.executable, "-c", MAIN, *words])
    code = run.wait()
    return code, run.log.read_text("utf-8")


def _a_person_looks_and_changes_nothing(fleet: Fleet, board: Board, intent: str) -> None:
    ((delivery, event),) = board.ask("SELECT id, event_id FROM vpay.webhook_deliveries")
    for words in (*LOOKS, ("deliveries", "show", delivery), ("events", "show", event)):
        code, said = _command(fleet, *words)
        # The doctor may have found something.
        assert code == 0 or words == ("doctor",), (words, said)
        assert "permission denied" not in said, (words, said)
    told = _command(fleet, "charges", "show", intent)[1]
    assert "succeeded, the rail's transaction" in told
    assert FIRST_POLL not in told
    # What a person may not, and which role may.
    for words in (
        ("keys", "rotate"),
        ("keys", "rotate", "--dry-run"),
        ("endpoints", "pause", "shop", "main", "--reason", "x", "--by", "me"),
        ("endpoints", "resume", "shop", "main", "--by", "me"),
        ("deliveries", "replay", delivery),
        ("inbox", "retry", "1"),
        ("inbox", "replay", "1"),
        ("events", "rearm", event),
    ):
        code, said = _command(fleet, *words)
        assert (words, code) == (words, 77), said
        assert "This command needs the role vpay_worker" in said


def denied(processes: list[Process]) -> list[str]:
    """What Postgres refused to them, by their logs."""
    return [
        line
        for process in processes
        for line in process.log.read_text("utf-8", errors="replace").splitlines()
        if "permission denied" in line or "42501" in line
    ]


def test_a_payment_goes_its_whole_way_with_each_process_in_its_own_role(
    logins: dict[str, str],
    fleet: Fleet,
    shop: Shop,
    board: Board,
    receiver: StubReceiver,
    eventually: Eventually,
) -> None:
    with board.database.connection() as connection:
        connection.execute("GRANT ALL ON public.gates, public.runs TO vpay_worker")

    def as_role(role: str) -> None:
        # Not by the file, which all of them read once they are up.
        fleet.extra["VPAY_DATABASE_URL"] = logins[role]

    fleet.config["dispatch"] = {"metrics_port": 0}
    fleet.config["inbox"] = {"stripe": TABLES["stripe"]}
    as_role("dispatcher")
    fleet.dispatcher()
    as_role("worker")
    fleet.workers()
    as_role("web")
    _, client = fleet.web()
    eventually(client.is_up)
    intent = shop.pays(FIRST_POLL)
    ((reference,),) = board.ask("SELECT provider_reference_id FROM vpay.charges")
    assert client.call_back("mtn_momo", {"referenceId": reference}).status == 200
    given = by_stripe(stripe_event())
    assert client.send("/inbox/stripe", given.body, **given.headers).status == 200
    eventually(lambda: board.ask("SELECT state FROM vpay.inbox_events") == [("ignored",)])
    told = "SELECT state FROM vpay.webhook_deliveries"
    eventually(lambda: board.ask(told) == [("delivered",)])
    assert intent
    # The singletons have run, too: sweeps and scans.
    waiting = "SELECT count(*) FROM vpay.jobs WHERE queue = 'housekeeping' AND starts = 0"
    eventually(lambda: board.ask(waiting) == [(0,)])
    assert denied(fleet.processes) == []
    as_role("operator")
    _a_person_looks_and_changes_nothing(fleet, board, intent)
    assert board.ask("SELECT kind, last_error FROM vpay.jobs WHERE last_error IS NOT NULL") == []
