"""What a person writes: URLs of receivers, settings, command lines, times."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from hypothesis import strategies as st
from ssrfguard import Policy, SSRFGuardError

from tests.fuzz.edits import ODD, texts, values
from tests.house import ROOT
from vpay_tasks import cli, config, parts
from vpay_tasks.cli import asking
from vpay_tasks.config import Settings
from vpay_tasks.errors import Configuration, InvalidRequest
from vpay_tasks.inbox import vendors
from vpay_tasks.webhooks import addresses, egress, hosts, vetting
from vpay_tasks.webhooks.egress import SANDBOX, EgressRefused, Rules

URLS = tuple(
    line.split("\t")[1].encode().decode("unicode_escape")
    for line in (ROOT / "tests" / "data" / "ssrf.tsv").read_text("ascii").splitlines()[1:]
)
GOOD_URLS = (
    "https://hooks.example.com/acme?x=%20",
    "https://hooks.example.com:443",
    "https://a.b-c.xn--nxasmq6b.com/",
    "https://[2606:4700::1111]/x",
    "http://93.184.216.34:8080/",
)
RULES = (Rules(), Rules(livemode=False), SANDBOX)
ORACLE = Policy()


def urls() -> st.SearchStrategy[str]:
    return st.one_of(texts(GOOD_URLS), texts(URLS))


def a_url(url: str) -> None:
    """Whatever is taken is one host for everybody: three other parsers read the same, and the
    resolver takes no name for an address."""
    for rules in RULES:
        try:
            found = egress.parse(url, rules)
        except EgressRefused:
            continue
        assert urlsplit(url).hostname == found.host
        assert (urllib3.util.parse_url(url).host or "").strip("[]") == found.host
        assert found.authority.isascii()
        assert found.authority.isprintable()
        assert not set(found.authority + found.path) & set("\r\n\t \\#@\x00") - {"@"}
        again = egress.parse(f"{found.scheme}://{found.authority}{found.path}", rules)
        assert again == found
        numeric = _numeric(found.host)
        if found.literal:
            assert not rules.livemode
            assert rules.private or (numeric is not None and addresses.kind_of(numeric) is None)
        else:
            assert numeric is None
            assert not hosts.is_numeric(found.host)
        if rules.livemode:
            with contextlib.suppress(_Unread):
                assert _oracle_takes(url)


class _Unread(Exception):
    """The oracle gives no verdict."""


def _oracle_takes(url: str) -> bool:
    try:
        ORACLE.check_url(url)
    except SSRFGuardError:
        return False
    except Exception as odd:
        raise _Unread from odd
    return True


def _numeric(host: str) -> str | None:
    """The address that the system's resolver makes of it by itself, as a connection would."""
    for name in (host, f"{host}."):
        try:
            found = socket.getaddrinfo(name.encode("ascii"), 443, flags=socket.AI_NUMERICHOST)
        except OSError:
            continue
        return str(found[0][4][0])
    return None


CANARY = "cnry-7f3a9c51-do-not-quote"
SECRETS = (
    ("database", "url"),
    ("broker", "url"),
    ("sentry", "dsn"),
    ("keys", "payer_ref", 0),
    ("rails", "mtn_momo", "api_key"),
    ("rails", "mtn_momo", "subscription_key"),
    ("rails", "orange_money", "client_secret"),
    ("rails", "orange_money", "merchant_key"),
    ("inbox", "stripe", "secrets", 0),
    ("inbox", "acme", "accounts", "a", "secrets", 0),
    ("merchants", 0, "api_keys", 0),
    ("merchants", 0, "endpoints", 0, "secrets", 0),
    ("merchants", 0, "endpoints", 0, "secrets", 1, "secret"),
)
"""Where a settings file has what no error may quote."""


def whole() -> dict[str, Any]:
    """Settings with something everywhere."""
    return {
        "database": {"url": "postgresql:///x", "pool": 5, "pulse": "lock"},
        "broker": {"url": "redis://127.0.0.1/0"},
        "dispatch": {"queues": ["payments"], "claim_lease": 30, "metrics_port": 9464},
        "worker": {"modules": [], "grace": 25},
        "web": {"threads": 8, "metrics": False},
        "sentry": {"dsn": "https://abc@sentry.example.com/1", "environment": "x"},
        "keys": {"payer_ref": ["dmlkZW8ga2lsbGVkIHRoZSByYWRpbyBzdGFyIC4uLi4="]},
        "rails": {
            "mtn_momo": {
                "base_url": "https://rail.example.com",
                "api_user": "u",
                "api_key": "k",
                "subscription_key": "s",
            },
            "orange_money": {
                "base_url": "https://rail.example.com/x",
                "client_id": "c",
                "client_secret": "s",
                "merchant_key": "m",
                "notif_url": "https://pay.example.com/x",
                "currencies": ["XAF"],
            },
        },
        "inbox": {
            "stripe": {"scheme": "stripe", "secrets": ["whsec_abcdefghijkl"], "tolerance": 5},
            "acme": {
                "scheme": "token",
                "secrets": ["token-0123456789"],
                "header": "X-Token",
                "id": ["id"],
                "accounts": {"a": {"secrets": ["token-9876543210"]}},
            },
        },
        "merchants": [
            {
                "id": "m",
                "api_keys": ["k" * 32],
                "endpoints": [
                    {
                        "id": "e",
                        "url": "https://hooks.example.com/x",
                        "secrets": ["s" * 32, {"secret": "t" * 32}],
                        "types": ["*"],
                    }
                ],
            }
        ],
        "livemode": {"enabled": False},
        "egress": {"ports": [443], "allow_private_targets": False},
        "ladders": {"poll": [1, 2]},
        "windows": {"horizon": 90_000},
    }


