"""Polls as a worker runs them, and answers as the rail words them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from tests.rails.benches import BENCHES, nowhere
from vpay_sandbox.httpd import Answer, Reply
from vpay_tasks.core import kinds
from vpay_tasks.core.charge import Charge
from vpay_tasks.rails.port import Inquiry
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.runtime.run_job import Runner
from vpay_tasks.store.db import Database

STATUS = "*/requesttopay/*"


@dataclass
class Row:
    """A poll's job after a run."""

    due_in: float
    failures: int
    last_error: str | None
    parked: bool


class Polls:
    """Runs the jobs of a charge as a worker would: its poll, and its resubmit."""

    def __init__(self, database: Database, runner: Runner) -> None:
        self._db = database
        self._runner = runner
        self.context = runner.context

    def run(self, charge: Charge) -> Row | None:
        """The poll's row afterwards; None when it is finished."""
        return self.run_job(kinds.poll_key(charge.id))

    def resubmit(self, charge: Charge) -> Row | None:
        """The same of its resubmit."""
        return self.run_job(kinds.resubmit_key(charge.id))

    def run_job(self, key: str) -> Row | None:
        token = uuid.uuid4()
        with self._db.connection() as connection:
            row = connection.execute(
                "UPDATE vpay.jobs SET lease = %s, locked_by = 'tests', locked_at = now(),"
                " lease_until = now() + interval '1 min' WHERE dedupe_key = %s RETURNING id",
                (token, key),
            ).fetchone()
        assert row is not None, f"no job {key}"
        self._runner.run_message(Envelope("payments", (row[0],), token))
        return self.row(key)

    def job(self, charge: Charge) -> Row | None:
        return self.row(kinds.poll_key(charge.id))

    def resubmission(self, charge: Charge) -> Row | None:
        return self.row(kinds.resubmit_key(charge.id))

    def row(self, key: str) -> Row | None:
        with self._db.connection() as connection:
            found = connection.execute(
                "SELECT EXTRACT(EPOCH FROM run_at - now())::float8, failures, last_error,"
                " parked_at IS NOT NULL FROM vpay.jobs WHERE dedupe_key = %s",
                (key,),
            ).fetchone()
        return None if found is None else Row(*found)


def told(charge: Charge, word: str, **changes: Any) -> Reply:
    """A status answer about `charge`, as the rail words it."""
    body = {
        "externalId": charge.provider_reference_id,
        "amount": "10",
        "currency": charge.currency,
        "payer": {"partyIdType": "MSISDN", "partyId": "46733123601"},
        "status": word,
        **changes,
    }
    return Reply(200, json.dumps(body).encode())


def about(row: Row | None) -> int:
    """The row's delay in whole seconds (jitter of the error ladder taken off upwards)."""
    assert row is not None
    return round(row.due_in)


NOT_FOUND = Reply(404, b'{"code":"RESOURCE_NOT_FOUND"}')


def inquiry(charge: Charge) -> Inquiry:
    """What a poll asks about `charge`."""
    return Inquiry(
        charge.provider_reference_id, charge.amount, charge.currency, charge.provider_ref_extra
    )


def replies(charge: Charge) -> dict[str, Answer]:
    """What never is a verdict about `charge`."""
    return nowhere(BENCHES[charge.provider_code], inquiry(charge))
