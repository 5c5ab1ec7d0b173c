"""When a run is over: what the script leaves open is waited for until it is as the script says."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from tests.payment_kit import make_charge
from vpay_sandbox.scenarios import Script
from vpay_sandbox.watch import Watch
from vpay_tasks.core.charge import State
from vpay_tasks.payments import create_intent
from vpay_tasks.store.db import Database

SEEN = {"contradicted_at": datetime(2030, 1, 31, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("scenario", "state", "columns", "quiet"),
    [
        ("approved_first_poll", State.SUCCEEDED, {}, True),
        ("approved_first_poll", State.PENDING, {}, False),
        ("approved_first_poll", State.UNRESOLVED, {}, False),
        ("late_success", State.UNRESOLVED, {}, False),
        ("late_success", State.SUCCEEDED, {}, True),
        ("never_answered", State.PENDING, {}, False),
        ("never_answered", State.UNRESOLVED, {}, True),
        ("failed_expired", State.FAILED, {}, True),
        ("contradiction", State.FAILED, {}, False),
        ("contradiction", State.FAILED, SEEN, True),
    ],
)
def test_a_payment_is_at_rest_where_its_scenario_ends(
    database: Database,
    dsn: str,
    script: Script,
    scenario: str,
    state: State,
    columns: dict[str, Any],
    quiet: bool,
) -> None:
    with database.transaction() as tx:
        intent = create_intent(tx, "bakery", 1000, "EUR", metadata={"scenario": scenario})
    make_charge(database, intent, state=state, **columns)
    watch = Watch(Console(file=io.StringIO()), [script.by_name[scenario]], 0)
    assert watch.until_quiet(dsn, lambda: False, timeout_s=0.0) is quiet


def test_a_run_is_not_over_while_payments_are_made(
    database: Database, dsn: str, script: Script
) -> None:
    watch = Watch(Console(file=io.StringIO()), script.push[:1], 0)
    assert not watch.until_quiet(dsn, lambda: True, timeout_s=0.0)
