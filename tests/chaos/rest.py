"""When everything is over: whatever could still happen has happened."""

from __future__ import annotations

from typing import Final

from tests.chaos import canaries
from tests.chaos.town import Town
from vpay_sandbox import scenarios
from vpay_tasks.store import lanes
from vpay_tasks.store.db import connect

OPEN: Final = """
SELECT (SELECT count(*) FROM vpay.charges WHERE state IN ('submitting', 'submitted', 'pending'))
    + (SELECT count(*) FROM vpay.webhook_deliveries WHERE state = 'pending')
    + (SELECT count(*) FROM vpay.events WHERE fanout_state = 'pending')
    + (SELECT count(*) FROM vpay.inbox_events WHERE ended_at IS NULL)
"""
UNRESOLVED: Final = """
SELECT c.provider_reference_id, i.metadata ->> 'scenario'
FROM vpay.charges AS c
JOIN vpay.payment_intents AS i ON i.id = c.payment_intent_id
WHERE c.state = 'unresolved'
"""
UNPAID: Final = """
SELECT c.provider_reference_id, i.metadata ->> 'scenario', c.id, c.state
FROM vpay.charges AS c
JOIN vpay.payment_intents AS i ON i.id = c.payment_intent_id
WHERE c.state <> 'succeeded' AND c.contradicted_at IS NULL
"""
CRASHED: Final = """
UPDATE vpay.jobs
SET run_at = now(), due = lane IS NOT NULL
WHERE lease IS NULL AND parked_at IS NULL AND crashes > 0 AND run_at > now() + interval '2 seconds'
"""
"""The back-off behind repeated crashes reaches to an hour: time is moved instead of waited for."""


def resume_lanes(town: Town) -> None:
    """As an operator does, once the receivers answer again: a circuit stays open for minutes."""
    with connect(town.postgres.url(), application="soak operator") as connection:
        for merchant, endpoint in canaries.ENDPOINTS:
            lanes.resume(connection, merchant, endpoint, changed_by="soak")


def under_way(town: Town) -> list[str]:
    """What has not come to its end, and what the rail has still to say; empty: all is at rest."""
    resume_lanes(town)
    sent = town.vendor.send_rest()
    script = scenarios.load()
    prompted = _effects(town, "prompt")
    with town.database() as connection:
        connection.execute(CRASHED.encode())
        with connection.transaction():  # or what ends between two looks is in neither
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            ((left,),) = connection.execute(OPEN.encode()).fetchall()
            unresolved = connection.execute(UNRESOLVED.encode()).fetchall()
    return [
        *([] if sent else ["the inbox has not taken all that the vendor sends"]),
        *([f"{left} charges, deliveries, fan-outs or grants have not ended"] if left else []),
        # One that the rail has, and whose scenario has an end, is asked about until it comes.
        *(
            f"the charge with reference {reference} is unresolved, and the rail has an end for it"
            for reference, scenario in unresolved
            if reference in prompted and script.by_name[scenario].expect.state != "unresolved"
        ),
    ]


def sessions(town: Town) -> int:
    """Of our processes, that are still there."""
    with town.database() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'vpay%'"
        ).fetchone()
    return int(row[0]) if row is not None else 0


def moved_unseen(town: Town) -> list[str]:
    """Money that the rail has moved, and that no success or contradiction tells of."""
    script, moved = scenarios.load(), _effects(town, "moved")
    with town.database() as connection:
        rows = connection.execute(UNPAID.encode()).fetchall()
    return [
        f"the rail moved the money of charge {charge}, which is {state}"
        for reference, scenario, charge, state in rows
        if reference in moved and not script.by_name[scenario].moves_anyway
    ]


def _effects(town: Town, effect: str) -> set[str]:
    return {
        one["reference"]
        for one in town.journal("rail")
        if one["kind"] == "effect" and one["effect"] == effect
    }
