"""Settings: every fault at once, nothing secret told."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from vpay_tasks import config
from vpay_tasks.config import Settings
from vpay_tasks.errors import Configuration

SECRET = "hunter2-correct-horse"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vpay.toml"


def faults(path: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    """The faults of a settings file, one per line of the error."""
    path.write_text(text, "utf-8")
    with pytest.raises(Configuration) as caught:
        config.read(path, env or {})
    head, *lines = str(caught.value).splitlines()
    assert head == f"{path}: {len(lines)} fault(s)"
    return [line.strip() for line in lines]


def test_an_empty_file_is_production_by_default(path: Path) -> None:
    path.write_text("")
    assert config.read(path, {}) == Settings()


def test_every_fault_is_told_in_one_reading(path: Path) -> None:
    found = faults(
        path,
        """
        [database]
        url = "mysql://x"
        pool = 0
        pulse = "lok"
        [dispatch]
        windw = 2
        claim_lease = -1
        [worker]
        grace = "soon"
        [[merchants]]
        id = "a b"
        [[merchants.endpoints]]
        id = "e"
        urll = "http://x"
        [keys]
        payer_ref = ["${NOT_SET}"]
        """,
    )
    for expected in (
        "database.url: must begin with postgresql://",
        "database.pool: ",
        "database.pulse: ",
        "dispatch.windw: unknown key, did you mean 'window'?",
        "dispatch.claim_lease: ",
        "worker.grace: ",
        "merchants.0.id: ",
        "merchants.0.endpoints.0.url: Field required",
        "merchants.0.endpoints.0.urll: unknown key, did you mean 'url'?",
        "keys.payer_ref.0: the environment has no NOT_SET",
    ):
        assert [line for line in found if line.startswith(expected)], expected
    assert len(found) == 10


def test_an_unknown_key_that_resembles_none_lists_the_known_ones(path: Path) -> None:
    assert faults(path, "[broker]\nzzz = 1\n") == ["broker.zzz: unknown key; known here: url"]


def test_what_contradicts_itself_is_a_fault(path: Path) -> None:
    found = faults(
        path,
        """
        [windows]
        submit_deadline = 60
        recovery = 60
        not_found = 59
        horizon = 119
        [[merchants]]
        id = "m"
        [[merchants]]
        id = "m"
        endpoints = [{id = "e", url = "http://x"}, {id = "e", url = "http://y"}]
        """,
    )
    assert [line.split(":")[0] for line in found] == [
        "merchants.m.endpoints",
        "merchants",
        "windows.horizon",
        "windows.not_found",
        "windows.submit_deadline",
    ]


def test_windows_may_be_as_short_as_they_still_have_a_meaning(path: Path) -> None:
    path.write_text(
        """
        [windows]
        submit_deadline = 60
        recovery = 61
        not_found = 60
        horizon = 122
        """
    )
    assert config.read(path, {}).windows.not_found == 60


def test_placeholders_take_from_the_environment_and_from_files(path: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    path.write_text(
        '[database]\nurl = "postgresql://u:${PASSWORD}@db/${NAME}"\n'
        f'[keys]\npayer_ref = ["${{file:{tmp_path}/secret}}"]\n'
    )
    settings = config.read(path, {"PASSWORD": "p", "NAME": "n"})
    assert settings.database.url.get_secret_value() == "postgresql://u:p@db/n"
    assert settings.keys.payer_ref == (SecretStr(SECRET),)
    assert settings.files == (tmp_path / "secret",)


def test_a_placeholder_that_cannot_be_filled_names_its_key(path: Path) -> None:
    assert faults(path, '[broker]\nurl = "${A}"\n[keys]\npayer_ref = ["${file:/no/such}"]\n') == [
        "broker.url: must begin with redis://",
        "broker.url: the environment has no A",
        "keys.payer_ref.0: cannot read ${file:/no/such}: FileNotFoundError",
    ]


def test_the_environment_wins_over_the_file(path: Path) -> None:
    path.write_text('[database]\nurl = "postgresql://file/x"\npool = 3\n')
    settings = config.read(
        path, {"VPAY_DATABASE_URL": "postgres://env/x", "VPAY_BROKER_URL": "valkey://env/1"}
    )
    assert settings.database.url.get_secret_value() == "postgres://env/x"
    assert settings.database.pool == 3
    assert settings.broker.url.get_secret_value() == "valkey://env/1"


def test_the_environment_alone_is_enough_unless_it_names_a_file(path: Path) -> None:
    env = {"VPAY_DATABASE_URL": "postgresql:///x"}
    assert config.read(path, env).database.url.get_secret_value() == "postgresql:///x"
    for missing in ({}, {**env, "VPAY_CONFIG": str(path)}):
        with pytest.raises(Configuration, match="no settings file"):
            config.read(path, missing)


def test_load_reads_the_file_that_the_environment_names(path: Path) -> None:
    path.write_text("[database]\npool = 7\n")
    assert config.load({"VPAY_CONFIG": str(path)}).database.pool == 7


@pytest.mark.parametrize("content", [b"[database", b"a = 1\na = 2\n", b"\xff\xfe"])
def test_what_is_no_toml_is_one_clear_fault(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(Configuration, match=str(path)):
        config.read(path, {})


def test_a_folder_instead_of_a_file_is_one_clear_fault(tmp_path: Path) -> None:
    with pytest.raises(Configuration, match="cannot read"):
        config.read(tmp_path, {})


@pytest.mark.parametrize(
    "url",
    [
        "",
        "vpay",
        "dbname=vpay password=x",
        "http://h/x",
        "postgresql://u:p%sure@h/x",
        "postgresql://u:p q@h/x",
        "postgresql://u:p/q@h/x",
        "postgresql://u:p#q@h/x",
        "postgresql://h:port/x",
    ],
)
def test_an_address_that_postgres_would_quote_in_an_error_is_a_fault(path: Path, url: str) -> None:
    found = faults(path, f'[database]\nurl = "{url}"\n')
    assert len(found) == 1
    assert found[0].startswith("database.url: ")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///vpay",
        "postgresql://vpay@/vpay?host=/run/postgresql",
        "postgres://u:p%25@db.example:5432/vpay?sslmode=require",
        "postgresql://u@[::1]:5432/vpay",
        "postgresql://u@one:5432,two:5433/vpay?target_session_attrs=primary",
    ],
)
def test_every_form_of_address_that_postgres_takes_is_taken(path: Path, url: str) -> None:
    path.write_text(f'[database]\nurl = "{url}"\n')
    assert config.read(path, {}).database.url.get_secret_value() == url


def test_no_secret_is_ever_shown(path: Path) -> None:
    path.write_text(
        f"""
        [database]
        url = "postgresql://u:{SECRET}@h/x"
        [broker]
        url = "redis://:{SECRET}@h/0"
        [keys]
        payer_ref = ["{SECRET}"]
        [rails.mtn_momo]
        api_key = "{SECRET}"
        [[merchants]]
        id = "m"
        endpoints = [{{id = "e", url = "http://x", secrets = ["{SECRET}"]}}]
        """
    )
    settings = config.read(path, {})
    assert settings.merchants[0].endpoints[0].secrets[0].secret.get_secret_value() == SECRET
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)


def test_no_secret_is_told_by_a_fault(path: Path) -> None:
    path.write_text(
        f"""
        [database]
        url = "x{SECRET}"
        pool = "{SECRET}"
        [broker]
        url = "redis://u:{SECRET} @h/0"
        [keys]
        payer_ref = "{SECRET}"
        [[merchants]]
        id = "m"
        endpoints = [{{id = "e", url = "http://x", secrets = [{{secrt = "{SECRET}"}}]}}]
        """
    )
    with pytest.raises(Configuration) as caught:
        config.read(path, {})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_expiry_needs_a_time_zone(path: Path) -> None:
    (found,) = faults(
        path,
        '[[merchants]]\nid = "m"\nendpoints = [{id = "e", url = "http://x",'
        ' secrets = [{secret = "s", expires = 2030-01-31T00:00:00}]}]\n',
    )
    assert found.endswith("expires: needs a time zone, as in 2030-01-31T00:00:00Z")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_file_is_settings_or_a_fault(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(text, "utf-8")
    with suppress(Configuration):
        config.read(path, {})


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (['"short"'], "api_keys.0: "),
        ([f'"{"a" * 32}"'] * 2, "one stands twice"),
        ([f'"{"a" * 31}\u00e9"'], "no header carries"),
        ([f'"{"a" * 31} b"'], "no header carries"),
    ],
)
def test_a_key_that_is_guessed_shared_or_never_sent_is_a_fault_and_is_not_quoted(
    tmp_path: Path, keys: list[str], fault: str
) -> None:
    path = tmp_path / "vpay.toml"
    path.write_text(f'[[merchants]]\nid = "acme"\napi_keys = [{", ".join(keys)}]\n')
    with pytest.raises(Configuration) as caught:
        config.read(path, {})
    assert fault in str(caught.value)
    assert keys[0].strip('"') not in str(caught.value)


def test_whoever_became_root_is_the_operator() -> None:
    assert config.operator({"SUDO_USER": "ann", "USER": "root"}) == "ann"
    assert config.operator({"USER": "bob", "LOGNAME": "rob"}) == "bob"
    assert config.operator({"SUDO_USER": "", "LOGNAME": "rob"}) == "rob"
    assert config.operator({}) is None
