"""What goes to Sentry, by the real library to a real server: alerts, ids, and nothing else."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
import sentry_sdk
from pydantic import SecretStr

from tests.conftest import Eventually
from tests.ingest import Ingest, ingest
from vpay_tasks import parts, telemetry
from vpay_tasks.config import Settings
from vpay_tasks.errors import Configuration, Internal, Rail, Severity, Storage
from vpay_tasks.sentry import BURST, QUEUE, WINDOW_S, Reports
from vpay_tasks.tables import SentryTable

CANARY = "canary-7d1f0c55"


@pytest.fixture
def server() -> Iterator[Ingest]:
    with ingest() as server:
        yield server


@pytest.fixture
def sentry(server: Ingest) -> Iterator[Ingest]:
    """This process's alerts go to it."""
    parts.send_alerts(Settings(sentry=table(server.dsn)), "tests")
    yield server
    telemetry.send_alerts_to()


def table(dsn: str) -> SentryTable:
    return SentryTable(dsn=SecretStr(dsn), environment="sandbox")


def test_a_page_arrives_with_its_ids_its_errors_and_their_places(
    sentry: Ingest, eventually: Eventually
) -> None:
    error = _raised()
    telemetry.report_failure(
        error, "a job failed", action="job_failed", job_id=7, kind="poll_charge", charge_id="ch_1"
    )
    (event,) = eventually(sentry.events)
    assert event["level"] == "fatal"
    assert event["message"] == "a job failed"
    assert event["environment"] == "sandbox"
    assert event["tags"] == {
        "process": "tests",
        "action": "job_failed",
        "job_id": "7",
        "kind": "poll_charge",
        "charge_id": "ch_1",
    }
    cause, outer = event["exception"]["values"]
    assert (cause["type"], outer["type"]) == ("ValueError", "Internal")
    frame = cause["stacktrace"]["frames"][-1]
    assert (frame["filename"], frame["function"]) == ("test_sentry.py", "_parsed")


def _parsed(body: str) -> int:
    local = f"{body} kept in a variable"
    return int(local)


def _raised() -> Exception:
    try:
        try:
            _parsed(CANARY)
        except ValueError as error:
            raise Internal(f"the body {CANARY} can't be read") from error
    except Internal as error:
        return error
    raise AssertionError


def test_no_text_of_an_error_no_variable_and_no_unnamed_field_goes_along(
    sentry: Ingest, eventually: Eventually
) -> None:
    for number in range(3):
        telemetry.report_failure(
            _raised(),
            "a job failed",
            job_id=number,
            phone=CANARY,
            query=f"https://x.example/?token={CANARY}",
            charge_id=f"{CANARY} is not an id",
            named={"secret": CANARY},
        )
    with sentry_sdk.new_scope() as scope:
        scope.set_user({"id": CANARY})
        scope.set_tag("theirs", CANARY)
        sentry_sdk.add_breadcrumb(message=CANARY)
        telemetry.alert(Severity.ERROR, "a state went bad", action="x", error=CANARY)
    assert eventually(lambda: len(sentry.events()) == 4)
    assert [e["tags"]["job_id"] for e in sentry.said("a job failed")] == ["0", "1", "2"]
    for sent in (*sentry.envelopes, *map(str.encode, sentry.heads)):
        assert CANARY.encode() not in sent
    for event in sentry.events():
        assert set(event) <= {
            *("event_id", "timestamp", "platform", "level", "logger", "message", "fingerprint"),
            *("tags", "exception", "release", "environment", "server_name", "sdk"),
        }
        assert event["sdk"]["integrations"] == []
        for told in event.get("exception", {}).get("values", []):
            assert set(told) <= {"type", "module", "stacktrace"}
            for frame in told["stacktrace"]["frames"]:
                assert set(frame) <= {"filename", "function", "lineno", "in_app"}


def test_only_alerts_go(sentry: Ingest, eventually: Eventually) -> None:
    telemetry.say(Severity.PAGE, "told again at each look", action="x")
    telemetry.say(Severity.WARN, "a warning", action="x")
    telemetry.report_failure(Rail("no answer"), "a job failed", job_id=1)
    telemetry.report_failure(Storage("no answer"), "a job failed", job_id=2)
    assert eventually(lambda: len(sentry.events()) == 1)
    telemetry.flush_alerts()
    (event,) = sentry.events()
    assert (event["tags"]["job_id"], event["level"]) == ("2", "error")


