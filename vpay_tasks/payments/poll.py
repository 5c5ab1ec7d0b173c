"""The parts of one poll: look, ask, and note an ask that ended nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vpay_tasks import telemetry
from vpay_tasks.config import LaddersTable, WindowsTable
from vpay_tasks.core import kinds
from vpay_tasks.core.answers import Failed, StatusAnswer, Succeeded
from vpay_tasks.core.charge import Attempt, Charge, FailureCode, Flow, State
from vpay_tasks.core.polling import poll_delay
from vpay_tasks.core.recovery import FailDeadOrder, FailDeclined, Recovery, Resubmit, recover
from vpay_tasks.core.verdict import Contradiction, CountNotFound, Stay, ToPending, Verdict, verdict
from vpay_tasks.errors import Configuration, Exhausted, Internal, Rail, Severity, Storage, VpayError
from vpay_tasks.payments import settlement
from vpay_tasks.payments.submission import advance_intent
from vpay_tasks.rails.port import Inquiry, RailPort
from vpay_tasks.store import attempts, charges, jobs
from vpay_tasks.store.charges import Ages, Streak
from vpay_tasks.store.db import Connection, Database


@dataclass(frozen=True)
class Unanswered:
    """The rail was asked and said nothing that counts."""

    error: VpayError


News = ToPending | Stay | CountNotFound | Unanswered | Resubmit
"""What a poll may bring that ends nothing."""


@dataclass(frozen=True)
class Sight:
    """A charge as one poll sees it, read once."""

    charge: Charge
    ages: Ages
    attempts: list[Attempt]

    def recovery(self, flow: Flow, windows: WindowsTable) -> Recovery | None:
        """What comes before asking; only `submitting` has it."""
        if self.charge.state is not State.SUBMITTING:
            return None
        return recover(
            flow,
            self.attempts,
            age=self.ages.charge,
            window=windows.recovery,
            not_found_window=windows.not_found,
            has_key_material=bool(self.charge.provider_ref_extra),
            not_found_streak=self.charge.not_found_streak,
            not_found_for=self.ages.not_found,
        )


def look(db: Database, charge_id: str) -> Sight:
    """Read a charge. Raises Internal if it doesn't exist: its poll was written with it."""
    with db.connection() as connection:
        charge = charges.read(connection, charge_id)
        if charge is None:
            raise Internal(f"a poll of charge {charge_id!r}, which does not exist")
        # The attempts after the state: what a confirm wrote in between is then seen.
        ages = charges.ages(connection, charge_id)
        return Sight(charge, ages, attempts.of_charge(connection, charge_id))


def rail_of(charge: Charge, rails: Mapping[str, RailPort]) -> RailPort:
    """The charge's rail. Raises Configuration when the settings don't have it (any more)."""
    rail = rails.get(charge.provider_code)
    if rail is None:
        raise Configuration(
            f"charge {charge.id} is live on rail {charge.provider_code!r}, and the settings"
            f" have no [rails.{charge.provider_code}]: put it back until its charges have ended"
        )
    return rail


def rail_or_silence(charge: Charge, rails: Mapping[str, RailPort]) -> RailPort | Unanswered:
    """The same for a poll: a rail that is not there says nothing, which the horizon counts as
    it counts every silence."""
    try:
        return rail_of(charge, rails)
    except Configuration as error:
        return Unanswered(error)


def ask(
    db: Database, rail: RailPort, charge: Charge, *, deadline: float
) -> StatusAnswer | Unanswered:
    """What the rail says about the charge. No transaction is open. A rail's failure is a
    value here, for it counts as an ask."""
    try:
        return _asked(db, rail, charge, deadline)
    except (Rail, Configuration) as error:
        return Unanswered(error)


def _asked(db: Database, rail: RailPort, charge: Charge, deadline: float) -> StatusAnswer:
    with db.connection() as connection:
        charges.asking(connection, charge.id)
    return rail.query_status(
        Inquiry(
            reference=charge.provider_reference_id,
            amount=charge.amount,
            currency=charge.currency,
            key_material=charge.provider_ref_extra,
        ),
        deadline=deadline,
    )


def judge(answer: StatusAnswer | Unanswered, state: State) -> Verdict | Unanswered:
    """What the answer means."""
    return answer if isinstance(answer, Unanswered) else verdict(answer, state)


def resubmit(db: Database, sight: Sight) -> bool:
    """Have the charge submitted again, by a job of its own that goes by the submits that were
    seen here. False: such a job stands already, whatever keeps it."""
    with db.transaction() as tx:
        return jobs.enqueue(
            tx,
            kinds.RESUBMIT_CHARGE,
            {"charge_id": sight.charge.id, "seen": len(sight.attempts)},
            dedupe_key=kinds.resubmit_key(sight.charge.id),
        ).inserted


def advance(db: Database, charge: Charge, flow: Flow) -> bool:
    """The bookkeeping of an accepted submit that its confirm died over; whether it won."""
    with db.transaction() as tx:
        won = charges.submitted(tx, charge.id, key_material={}, redirect_url=None)
        if won:
            advance_intent(tx, charge, flow)
        return won


