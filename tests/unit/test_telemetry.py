"""Log lines and counters."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.house import ROOT
from vpay_tasks import telemetry
from vpay_tasks.errors import Internal, NotFound, Rail, Severity, Storage
from vpay_tasks.telemetry import JsonLines


class Lines(logging.Handler):
    """Keeps what a stream handler would write."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def last(self) -> dict[str, object]:
        line = json.loads(self.texts[-1])
        assert isinstance(line, dict)
        return line


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    before = telemetry.log.level
    telemetry.log.addHandler(handler)
    telemetry.log.setLevel(logging.DEBUG)
    yield handler
    telemetry.log.removeHandler(handler)
    telemetry.log.setLevel(before)


def test_a_line_is_one_json_object_with_the_sentence_and_the_fields(lines: Lines) -> None:
    telemetry.say(Severity.INFO, "a job was finished", action="settle", job_id=7)
    line = lines.last()
    assert line.pop("at")
    assert line == {
        "level": "info",
        "message": "a job was finished",
        "logger": "vpay_tasks",
        "action": "settle",
        "job_id": 7,
    }


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        (Severity.INFO, "info"),
        (Severity.WARN, "warning"),
        (Severity.ERROR, "error"),
        (Severity.PAGE, "critical"),
    ],
)
def test_the_level_is_the_severity(lines: Lines, severity: Severity, level: str) -> None:
    telemetry.say(severity, "something happened")
    assert lines.last()["level"] == level
    assert "alert" not in lines.last()


def test_an_alert_is_a_field_and_is_counted(lines: Lines) -> None:
    before = telemetry.counts().get("alerts", 0)
    telemetry.alert(Severity.ERROR, "a state went bad", action="x")
    assert lines.last()["alert"] is True
    assert telemetry.counts()["alerts"] == before + 1


def test_an_alert_that_wakes_a_person_is_counted_as_a_page() -> None:
    before = telemetry.counts().get("pages", 0)
    telemetry.alert(Severity.ERROR, "can wait until the morning", action="x")
    telemetry.alert(Severity.PAGE, "can not", action="x")
    assert telemetry.counts()["pages"] == before + 1


@pytest.mark.parametrize(
    ("error", "level", "alerts"),
    [
        (NotFound("n"), "info", False),
        (Rail("r"), "warning", False),
        (Storage("s"), "error", True),
        (Internal("i"), "critical", True),
        (ZeroDivisionError("z"), "critical", True),
    ],
)
def test_a_failure_is_told_at_its_severity(
    lines: Lines, error: Exception, level: str, alerts: bool
) -> None:
    telemetry.report_failure(error, "a job failed", job_id=1)
    line = lines.last()
    assert line["level"] == level
    assert line.get("alert", False) is alerts
    assert line["error"] == f"{type(error).__name__}: {error}"


def test_a_line_stays_one_line_whatever_it_holds(lines: Lines) -> None:
    telemetry.say(Severity.INFO, "odd fields", text="a\nb\x00\u2028", thing=object(), raw=b"\n")
    assert "\n" not in lines.texts[-1]
    assert lines.last()["text"] == "a\nb\x00\u2028"


def test_an_exception_of_another_library_is_described(lines: Lines) -> None:
    try:
        raise ValueError("inner")
    except ValueError:
        telemetry.log.exception("it broke")
    assert lines.last()["error"] == "ValueError: inner"
    assert len(lines.texts) == 1


def test_counters_count_and_are_copied() -> None:
    before = telemetry.counts().get("posts", 0)
    telemetry.count("posts")
    telemetry.count("posts", 4)
    copy = telemetry.counts()
    copy["posts"] = 0
    assert telemetry.counts()["posts"] == before + 5


def test_a_counter_that_nobody_declared_is_a_bug() -> None:
    with pytest.raises(KeyError):
        telemetry.count("no_such_counter")


def test_logging_as_json_replaces_what_was_there() -> None:
    script = (
        "import logging; logging.basicConfig(format='old %(message)s');"
        "from vpay_tasks.telemetry import log_as_json; log_as_json();"
        "logging.getLogger('somebody.else').warning('hello %s', 'you')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    line = json.loads(done.stderr)
    assert (line["message"], line["logger"]) == ("hello you", "somebody.else")
