"""One fleet for many cases: real processes, each behind proxies of its own, kept at strength.

A fault takes a process away; its place is filled while the rest recovers. What a case leaves
behind in another's way is a finding, not a nuisance: the next one starts on the same tables.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import psycopg

from tests import invariants
from tests.conftest import Eventually
from tests.e2e import postgres_proxy
from tests.e2e.fleet import Fleet, Process
from tests.e2e.postgres_proxy import Line, PostgresProxy
from tests.e2e.proxy import Proxy
from tests.inbox.signing import TABLES
from tests.kills import gates
from tests.kills.hook import Hook
from tests.payment_kit import KEYS
from tests.rails.benches import MTN
from tests.web.client import Client
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.stub_rail import StubRail
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_tasks import config, wiring

T = TypeVar("T")

SECRET: Final = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
SHOP, KIOSK = "shop", "kiosk"
ENDPOINTS: Final = {SHOP: ("main", "audit"), KIOSK: ("main",)}
"""Of each merchant."""
RUNGS: Final = 8
"""Of a delivery's ladder: more than a case's faults take."""

RUN_LEASE_S: Final = 6.0
"""Some cases outwait it. Shorter: on a busy machine a healthy worker's lease ends."""
WITHIN_S: Final = 60.0
"""For anything that a busy machine may take its time for."""