def fail(db: Database, charge: Charge, found: FailDeclined | FailDeadOrder) -> bool:
    """The failing of a charge that its confirm died over; whether it won."""
    with db.transaction() as tx:
        match found:
            case FailDeclined():
                return settlement.fail_declined(tx, charge)
            case FailDeadOrder():
                outcome = Failed(FailureCode.PROVIDER_UNAVAILABLE, "")
                return settlement.fail_unsent(tx, charge, outcome)


def recheck(
    db: Database, rails: Mapping[str, RailPort], charge: Charge, *, deadline: float
) -> None:
    """Ask once about a failed charge, and tell if the rail has changed its mind. Nobody waits
    for the answer, so a failure is told and not repeated: an order whose token is lost can
    never be asked for."""
    try:
        answer = _asked(db, rail_of(charge, rails), charge, deadline)
    except Storage:
        raise  # nobody was asked
    except Exception as error:  # noqa: BLE001 - whatever it was, the job must end
        telemetry.report_failure(
            error, "a failed charge could not be asked for again", charge_id=charge.id
        )
        return
    if isinstance(answer, Succeeded):
        compare(db, charge, answer)


def compare(db: Database, charge: Charge, outcome: Succeeded | Failed) -> None:
    """Look at what became of a charge whose settlement by `outcome` was not written. Another
    hand may have settled the opposite, and the rail is not asked again: this answer is the
    only evidence."""
    with db.connection() as connection:
        first = compared(connection, charge, outcome)
    if first:
        page(charge, outcome)


def compared(connection: Connection, charge: Charge, outcome: Succeeded | Failed) -> bool:
    """Note it if `outcome` is the opposite of what was settled; True the first time, which
    the caller pages once it is committed. Money and state stay."""
    standing = charges.read(connection, charge.id)
    return (
        standing is not None
        and isinstance(verdict(outcome, standing.state), Contradiction)
        and charges.contradicted(connection, charge.id)
    )


def page(charge: Charge, outcome: Succeeded | Failed) -> None:
    """Tell that a rail says the opposite of what was settled."""
    settled = State.FAILED if isinstance(outcome, Succeeded) else State.SUCCEEDED
    telemetry.alert(
        Severity.PAGE,
        "a rail contradicts a settled charge: nothing was moved, compare both sides",
        action="contradiction",
        charge_id=charge.id,
        rail=charge.provider_code,
        state=settled.value,
    )


def note(
    db: Database,
    sight: Sight,
    news: News,
    *,
    windows: WindowsTable,
    ladders: LaddersTable,
) -> float:
    """Count a poll that ended nothing; seconds until the next one.

    Raises Exhausted past the horizon (which asks hourly, for ever) and the error of an
    unanswered ask, after it was counted. Such an error carries the poll ladder's delay as
    its `not_sooner`: the settle takes the larger of that and the error ladder, so an
    outage slows polling down and never speeds it up.
    """
    charge = sight.charge
    overdue = sight.ages.charge >= windows.horizon
    to_state = State.UNRESOLVED if overdue else _next_state(news, charge.state)
    if not _counted(db, sight, to_state, _streak(news)):
        return 0.0  # another hand has settled it meanwhile: the next run ends the job
    error = news.error if isinstance(news, Unanswered) else None
    if overdue:
        if error is not None and error.severity is Severity.PAGE:
            # Exhausted is an alert; what keeps the rail from being asked pages all the same.
            telemetry.report_failure(
                error, "an overdue charge can't be asked for", charge_id=charge.id
            )
        hours = int(sight.ages.charge // 3_600)
        raise Exhausted(
            f"charge {charge.id} has no terminal answer after {hours} h; asked again hourly"
        ) from error
    delay = poll_delay(ladders, charge.polls)
    if error is not None:
        error.not_sooner = delay
        raise error
    return delay


def _counted(db: Database, sight: Sight, to_state: State, streak: Streak) -> bool:
    """Write the ask down; False: the charge is over."""
    charge = sight.charge
    with (db.transaction if streak == "longer" else db.connection)() as tx:
        if streak == "longer":
            # The lock before the rows: a submit that is written meanwhile waits, or is seen.
            # What was denied while one was sent says nothing about it.
            charges.lock(tx, charge.id)
            if len(attempts.of_charge(tx, charge.id)) != len(sight.attempts):
                streak = "as_it_was"
        return charges.asked(
            tx,
            charge.id,
            from_state=charge.state,
            to_state=to_state,
            streak=streak,
            seen=charge.not_found_streak,
        )


def _next_state(news: News, state: State) -> State:
    match news:
        case ToPending():
            return State.PENDING
        case Stay() | CountNotFound() | Unanswered() | Resubmit():
            return state


def _streak(news: News) -> Streak:
    match news:
        case CountNotFound():
            return "longer"
        case ToPending():
            return "over"
        case Stay() | Unanswered() | Resubmit():
            return "as_it_was"
