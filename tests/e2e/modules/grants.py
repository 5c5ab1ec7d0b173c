"""Grants that leave a row for each time they were done."""

from __future__ import annotations

from typing import Any

from vpay_tasks import inbox


@inbox.on("stripe", "payment_intent.succeeded")
def paid(event: Any, job: Any) -> None:
    with job.finishing() as tx:
        tx.execute("INSERT INTO public.effects VALUES (%s)", (event.id,))
        job.verdict("PAID")


@inbox.on("stripe", "charge.refunded")
def noted(event: Any, job: Any) -> None:
    """Done by its return: the mark comes behind the work."""
    with job.db.transaction() as tx:
        tx.execute(
            "INSERT INTO public.effects SELECT %s WHERE NOT EXISTS"
            " (SELECT FROM public.effects WHERE event_id = %s)",
            (event.id, event.id),
        )
