"""From a payment intent to a prompt on a phone: crash-safe at every step.

Write first, network second: a process that dies between any two lines leaves rows from
which the poll can tell what the rail may have. One charge per intent, for ever.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from vpay_tasks import telemetry
from vpay_tasks.core import kinds, money
from vpay_tasks.core.charge import (
    Charge,
    FailureCode,
    Flow,
    IntentStatus,
    PaymentIntent,
    State,
)
from vpay_tasks.core.ids import RAW_BYTES, new_id
from vpay_tasks.errors import (
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    Storage,
    sanitise,
)
from vpay_tasks.payments import payer as payers
from vpay_tasks.payments import submission
from vpay_tasks.payments.inputs import check_url
from vpay_tasks.payments.intent import check_id
from vpay_tasks.payments.payer import PayerRing
from vpay_tasks.payments.submission import BOOKKEEPING_S, patient
from vpay_tasks.rails.port import Order, RailPort
from vpay_tasks.store import charges, intents, jobs, sessions
from vpay_tasks.store.db import Connection, Database


@dataclass(frozen=True)
class Redirect:
    """Send the payer to `url`."""

    url: str = field(repr=False)


@dataclass(frozen=True)
class ApproveOnPhone:
    """The payer has a prompt on their phone."""


NextAction = Redirect | ApproveOnPhone


@dataclass(frozen=True)
class Confirmed:
    """The rail has it; what the payer does next."""

    charge: Charge
    next_action: NextAction


@dataclass(frozen=True)
class Processing:
    """The rail may have it. The poll finds out; the event tells. Don't confirm again."""

    charge: Charge


@dataclass(frozen=True)
class Declined:
    """The charge has failed; its event is written. To try again is a new intent."""

    charge: Charge
    code: FailureCode


@dataclass(frozen=True)
class Exists:
    """The intent had been confirmed before; this is its one charge."""

    charge: Charge


Confirmation = Confirmed | Processing | Declined | Exists


