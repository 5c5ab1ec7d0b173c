"""Faults of Postgres and of the broker: killed, stopped, full; sessions and messages of theirs."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from typing import Final, cast

import redis

from tests.chaos.effects import Effect, Injector, Scene
from tests.chaos.kept import children, state
from tests.chaos.schedule import Fault
from vpay_tasks.runtime.carrier import key

QUEUES: Final = ("payments", "webhooks", "inbox", "housekeeping")
SESSIONS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'vpay%' ORDER BY pid"
)
ACTIVE: Final = SESSIONS.replace("ORDER", "AND state = 'active' AND query NOT LIKE 'LISTEN%' ORDER")
CANCELED: Final = b"canceling statement due to user request"
AT_ONCE: Final = 3
PILE_S: Final = 4.0
"""For messages to pile up behind consumers that can't pop: a claim lease brings more."""
NOTICED_S: Final = 6.0
POISON: Final = (
    b"\xff\xfe\x00",
    b"null",
    b"[" * 3_000,
    b'{"v":1}',
    b'{"v":2,"q":"payments","ids":[1],"t":"00000000-0000-4000-8000-000000000000"}',
    b'{"v":1,"q":"elsewhere","ids":[1],"t":"00000000-0000-4000-8000-000000000000"}',
    b'{"v":1,"q":"payments","ids":[1],"t":"no token"}',
    b"x" * 10_000,
)


def terminate(scene: Scene, fault: Fault) -> Effect:
    with scene.town.database() as connection:
        pids = [row[0] for row in connection.execute(SESSIONS.encode())]
        chosen = scene.dice(fault).sample(pids, min(AT_ONCE, len(pids)))
        for pid in chosen:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))

        def left() -> int:
            now = {row[0] for row in connection.execute(SESSIONS.encode())}
            return len(now & set(chosen))

        scene.until(lambda: left() == 0, 2.0)
        ended = len(chosen) - left()
    return Effect(ended > 0, f"{ended} sessions were terminated")


def cancel(scene: Scene, fault: Fault) -> Effect:
    log = scene.town.postgres.log
    before = log.read_bytes().count(CANCELED)
    with scene.town.database() as connection:

        def strike() -> bool:
            for (pid,) in connection.execute(ACTIVE.encode()).fetchall()[:AT_ONCE]:
                connection.execute("SELECT pg_cancel_backend(%s)", (pid,))
            return log.read_bytes().count(CANCELED) - before >= AT_ONCE

        scene.until(strike, fault.seconds)
    struck = log.read_bytes().count(CANCELED) - before
    return Effect(struck > 0, f"{struck} statements were canceled")


def postgres_kill(scene: Scene, fault: Fault) -> Effect:
    postgres = scene.town.postgres
    with scene.town.servers:
        before = postgres.pid
        postgres.kill()
        scene.last(fault.seconds)
        postgres.start()
    return Effect(
        before is not None and postgres.pid != before, f"{before} and its backends were killed"
    )


def postgres_stop(scene: Scene, fault: Fault) -> Effect:
    """All of it, for longer than a lease: what was on its way goes on behind it."""
    with scene.town.servers:
        postmaster = scene.town.postgres.pid
        if postmaster is None:
            return Effect(False, "Postgres is not there")
        everybody = [postmaster, *children(postmaster)]
        scene.town.stopped |= set(everybody)
        try:
            for pid in everybody:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            scene.last(fault.seconds)
            stood = state(postmaster) == "T"
        finally:
            for pid in reversed(everybody):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                scene.town.stopped.discard(pid)
    return Effect(stood, f"Postgres stood still for {fault.seconds} s")


def broker_kill(scene: Scene, fault: Fault) -> Effect:
    valkey = scene.town.valkey
    with scene.town.servers:
        before = valkey.pid
        valkey.kill()
        scene.last(fault.seconds)
        valkey.start()
    return Effect(before is not None and valkey.pid != before, f"{before} was killed")