@dataclass(eq=False)
class Member:
    """A process of ours, and the lines that it has to its servers."""

    role: str
    process: Process
    postgres: PostgresProxy
    broker: Proxy | None
    client: Client | None = None
    stopped: bool = False

    @property
    def alive(self) -> bool:
        return self.process.popen.poll() is None

    @property
    def name(self) -> str:
        """What it calls itself in `locked_by`; "" until it is ready."""
        found = self.process.said("boot")
        return str(found[-1].get("worker") or found[-1].get("dispatcher") or "") if found else ""

    def ready(self) -> bool:
        assert self.alive, self.process.log.read_text()
        if self.client is not None:
            return self.client.is_up()
        return bool(self.process.said("boot"))

    def kill(self) -> None:
        self.process.signal_group(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL

    def stop(self) -> None:
        self.process.signal_group(signal.SIGSTOP)
        self.stopped = True

    def stands_still(self) -> bool:
        """Whether the signal that stops it has reached all of it."""
        return all(_state(pid) == "T" for pid in [self.process.pid, *self.process.children()])

    def go_on(self) -> None:
        self.stopped = False
        self.process.signal_group(signal.SIGCONT)

    def end(self) -> None:
        self.process.end()
        self.postgres.close()
        if self.broker is not None:
            self.broker.close()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@dataclass(eq=False)
class World:
    """The fleet, its servers, and what a case asks of them."""

    folder: Path
    dsn: str
    broker_url: str
    wait: Eventually
    members: list[Member] = field(default_factory=list)
    vendors: list[dict[str, Any]] = field(default_factory=list)
    """What vendors were answered, as the checker wants it."""

    def __enter__(self) -> World:
        self.rail = StubRail(journal=self.folder / "rail.jsonl").start()
        self.receiver = StubReceiver(
            [
                Endpoint(merchant, name, secrets=(SECRET,))
                for merchant, names in ENDPOINTS.items()
                for name in names
            ],
            journal=self.folder / "receiver.jsonl",
        ).start()
        self.hook = Hook(("127.0.0.1", self.receiver.port))
        self.fleet = Fleet(self.folder, self.dsn, self.broker_url)
        self.fleet.config |= self._settings()
        self.keeper: gates.Connection = psycopg.connect(self.dsn, autocommit=True)
        self.keeper.execute("CREATE TABLE public.effects (event_id text NOT NULL)")
        gates.install(self.keeper)
        invariants.install(self.keeper)
        # What a case does as an application would.
        self.database = wiring.database(config.read(self.fleet.write(), {}))
        self.start("dispatcher", 2)
        self.start("workers", 2)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.end()
        self.fleet.end()
        self.database.close()
        self.keeper.close()
        self.hook.close()
        self.receiver.stop()
        self.rail.stop()

    def _settings(self) -> dict[str, Any]:
        return {
            "worker": {"modules": ["grants"], "run_lease": RUN_LEASE_S},
            "rails": {"mtn_momo": MTN.table(self.rail)},
            "keys": {"payer_ref": [key.get_secret_value() for key in KEYS.payer_ref]},
            "inbox": TABLES,
            "merchants": [
                {"id": merchant, "endpoints": [self._endpoint(merchant, name) for name in names]}
                for merchant, names in ENDPOINTS.items()
            ],
            "ladders": {
                "poll": [0.2],
                "error": [0.2],
                "delivery": [0.2] * RUNGS,
                "inbox": [0.2] * 8,
            },
            "windows": {"fan_out_every": 1},
        }

    def until(self, condition: Callable[[], T]) -> T:
        return self.wait(condition, within=WITHIN_S)

    def _endpoint(self, merchant: str, name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.hook.port}/hooks/{merchant}/{name}"
        return {"id": name, "url": url, "secrets": [SECRET]}

    # Processes.

    def start(self, role: str, number: int = 1, **extra: str) -> list[Member]:
        """Processes of a role, each behind its own proxies; not yet ready."""
        return [self._start(role, extra) for _ in range(number)]

    def _start(self, role: str, extra: dict[str, str]) -> Member:
        to_postgres, database = postgres_proxy.before(self.dsn)
        where = urlsplit(self.broker_url)
        to_broker = Proxy((where.hostname or "", where.port or 6379))
        broker = f"redis://127.0.0.1:{to_broker.port}{where.path}"
        self.fleet.extra = {"VPAY_DATABASE_URL": database, "VPAY_BROKER_URL": broker, **extra}
        client = None
        match role:
            case "dispatcher":
                process = self.fleet.dispatcher()
            case "workers":
                process = self.fleet.workers(threads=4)
            case "web":
                process, client = self.fleet.web()
            case _:
                raise AssertionError(role)
        member = Member(role, process, to_postgres, to_broker, client)
        self.members.append(member)
        return member

    def application(self, *words: str, deadline: float = 45.0) -> Member:
        """A process of a merchant's, which confirms a payment and ends."""
        to_postgres, database = postgres_proxy.before(self.dsn)
        self.fleet.extra = {"VPAY_DATABASE_URL": database}
        self.fleet.config["windows"] |= {"submit_deadline": deadline}
        process = self.fleet.start("customer", [*CUSTOMER, *words])
        self.fleet.config["windows"].pop("submit_deadline")
        member = Member("application", process, to_postgres, None)
        self.members.append(member)
        return member

    def at_strength(self, *, web: int = 0) -> None:
        """Fill the places of those that are gone, and wait until all are ready."""
        for member in [one for one in self.members if not one.alive]:
            member.end()
            self.members.remove(member)
        for role, number in (("dispatcher", 2), ("workers", 2), ("web", web)):
            self.start(role, max(0, number - len(self.living(role))))
        for role in ("dispatcher", "workers", "web"):
            for member in self.living(role):
                self.until(member.ready)

    def replace(self, lost: Member) -> None:
        """Start one in the place of one that is gone, for now and for the next case."""
        if lost.role != "application":
            self.start(lost.role)
        lost.end()

    def living(self, role: str) -> list[Member]:
        return [one for one in self.members if one.role == role and one.alive and not one.stopped]

    def line(self, backend: int) -> tuple[Member, Line]:
        """Whose connection a backend serves."""
        for member in self.members:
            if (line := member.postgres.line(backend)) is not None:
                return member, line
        raise AssertionError(f"backend {backend} serves none of our processes")

    def runner(self, kind: str, about: str, *, endpoint: str = "%") -> Member:
        """Who runs the job of `kind` that is about `about`."""
        rows = self.ask(
            "SELECT locked_by FROM vpay.jobs LEFT JOIN vpay.webhook_deliveries AS deliveries"
            " ON deliveries.id = payload ->> 'delivery_id'"
            " WHERE kind = %s AND kills.about(kind, to_jsonb(jobs)) = %s"
            " AND coalesce(endpoint_id, '') LIKE %s AND started_at IS NOT NULL",
            kind, about, endpoint,
        )  # fmt: skip
        return next(member for member in self.members if member.name == rows[0][0])

    # The database.

    def ask(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        return self.keeper.execute(query.encode(), params).fetchall()

    def is_there(self, backend: int) -> bool:
        return bool(self.ask("SELECT 1 FROM pg_stat_activity WHERE pid = %s", backend))

    def idles(self, backend: int) -> bool:
        """Whether a backend waits for its client."""
        query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Client'"
        return bool(self.ask(query, backend))

    def waits_for(self, backend: int) -> bool:
        """Whether somebody waits for what a backend holds."""
        query = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
        return bool(self.ask(query, backend))

    def keep_leases(self, dead: Member) -> None:
        """What a process ran that is gone stays leased to it: its silence is what frees it, on a
        busy machine, too, where that is noticed later than its lease would have ended."""
        self.ask(
            "WITH held AS (SELECT id FROM vpay.jobs WHERE locked_by = %s"
            " AND started_at IS NOT NULL FOR UPDATE SKIP LOCKED)"
            " UPDATE vpay.jobs SET lease_until = now() + interval '1 hour' FROM held"
            " WHERE jobs.id = held.id RETURNING jobs.id",
            dead.name,
        )

    def expire(self, kind: str, about: str, member: Member) -> bool:
        """Let the leases of jobs of `kind` about `about` end: those that a process holds that
        will not go on, and of what was claimed and is not started. Whether there was one."""
        found = self.ask(
            "WITH held AS (SELECT id FROM vpay.jobs WHERE lease IS NOT NULL"
            " AND kind = %s AND kills.about(kind, to_jsonb(jobs)) = %s"
            " AND (locked_by = %s OR started_at IS NULL) FOR UPDATE SKIP LOCKED)"
            " UPDATE vpay.jobs SET lease_until = now() - interval '1 second' FROM held"
            " WHERE jobs.id = held.id RETURNING jobs.id",
            kind,
            about,
            member.name,
        )
        return bool(found)

    def expire_unstarted(self, about: str) -> None:
        """The same for claims whose message seems to be lost: whoever died or stands still may
        have had it."""
        self.ask(
            "UPDATE vpay.jobs SET lease_until = now() - interval '1 second'"
            " WHERE lease IS NOT NULL AND started_at IS NULL AND lease_until > now()"
            " AND locked_at < now() - interval '5 seconds'"
            " AND kills.about(kind, to_jsonb(jobs)) = %s RETURNING id",
            about,
        )

    def leaks(self) -> list[str]:
        """What nobody should have left: open transactions that idle, waits for locks, sessions
        (and so their locks) and jobs of processes that are gone."""
        names = [member.name for member in self.members if member.alive]
        found = [self.ask(IDLING), self.ask(GHOSTS, names), self.ask(ORPHANS, names)]
        return [sentence for rows in found for sentence in _sentences(rows)]


def _sentences(rows: list[tuple[Any, ...]]) -> Iterator[str]:
    return (" ".join(str(value) for value in row) for row in rows)


CUSTOMER: Final = (sys.executable, "-m", "tests.kills.customer")

IDLING: Final = (
    "SELECT 'session', application_name, state, left(query, 60) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND (state LIKE 'idle in transaction%%' OR wait_event_type = 'Lock')"
)
GHOSTS: Final = (
    "SELECT 'session', application_name FROM pg_stat_activity"
    " WHERE datname = current_database()"
    " AND NOT substring(application_name FROM '[wd]_[0-9a-f]{16}') = ANY(%s)"
)
ORPHANS: Final = (
    "SELECT 'job', id, kind, 'is held by', locked_by FROM vpay.jobs"
    " WHERE lease IS NOT NULL AND NOT locked_by = ANY(%s)"
)
