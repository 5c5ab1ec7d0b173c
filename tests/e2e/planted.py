"""A whole system whose every secret is a canary, and all that it writes, says and sends."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import redis

from tests.conftest import PG
from tests.e2e.fleet import Fleet
from tests.ingest import Ingest
from vpay_sandbox.merchant import Endpoint
from vpay_sandbox.momo import Credentials
from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import free_port
from vpay_sandbox.stub_rail import StubRail
from vpay_sandbox.stub_receiver import StubReceiver
from vpay_sandbox.valkey import Valkey
from vpay_tasks.cli import main
from vpay_tasks.store import migrate
from vpay_tasks.store.db import connect


def _key(text: str) -> str:
    assert len(text) == 32
    return base64.b64encode(text.encode()).decode()


SECRETS = {
    "database password": "cnry-db-3f9a1c77",
    "broker password": "cnry-mq-77b0de12",
    "momo user": "cnry-user-0b1f",
    "momo key": "cnry-momo-key-91cc",
    "momo subscription": "cnry-momo-sub-52ab",
    "orange client": "cnry-orange-id-8812",
    "orange secret": "cnry-orange-sec-4471",
    "orange merchant key": "cnry-orange-mk-0393",
    "payers key": _key("cnry-payer-key-newest-0123456789"),
    "payers old key": _key("cnry-payer-key-older--0123456789"),
    "endpoint text": "cnry-plain-endpoint-secret-0123456789",
    "endpoint key": "whsec_" + _key("cnry-hmac-endpoint-0123456789abc"),
    "endpoint private key": "whsk_" + _key("cnry-ed25519-seed-0123456789abcd"),
    "inbox secret": "whsec_cnry_stripe_0123456789abcdef",
    "inbox token": "cnry-bank-token-0123456789abcdef",
    "api key": "cnry-api-key-0123456789abcdefghijk",
}
"""By what they are; each lies in a file of its own."""

PAYERS = {
    "payer": "46733987101",
    "another payer": "46733987102",
    "payer without country": "733987103",
    "payer as typed": "733 987 104",
}


def file_of(name: str) -> str:
    return name.replace(" ", "_")


class Echo:
    """An endpoint that says back all it was sent, as debug pages do."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(500)
                self.end_headers()
                self.wfile.write(f"{self.requestline}\n{self.headers}\n".encode() + body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name for it
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Planted:
    """A context. `artefacts` is where everything goes that is grepped; in `hidden` secrets may
    lie, and what stands for the other sides."""

    def __init__(self, folder: Path, ingest: Ingest) -> None:
        self.artefacts = folder / "artefacts"
        self.hidden = folder / "hidden"
        for made in (self.artefacts, self.hidden):
            made.mkdir()
        self.ingest = ingest
        self.metrics_port = free_port()
        for name, value in SECRETS.items():
            (self.hidden / file_of(name)).write_text(value, "utf-8")
        # The loudest logs: every statement with its parameters.
        loud = {"fsync": "off", "log_statement": "all"}
        self.postgres = Postgres(self.artefacts / "postgres", settings=loud, version=PG)
        self.valkey = Valkey(self.artefacts / "valkey")
        keys = Credentials(SECRETS["momo subscription"], SECRETS["momo user"], SECRETS["momo key"])
        self.rail = StubRail(journal=self.hidden / "rail.jsonl", credentials=keys)
        self.receiver = StubReceiver(
            [
                Endpoint("shop", "main", (SECRETS["endpoint key"],)),
                Endpoint("shop", "flaky", (SECRETS["endpoint text"],), fail_first=1),
            ],
            journal=self.hidden / "receiver.jsonl",
        )
        self.echo = Echo()
        self.fleet = Fleet(self.artefacts, "", "")
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            opened.callback(self.echo.close)
            for server in (self.postgres, self.valkey, self.rail, self.receiver):
                opened.enter_context(server)
            opened.callback(self.fleet.end)
            with connect(self.postgres.url(), application="tests") as connection:
                migrate.apply(connection)
            self.lock()
            self.fleet.config = self._tables()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def secret(self, name: str) -> str:
        """As the settings file has it."""
        return f"${{file:{self.hidden / file_of(name)}}}"

    def _tables(self) -> dict[str, Any]:
        secret = self.secret
        postgres, valkey = f"127.0.0.1:{self.postgres.port}", f"127.0.0.1:{self.valkey.port}"
        (self.hidden / "dsn").write_text(self.ingest.dsn)
        return {
            "database": {
                "url": f"postgresql://postgres:{secret('database password')}@{postgres}/postgres"
            },
            "broker": {"url": f"redis://:{secret('broker password')}@{valkey}/0"},
            "dispatch": {"metrics_port": self.metrics_port},
            "web": {"metrics": True},
            "worker": {"grace": 5},
            "egress": {"allow_private_targets": True},
            "sentry": {"dsn": secret("dsn")},
            "keys": {"payer_ref": [secret("payers key"), secret("payers old key")]},
            "rails": self._rails(),
            "inbox": {
                "stripe": {"scheme": "stripe", "secrets": [secret("inbox secret")]},
                "bank": {
                    "scheme": "token",
                    "secrets": [secret("inbox token")],
                    "header": "X-Token",
                },
            },
            "merchants": [
                {"id": "shop", "api_keys": [secret("api key")], "endpoints": self._endpoints()}
            ],
            "ladders": {"poll": [0.2], "delivery": [0.2, 0.2], "error": [0.2]},
        }

    def _rails(self) -> dict[str, dict[str, Any]]:
        return {
            "mtn_momo": {
                "base_url": self.rail.url,
                "api_user": self.secret("momo user"),
                "api_key": self.secret("momo key"),
                "subscription_key": self.secret("momo subscription"),
            },
            "orange_money": {  # which knows others: it refuses ours, and that pages
                "base_url": self.rail.orange_url,
                "client_id": self.secret("orange client"),
                "client_secret": self.secret("orange secret"),
                "merchant_key": self.secret("orange merchant key"),
                "notif_url": "https://pay.example/provider/orange_money/callback",
                "currencies": ["XAF"],
            },
        }

    def _endpoints(self) -> list[dict[str, Any]]:
        hooks = self.receiver.endpoint_url
        return [
            {
                "id": "main",
                "url": hooks("shop", "main"),
                "secrets": [self.secret("endpoint key")],
            },
            {
                "id": "flaky",
                "url": hooks("shop", "flaky"),
                "secrets": [self.secret("endpoint text")],
            },
            {
                "id": "echo",
                "url": self.echo.url,
                "secrets": [self.secret("endpoint private key"), self.secret("endpoint text")],
            },
        ]

    def lock(self) -> None:
        """The broker asks for its password, which must not be a word of its command line; and
        from now on every command that it gets is kept."""
        password = SECRETS["broker password"]
        with redis.Redis.from_url(self.valkey.url()) as client:
            client.config_set("requirepass", password)
        line = socket.create_connection(("127.0.0.1", self.valkey.port))
        line.sendall(f"AUTH {password}\r\nMONITOR\r\n".encode())

        def keep() -> None:
            path = self.artefacts / "broker.commands"
            with line, path.open("ab") as file, suppress(ConnectionError):
                while piece := line.recv(65_536):
                    file.write(piece)
                    file.flush()

        threading.Thread(target=keep, daemon=True).start()

    def run(self, *words: str) -> int:
        """A command, in this process; what it prints is kept."""
        name = "-".join(word.strip("-") for word in words)[:60]
        path = self.artefacts / f"cli-{name}.txt"
        with (
            path.open("a", encoding="utf-8") as output,
            redirect_stdout(output),
            redirect_stderr(output),
        ):
            return main(list(words))

    def pids(self) -> list[int]:
        """Of all our processes that run now."""
        return [
            pid
            for process in self.fleet.processes
            if process.popen.poll() is None
            for pid in (process.pid, *process.children())
        ]
