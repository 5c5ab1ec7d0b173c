"""Resources for every test: real servers, a fresh database, a way to wait.

Each pytest process (so each xdist worker) has a Postgres and a Valkey of its own, made on
first use: a test that restarts or floods a server hurts no neighbour. VPAY_TEST_POSTGRES
and VPAY_TEST_BROKER name running servers instead; the broker's database is then flushed.
VPAY_TEST_TEMPLATE names a migrated database of the first, for who runs pytest many times.
VPAY_TEST_PG chooses the major version of the embedded Postgres.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from pydantic import SecretStr
from pytest_postgresql.janitor import DatabaseJanitor

from tests.slices import Estimate, chosen, without_room
from vpay_sandbox import versions
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.valkey import Valkey
from vpay_tasks.config import BrokerTable, DatabaseTable, Settings
from vpay_tasks.store import migrate
from vpay_tasks.store.db import Database, connect

PG = int(os.environ.get("VPAY_TEST_PG", versions.WHEEL))
"""The major version of every Postgres that a test starts."""

# schema.sql is what one version's pg_dump writes, and the other versions bring none.
collect_ignore = [] if versions.WHEEL == PG else ["schema/test_schema_dump.py"]

# In the order in which they import each other.
pytest_plugins = [
    "tests.tls",
    "tests.brokers",
    "tests.disks",
    "tests.faketime",
    "tests.network",
    "tests.pooler",
]

LOOK_EVERY_S = 0.02

NO_ROOM: Final = "vpay_no_room"

T = TypeVar("T")


def pytest_configure() -> None:
    """A shell starts what it puts into the background with these ignored, and whatever a test
    starts would inherit that: tests send them, and wait for what they do."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("fast", "more", "all"),
        default="fast",
        help="fast: what has no mark; more: a slice of the tests marked more(seconds), chosen"
        " by the seed that pytest-randomly prints; all: everything",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    estimates = _estimates(items)
    if told := without_room(estimates):
        # An error of a worker's ends the run without a word: whoever started it says it.
        out: dict[str, str] | None = getattr(config, "workeroutput", None)
        if out is None:
            raise pytest.UsageError(told)
        out[NO_ROOM] = told
        items.clear()
    if tier == "all":
        return
    taken = chosen(estimates, config.getoption("randomly_seed")) if tier == "more" else set()
    kept = [item for item in items if (item.nodeid in taken if tier == "more" else not _mark(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if told := getattr(node, "workeroutput", {}).get(NO_ROOM):
        raise pytest.UsageError(told)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--tier") == (
        "more"
    ):
        session.exitstatus = pytest.ExitCode.OK  # an empty slice is no failure


def _mark(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("more") or item.get_closest_marker("all")


def _estimates(items: list[pytest.Item]) -> dict[str, Estimate]:
    marked = ((item.nodeid, item.get_closest_marker("more")) for item in items)
    return {name: Estimate(**mark.kwargs) for name, mark in marked if mark}


class Eventually(Protocol):
    """Calls `condition` until it is truthy, and returns that. An AssertionError inside it
    counts as not yet; any other error ends the test."""

    def __call__(self, condition: Callable[[], T], *, within: float = 20.0) -> T: ...


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Postgres server: the URL of its maintenance database, as a superuser."""
    if outside := os.environ.get("VPAY_TEST_POSTGRES"):
        yield outside
        return
    # Without fsync a power cut may lose data; a killed process may not, and tests only kill.
    server = Postgres(tmp_path_factory.mktemp("postgres"), settings={"fsync": "off"}, version=PG)
    with server:
        yield server.url()


@pytest.fixture(scope="session")
def template(postgres_url: str) -> Iterator[str]:
    """The name of a migrated database that tests are cloned from."""
    if made := os.environ.get("VPAY_TEST_TEMPLATE"):
        yield made
        return
    janitor = _janitor(postgres_url, f"vpay_template_{uuid.uuid4().hex[:12]}")
    with janitor:
        with connect(_at(postgres_url, janitor.dbname), application="tests") as connection:
            migrate.apply(connection)
        yield janitor.dbname


@pytest.fixture(scope="session")
def clone(postgres_url: str, template: str) -> Callable[[], AbstractContextManager[str]]:
    """`with clone() as url:` is a migrated database, for fixtures that outlive one test."""

    @contextmanager
    def clone() -> Iterator[str]:
        name = f"vpay_test_{uuid.uuid4().hex[:12]}"
        with _janitor(postgres_url, name, template=template):
            yield _at(postgres_url, name)

    return clone


@pytest.fixture
def dsn(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """The URL of a migrated database that is this test's alone."""
    with clone() as url:
        yield url


@pytest.fixture
def empty_dsn(postgres_url: str) -> Iterator[str]:
    """The URL of an empty database, not migrated, that is this test's alone."""
    name = f"vpay_empty_{uuid.uuid4().hex[:12]}"
    with _janitor(postgres_url, name):
        yield _at(postgres_url, name)


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    """A Database on this test's database."""
    database = Database(dsn, application="tests")
    yield database
    database.close()


@pytest.fixture(scope="session")
def _valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if outside := os.environ.get("VPAY_TEST_BROKER"):
        yield outside
        return
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url()


@pytest.fixture
def broker_url(_valkey_url: str) -> Iterator[str]:
    """The URL of a Valkey database, empty at the start and emptied after the test."""
    with redis.Redis.from_url(_valkey_url) as client:
        client.flushdb()
        yield _valkey_url
        client.flushdb()


@pytest.fixture
def settings(dsn: str, broker_url: str) -> Settings:
    """Production's defaults on this test's servers."""
    return Settings(
        database=DatabaseTable(url=SecretStr(dsn)),
        broker=BrokerTable(url=SecretStr(broker_url)),
    )


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """The only way to wait in a test: for a condition, never for a time."""
    return _eventually


def _eventually(condition: Callable[[], T], *, within: float = 20.0) -> T:
    deadline = time.monotonic() + within
    pause = threading.Event()
    while True:
        failure: AssertionError | None = None
        last: object = None
        try:
            if found := condition():
                return found
            last = found
        except AssertionError as error:
            failure = error
        if time.monotonic() > deadline:
            what = getattr(condition, "__name__", repr(condition))
            seen = f"it raised {failure}" if failure is not None else f"it said {last!r}"
            raise AssertionError(
                f"gave up after {within:g} s waiting for {what}; at the last look {seen}"
            ) from failure
        pause.wait(LOOK_EVERY_S)


def _janitor(server: str, name: str, *, template: str | None = None) -> DatabaseJanitor:
    parts = urlsplit(server)
    return DatabaseJanitor(
        user=parts.username or "postgres",
        password=parts.password,
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 5432,
        dbname=name,
        template_dbname=template,
        maintenance_dbname=parts.path.strip("/") or "postgres",
    )


def _at(server: str, name: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
