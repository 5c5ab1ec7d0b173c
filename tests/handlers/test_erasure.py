"""An erasure through events and deliveries, on a real receiver: also mid-ladder and mid-air."""

from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conftest import Eventually
from tests.handlers.by_hand import make_due, run, state
from tests.webhooks.receivers import Receiver, answer
from tests.webhooks.world import MERCHANT, rows
from vpay_tasks.core.charge import FailureCode
from vpay_tasks.core.events import EventType
from vpay_tasks.core.job import Again, Done
from vpay_tasks.handlers.context import Context
from vpay_tasks.payments import create_customer, create_intent, erase_customer, settlement
from vpay_tasks.store import events, intents, listing, replays
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout

ADA: dict[str, Any] = {
    "name": "Ada Byron",
    "email": "ada@example.com",
    "phone": "+46733123601",
}


def make_customer(database: Database) -> str:
    with database.transaction() as tx:
        return create_customer(tx, MERCHANT, **ADA, metadata={"note": "Ada"}).id


def told(ctx: Context) -> tuple[str, str]:
    """A customer, and the delivery that tells of their making."""
    customer = make_customer(ctx.db)
    assert fanout.drain(ctx.db, ctx.endpoints).deliveries == 1
    ((delivery,),) = rows(ctx.db, "SELECT id FROM vpay.webhook_deliveries")
    return customer, delivery


def of(body: bytes) -> dict[str, Any]:
    thing: dict[str, Any] = json.loads(body)["data"]["object"]
    return thing


def is_redacted(body: bytes, like: bytes) -> bool:
    """Whether `body` is `like` without what tells who it is."""
    wanted = json.loads(like)
    wanted["data"]["object"] |= {"name": None, "email": None, "phone": None, "metadata": {}}
    return bool(json.loads(body) == wanted)


def test_the_next_attempt_of_a_delivery_sends_redacted_bytes_under_a_fresh_digest(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), answer(500), answer(500), answer(200)]
    customer, delivery = told(ctx)
    for _ in range(2):
        assert isinstance(run(ctx, delivery), Again)
        make_due(ctx)
    erase_customer(ctx.db, MERCHANT, customer)
    assert isinstance(run(ctx, delivery), Again)
    make_due(ctx)
    assert run(ctx, delivery) == Done()
    assert state(ctx) == ("delivered", 4, 200)
    before, same, after, last = receiver.bodies()
    assert of(before)["name"] == "Ada Byron"
    assert (same, last) == (before, after)
    assert is_redacted(after, before)
    ((digest, rev),) = rows(ctx.db, "SELECT digest, digest_rev FROM vpay.webhook_deliveries")
    assert (bytes(digest), rev) == (hashlib.sha256(after).digest(), 2)


def test_an_erasure_beside_an_attempt_in_the_air_waits_for_nobody_and_poisons_nothing(
    ctx: Context, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), answer(200)]
    customer, delivery = told(ctx)
    receiver.before_answer = lambda: erase_customer(ctx.db, MERCHANT, customer)
    assert isinstance(run(ctx, delivery), Again)
    receiver.before_answer = lambda: None
    assert state(ctx) == ("pending", 1, 500)
    make_due(ctx)
    assert run(ctx, delivery) == Done()
    before, after = receiver.bodies()
    assert is_redacted(after, before)


def test_a_replay_and_the_list_of_events_give_what_is_left(
    ctx: Context, receiver: Receiver
) -> None:
    customer, delivery = told(ctx)
    assert run(ctx, delivery) == Done()
    erase_customer(ctx.db, MERCHANT, customer)
    rows(ctx.db, "DELETE FROM vpay.jobs")
    with ctx.db.transaction() as tx:
        assert replays.replay(tx, [delivery]).moved == 1
    assert run(ctx, delivery) == Done()
    before, after = receiver.bodies()
    assert is_redacted(after, before)
    ((event_id,),) = rows(ctx.db, "SELECT event_id FROM vpay.webhook_deliveries")
    with ctx.db.connection() as connection:
        assert listing.listed_body(connection, MERCHANT, event_id) == after


def test_an_erasure_waits_for_a_fan_out_that_holds_its_events(
    ctx: Context, receiver: Receiver, eventually: Eventually
) -> None:
    customer = make_customer(ctx.db)
    erasing = threading.Thread(target=erase_customer, args=(ctx.db, MERCHANT, customer))
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with ctx.db.transaction() as tx:
        events.take_turn(tx)
        (pending,) = events.page(tx)
        erasing.start()
        eventually(lambda: rows(ctx.db, waiting))
        wanted = [events.Wanted(pending.id, "main", "del_1")]
        assert events.flip(tx, [pending.id], wanted).deliveries == 1
    erasing.join(20)
    assert run(ctx, "del_1") == Done()
    (body,) = receiver.bodies()
    assert of(body)["name"] is None


def test_erasures_beside_settlements_fan_outs_and_purchases_never_deadlock(ctx: Context) -> None:
    """One order for all: customer, intents, events."""

    def world(_: int) -> None:
        customer = make_customer(ctx.db)
        made = []
        for _ in range(3):
            with ctx.db.transaction() as tx:
                intent = create_intent(
                    tx, MERCHANT, 1_000, "EUR", customer_id=customer, metadata={"for": "Ada"}
                )
                made.append(intent.id)

        def settle() -> None:
            for intent_id in reversed(made):
                with ctx.db.transaction() as tx:
                    failed = intents.fall_back(tx, intent_id, FailureCode.PAYER_TIMEOUT)
                    assert failed is not None
                    type_ = EventType.PAYMENT_INTENT_PAYMENT_FAILED
                    settlement.tell(tx, type_, failed, None)
                fanout.drain(ctx.db, ctx.endpoints)

        settling = threading.Thread(target=settle)
        settling.start()
        erase_customer(ctx.db, MERCHANT, customer)
        settling.join(60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(world, range(12)))
    while fanout.drain(ctx.db, ctx.endpoints).again_now:
        pass
    ((deadlocks,),) = rows(
        ctx.db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    assert deadlocks == 0
    bodies = rows(ctx.db, "SELECT type, body FROM vpay.events")
    assert len(bodies) == 12 * 5
    assert [type_ for type_, body in bodies if b"Ada" in bytes(body)] == []
    assert rows(ctx.db, "SELECT 1 FROM vpay.payment_intents WHERE metadata <> '{}'") == []
