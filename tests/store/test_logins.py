"""What other logins bring along, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from vpay_tasks.store import checkup, db
from vpay_tasks.store.checkup import LoginSetting, Setting
from vpay_tasks.store.db import Connection, Database

SYNC, WORDS = "synchronous_commit", "client_min_messages"

Alter = Callable[[str], None]


@pytest.fixture
def doctor(database: Database) -> Iterator[Connection]:
    with database.connection() as connection:
        yield connection


@pytest.fixture
def alter(doctor: Connection) -> Iterator[Alter]:
    """ALTER ROLE worker_1, a login that looks into our schema as a member of another role."""

    def altered(what: str) -> None:
        here = f'"{doctor.info.dbname}"'
        doctor.execute(f"ALTER ROLE worker_1 {what.replace('HERE', here)}".encode())

    for role in ("vpay_crew", "worker_1 LOGIN IN ROLE vpay_crew"):
        doctor.execute(f"CREATE ROLE {role}".encode())
    try:
        doctor.execute("GRANT USAGE ON SCHEMA vpay TO vpay_crew")
        yield altered
    finally:
        doctor.execute("RESET ROLE")
        doctor.execute("REVOKE ALL ON SCHEMA vpay FROM vpay_crew")
        doctor.execute("DROP ROLE worker_1, vpay_crew")


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        (SYNC, "off", "off"),
        (SYNC, "'OFF'", "off"),
        (SYNC, "false", "off"),
        (SYNC, "'no'", "off"),
        (SYNC, "0", "off"),
        (WORDS, "error", "error"),
        (WORDS, "'ERROR'", "error"),
    ],
)
def test_a_login_brings_along_what_alter_role_left_it(
    doctor: Connection, alter: Alter, name: str, typed: str, value: str, here: bool
) -> None:
    alter(f"{'IN DATABASE HERE ' if here else ''}SET {name} = {typed}")
    assert checkup.settings_of_logins(doctor) == [LoginSetting("worker_1", here, name, value)]
    alter(f"{'IN DATABASE HERE ' if here else ''}RESET {name}")  # the doctor's remedy
    assert checkup.settings_of_logins(doctor) == []


def test_each_setting_is_one_and_everybody_may_see_it(doctor: Connection, alter: Alter) -> None:
    alter(f"SET {SYNC} = off")
    alter(f"SET {WORDS} = error")
    doctor.execute("SET ROLE vpay_crew")
    assert [one.name for one in checkup.settings_of_logins(doctor)] == [SYNC, WORDS]


@pytest.mark.parametrize(
    "changes",
    [
        [f"SET {SYNC} = local"],  # enough, with no standby to have it, too
        [f"SET {SYNC} = remote_write", f"SET {WORDS} = warning", "SET jit = off"],
        [f"SET {SYNC} = off", f"IN DATABASE HERE SET {SYNC} = on"],  # which wins
        [f"IN DATABASE postgres SET {SYNC} = off"],
        [f"SET {SYNC} = off", "NOLOGIN"],  # nobody inherits a setting
    ],
)
def test_what_loses_nothing_here_is_passed_over(
    doctor: Connection, alter: Alter, changes: list[str]
) -> None:
    for change in changes:
        alter(change)
    assert checkup.settings_of_logins(doctor) == []


def test_a_login_that_may_not_look_into_our_schema_is_no_business_of_ours(
    doctor: Connection, alter: Alter
) -> None:
    alter(f"SET {SYNC} = off")
    doctor.execute("REVOKE vpay_crew FROM worker_1")
    assert checkup.settings_of_logins(doctor) == []


def test_the_doctors_own_login_is_told_by_its_session(
    doctor: Connection, alter: Alter, dsn: str
) -> None:
    alter(f"SET {SYNC} = off")
    with db.connect(dsn.replace("postgres@", "worker_1@"), application="tests") as own:
        assert own.info.user == "worker_1"
        assert Setting(SYNC, "off", "user") in checkup.risky_settings(own)
        assert checkup.settings_of_logins(own) == []


def test_what_was_set_for_all_logins_is_told_as_global(doctor: Connection, dsn: str) -> None:
    doctor.execute("ALTER ROLE ALL SET synchronous_commit = off")
    try:
        with db.connect(dsn, application="tests") as own:
            assert Setting(SYNC, "off", "global") in checkup.risky_settings(own)
            assert checkup.settings_of_logins(own) == []
    finally:
        doctor.execute("ALTER ROLE ALL RESET synchronous_commit")
