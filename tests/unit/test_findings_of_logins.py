"""The doctor's decisions about what other logins bring along."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.test_findings import HEALTHY, checked
from vpay_tasks.doctor.facts import Facts
from vpay_tasks.doctor.findings import find
from vpay_tasks.store.checkup import LoginSetting, Setting

HASTY = LoginSetting("worker_1", False, "synchronous_commit", "off")
DEAF = LoginSetting("worker_1", False, "client_min_messages", "error")


def pooled(*settings: LoginSetting) -> Facts:
    return replace(checked(logins=settings), pooled=True)


@pytest.mark.parametrize(
    ("facts", "code", "severity", "loses", "remedy"),
    [
        (
            checked(logins=(HASTY,)),
            "synchronous_commit_off",
            "error",
            "a crash forgets",
            'ALTER ROLE "worker_1" RESET synchronous_commit;',
        ),
        (
            checked(logins=(replace(HASTY, value="local", here=True),)),
            "synchronous_commit_local",
            "error",
            "a failover forgets",
            'ALTER ROLE "worker_1" IN DATABASE "shop" RESET synchronous_commit;',
        ),
        (
            pooled(DEAF),
            "role_lacks_settings",
            "warn",
            "a commit that its standby does not have passes for a good one",
            'ALTER ROLE "worker_1" RESET client_min_messages;',
        ),
        (
            pooled(replace(DEAF, role='o"b', here=True)),
            "role_lacks_settings",
            "warn",
            "a commit that its standby does not have passes for a good one",
            'ALTER ROLE "o""b" IN DATABASE "shop" RESET client_min_messages;',
        ),
    ],
)
def test_what_a_login_brings_along_is_taken_back_where_it_was_made(
    facts: Facts, code: str, severity: str, loses: str, remedy: str
) -> None:
    (finding,) = find(facts)
    assert (finding.code, finding.severity.value, finding.remedy) == (code, severity, remedy)
    assert loses in finding.what


def test_each_setting_of_each_login_is_a_finding() -> None:
    facts = pooled(HASTY, replace(HASTY, role="web_1"), DEAF)
    own = replace(facts, risky=[Setting("synchronous_commit", "off", "user")])
    assert [finding.remedy for finding in find(own)] == [
        'ALTER ROLE "app" RESET synchronous_commit;',
        'ALTER ROLE "worker_1" RESET synchronous_commit;',
        'ALTER ROLE "web_1" RESET synchronous_commit;',
        'ALTER ROLE "worker_1" RESET client_min_messages;',
    ]


def test_a_login_whose_sessions_ask_for_their_messages_may_have_any() -> None:
    assert HEALTHY.pooled is False
    assert find(checked(logins=(DEAF,))) == []


def test_a_setting_for_all_logins_is_taken_back_from_all() -> None:
    (finding,) = find(replace(HEALTHY, risky=[Setting("synchronous_commit", "off", "global")]))
    assert finding.remedy == "ALTER ROLE ALL RESET synchronous_commit;"