def test_what_comes_by_the_job_is_held_back_and_counted(
    server: Ingest, eventually: Eventually
) -> None:
    now = 0.0
    reports = Reports(table(server.dsn), "tests", clock=lambda: now)
    for number in range(25):
        reports.tell(Severity.ERROR, "a job failed", {"kind": "a", "job_id": number}, None)
    reports.tell(Severity.ERROR, "a job failed", {"kind": "b"}, None)  # another kind's own ten
    now = WINDOW_S
    reports.tell(Severity.ERROR, "a job failed", {"kind": "a", "job_id": 99}, None)
    assert eventually(lambda: len(server.events()) == BURST + 2)
    last = server.events()[-1]["tags"]
    assert (last["job_id"], last["held_back"]) == ("99", "15")


def test_a_silent_server_holds_nobody_up_and_little_memory(
    server: Ingest, eventually: Eventually
) -> None:
    server.silent.set()
    reports = Reports(table(server.dsn), "tests")
    for number in range(QUEUE + 20):
        reports.tell(Severity.PAGE, "a page", {"kind": f"k{number}"}, None)
    assert eventually(lambda: server.held == 1)
    reports.flush()  # gives up
    assert server.events() == []
    server.silent.clear()
    server.released.set()
    assert eventually(lambda: QUEUE <= len(server.events()) <= QUEUE + 1)


def test_a_dead_server_holds_nobody_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        dsn = f"http://key@127.0.0.1:{free.getsockname()[1]}/1"
    reports = Reports(table(dsn), "tests")
    for _ in range(3):
        reports.tell(Severity.PAGE, "a page", {"kind": "k"}, Internal("x"))
        reports.flush()


def test_what_can_not_be_told_fails_nobody(sentry: Ingest, eventually: Eventually) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    telemetry.alert(Severity.ERROR, "a state went bad", kind=Odd(), action="json can't either")
    telemetry.alert(Severity.ERROR, "another", action="x")
    assert eventually(lambda: [e["message"] for e in sentry.events()] == ["another"])


def test_a_forked_child_reports_by_itself(sentry: Ingest, eventually: Eventually) -> None:
    telemetry.alert(Severity.ERROR, "before", action="x")
    assert eventually(lambda: sentry.said("before"))
    telemetry.reset_after_fork()
    telemetry.alert(Severity.ERROR, "behind", action="x")
    assert eventually(lambda: sentry.said("behind"))


def test_without_a_dsn_no_library_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    monkeypatch.delitem(sys.modules, "vpay_tasks.sentry")
    monkeypatch.setenv("SENTRY_DSN", f"https://{CANARY}@example.com/1")
    parts.send_alerts(Settings(), "tests")
    telemetry.alert(Severity.PAGE, "told to the log", action="x")
    with pytest.raises(Configuration, match=r'pip install "vpay-tasks\[sentry\]"'):
        parts.send_alerts(Settings(sentry=table("https://key@example.com/1")), "tests")


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "sentry",
        f"https://example.com/{CANARY}",
        f"https://{CANARY}:pass@example.com/1",
        f"ftp://{CANARY}@example.com/1",
        f"https://{CANARY}@example.com:99999/1",
        f"https://{CANARY}@example.com/project",
        f"https://{CANARY}@example.com/1?x=y",
    ],
)
def test_a_dsn_that_is_none_is_a_fault_that_does_not_quote_it(dsn: str) -> None:
    with pytest.raises(ValueError, match="https://KEY@HOST/PROJECT") as caught:
        table(dsn)
    assert CANARY not in str(caught.value)


def test_a_dsn_shows_in_no_settings() -> None:
    settings = Settings(sentry=table(f"https://{CANARY}@example.com/1".replace("-", "")))
    assert (
        CANARY.replace("-", "") not in repr(settings) + str(settings) + settings.model_dump_json()
    )
