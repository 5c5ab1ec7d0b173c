"""`vpay-tasks endpoints`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call
from tests.webhooks.receivers import answer, receiving
from tests.webhooks.world import SECRET, append_many, endpoint, rows, settings
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout, verify
from vpay_tasks.webhooks.endpoints import Endpoints


def a_backlog(database: Database, count: int, id_: str = "main") -> None:
    append_many(database, count)
    fanout.drain(database, Endpoints(settings(endpoint(id=id_))))


def cells(text: str) -> list[list[str]]:
    return [[cell for cell in line.split("  ") if cell] for line in text.splitlines()]


def test_the_list_shows_hosts_and_backlogs_and_neither_paths_nor_secrets(
    vpay: Call, database: Database
) -> None:
    a_backlog(database, 3)
    rows(
        database,
        "UPDATE vpay.webhook_deliveries SET created_at = now() - interval '2 h',"
        " attempted_at = now(), last_status = 503",
    )
    said = vpay("endpoints", "list")
    head, row = cells(said.out)
    assert [cell.strip() for cell in head] == [
        *("Merchant", "Endpoint", "Host", "Types", "State", "Pending", "Oldest", "Status")
    ]
    assert [cell.strip() for cell in row] == [
        *("acme", "main", "127.0.0.1", "*", "live", "3", "2.0 h", "503")
    ]
    assert "path-secret" not in said.out + vpay("endpoints", "list", "--json").out


def test_an_endpoint_that_left_the_settings_is_listed_while_anything_waits_for_it(
    vpay: Call, database: Database
) -> None:
    a_backlog(database, 1, "gone")
    (gone, main) = vpay("endpoints", "list", "--json").json["endpoints"]
    assert (gone["endpoint_id"], gone["in_settings"], gone["pending"]) == ("gone", False, 1)
    assert (main["endpoint_id"], main["in_settings"], main["pending"]) == ("main", True, 0)


def test_an_endpoint_whose_url_is_none_is_listed_without_a_host(vpay: Call) -> None:
    said = vpay("endpoints", "list", "--json", url="http://[::1/")
    assert (said.code, said.json["endpoints"][0]["host"]) == (0, "–")


@pytest.mark.parametrize(
    ("until", "phrase"),
    [("now() + interval '90 s'", "circuit open for 1.5 min more"), ("now()", "a probe is due")],
)
def test_an_open_circuit_says_for_how_long(
    vpay: Call, database: Database, until: str, phrase: str
) -> None:
    rows(
        database,
        "INSERT INTO vpay.lanes (queue, lane, silent, circuit_trips, circuit_until)"
        f" VALUES ('webhooks', 'acme/main', 5, 1, {until})",
    )
    assert phrase in vpay("endpoints", "list").out


def test_a_pause_says_who_and_why_and_is_ended_by_a_resume(
    vpay: Call, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("SUDO_USER", "ann")
    assert vpay("endpoints", "pause", "acme", "main", "--reason", "they move").code == 0
    assert "paused by ann 0.0 s ago: they move" in vpay("endpoints", "list").out.replace(
        "0.1", "0.0"
    )
    twice = vpay("endpoints", "pause", "acme", "main", "--reason", "other", "--by", "bob")
    assert (twice.code, "was paused by ann" in twice.out) == (0, True)
    assert vpay("endpoints", "resume", "acme", "main", "--by", "bob").out.endswith("live again.\n")
    assert "nothing was changed" in vpay("endpoints", "resume", "acme", "main").out
    assert rows(database, "SELECT paused, changed_by FROM vpay.lanes") == [(False, "bob")]


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "acme", "main"),
        ("pause", "acme", "main", "--reason", " "),
        ("pause", "acme", "main", "--reason", "x" * 201),
        ("pause", "acme", "main", "--reason", "a\nb"),
        ("resume", "acme", "main", "--by", "\x1b[0m"),
    ],
)
def test_a_pause_without_a_readable_reason_or_name_is_a_wrong_call(
    vpay: Call, words: tuple[str, ...]
) -> None:
    assert vpay("endpoints", *words).code == 64


def test_whoever_cant_be_named_is_asked_to(vpay: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "SUDO_USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    said = vpay("endpoints", "pause", "acme", "main", "--reason", "r")
    assert (said.code, "--by" in said.err) == (64, True)


@pytest.mark.parametrize("word", ["ping", "resume"])
def test_an_endpoint_that_is_not_in_the_settings_is_not_found(vpay: Call, word: str) -> None:
    said = vpay("endpoints", word, "acme", "man")
    assert (said.code, "acme/man" in said.err) == (1, True)
    assert "did you mean acme/main?" in said.err
    far = vpay("endpoints", word, "zzz", "other")
    assert (far.code, "`vpay-tasks endpoints list`" in far.err) == (1, True)


def test_a_ping_is_signed_as_an_event_is_and_leaves_nothing_behind(
    vpay: Call, database: Database
) -> None:
    with receiving(answer(204)) as receiver:
        said = vpay("endpoints", "ping", "acme", "main", url=receiver.url)
    assert (said.code, said.out.startswith("204 after ")) == (0, True)
    (seen,) = receiver.seen
    event = verify(seen.body, seen.headers["Vpay-Signature"], SECRET)
    assert (event.type, event.merchant, event.livemode) == ("ping", "acme", False)
    assert event.id == seen.headers["Vpay-Event-Id"]
    assert event.id.startswith("ping_")
    assert dict(event.object) == {"id": "main", "object": "endpoint"}
    for table in ("events", "webhook_deliveries", "delivery_attempts", "lanes"):
        assert rows(database, f"SELECT count(*) FROM vpay.{table}") == [(0,)]


def test_a_paused_endpoint_can_be_pinged(vpay: Call) -> None:
    vpay("endpoints", "pause", "acme", "main", "--reason", "r", "--by", "ann")
    with receiving(answer(200, b"hello")) as receiver:
        said = vpay("endpoints", "ping", "acme", "main", url=receiver.url)
    assert (said.code, "hello" in said.out) == (0, True)


@pytest.mark.parametrize("status", [301, 410, 500])
def test_a_ping_that_is_refused_says_so_and_pauses_nobody(
    vpay: Call, database: Database, status: int
) -> None:
    with receiving(answer(status, SECRET.encode())) as receiver:
        said = vpay("endpoints", "ping", "acme", "main", url=receiver.url)
    assert (said.code, said.out.startswith(f"{status} after ")) == (1, True)
    assert SECRET not in said.out
    assert rows(database, "SELECT lane FROM vpay.lanes") == []


def test_a_ping_passes_the_guard_of_deliveries(vpay: Call) -> None:
    with receiving() as receiver:
        said = vpay("endpoints", "ping", "acme", "main", url=receiver.url, private=False)
    assert said.code != 0
    assert "ssrf_blocked: ADDR_LOOPBACK" in said.out + said.err
    assert receiver.seen == []


def test_a_ping_that_nobody_answers_says_so(vpay: Call) -> None:
    with receiving() as receiver:
        url = receiver.url
    said = vpay("endpoints", "ping", "acme", "main", url=url)
    assert (said.code, said.out.startswith("No answer after ")) == (1, True)
