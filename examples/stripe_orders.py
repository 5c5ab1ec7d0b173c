"""A shop's orders, paid over Stripe: named in the settings as `worker.modules`.

The table is the shop's own, in the same database:

    CREATE TABLE orders (
        id text PRIMARY KEY,
        amount bigint NOT NULL,
        currency text NOT NULL,
        state text NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'paid', 'canceled')),
        paid_by text UNIQUE
    );

The checkout session has the order's id as `client_reference_id`, the payment intent as
`metadata.order`. Stripe promises no order of its events and sends some twice. So each of these
functions stands being called in any state: the order's own compare-and-swap decides.
"""

from __future__ import annotations

from vpay_tasks import Done, Park
from vpay_tasks.inbox import Event, InboxJob, on


@on("stripe", "checkout.session.completed")
def session_completed(event: Event, job: InboxJob) -> Done | Park:
    session = event.json["data"]["object"]
    if session["payment_status"] == "unpaid":
        # Paid later, by bank transfer, say: payment_intent.succeeded will tell.
        job.verdict("UNPAID")
        return Done()
    return paid(
        job,
        order=session["client_reference_id"],
        amount=session["amount_total"],
        currency=session["currency"],
        by=session["payment_intent"] or session["id"],
    )


@on("stripe", "payment_intent.succeeded")
def intent_succeeded(event: Event, job: InboxJob) -> Done | Park:
    intent = event.json["data"]["object"]
    return paid(
        job,
        order=intent["metadata"]["order"],
        amount=intent["amount_received"],
        currency=intent["currency"],
        by=intent["id"],
    )


@on("stripe", "payment_intent.canceled")
def intent_canceled(event: Event, job: InboxJob) -> Done:
    order = event.json["data"]["object"]["metadata"]["order"]
    with job.finishing() as tx:
        # Only what is due: a cancellation that comes late takes no payment back.
        swap = "UPDATE orders SET state = 'canceled' WHERE id = %s AND state = 'due'"
        moved = tx.execute(swap, (order,)).rowcount
        job.verdict("CANCELED" if moved else "CLOSED")
    return Done()


@on("stripe", "payment_intent.*")
def intent_told(_event: Event, job: InboxJob) -> None:
    """Created, processing, failed for now: the customer may try again. Nothing to do."""
    job.verdict("NOTED")


def paid(job: InboxJob, *, order: str, amount: int, currency: str, by: str) -> Done | Park:
    with job.db.connection() as connection:
        look = "SELECT amount, currency, state, paid_by FROM orders WHERE id = %s"
        found = connection.execute(look, (order,)).fetchone()
    if found is None:
        # The event was faster than the order's own transaction: the ladder waits for it.
        raise LookupError("the order is not there yet")
    due, its_currency, state, paid_by = found
    if (due, its_currency.lower()) != (amount, currency.lower()):
        return Park("paid another amount or currency than the order's")
    if paid_by == by:
        job.verdict("CLOSED")
        return Done()
    if state != "due":
        return Park(f"paid by {by} though it is {state}: to be refunded")
    with job.finishing() as tx:
        swap = "UPDATE orders SET state = 'paid', paid_by = %s WHERE id = %s AND state = 'due'"
        if not tx.execute(swap, (by, order)).rowcount:
            raise LookupError("the order moved meanwhile")  # and the ladder looks again
        # What must happen once for each paid order is enqueued here, in `tx`.
        job.verdict("PAID")
    return Done()
