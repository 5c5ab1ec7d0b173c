"""Settings of the inbox that could never work let no process begin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inbox.bench import done, tables
from tests.inbox.signing import STRIPE, TABLES
from vpay_tasks import config, wiring
from vpay_tasks.config import Settings
from vpay_tasks.errors import Configuration
from vpay_tasks.inbox import on
from vpay_tasks.inbox.registry import GRANTS
from vpay_tasks.store.db import Database
from vpay_tasks.web import frame


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'scheme = "none"\nsecrets = ["0123456789abcdef"]',
            "inbox.v.scheme: Input should be 'stripe', 'standard-webhooks', 'github' or 'token'",
        ),
        ('secrets = ["0123456789abcdef"]', "inbox.v.scheme: Field required"),
        ('scheme = "stripe"', "inbox.v.secrets: Field required"),
        ('scheme = "stripe"\nsecrets = []', "inbox.v.secrets: Tuple should have at least 1 item"),
        ('scheme = "stripe"\nsecret = "x"', "inbox.v.secret: unknown key"),
    ],
)
def test_a_vendor_without_a_known_scheme_or_a_secret_is_a_fault(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "vpay.toml"
    path.write_text(f"[inbox.v]\n{text}\n")
    with pytest.raises(Configuration, match="fault") as refused:
        config.read(path, {"VPAY_DATABASE_URL": "postgresql:///x"})
    assert fault in str(refused.value)
    assert "0123456789abcdef" not in str(refused.value)


@pytest.mark.parametrize(
    "boot",
    [
        lambda settings: wiring.worker(settings, None),
        wiring.dispatcher,
        frame.make,
        lambda settings: wiring.inbox(settings, Database("postgresql:///x")),
    ],
    ids=["worker", "dispatcher", "web", "application"],
)
def test_a_secret_that_could_never_verify_lets_no_process_begin(
    boot: Callable[[Settings], object],
) -> None:
    bad = {"v": {"scheme": "standard-webhooks", "secrets": ["whsec_not base64, canary"]}}
    with pytest.raises(Configuration, match=r"inbox\.v\.secrets\.0: is not base64") as refused:
        boot(Settings(inbox=tables(bad)))
    assert "canary" not in str(refused.value)


def test_no_secret_shows_in_the_settings_or_in_what_is_made_of_them() -> None:
    settings = Settings(inbox=tables())
    made = wiring.inbox(settings, Database("postgresql:///x"))
    for text in (repr(settings), str(settings), repr(made), repr(made.vendors)):
        assert STRIPE not in text
        assert STRIPE.encode().hex() not in text


def test_grants_and_vendors_that_do_not_know_each_other_are_told_when_a_worker_boots(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(GRANTS, "_grants", {})
    for vendor in ("stripe", "srtipe"):
        on(vendor, "payment_intent.succeeded")(done)
    settings = Settings(inbox=tables({name: TABLES[name] for name in ("stripe", "acme")}))
    wiring.worker(settings, None)
    lines = [getattr(record, "fields", {}) for record in caplog.records]
    told = [fields for fields in lines if fields.get("action") == "inbox_grants"]
    assert [(fields["vendor"], fields.get("alert", False)) for fields in told] == [
        ("srtipe", True),
        ("acme", False),
    ]
