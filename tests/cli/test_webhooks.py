"""`vpay-tasks webhooks sign|verify` and `endpoints check`: no settings, no database."""

from __future__ import annotations

import io
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import standardwebhooks
import stripe

from tests.webhooks.test_asymmetric import SECRET_KEY
from tests.webhooks.world import SECRET, event_body
from vpay_tasks import cli

BODY = event_body("evt_1")


@dataclass
class Done:
    returncode: int
    stdout: bytes
    stderr: bytes


class Run:
    """Runs the command in this process, in an empty folder: the standard input is bytes."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        self._patch = monkeypatch
        self._told = capsysbinary

    def __call__(self, *words: str, body: bytes = b"", **environment: str) -> Done:
        with self._patch.context() as patch:
            for name in [name for name in os.environ if name.startswith("VPAY_")]:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
            self._told.readouterr()
            try:
                code = cli.main(words)
            except SystemExit as ended:
                code = int(str(ended.code))
        told = self._told.readouterr()
        return Done(code, told.out, told.err)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsysbinary)


def parsed(done: Done) -> dict[str, str]:
    assert (done.returncode, done.stderr) == (0, b"")
    return dict(line.split(": ", 1) for line in done.stdout.decode().splitlines())


def test_what_is_signed_by_hand_everybody_verifies(run: Run) -> None:
    found = parsed(run("webhooks", "sign", "--id", "evt_1", body=BODY, VPAY_WEBHOOK_SECRET=SECRET))
    assert stripe.Webhook.construct_event(BODY, found["Stripe-Signature"], SECRET).id == "evt_1"
    assert standardwebhooks.Webhook(SECRET).verify(BODY, found)["id"] == "evt_1"
    header = found["Vpay-Signature"]
    done = run("webhooks", "verify", "--secret", SECRET, "--header", header, body=BODY)
    assert (done.returncode, done.stdout) == (0, b"verified: payment_intent.succeeded evt_1\n")


def test_secrets_come_from_files_too_several_of_them(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new").write_text(SECRET + "\n")
    (tmp_path / "pair").write_text(SECRET_KEY)
    words = ("--secret-file", "new", "--secret-file", "pair", "--t", "1764000000")
    found = parsed(run("webhooks", "sign", *words, body=BODY))
    assert found["webhook-timestamp"] == "1764000000"
    assert [part[:3] for part in found["webhook-signature"].split(" ")] == ["v1,", "v1a"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), b"t is outside the tolerance"),
        (("--now", "1764000301"), b"t is outside the tolerance"),
        (("--now", "1764000000", "--secret", "another"), b"no signature matches"),
        (("--now", "1764000000", "--header", "nonsense"), b"a part of the header has no '='"),
    ],
)
def test_a_refusal_says_why_and_is_1(run: Run, words: tuple[str, ...], reason: bytes) -> None:
    signed = parsed(run("webhooks", "sign", "--secret", SECRET, "--t", "1764000000", body=BODY))
    given = ["--header", signed["Vpay-Signature"], *words]
    secret = {} if "--secret" in words else {"VPAY_WEBHOOK_SECRET": SECRET}
    done = run("webhooks", "verify", *given, body=BODY, **secret)
    assert (done.returncode, done.stdout) == (1, b"refused: " + reason + b"\n")


@pytest.mark.parametrize(
    "words",
    [
        ("sign",),
        ("sign", "--secret", ""),
        ("sign", "--secret-file", "/nonexistent/file"),
        ("sign", "--secret", SECRET, "--t", "0"),
        ("sign", "--secret", "stray\udcff"),  # a byte that is no text
        ("sign", "--secret", SECRET, "--id", "evt\udcff"),
        ("sign", "--secret", SECRET, "--id", "evt_1\r\nX-Evil: 1"),
        ("verify", "--secret", SECRET),
        ("verify", "--header", "t=1,v1=x"),
        ("verify", "--header", "t=1,v1=x", "--secret", ""),
        ("verify", "--header", "t=1,v1=x", "--secret", "stray\udcff"),
        ("verify", "--header", "t=1,v1=x", "--secret", SECRET_KEY),
    ],
)
def test_a_wrong_call_is_64_and_shows_no_traceback(run: Run, words: tuple[str, ...]) -> None:
    done = run("webhooks", *words, body=BODY)
    assert (done.returncode, b"Traceback" in done.stderr) == (64, False)
    assert SECRET.encode() not in done.stderr


def test_the_help_says_who_can_read_a_secret_on_the_command_line(run: Run) -> None:
    said = " ".join(run("webhooks", "sign", "--help").stdout.decode().split())
    assert "anybody on this machine can read" in said
    assert "VPAY_WEBHOOK_SECRET" in said


def test_now_is_the_default_of_both(run: Run) -> None:
    before = int(time.time())
    found = parsed(run("webhooks", "sign", "--secret", SECRET, body=BODY))
    assert before <= int(found["webhook-timestamp"]) <= time.time()


@pytest.mark.parametrize(
    ("words", "code", "first"),
    [
        (("https://hooks.example.com/x", "--no-resolve"), 0, "allowed"),
        (("https://127.0.0.1/",), 1, "refused: ADDR_LOOPBACK"),
        (("https://[::ffff:7f00:1]/", "--no-resolve"), 1, "refused: ADDR_EMBEDDED_V4"),
        (("http://hooks.example.com/", "--no-resolve"), 1, "refused: SCHEME"),
        (("https://hooks.example.com:8443/", "--no-resolve"), 1, "refused: PORT"),
        (("https://localhost/", "--no-resolve"), 1, "refused: HOST_NAME"),
        (("https://a..b/",), 1, "refused: HOST_NAME"),
        (("http://127.0.0.1:9/", "--sandbox"), 0, "allowed"),
        (("http://name.invalid/", "--sandbox"), 1, "refused: DNS"),
        (("http://127.1/", "--sandbox"), 1, "refused: HOST_NUMERIC"),
    ],
)
def test_a_check_says_what_the_guard_decides(
    run: Run, words: tuple[str, ...], code: int, first: str
) -> None:
    done = run("endpoints", "check", *words)
    assert (done.returncode, done.stderr) == (code, b"")
    assert done.stdout.decode().splitlines()[0] == first


def test_a_check_for_programs_is_one_object(run: Run) -> None:
    done = run("endpoints", "check", "http://127.0.0.1/", "--sandbox", "--json")
    assert (done.returncode, b'"addresses": [\n    "127.0.0.1"\n  ]' in done.stdout) == (0, True)
    done = run("endpoints", "check", "https://10.0.0.1/", "--json")
    assert (done.returncode, b'"class": "ADDR_PRIVATE"' in done.stdout) == (1, True)


def test_a_check_without_a_url_is_a_wrong_call(run: Run) -> None:
    assert run("endpoints", "check").returncode == 64
