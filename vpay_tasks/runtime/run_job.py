"""From a message to settled rows: start → handler → settle.

run_message   start every row of the message by swapping its token
  run_one     the handler, inside the only `try` around one
Settler       one group commit; the message is acknowledged after it
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import tenacity

from vpay_tasks.config import LaddersTable, WindowsTable
from vpay_tasks.core.job import Answer, Done
from vpay_tasks.core.ladders import Ladder
from vpay_tasks.core.settling import (
    Ending,
    ending_of_answer,
    ending_of_error,
    ending_of_unknown_kind,
    unsettleable,
)
from vpay_tasks.core.task import Registry, Task
from vpay_tasks.errors import (
    AmbiguousCommit,
    Internal,
    InvalidRequest,
    LeaseLost,
    Severity,
    Storage,
    VpayError,
    describe,
)
from vpay_tasks.handlers.context import Context
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.runtime.run import Run, Running, lease_clock
from vpay_tasks.runtime.settle import Awaited, Settler, finish_stands, finish_within, tell_settled
from vpay_tasks.runtime.start import Starter
from vpay_tasks.store import db, jobs
from vpay_tasks.store.leases import Lease
from vpay_tasks.telemetry import count, report_failure, say

OVERRULE_S: Final = 0.25
"""Between tries to overrule a start whose answer was lost."""


@dataclass
class Runner:
    """What running a message needs; one per process."""

    worker: str
    context: Context
    registry: Registry
    running: Running
    settler: Settler
    run_lease: float
    ladders: LaddersTable
    windows: WindowsTable
    draining: bool = False

    def __post_init__(self) -> None:
        self._starter = Starter(self._lead)
        self._line: db.Connection | None = None

    def close(self) -> None:
        """Nothing is started any more."""
        if self._line is not None:
            self._line.close()

    def run_message(self, envelope: Envelope) -> None:
        """Run every job of `envelope` that is still ours to run. Never raises: whatever
        could not be done here is done again from the rows."""
        try:
            self._run_message(envelope)
        except Exception as error:  # noqa: BLE001 - a raise would only reach the library's log
            count("machinery_failures")
            report_failure(error, "a message could not be run", action="run_message")

    def _run_message(self, envelope: Envelope) -> None:
        if self.draining:
            self._release(envelope.claims)
            return
        held_until = lease_clock() + self.run_lease
        started = self._start(envelope)
        runs = [Run(row, self._finishing, held_until=held_until) for row in started]
        if len(runs) < len(envelope.ids):
            count("duplicates_refused")
        self.running.add(runs)
        try:
            awaited = Awaited()
            for run in runs:
                self._run_and_submit(run, awaited)
            awaited.wait()
        finally:
            self.running.remove(runs)
            self._release({run.id: run.lease for run in runs if not run.begun and not run.lost})

    def _run_and_submit(self, run: Run, awaited: Awaited) -> None:
        if self.draining or run.lost:
            return
        ending = self._run_one(run)
        run.end()
        if ending is not None:
            self.settler.submit(run, ending, awaited)

    def _run_one(self, run: Run) -> Ending | None:
        """The handler's run as an ending; None when nothing is left to settle."""
        task = self.registry.get(run.kind)
        if task is None:
            return self._unknown(run)
        run.begin(task.kind.budget)
        try:
            task.fits(run.row.payload)
            answer = task.handler(run, self.context, **run.row.payload)
            if answer is not None and not isinstance(answer, Answer):
                raise InvalidRequest(  # noqa: TRY301 - settled like every other failure
                    f"a handler answers Done, Again, Park or None, not {type(answer).__name__}"
                )
            return None if run.settled else ending_of_answer(task.kind, answer)
        except BaseException as error:  # noqa: BLE001 - SystemExit and a user's own Interrupt settle too
            return self._failed_somehow(run, task, error)

    def _failed_somehow(self, run: Run, task: Task, error: BaseException) -> Ending | None:
        """The ending of a failure, also of one that can't even be told: a row must never leak,
        and its mates must run."""
        try:
            return self._failed(run, task, error)
        except Exception as odd:  # noqa: BLE001 - see above
            report_failure(odd, "a failure could not be told", job_id=run.id, kind=run.kind)
            return unsettleable(task.kind, hourly=self.ladders.hourly)

    def _failed(self, run: Run, task: Task, error: BaseException) -> Ending | None:
        fields = {
            "action": "job_failed",
            "job_id": run.id,
            "kind": run.kind,
            "queue": run.row.queue,
            "attempt": run.attempt,
            "worker": self.worker,
        }
        if run.settled:
            say(
                Severity.WARN,
                "a handler raised after its job was finished",
                **{**fields, "error": describe(error)},
            )
            return None
        if isinstance(error, LeaseLost):
            count("settles_lost")
            say(Severity.WARN, "a job's lease was lost while it ran", **fields)
            return None
        count("job_failures")
        if not isinstance(error, VpayError) and task.kind.built_in:
            error = _as_internal(error)
        if isinstance(error, VpayError):
            report_failure(error, "a job failed", **fields)
        else:
            say(Severity.ERROR, "a task raised", **{**fields, "error": describe(error)})
        return ending_of_error(
            task.kind,
            error,
            run.row.failures,
            spread=random.random(),  # noqa: S311 - jitter, no secret
            error_ladder=Ladder(self.ladders.error),
            hourly=self.ladders.hourly,
        )

    def _unknown(self, run: Run) -> Ending:
        run.begin(self.run_lease)
        return ending_of_unknown_kind(
            run.row.unknown_for,
            every=self.ladders.unknown_kind,
            give_up_after=self.windows.unknown_kind,
        )

    def _start(self, envelope: Envelope) -> list[jobs.StartedJob]:
        """Swap the claim's token for one of our own. Postgres out of reach: run nothing, the
        lease heals it. Its answer lost: overrule whatever became of it by another swap."""
        tried = self._starter.start(envelope.claims)
        started = tried.started
        if isinstance(tried.error, AmbiguousCommit):
            started = self._overrule(envelope.claims, tried.token)
        elif tried.error is not None:
            raise tried.error
        count("jobs_started", len(started))
        return started

    def _overrule(self, claims: dict[int, uuid.UUID], lost: uuid.UUID) -> list[jobs.StartedJob]:
        """Start what carries the claim's token or one whose start lost its answer. It waits
        for the lost one; Postgres away, it is tried until that one's lease is spent, or a row
        that never ran would be reaped as a crash."""
        may_carry = [list(claims.items()), [(id_, lost) for id_ in claims]]
        started: list[jobs.StartedJob] = []
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Storage),
            stop=tenacity.stop_after_delay(self.run_lease),
            wait=tenacity.wait_fixed(OVERRULE_S),
            reraise=True,
        ):
            with attempt:
                token = uuid.uuid4()
                may_carry.append([(id_, token) for id_ in claims])
                with closing(self._connect()) as connection:
                    swapped = [self._swap(connection, held, token) for held in may_carry[:-1]]
                started = [job for held in swapped for job in held if job is not None]
        return started

    def _lead(self, claims: Sequence[Lease], token: uuid.UUID) -> list[jobs.StartedJob | None]:
        """A group's swap, by the one thread that leads: on a connection of its own, since a
        start must not wait until handlers have left one of the pool's."""
        if not db.usable(self._line):
            self._line = self._connect()
        return self._swap(self._line, claims, token)

    def _connect(self) -> db.Connection:
        return db.connect(
            self.context.db.url,
            application=f"vpay worker {self.worker} start",
            plans=db.RUN_PLANS,
        )

    def _swap(
        self, connection: db.Connection, claims: Sequence[Lease], token: uuid.UUID
    ) -> list[jobs.StartedJob | None]:
        return jobs.start(
            connection,
            claims,
            run=token,
            worker=self.worker,
            run_lease=self.run_lease,
            known=self.registry.names(),
        )

    def _release(self, leases: dict[int, uuid.UUID]) -> None:
        if leases:
            with self.context.db.connection() as connection:
                jobs.release(connection, leases)

    @contextmanager
    def _finishing(self, run: Run) -> Iterator[Any]:
        """See `Job.finishing`: the handler's writes and the finish in one commit."""
        task = self.registry.get(run.kind)
        assert task is not None
        ending = ending_of_answer(task.kind, Done())
        transaction: str | None = None
        try:
            with self.context.db.transaction() as tx:
                yield tx
                # Not before: a block that takes its time still has its lease renewed.
                run.settling = True
                transaction = finish_within(tx, run, ending)
                if transaction is None:
                    raise LeaseLost("the row is no longer this run's; nothing was written")
        except AmbiguousCommit:
            if transaction is None:
                raise  # of another commit, which the block has made beside this one
            with self.context.db.connection() as connection:
                finish_stands(connection, run, transaction)
            run.settled = True
        else:
            run.settled = run.settling  # not so when the block abandoned its transaction
        finally:
            run.settling = run.settled
        if run.settled:
            tell_settled(run, ending, won=True)


def _as_internal(error: BaseException) -> Internal:
    """A built-in handler's own bug, as the category that pages."""
    internal = Internal("a built-in handler raised what nobody classified")
    internal.__cause__ = error
    return internal