@st.composite
def settings_files(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A file, and whether it may hold the canary anywhere but where secrets stand."""
    made = whole()
    made["livemode"]["enabled"] = draw(st.booleans())
    for place in draw(st.lists(st.sampled_from(SECRETS), max_size=4, unique=True)):
        planted = draw(st.sampled_from((CANARY, f"x {CANARY}", f"%{CANARY}", f"{CANARY}\n", "")))
        before = _get(made, place)
        if draw(st.booleans()) and isinstance(before, str):
            planted = before.replace("://", f"://{planted}:{planted}@", 1)
        _put(made, place, draw(st.sampled_from((planted, [planted], {"x": planted}))))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.sampled_from([*_places(made)]))
        if place not in SECRETS and "factory" not in place:
            _put(made, place, draw(st.one_of(values(), st.sampled_from(ODD))))
    text = _toml(made)
    if draw(st.booleans()):
        text = draw(texts((text,)))
    return text.encode("utf-8", "surrogatepass"), CANARY in text


def a_settings_file(given: tuple[bytes, bool]) -> None:
    """Read to the end of every layer that reads it; told is where, never what."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vpay.toml"
        path.write_bytes(given[0])
        faults: list[str] = []
        try:
            found = config.read(path, {})
        except Configuration as error:
            _no_canary(str(error))
            return
    assert isinstance(found, Settings)
    _no_canary(repr(found))
    faults += vetting.faults(found)
    vendors.build(found.inbox, faults)
    with contextlib.suppress(Configuration):
        parts.rails_or_faults(found, faults)
    _no_canary("\n".join(faults))


def _no_canary(told: str) -> None:
    assert CANARY not in told


def _get(made: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        made = made[key] if _has(made, key) else None
    return made


def _has(made: Any, key: str | int) -> bool:
    if isinstance(key, int):
        return isinstance(made, list) and key < len(made)
    return isinstance(made, dict) and key in made


def _put(made: Any, place: tuple[str | int, ...], value: object) -> None:
    owner = _get(made, place[:-1])
    if _has(owner, place[-1]):
        owner[place[-1]] = value


def _places(made: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = (
        made.items()
        if isinstance(made, dict)
        else enumerate(made)
        if isinstance(made, list)
        else ()
    )
    return [place for key, value in items for place in ((*at, key), *_places(value, (*at, key)))]


def _toml(value: Any) -> str:
    """All tables inline, so that any value may stand anywhere."""
    return "\n".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items())


def _inline(value: Any) -> str:
    match value:
        case dict():
            pairs = (f"{json.dumps(str(key))} = {_inline(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case bool():
            return str(value).lower()
        case None:
            return '""'
        case float():
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
        case _:
            return json.dumps(value)


WORDS = (
    *("status", "doctor", "charges", "deliveries", "events", "inbox", "webhooks", "keys"),
    *("list", "show", "sign", "verify", "retry", "replay", "resume", "pause", "--json", "--help"),
    *("--limit", "--since", "--state", "--type", "--secret", "--header", "--t", "--now", "--id"),
    *("-1", "1", "7d", "nan", "1e400", "evt_1", "t=1,v1=00", "whsec_x", "--", "-", "", "--version"),
)


def command_lines() -> st.SearchStrategy[list[str]]:
    word = st.one_of(st.sampled_from(WORDS), texts(WORDS))
    return st.lists(word, max_size=7)


def a_command_line(words: list[str]) -> None:
    """Without settings: an exit code that is documented, and never a traceback."""
    told, before = io.StringIO(), dict(os.environ)
    os.environ["VPAY_CONFIG"] = "/nowhere/vpay.toml"
    stdin, input_ = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(input_, 0)
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            code = cli.main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(input_)
        os.environ.clear()
        os.environ.update(before)
    assert code in {0, 1, 64, 78}
    assert "Traceback" not in told.getvalue()


INSTANTS = (
    *("2026-03-01T08:15:00+00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"),
    *("2026-03-01", "20260301T081500Z", "2026-W09-7", "24:00", "2026-03-01T08:15:00"),
)


def instants() -> st.SearchStrategy[str]:
    return texts(INSTANTS)


def an_instant(text: str) -> None:
    """Of `--since`: an instant in UTC, or a wrong call."""
    if asking._AGO.fullmatch(text):  # needs the database's clock
        return
    try:
        found = asking.instant(text, None)  # type: ignore[arg-type]
    except InvalidRequest:
        return
    assert found is not None
    assert str(found.tzinfo) == "UTC"