def broker_full(scene: Scene, fault: Fault) -> Effect:
    refused = False
    with scene.town.broker() as client:
        client.config_set("maxmemory", 1)
        try:
            client.set("soak probe", "x")
        except redis.ResponseError as error:
            refused = "maxmemory" in str(error)
        scene.last(fault.seconds)
        client.config_set("maxmemory", 0)
    return Effect(refused, "the broker refused to take anything more")


@contextlib.contextmanager
def _piled(scene: Scene) -> Iterator[tuple[redis.Redis, dict[str, list[bytes]]]]:
    """The broker's lists by queue, once something lies in them: consumers can't ask meanwhile."""
    wire = scene.town.wires["worker-broker"]
    with scene.town.broker() as client:
        wire.hold()
        try:

            def messages() -> dict[str, list[bytes]]:
                found = {q: cast("list[bytes]", client.lrange(key(q), 0, -1)) for q in QUEUES}
                return {queue: raw for queue, raw in found.items() if raw}

            scene.until(messages, PILE_S)
            yield client, messages()
        finally:
            wire.release()


def broker_flush(scene: Scene, fault: Fault) -> Effect:
    with _piled(scene) as (client, found):
        lost = sum(map(len, found.values()))
        client.flushall()
    return Effect(lost > 0, f"{lost} messages were forgotten")


def broker_lose(scene: Scene, fault: Fault) -> Effect:
    lost = 0
    with _piled(scene) as (client, found):
        for queue, messages in found.items():
            half = (len(messages) + 1) // 2
            # Nothing when another fault has emptied it meanwhile.
            lost += len(cast("list[bytes] | None", client.lpop(key(queue), half)) or ())
    return Effect(lost > 0, f"{lost} messages were lost")


def broker_copy(scene: Scene, fault: Fault) -> Effect:
    """Every message once more, and more; all but one of each are refused."""
    times, copies = scene.dice(fault).randint(1, 4), 0
    with _piled(scene) as (client, found):
        before = scene.sampler.total("duplicates_refused")
        for queue, messages in found.items():
            client.rpush(key(queue), *(messages * times))
            copies += len(messages) * times
    return _refused(scene, before, copies, "copies")


def broker_replay(scene: Scene, fault: Fault) -> Effect:
    """Messages whose tokens have been used long ago."""
    with _piled(scene) as (client, found):
        pass
    scene.last(2.0)
    with scene.town.broker() as client:
        before, stale = scene.sampler.total("duplicates_refused"), 0
        for queue, messages in found.items():
            client.rpush(key(queue), *messages)
            stale += len(messages)
    return _refused(scene, before, stale, "stale messages")


def _refused(scene: Scene, before: int, pushed: int, what: str) -> Effect:
    """Refusals from when they were pushed on; where nothing was, another's are none of theirs."""
    if not pushed:
        return Effect(False, f"there were no messages to make {what} of")
    risen = scene.until(lambda: scene.sampler.total("duplicates_refused") > before, NOTICED_S)
    refused = scene.sampler.total("duplicates_refused") - before
    return Effect(risen, f"{refused} starts were refused, of {pushed} {what}")


def broker_poison(scene: Scene, fault: Fault) -> Effect:
    """What is no message; and one that is, with a token that nobody has granted."""
    before = scene.sampler.total("messages_refused")
    forged = f'{{"v":1,"q":"payments","ids":[1,2,3],"t":"{uuid.uuid4()}"}}'.encode()
    with scene.town.broker() as client:
        for queue in QUEUES:
            client.rpush(key(queue), *POISON, forged)
    risen = scene.until(lambda: scene.sampler.total("messages_refused") > before, NOTICED_S)
    refused = scene.sampler.total("messages_refused") - before
    return Effect(risen, f"{refused} messages were refused")


INJECTORS: Final[dict[str, Injector]] = {
    "terminate": terminate,
    "cancel": cancel,
    "postgres_kill": postgres_kill,
    "postgres_stop": postgres_stop,
    "broker_kill": broker_kill,
    "broker_full": broker_full,
    "broker_flush": broker_flush,
    "broker_lose": broker_lose,
    "broker_copy": broker_copy,
    "broker_replay": broker_replay,
    "broker_poison": broker_poison,
}