def confirm(
    db: Database,
    intent_id: str,
    *,
    rail: RailPort,
    payer: str | None = None,
    return_url: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Confirmation:
    """Charge the intent over `rail`: `payer` is a push rail's phone number, `return_url` a
    redirect rail's way back. Everything up to the rail's answer takes at most the settings'
    `windows.submit_deadline` seconds, writing it down BOOKKEEPING_S more for each lock that
    somebody holds.

    Raises NotFound, Conflict (the intent is over), InvalidRequest, Configuration, Storage –
    all before anything was sent, with nothing written, except AmbiguousCommit: confirm
    again, and Exists tells. Once the charge is written nothing is raised but bugs.
    """
    deadline = clock() + db.windows.submit_deadline
    wish = _Wish(rail, payer, return_url).checked()
    check_id(intent_id)
    keys = payers.ring_of(db.keys)

    def left() -> float:
        return deadline - clock()

    with patient(db, left) as tx:
        written = _write(tx, db, intent_id, wish, keys)
    if isinstance(written, Exists):
        return written
    charge = written
    try:
        if left() <= 0:
            return Processing(charge)
        attempt = submission.begin(db, charge, 0, left)
        if attempt is not None:
            answer = rail.submit(wish.of(charge), deadline=deadline)
            with patient(db, lambda: BOOKKEEPING_S) as tx:
                submission.record(tx, charge, rail.flow, attempt, answer)
        # What was committed is what is answered: another hand may have been first.
        with patient(db, lambda: BOOKKEEPING_S) as tx:
            return _answer(charges.read(tx, charge.id) or charge, rail.flow)
    except Storage as error:
        telemetry.report_failure(
            error, "a confirm lost its database; the poll goes on", charge_id=charge.id
        )
        return Processing(charge)


@dataclass(frozen=True)
class _Wish:
    """What the caller asks of the rail."""

    rail: RailPort
    payer: str | None = field(repr=False)
    return_url: str | None = field(repr=False)

    def checked(self) -> _Wish:
        able = self.rail.capabilities
        number = None
        if able.needs_payer:
            if self.payer is None:
                raise InvalidRequest(f"payer: {self.rail.code} needs the payer's phone number")
            number = payers.number(self.payer)
        elif self.payer is not None:
            raise InvalidRequest(f"payer: {self.rail.code} takes none")
        if able.needs_return_url and self.return_url is None:
            raise InvalidRequest(f"return_url: {self.rail.code} needs one")
        if self.return_url is not None:
            check_url("return_url", self.return_url)
        return _Wish(self.rail, number, self.return_url)

    def fits(self, intent: PaymentIntent) -> None:
        able = self.rail.capabilities
        if intent.currency not in able.currencies:
            known = ", ".join(sorted(able.currencies))
            raise InvalidRequest(
                f"currency: {self.rail.code} takes {known}, and this intent is in {intent.currency}"
            )
        if able.whole_amounts:
            money.whole(intent.amount, intent.currency)

    def of(self, charge: Charge) -> Order:
        return Order(
            reference=charge.provider_reference_id,
            amount=charge.amount,
            currency=charge.currency,
            payer=self.payer,
            return_url=self.return_url,
        )


def _write(
    tx: Connection, db: Database, intent_id: str, wish: _Wish, keys: PayerRing
) -> Charge | Exists:
    """Step 1: the charge with its reference, and the poll that will look after it."""
    if not intents.lock(tx, intent_id):
        raise NotFound(f"no payment intent {sanitise(intent_id, 64)!r}")
    # Read behind the lock, in statements of their own: each sees what was committed by then.
    standing = charges.of_intent(tx, intent_id)
    if standing is not None:
        return Exists(standing)
    intent = intents.read(tx, intent_id)
    if intent is None or intent.status is not IntentStatus.REQUIRES_PAYMENT_METHOD:
        raise Conflict(f"payment intent {intent_id} can't be confirmed: it is over")
    if sessions.expired_of_intent(tx, intent_id):
        raise Conflict(f"payment intent {intent_id} can't be confirmed: its page has expired")
    _check_mode(intent, db)
    wish.fits(intent)
    charge = charges.insert(
        tx,
        id=new_id("ch", secrets.token_bytes(RAW_BYTES)),
        payment_intent_id=intent.id,
        provider_code=wish.rail.code,
        provider_reference_id=str(uuid.uuid4()),
        return_url=wish.return_url,
        amount=intent.amount,
        currency=intent.currency,
        payer_ref=None if wish.payer is None else keys.seal(wish.payer),
        payer_masked=None if wish.payer is None else payers.masked(wish.payer),
    )
    if charge is None:
        raise Internal(f"payment intent {intent_id} got a charge while it was locked")
    jobs.enqueue(
        tx,
        kinds.POLL_CHARGE,
        {"charge_id": charge.id},
        dedupe_key=kinds.poll_key(charge.id),
        delay=db.windows.submit_deadline,
    )
    return charge


def _check_mode(intent: PaymentIntent, db: Database) -> None:
    """Whoever marks the intent and whoever holds the rails may be two programs: real money
    must not move for an intent whose events call it a test, nor the other way round."""
    if intent.livemode != db.livemode:
        theirs, ours = ("live", "test") if intent.livemode else ("test", "live")
        raise InvalidRequest(
            f"payment intent {intent.id} is a {theirs} one and these settings are {ours} mode's:"
            " create it with livemode=settings.livemode.enabled"
        )


def _answer(charge: Charge, flow: Flow) -> Confirmation:
    match charge.state:
        case State.SUBMITTING:
            return Processing(charge)
        case State.FAILED:
            assert charge.failure_code is not None  # a CHECK stands behind it
            return Declined(charge, charge.failure_code)
        case State.SUBMITTED | State.PENDING | State.UNRESOLVED | State.SUCCEEDED:
            match flow:
                case Flow.PUSH:
                    return Confirmed(charge, ApproveOnPhone())
                case Flow.REDIRECT:
                    if charge.redirect_url is None:
                        return Processing(charge)
                    return Confirmed(charge, Redirect(charge.redirect_url))
