"""What a stub rail keeps: its tokens, and the payments that it has, with their effects."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from vpay_sandbox.callback import Callback, Callbacks
from vpay_sandbox.httpd import Answer, Hangup, Request, Silence
from vpay_sandbox.journal import Journal
from vpay_sandbox.scenarios import (
    PAID,
    Quiet,
    Scenario,
    StatusStep,
    SubmitStep,
    coming_step,
    status_step,
    submit_step,
)

Sabotage = Literal["two-effects"]


@dataclass(slots=True)
class Payment:
    """What the rail has under one reference. `tells`: what its effects say in the journal."""

    reference: str
    wish: dict[str, Any]
    scenario: Scenario
    tells: dict[str, Any]
    callback: Callback | None = None
    since: float = field(default_factory=time.monotonic)
    questions: int = 0
    moved: bool = False
    called: bool = False
    decided: StatusStep | None = None

    @property
    def number(self) -> str:
        """The rail's own number of it: the same however often it is asked for."""
        return str(uuid.UUID(self.reference).int % 10**10)


class Tokens:
    """Bearer tokens that are good for a while."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.good: dict[str, float] = {}

    def issue(self) -> str:
        token = secrets.token_urlsafe(24)
        self.good[token] = time.monotonic() + self.ttl_s
        return token

    def accepts(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and self.good.get(token, 0.0) > time.monotonic()

    def expire(self) -> int:
        """Every token handed out so far is refused from now on. Returns how many."""
        count = len(self.good)
        self.good.clear()
        return count


class Book:
    """Payments by reference. Every effect is journalled before the answer that tells of it."""

    def __init__(self, journal: Journal, callbacks: Callbacks, sabotage: Sabotage | None) -> None:
        self.payments: dict[str, Payment] = {}
        self._journal = journal
        self._callbacks = callbacks
        self._sabotage = sabotage
        self._submissions: dict[str, int] = {}

    def submission(self, reference: str, scenario: Scenario) -> SubmitStep:
        """The step for one more submission of `reference`."""
        nth = self._submissions.get(reference, 0)
        self._submissions[reference] = nth + 1
        return submit_step(scenario, nth)

    def record(self, payment: Payment) -> None:
        """From now on the rail has it, and its payer is asked."""
        self.payments[payment.reference] = payment
        self._effect("prompt", payment)
        self._foresee(payment)

    def question(self, payment: Payment) -> StatusStep:
        """The step for one more question about `payment`; money moves if it says so."""
        step = self._step(payment)
        paid = step.status in PAID
        if step.answer == 200 and paid and not payment.moved:
            self._move(payment, step)
        self._foresee(payment)
        return step

    def decide(self, reference: str, step: StatusStep) -> None:
        """From now on this payment is answered so, whatever its scenario says, and the rail
        calls back if that is an end; KeyError when the rail does not have it."""
        payment = self.payments[reference]
        payment.decided = step
        if payment.callback is not None and step.status not in ("PENDING", "INITIATED"):
            self._callbacks.send(reference, payment.callback)

    def _foresee(self, payment: Payment) -> None:
        """The rail calls back once, when the payment comes to a step that says so."""
        if payment.called or payment.callback is None:
            return
        age_s = time.monotonic() - payment.since
        step, in_s = coming_step(payment.scenario, payment.questions, age_s)
        if step.calls_back:
            payment.called = True
            self._callbacks.send(payment.reference, payment.callback, in_s=in_s)

    def _step(self, payment: Payment) -> StatusStep:
        if payment.decided is not None:
            return payment.decided
        age_s = time.monotonic() - payment.since
        step = status_step(payment.scenario, payment.questions, age_s)
        if step.for_s <= 0:
            payment.questions += 1
        return step

    def _move(self, payment: Payment, step: StatusStep) -> None:
        payment.moved = True
        more = {"moved_amount": step.amount or payment.tells["amount"]}
        self._effect("moved", payment, **more)
        if self._sabotage == "two-effects":
            self._sabotage = None  # once is enough to be found
            self._effect("moved", payment, **more)

    def _effect(self, effect: str, payment: Payment, **more: Any) -> None:
        self._journal.write(
            "effect",
            effect=effect,
            reference=payment.reference,
            scenario=payment.scenario.name,
            **payment.tells,
            **more,
        )


def object_in(request: Request) -> dict[str, Any] | None:
    """The body as a JSON object, None when it is none."""
    try:
        body = request.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def is_uuid4(text: object) -> bool:
    try:
        return isinstance(text, str) and uuid.UUID(text).version == 4 and len(text) == 36
    except ValueError:
        return False


async def due(step: SubmitStep | StatusStep) -> None:
    """Until the step's answer is due. Held, it never is: only the client's going away ends it,
    and the journal says then that it got none."""
    await asyncio.sleep(step.slow_ms / 1000)
    if step.answer == "held":
        await asyncio.get_running_loop().create_future()


def quiet(answer: Quiet) -> Answer:
    return Silence() if answer == "none" else Hangup()
