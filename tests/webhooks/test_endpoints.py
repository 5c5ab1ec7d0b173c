"""Endpoints as the settings have them, and as they change."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.webhooks.world import MERCHANT, SECRET, endpoint, settings
from vpay_tasks import config
from vpay_tasks.webhooks.endpoints import Endpoints

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ENV = {"VPAY_DATABASE_URL": "postgresql://x/y"}
"""With an address and no VPAY_CONFIG a missing file is no fault: it reads as an empty one."""


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        (["*"], True),
        (["payment_intent.succeeded"], True),
        (["payment_intent.*"], True),
        (["customer.*", "payment_intent.succeeded"], True),
        (["payment_intent"], False),
        (["payment.*"], False),
        (["payment_intent.succeede"], False),
        (["customer.*"], False),
        ([], False),
    ],
)
def test_an_endpoint_gets_the_types_it_names(types: list[str], wanted: bool) -> None:
    endpoints = Endpoints(settings(endpoint(types=types)))
    assert bool(endpoints.for_event(MERCHANT, "payment_intent.succeeded")) is wanted


def test_another_merchants_endpoint_gets_nothing() -> None:
    endpoints = Endpoints(settings(endpoint()))
    assert endpoints.for_event("other", "payment_intent.succeeded") == []
    assert endpoints.get("other", "main") is None
    assert endpoints.get(MERCHANT, "main") is not None


def test_secrets_sign_newest_first_until_they_expire_and_blank_ones_never() -> None:
    secrets = [
        "new",
        {"secret": "old", "expires": NOON},
        "",
        "whsec_",
        {"secret": "older", "expires": NOON - timedelta(seconds=1)},
    ]
    found = Endpoints(settings(endpoint(secrets=secrets))).get(MERCHANT, "main")
    assert found is not None
    assert found.live_secrets(NOON - timedelta(seconds=2)) == ("new", "old", "older")
    assert found.live_secrets(NOON - timedelta(seconds=1)) == ("new", "old")
    assert found.live_secrets(NOON) == ("new",)


def test_no_more_secrets_sign_than_a_verifier_looks_at() -> None:
    found = Endpoints(settings(endpoint(secrets=[f"s{i}" for i in range(12)])))
    main = found.get(MERCHANT, "main")
    assert main is not None
    assert main.live_secrets(NOON) == tuple(f"s{i}" for i in range(8))


def test_only_endpoints_with_a_cap_of_their_own_are_named_among_the_caps() -> None:
    both = settings(endpoint(cap=2), endpoint(id="second"))
    assert Endpoints(both).caps() == {"acme/main": 2}


def test_neither_secret_nor_url_stands_in_a_repr() -> None:
    endpoints = Endpoints(settings(endpoint("http://h/private-token")))
    shown = repr(endpoints) + repr(endpoints.get(MERCHANT, "main"))
    assert SECRET not in shown
    assert "private-token" not in shown


def test_the_configuration_hash_moves_with_address_and_secrets_only() -> None:
    def hash_of(**more: object) -> str:
        found = Endpoints(settings({**endpoint(), **more})).get(MERCHANT, "main")
        assert found is not None
        return found.config_hash

    assert hash_of() == hash_of(cap=3, types=["customer.*"])
    assert len({hash_of(), hash_of(url="http://h/2"), hash_of(secrets=["other"])}) == 3


def written(path: Path, url: str) -> None:
    path.write_text(
        "[egress]\nallow_private_targets = true\n"
        f'[[merchants]]\nid = "acme"\n[[merchants.endpoints]]\nid = "main"\nurl = "{url}"\n'
    )


def watching(path: Path) -> Endpoints:
    def load() -> config.Settings:
        return config.read(path, ENV)

    return Endpoints(load(), path=path, load=load)


def url_of(endpoints: Endpoints) -> str:
    found = endpoints.get(MERCHANT, "main")
    assert found is not None
    return found.url


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if getattr(r, "fields", {}).get("alert")]


def test_a_changed_file_is_taken_over_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "vpay.toml"
    written(path, "http://one/")
    endpoints = watching(path)
    written(path, "http://the-second/")
    endpoints.look_now()
    assert url_of(endpoints) == "http://the-second/"


@pytest.mark.parametrize("broken", ["this is not TOML", '[[merchants]]\nid = "acme"\nurll = 1\n'])
def test_a_broken_file_changes_nothing_and_alerts_once_until_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "vpay.toml"
    written(path, "http://one/")
    endpoints = watching(path)
    for text in (broken, broken + "\n# touched, still broken\n"):
        path.write_text(text)
        endpoints.look_now()
        endpoints.look_now()
    assert url_of(endpoints) == "http://one/"
    assert len(alerts(caplog)) == 1
    written(path, "http://mended/")
    endpoints.look_now()
    assert url_of(endpoints) == "http://mended/"
    path.write_text(broken)
    endpoints.look_now()
    assert len(alerts(caplog)) == 2


def test_a_file_that_is_gone_takes_no_endpoint_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "vpay.toml"
    written(path, "http://one/")
    endpoints = watching(path)
    path.unlink()
    endpoints.look_now()
    endpoints.look_now()
    assert url_of(endpoints) == "http://one/"
    assert len(alerts(caplog)) == 1


def test_a_file_that_is_written_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "vpay.toml"
    written(path, "http://one/")
    writes = ["http://a-third-one/"]

    def load() -> config.Settings:
        found = config.read(path, ENV)
        if writes:
            written(path, writes.pop())
        return found

    endpoints = Endpoints(config.read(path, ENV), path=path, load=load)
    written(path, "http://second/")
    endpoints.look_now()
    assert url_of(endpoints) == "http://one/"
    endpoints.look_now()
    assert url_of(endpoints) == "http://a-third-one/"


def test_a_file_that_changed_between_load_and_construction_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "vpay.toml"
    written(path, "http://one/")

    def load() -> config.Settings:
        return config.read(path, ENV)

    loaded = load()
    written(path, "http://two/")
    endpoints = Endpoints(loaded, path=path, load=load)
    endpoints.look_now()
    assert url_of(endpoints) == "http://two/"


def with_secret(path: Path, *files: Path) -> None:
    secrets = ", ".join(f'"${{file:{file}}}"' for file in files)
    written(path, "http://one/")
    path.write_text(f"{path.read_text()}secrets = [{secrets}]\n")


def rotated(file: Path, secret: str) -> None:
    """As orchestrators do it: another file in the old one's place."""
    new = file.with_suffix(".new")
    new.write_text(f"{secret}\n")
    new.replace(file)


