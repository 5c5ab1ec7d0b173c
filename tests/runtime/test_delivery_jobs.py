"""Deliveries as jobs: what becomes of the row, through start, handler and settle."""

from __future__ import annotations

import hashlib
import threading
import uuid

import pytest

from tests.conftest import Eventually
from tests.runtime.bench import Bench
from tests.webhooks.receivers import Receiver, answer, receiving
from tests.webhooks.world import context, endpoint, one_delivery, rows, settings
from vpay_tasks.handlers.deliver_webhook import deliver_webhook
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.webhooks.endpoints import Endpoints


def on(bench: Bench, receiver: Receiver) -> str:
    """A delivery to `receiver`, and a bench that knows how; the delivery's id."""
    bench.registry.add(deliver_webhook)
    ctx = context(bench.database, Endpoints(settings(endpoint(receiver.url))))
    bench.runner.context = ctx
    return one_delivery(ctx)


def run_anew(bench: Bench) -> None:
    """Claim the only delivery's job, whoever holds it (his lease is over), and run it."""
    token = uuid.uuid4()
    query = (
        "UPDATE vpay.jobs SET lease = %s, locked_by = 'd', locked_at = now(),"
        " lease_until = now() + interval '1 min' WHERE kind = 'deliver_webhook' RETURNING id"
    )
    ((job,),) = rows(bench.database, query, token)
    bench.runner.run_message(Envelope("webhooks", (job,), token))


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (getattr(record, "fields", {}) for record in caplog.records)
    return [fields["action"] for fields in found if fields.get("alert")]


def test_a_poisoned_delivery_is_parked_as_poisoned_with_one_alert(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as receiver:
        on(bench, receiver)
        digest = hashlib.sha256(b"other bytes").digest()
        rows(
            bench.database, "UPDATE vpay.webhook_deliveries SET digest = %s, digest_rev = 1", digest
        )
        run_anew(bench)
    assert receiver.seen == []
    assert rows(bench.database, "SELECT dead_reason FROM vpay.jobs") == [("poisoned",)]
    assert alerts(caplog) == ["delivery_poisoned"]


@pytest.mark.parametrize("second", [410, 500])
def test_a_delivery_that_a_stale_run_moved_keeps_its_job(
    bench: Bench, eventually: Eventually, second: int
) -> None:
    may_answer = [threading.Event(), threading.Event()]
    with receiving(answer(500), answer(second)) as receiver:
        delivery_id = on(bench, receiver)

        def in_turn() -> None:
            may_answer[len(receiver.seen) - 1].wait(20)

        receiver.before_answer = in_turn
        stale = threading.Thread(target=run_anew, args=(bench,))
        stale.start()
        eventually(lambda: len(receiver.seen) == 1)
        live = threading.Thread(target=run_anew, args=(bench,))
        live.start()
        eventually(lambda: len(receiver.seen) == 2)
        may_answer[0].set()
        stale.join()
        may_answer[1].set()
        live.join()
    assert rows(bench.database, "SELECT state, attempts FROM vpay.webhook_deliveries") == [
        ("pending", 1)
    ]
    assert rows(bench.database, "SELECT payload, lease, parked_at FROM vpay.jobs") == [
        ({"delivery_id": delivery_id}, None, None)
    ]
