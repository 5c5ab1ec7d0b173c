"""One attempt of a delivery inside a network of its own (tests/network.py)."""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.network import CA_FILE, trust_store
from tests.webhooks.liar import Answers, Authority, Visit, everywhere, lying
from vpay_tasks.webhooks import send
from vpay_tasks.webhooks.egress import Rules
from vpay_tasks.webhooks.send import Answer

HOST = "hooks.example.com"
V4, V6 = "93.184.216.34", "2606:4700::1111"


@dataclass(frozen=True)
class Case:
    """What is tried. Every address has a web server, whose certificate is `certificate`'s."""

    answers: Answers = field(default_factory=lambda: {HOST: [[V4]]})
    url: str = f"https://{HOST}/hook"
    certificate: str = HOST
    days: tuple[int, int] = (-1, 1)
    use: str = "leaf"
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    trusted: bool = True
    encrypted: bool = True
    reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    headers: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    netrc: str = ""
    whole: float = 20.0
    times: int = 1
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class Came:
    """What came of it, as both sides saw it."""

    answers: list[Answer]
    visits: list[Visit]
    proxy: list[Visit]
    """Connections to where the environment's proxies would be."""
    asked: list[str]
    files: list[str]
    """What the attempt left in its home."""

    @property
    def answer(self) -> Answer:
        (only,) = self.answers
        return only


def attempt(case: Case) -> Came:
    """The scenario. Livemode's rules, the shared TLS context, the system's resolver."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(os.environ.update, dict(os.environ))
        for name in case.environment:
            stack.callback(os.environ.pop, name, None)
        if case.netrc:
            (home / ".netrc").write_text(case.netrc)
            (home / ".netrc").chmod(0o600)
        os.environ |= {"HOME": str(home)} | {
            name: value.replace("HOME", str(home)) for name, value in case.environment.items()
        }
        tls = _server_tls(case) if case.encrypted else None
        asked = stack.enter_context(lying(case.answers))
        visits = stack.enter_context(everywhere(443, tls, case.reply))
        proxy = stack.enter_context(everywhere(3128, None, case.reply))
        answers = [_post(case) for _ in range(case.times)]
        files = sorted(path.name for path in home.iterdir() if path.name != ".netrc")
    return Came(answers, visits, proxy, asked, files)


def _post(case: Case) -> Answer:
    return send.post(
        case.url, case.headers, b'{"id":"evt_1"}', rules=case.rules, connect=5.0, whole=case.whole
    )


def _server_tls(case: Case) -> ssl.SSLContext:
    authority = Authority()
    trust = trust_store() / CA_FILE
    trust.write_bytes((authority if case.trusted else Authority()).pem)
    send._shared_tls.cache_clear()  # made once per process, and each case has a CA of its own
    with tempfile.TemporaryDirectory() as folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            authority.server(Path(folder), case.certificate, days=case.days, use=case.use)
        )
    if case.newest < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers("DEFAULT@SECLEVEL=0")  # or the server itself refuses
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = case.newest
    return context


def pile_up(attempts: int) -> int:
    """How many lookups are under way at the most while `attempts` ask a resolver that never
    answers, none of them for long."""
    os.environ["RES_OPTIONS"] = "timeout:3 attempts:1"
    case, most = Case({HOST: [["silence"]]}, whole=0.002), 0
    try:
        with lying(case.answers):
            for _ in range(attempts):
                assert _post(case).trouble is send.Trouble.NAME
                waiting = [t for t in threading.enumerate() if t.name == "vpay-resolve"]
                most = max(most, len(waiting))
            for thread in waiting:  # the next scenario's process has none left over
                thread.join()
    finally:
        del os.environ["RES_OPTIONS"]
    return most
