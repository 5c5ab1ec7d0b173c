"""What the doctor knows when it decides, and the asking of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from vpay_tasks import wiring
from vpay_tasks.config import Settings
from vpay_tasks.doctor import books
from vpay_tasks.errors import Broker, Configuration, Storage, sanitise
from vpay_tasks.runtime.broker import make as make_broker
from vpay_tasks.store import checkup, gauges, ledger, migrate, patience, vitals
from vpay_tasks.store.checkup import Checkup, Server, Setting
from vpay_tasks.store.db import Connection, connect, unit_of_work, usable
from vpay_tasks.store.gauges import Gauges
from vpay_tasks.store.ledger import Book
from vpay_tasks.store.vitals import Vitals


@dataclass(frozen=True)
class Work:
    """What can be read of a migrated database."""

    gauges: Gauges
    vitals: Vitals
    checkup: Checkup
    books: tuple[Book, ...] | None = ()
    """By currency; None where reading them takes too long."""


@dataclass(frozen=True)
class Facts:
    """`no_postgres`, `no_broker`, `no_tasks` hold the error of what could not be reached or
    loaded; `work` is None where Postgres is out of reach or not migrated."""

    queues: tuple[str, ...]
    """Those of the settings' dispatch.queues."""
    kinds: tuple[str, ...] = ()
    pooled: bool = False
    """Behind a transaction pooler, where sessions don't tell who is connected."""
    rabbit: bool = False
    no_postgres: str | None = None
    no_broker: str | None = None
    no_tasks: str | None = None
    evicts: str | None = None
    server: Server | None = None
    risky: Sequence[Setting] = ()
    missing: tuple[str, ...] = ()
    work: Work | None = None


def gather(settings: Settings) -> Facts:
    """Ask Postgres and the broker. What is out of reach is a fact, too; raises Configuration
    for a broker's URL that nothing can speak and for an edited migration."""
    no_tasks: str | None = None
    kinds: tuple[str, ...] = ()
    singletons: list[str] = []
    try:
        known = wiring.registry(settings)
    except Configuration as error:
        no_tasks = sanitise(str(error))
    else:
        kinds = tuple(known.names())
        singletons = [item.kind.singleton for item in known if item.kind.singleton]
    evicts, no_broker = _broker(settings)
    facts = Facts(
        queues=settings.dispatch.queues,
        kinds=kinds,
        pooled=settings.database.pulse == "lease",
        rabbit=urlsplit(settings.broker.url.get_secret_value()).scheme.startswith("amqp"),
        no_broker=no_broker,
        no_tasks=no_tasks,
        evicts=evicts,
    )
    try:
        connection = connect(settings.database_url, application="vpay-tasks doctor")
        with contextlib.closing(connection):
            return _with_database(facts, connection, singletons)
    except Storage as error:
        return replace(facts, no_postgres=sanitise(str(error)))


def _with_database(facts: Facts, connection: Connection, singletons: list[str]) -> Facts:
    missing = tuple(file.name for file in migrate.pending(connection))
    facts = replace(
        facts,
        server=checkup.server(connection),
        risky=checkup.risky_settings(connection),
        missing=missing,
    )
    if missing:
        return facts
    work = Work(
        gauges.look(connection, parked=0),
        vitals.look(connection),
        checkup.look(connection, singletons=singletons),
        _books(connection),
    )
    return replace(facts, work=work)


def _books(connection: Connection) -> tuple[Book, ...] | None:
    try:
        with unit_of_work(connection) as tx:
            patience.wait_at_most(tx, books.LOOK_S)
            return tuple(ledger.books(tx))
    except Storage:
        if not usable(connection):
            raise
        return None


def _broker(settings: Settings) -> tuple[str | None, str | None]:
    broker = make_broker(settings.broker.url.get_secret_value(), verified=settings.livemode.enabled)
    try:
        broker.ping()
        return broker.evicts(), None
    except Broker as error:
        return None, sanitise(str(error))
    finally:
        broker.close()
