"""The examples of the README run as they stand there."""

from __future__ import annotations

import re
import sys
import tomllib
import types
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from tests.house import ROOT
from vpay_sandbox.stub_rail import StubRail
from vpay_tasks import config, wiring
from vpay_tasks.core.task import REGISTRY
from vpay_tasks.store import idempotency
from vpay_tasks.store.db import Database, connect

README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_settings_of_the_readme_are_valid(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    secret = tmp_path / "secret"
    secret.write_text(Fernet.generate_key().decode())
    path = tmp_path / "vpay.toml"
    path.write_text(re.sub(r"/run/secrets/\w+", str(secret), text))
    env = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x")
    settings = config.read(path, env)
    assert settings.worker.modules == ("shop_tasks",)
    assert sorted(wiring.rails(settings)) == ["mtn_momo", "orange_money"]
    assert sorted(settings.inbox) == ["stripe"]
    assert tomllib.loads(text)


def test_the_code_of_the_readme_makes_a_payment(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_code, payment_code, _ = blocks("python")
    module = types.ModuleType("shop_tasks")
    monkeypatch.setitem(sys.modules, "shop_tasks", module)
    monkeypatch.setattr(REGISTRY, "_tasks", dict(REGISTRY._tasks))
    exec(compile(task_code, "README task", "exec"), module.__dict__)
    with StubRail() as rail, connect(dsn, application="tests") as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, receipt text)")
        settings = tmp_path / "vpay.toml"
        settings.write_text(
            f'[database]\nurl = "{dsn}"\n'
            f'[keys]\npayer_ref = ["{Fernet.generate_key().decode()}"]\n'
            f'[rails.mtn_momo]\nbase_url = "{rail.url}"\n'
            f'api_user = "{rail.credentials.api_user}"\n'
            f'api_key = "{rail.credentials.api_key}"\n'
            f'subscription_key = "{rail.credentials.subscription_key}"\n'
        )
        monkeypatch.setenv("VPAY_CONFIG", str(settings))
        names: dict[str, Any] = {"__name__": "readme"}
        exec(compile(payment_code, "README payment", "exec"), names)
        names["db"].close()
        rows = connection.execute(
            "SELECT kind, dedupe_key FROM vpay.jobs WHERE dedupe_key = 'receipt:7'"
            " UNION ALL SELECT 'order', receipt FROM orders ORDER BY 1"
        ).fetchall()
    assert names["told"] == "approve it on your phone"
    assert rows == [("order", "due"), ("send_receipt", "receipt:7")]


def test_the_api_of_the_readme_makes_one_payment_of_one_request(database: Database) -> None:
    *_, code = blocks("python")
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README api", "exec"), names)
    create = names["create_payment"]
    body = b'{"amount": 1000, "currency": "EUR", "email": "ada@example.com"}'
    first = create(database, "acme", "k", body, "192.0.2.7")
    assert first[0] == 201
    assert create(database, "acme", "k", body, "192.0.2.7") == first
    assert create(database, "acme", "k", body + b" ", "192.0.2.7")[0] == 400
    request = idempotency.fingerprint(b"POST", b"/v1/payments", body)
    with database.connection() as connection:
        idempotency.claim(connection, "acme", "busy", request, token=uuid4())
        assert create(database, "acme", "busy", body, "192.0.2.7")[0] == 409
        connection.execute("UPDATE vpay.rate_limits SET attempts = 100")
        assert create(database, "acme", "new", body, "192.0.2.7")[0] == 429
        made = connection.execute("SELECT count(*) FROM vpay.payment_intents").fetchone()
    assert made == (1,)