def secrets_of(endpoints: Endpoints) -> tuple[str, ...]:
    found = endpoints.get(MERCHANT, "main")
    assert found is not None
    return found.live_secrets(NOON)


def test_a_secret_that_is_rotated_in_its_own_file_is_taken_over(tmp_path: Path) -> None:
    path, first, second = (tmp_path / name for name in ("vpay.toml", "first", "second"))
    rotated(first, "old-secret")
    with_secret(path, first)
    endpoints = watching(path)
    endpoints.look_now()
    assert secrets_of(endpoints) == ("old-secret",)
    rotated(first, "new-secret")
    endpoints.look_now()
    assert secrets_of(endpoints) == ("new-secret",)
    rotated(second, "another")
    with_secret(path, second, first)
    endpoints.look_now()
    assert secrets_of(endpoints) == ("another", "new-secret")
    rotated(second, "and another")
    endpoints.look_now()
    assert secrets_of(endpoints) == ("and another", "new-secret")


def test_a_secrets_file_that_changed_while_it_was_read_for_the_first_time_is_read_again(
    tmp_path: Path,
) -> None:
    path, file = tmp_path / "vpay.toml", tmp_path / "secret"
    rotated(file, "old-secret")
    written(path, "http://one/")
    writes = ["new-secret"]

    def load() -> config.Settings:
        found = config.read(path, ENV)
        if found.files and writes:
            rotated(file, writes.pop())
        return found

    endpoints = Endpoints(load(), path=path, load=load)
    with_secret(path, file)
    endpoints.look_now()
    endpoints.look_now()
    assert secrets_of(endpoints) == ("new-secret",)


def test_a_secrets_file_that_comes_after_its_name_mends_the_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, file = tmp_path / "vpay.toml", tmp_path / "secret"
    written(path, "http://one/")
    endpoints = watching(path)
    with_secret(path, file)
    endpoints.look_now()
    endpoints.look_now()
    assert len(alerts(caplog)) == 1
    rotated(file, "late-secret")
    endpoints.look_now()
    assert secrets_of(endpoints) == ("late-secret",)


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "vpay.toml"
    written(path, "http://one/")
    reads: list[int] = []

    def load() -> config.Settings:
        reads.append(1)
        return config.read(path, ENV)

    endpoints = Endpoints(config.read(path, ENV), path=path, load=load)
    for _ in range(3):
        endpoints.look_now()
    assert len(reads) == 1


def test_a_process_that_was_started_by_its_environment_alone_misses_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "vpay.toml"
    endpoints = watching(path)
    endpoints.look_now()
    assert alerts(caplog) == []
    written(path, "https://late.example.com/")
    endpoints.look_now()
    assert url_of(endpoints) == "https://late.example.com/"
