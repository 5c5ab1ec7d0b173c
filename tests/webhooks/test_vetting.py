"""Endpoint settings that can never work, told when they are read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.webhooks.world import MERCHANT, SECRET, endpoint, settings
from vpay_tasks import config, wiring
from vpay_tasks.config import Settings
from vpay_tasks.core.events import EventType
from vpay_tasks.errors import Configuration
from vpay_tasks.webhooks.endpoints import Endpoints
from vpay_tasks.webhooks.vetting import faults

WHERE = f"merchants.{MERCHANT}.endpoints.main."


def of(**more: Any) -> list[str]:
    return [fault.removeprefix(WHERE) for fault in faults(settings({**endpoint(), **more}))]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"secrets": []},  # a rollout may bring it; its deliveries wait
        {"secrets": [f"{SECRET}{n}" for n in range(8)]},
        {"secrets": ["a pass phrase"]},
        {"url": "https://hooks.example.com:8443/a?b=c"},
        {"types": ["*"]},
        {"types": ["payment_intent.*", *EventType]},
    ],
)
def test_what_can_work_is_no_fault(more: dict[str, Any]) -> None:
    assert of(**more) == []


@pytest.mark.parametrize("url", ["htp:/nowhere", "http://u:p@h/", "ftp://h/", "http://h/#f", "/x"])
def test_a_url_that_is_never_called_is_a_fault_and_is_not_quoted(url: str) -> None:
    (fault,) = of(url=url)
    assert fault.startswith("url: ")
    assert url not in fault


@pytest.mark.parametrize(
    "secret",
    [
        *("", "   ", "\n", "whsec_", " whsec_ ", "v1,c2VjcmV0", "v1a,c2VjcmV0"),
        *("trailing\n", "trailing ", " leading", "\tleading", "two\nlines", "nul\x00"),
    ],
)
def test_a_secret_that_nobody_means_is_a_fault_and_is_not_quoted(secret: str) -> None:
    (fault,) = of(secrets=[SECRET, secret])
    assert fault.startswith("secrets.1: ")
    assert len(secret.strip()) < 6 or secret == " whsec_ " or secret.strip() not in fault


def test_more_secrets_than_a_verifier_looks_at_are_a_fault() -> None:
    (fault,) = of(secrets=[f"{SECRET}{n}" for n in range(9)])
    assert fault.startswith("secrets: at most 8")


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("payment_intent.suceeded", "did you mean 'payment_intent.succeeded'?"),
        ("payment_intents.*", "did you mean 'payment_intent.*'?"),
        ("Payment_intent.canceled", "did you mean 'payment_intent.canceled'?"),
        ("*.succeeded", ""),
        ("payment_intent", ""),
        ("payment.*", ""),
        (".*", ""),
        ("**", ""),
        ("", "known: "),
        ("zzz", "known: payment_intent.succeeded, "),
    ],
)
def test_a_type_that_no_event_has_is_a_fault_with_the_nearest(wanted: str, hint: str) -> None:
    (fault,) = of(types=["*", wanted])
    assert fault.startswith(f"types.1: no event is called {wanted!r}; ")
    assert hint in fault


def test_an_endpoint_that_names_no_type_would_get_nothing() -> None:
    (fault,) = of(types=[])
    assert fault.startswith("types: ")


BAD = endpoint("htp:/nowhere", types=["nothing"], secrets=["whsec_"])


def test_a_worker_is_told_the_faults_of_rails_and_endpoints_at_once() -> None:
    broken = Settings(merchants=settings(BAD).merchants, rails={"mtn_mom": {}})
    with pytest.raises(Configuration, match=r"^settings: 4 fault\(s\)") as caught:
        wiring.worker(broken, None)
    told = str(caught.value)
    assert "rails.mtn_mom: no such rail" in told
    assert [f"{WHERE}{what}" in told for what in ("url:", "types.0:", "secrets.0:")] == [True] * 3


def test_a_dispatcher_refuses_them_too() -> None:
    with pytest.raises(Configuration, match=r"^settings: 3 fault\(s\)"):
        wiring.dispatcher(settings(BAD))


def test_a_changed_file_with_such_a_fault_keeps_the_old_endpoints_and_alerts_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "vpay.toml"

    def write(url: str) -> None:
        tables = f'[[merchants]]\nid = "acme"\n[[merchants.endpoints]]\nid = "main"\nurl = "{url}"'
        path.write_text("[egress]\nallow_private_targets = true\n" + tables)

    def load() -> Settings:
        return config.read(path, {})

    write("http://one/")
    endpoints = Endpoints(load(), path=path, load=load)
    write("htp:/nowhere")
    endpoints.look_now()
    endpoints.look_now()
    found = endpoints.get(MERCHANT, "main")
    assert found is not None
    assert found.url == "http://one/"
    (alerted,) = [r for r in caplog.records if getattr(r, "fields", {}).get("alert")]
    assert "endpoints.main.url: " in alerted.__dict__["fields"]["error"]


def test_what_only_a_restart_allows_keeps_the_old_endpoints(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A delivery to a URL that its process refuses as written would be exhausted at once."""
    path = tmp_path / "vpay.toml"

    def write(url: str, *, private: bool) -> None:
        tables = f'[[merchants]]\nid = "acme"\n[[merchants.endpoints]]\nid = "main"\nurl = "{url}"'
        path.write_text(f"[egress]\nallow_private_targets = {private}\n".lower() + tables)

    def load() -> Settings:
        return config.read(path, {})

    def url_of(endpoints: Endpoints) -> str:
        endpoints.look_now()
        found = endpoints.get(MERCHANT, "main")
        assert found is not None
        return found.url

    write("https://one.example.com/", private=False)
    began = Endpoints(load(), path=path, load=load)
    write("http://127.0.0.1:9/", private=True)
    assert url_of(began) == "https://one.example.com/"
    (alerted,) = [r for r in caplog.records if getattr(r, "fields", {}).get("alert")]
    assert "restart this process" in alerted.__dict__["fields"]["error"]
    assert url_of(Endpoints(load(), path=path, load=load)) == "http://127.0.0.1:9/"


def test_a_resolver_that_says_now_this_now_that_is_told_once_for_each() -> None:
    endpoints = Endpoints(settings(endpoint()))
    (one,) = endpoints.all()
    said = ["dns_refused: ADDR_PRIVATE", "dns_refused: ADDR_LOOPBACK"] * 3
    assert [endpoints.is_new_trouble(one, trouble) for trouble in said] == [True] * 2 + [False] * 4
    assert not endpoints.is_new_trouble(one, None)
    assert endpoints.is_new_trouble(one, said[0])
