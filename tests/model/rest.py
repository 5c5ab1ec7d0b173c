"""Everything is healed; then everything must come to its end, and add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.invariants import check
from tests.model.connection import Server
from tests.model.fleet import ENDPOINTS, MERCHANT
from tests.model.outside import Rail, Receiver
from vpay_tasks.store import lanes

if TYPE_CHECKING:
    from tests.model.program import Program

ROUNDS: Final = 60
"""A poll's ladder, a delivery's, and what waits behind them."""


def come_to_rest(machine: Program) -> None:
    """Raises AssertionError with whatever does not end, or not as it must."""
    world = machine.world
    world.rail.honest = True
    machine.receiver.mood = 200
    machine.sessions.run(machine.sessions.ready)
    for worker in list(world.workers):
        if worker.runner.draining or not worker.newest:
            worker.kill()
            world.replace(worker)
    for process in world.dispatchers:
        process.seed()
    machine.sessions.run(machine.sessions.ready)
    for name in ENDPOINTS:
        lanes.resume(machine.server.connection, MERCHANT, name, changed_by="an operator")
    machine.holds()
    for _ in range(ROUNDS):
        world.rail.decide_all()
        if _at_rest(machine.server):
            break
        machine.clock.advance(_until_due(machine.server))
        machine.everybody_pulses()
        world.dispatchers[0].reap()
        machine.carry_on()
        machine.holds()
    wrong = [
        *_left(machine.server),
        *_misdelivered(machine.server, machine.receiver),
        *_promised(machine.server, world.rail),
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def _at_rest(server: Server) -> bool:
    return not server.rows(
        "SELECT FROM vpay.jobs WHERE parked_at IS NULL"
        " AND (queue <> 'housekeeping' OR lease IS NOT NULL)"
        " UNION ALL SELECT FROM vpay.events WHERE fanout_state = 'pending'"
    )


def _until_due(server: Server) -> float:
    """Long enough for a reaper's next look, and for the next job to be due."""
    ((seconds,),) = server.rows(
        "SELECT extract(epoch FROM min(coalesce(lease_until, run_at)) - now())::float8"
        " FROM vpay.jobs WHERE parked_at IS NULL AND queue <> 'housekeeping'"
    )
    return min(max(seconds or 0.0, 6.0), 90_000.0) + 1.0


def _left(server: Server) -> list[str]:
    left = server.rows(
        "SELECT id, kind, run_at, lease, failures, last_error FROM vpay.jobs"
        " WHERE parked_at IS NULL AND queue <> 'housekeeping'"
    )
    held = server.rows(
        "SELECT query FROM pg_stat_activity"
        " WHERE state LIKE 'idle in transaction%%' AND datname = current_database()"
    )
    return [
        *(f"I1: still there after all was healed: {row}" for row in left),
        *(f"I12: a transaction was left open behind {query}" for (query,) in held),
    ]


def _misdelivered(server: Server, receiver: Receiver) -> list[str]:
    """What is delivered was taken, and nothing was given up but what its receiver refused for
    good: maybe after it had taken it, when nobody heard that."""
    said = {(post.event_id, post.endpoint, post.status) for post in receiver.posts}
    proof = {"delivered": 200, "gone": 410}
    bodies: dict[str, set[bytes]] = {}
    for post in receiver.posts:
        bodies.setdefault(post.event_id, set()).add(post.body)
    return [
        *(
            f"I5: delivery {id_} is {state}, which its receiver never said"
            for id_, event, to, state in server.rows(
                "SELECT id, event_id, endpoint_id, state FROM vpay.webhook_deliveries"
            )
            if (event, to, proof.get(state)) not in said or state not in proof
        ),
        *(f"I6: event {event} had several bodies" for event in bodies if len(bodies[event]) > 1),
    ]


def _promised(server: Server, rail: Rail) -> list[str]:
    """By the checker that shares no code with this model."""
    effects: list[dict[str, Any]] = [
        {"kind": "effect", "reference": reference, "effect": effect}
        for reference, state in rail.orders.items()
        for effect in ("asked", *(["moved"] if state == "succeeded" else []))
    ]
    found = check(server.connection, rail=effects, at_rest=True)
    return [f"{name}: {text}" for name, texts in found.items() for text in texts]
