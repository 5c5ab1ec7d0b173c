"""What the rail's journal says about a payment, against the database's word and the script's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from vpay_sandbox.books import Books, Lines, Payment
from vpay_sandbox.report import Kill
from vpay_sandbox.scenarios import Killed, Scenario

# Digits behind the point, of what the sandbox's rails take.
EXPONENTS = {"EUR": 2, "USD": 2, "XAF": 0, "XOF": 0}
INSIDE: Mapping[Killed, str] = {"worker": "status", "confirm": "submit"}


class RailBooks:
    """The rail's journal by reference, and the kills that it must show."""

    def __init__(self, books: Books) -> None:
        self.effects = _by_reference(books.effects)
        self._kills = _by_reference(books.kills)
        self._calls = _by_reference(books.calls)
        self._answers = {int(one["n"]): one for one in books.answers}

    @property
    def exposure(self) -> int:
        """Submissions beyond the first of a reference: had the rail a fault, each might have
        been a second prompt."""
        return sum(max(len(self._named(one, "submit")) - 1, 0) for one in self._calls)

    def moved(self, payment: Payment) -> int:
        """How often the rail has moved the money."""
        effects = self.effects.get(payment.reference or "", [])
        return sum(one["effect"] == "moved" for one in effects)

    def wrong(self, payment: Payment, scenario: Scenario | None) -> Iterator[str]:
        """What does not agree about one payment."""
        yield from self._effects(payment, scenario)
        yield from self._amounts(payment, scenario)
        if scenario is not None:
            yield from self._pages(payment, scenario)
            yield from self._killed(payment, scenario)

    def kills(self, payment: Payment) -> list[Kill]:
        """Who was killed over it."""
        return [
            Kill(
                what=one["what"],
                program=str(one["program"]),
                order=payment.order_number or "?",
                state=payment.state or "?",
                moved=self.moved(payment),
            )
            for one in self._kills.get(payment.reference or "", [])
        ]

    def _named(self, reference: str, op: str) -> Lines:
        return [one for one in self._calls.get(reference, []) if one["op"] == op]

    def _effects(self, payment: Payment, scenario: Scenario | None) -> Iterator[str]:
        effects = self.effects.get(payment.reference or "", [])
        prompts = [one for one in effects if one["effect"] == "prompt"]
        if scenario is not None and not scenario.recorded:
            if prompts:
                yield f"the rail has its reference {payment.reference}, and the script has it lost"
        elif not prompts:
            yield f"the rail does not have its reference {payment.reference}"
        if len(prompts) > 1:
            yield f"the rail asked the payer {times(len(prompts), 'time')} for one reference"
        if any(one["scenario"] != payment.scenario for one in prompts):
            yield f"the rail played {prompts[0]['scenario']}: it was asked for another payer"
        anyway = scenario is not None and scenario.moves_anyway
        due = 1 if payment.state == "succeeded" or anyway else 0
        moved = self.moved(payment)
        if moved != due:
            whose = "the script" if anyway else f"a payment that is {payment.state}"
            yield (
                f"the rail moved the money {times(moved, 'time')} for the one reference"
                f" {payment.reference}; {whose} means {due}"
            )

    def _amounts(self, payment: Payment, scenario: Scenario | None) -> Iterator[str]:
        """A rail that moves another amount, and is not believed, is what a script may have."""
        other = scenario.status[-1].amount if scenario and scenario.moves_anyway else ""
        said = []
        for one in self.effects.get(payment.reference or "", []):
            if one["effect"] == "prompt":
                said.append((one["amount"], one["currency"]))
            elif one["moved_amount"] != other:
                said.append((one["moved_amount"], one["currency"]))
        for amount, currency in dict.fromkeys(said):
            if currency != payment.currency or _minor(amount, currency) != payment.amount:
                yield (
                    f"the rail has {amount} {currency} for it; the database has"
                    f" {payment.amount} minor units of {payment.currency}"
                )

    def _pages(self, payment: Payment, scenario: Scenario) -> Iterator[str]:
        opened = len(self._named(payment.reference or "", "page"))
        if scenario.opens and not opened:
            yield "its payer opens the rail's page, and the rail saw nobody: where were they sent?"
        if opened and not scenario.opens:
            yield f"its payer opens no page, and the rail showed one {times(opened, 'time')}"

    def _killed(self, payment: Payment, scenario: Scenario) -> Iterator[str]:
        """A kill counts if the rail's journal shows the call as open at that moment."""
        victim = scenario.expect.killed
        if not victim:
            return
        kills = [
            one for one in self._kills.get(payment.reference or "", []) if one["what"] == victim
        ]
        inside = INSIDE[victim]
        if not any(self._was_open(payment.reference or "", inside, one) for one in kills):
            yield f"a {victim} was to be killed inside its {inside} call, and none was"
        elif victim == "confirm" and not payment.unanswered:
            yield "its confirm was killed inside the submission, and wrote its answer down"

    def _was_open(self, reference: str, op: str, kill: Mapping[str, Any]) -> bool:
        call = next((one for one in self._named(reference, op) if one["n"] == kill["n"]), None)
        if call is None or call["t"] > kill["t"]:
            return False
        answer = self._answers.get(int(kill["n"]))
        # Of a call that was given up before, the journal says so before.
        return answer is None or (answer["status"] is None and answer["t"] >= kill["t"])


def _by_reference(lines: Lines) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["reference"] is not None:
            found[str(line["reference"])].append(line)
    return dict(found)


def times(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _minor(amount: object, currency: object) -> int | None:
    """Minor units of what a rail writes; None when it is no whole number of them."""
    try:
        scaled = Decimal(str(amount)).scaleb(EXPONENTS[str(currency)])
    except (InvalidOperation, KeyError):
        return None
    return int(scaled) if scaled.is_finite() and scaled == scaled.to_integral_value() else None
