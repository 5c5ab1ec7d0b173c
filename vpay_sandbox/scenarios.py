"""The sandbox's script as data: which payer number, or amount, meets what, and how it must end.

`scenarios.toml` explains its own format; the stub rail plays it and an auditor compares with it.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

BUILT_IN = Path(__file__).with_name("scenarios.toml")

PushWord = Literal["PENDING", "SUCCESSFUL", "FAILED"]
RedirectWord = Literal["INITIATED", "PENDING", "SUCCESS", "EXPIRED", "FAILED"]
Word = PushWord | RedirectWord
# none: the answer never comes, the connection stays open; hangup: it is closed without one;
# held: as none, and in the journal the call is open until whoever made it is gone.
Quiet = Literal["none", "hangup", "held"]
EndState = Literal["succeeded", "failed", "unresolved"]
Killed = Literal["", "worker", "confirm"]
PAID = ("SUCCESSFUL", "SUCCESS")


class ScenarioError(ValueError):
    """The file says something that the stub rail can't play; the text names the entry."""


@dataclass(frozen=True, slots=True)
class SubmitStep:
    """One answer to a submission. `recorded`: whether the rail has the payment afterwards."""

    answer: int | Quiet = 202
    code: str = ""
    recorded: bool = True
    slow_ms: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class StatusStep:
    """One answer to a status question: a word of the rail, or an HTTP status without one.

    `amount` replaces the amount in the answer; `calls_back`: the rail calls back when the next
    question would meet the step. It lasts `times` questions, or, when
    `for_s` is set, until that many seconds have passed since the rail got the payment.
    """

    status: Word = "PENDING"
    reason: str | Mapping[str, str] = ""
    amount: str = ""
    answer: int | Quiet = 200
    code: str = ""
    slow_ms: int = 0
    times: int = 1
    for_s: float = 0.0
    calls_back: bool = False


@dataclass(frozen=True, slots=True)
class Expect:
    """How the charge must end. `contradicted`: the rail has said both; `answered_late`: only
    after the horizon; `killed`: a process of ours was killed inside its call."""

    state: EndState
    code: str = ""
    contradicted: bool = False
    answered_late: bool = False
    killed: Killed = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The last step of each list repeats for ever. A push rail's is found by its payer number,
    a redirect rail's by its amount in whole units of the currency."""

    name: str
    payer: str
    expect: Expect
    amount: int = 0
    about: str = ""
    opens: bool = False
    submit: tuple[SubmitStep, ...] = (SubmitStep(),)
    status: tuple[StatusStep, ...] = (StatusStep(status="SUCCESSFUL"),)

    @property
    def recorded(self) -> bool:
        """Whether the rail has the payment in the end."""
        return any(step.recorded for step in self.submit)

    @property
    def moves_anyway(self) -> bool:
        """Whether the rail says in the end that it is paid, which is no success for us."""
        last = self.status[-1]
        paid = last.answer == 200 and last.status in PAID
        return self.recorded and paid and self.expect.state != "succeeded"

    @property
    def past_horizon(self) -> bool:
        """Whether its end comes only once the horizon has passed."""
        return self.expect.state == "unresolved" or self.expect.answered_late


@dataclass(frozen=True, slots=True)
class Script:
    """All scenarios of each rail, in the file's order; `by_name` has both rails'."""

    push: tuple[Scenario, ...]
    by_payer: Mapping[str, Scenario] = field(default_factory=dict)
    by_name: Mapping[str, Scenario] = field(default_factory=dict)
    redirect: tuple[Scenario, ...] = ()
    by_amount: Mapping[int, Scenario] = field(default_factory=dict)

    def of(self, payer: str) -> Scenario:
        """The scenario of a payer number; an unknown number's payment succeeds at once."""
        return self.by_payer.get(payer, UNSCRIPTED)

    def of_amount(self, amount: int) -> Scenario:
        """The scenario of an amount; with an unknown one the payer decides, on the page."""
        return self.by_amount.get(amount, BY_HAND)

    def all(self) -> tuple[Scenario, ...]:
        return (*self.push, *self.redirect)


UNSCRIPTED = Scenario("unscripted", "", Expect("succeeded"))
BY_HAND = Scenario(
    "by_hand",
    "",
    Expect("unresolved"),
    submit=(SubmitStep(answer=201),),
    status=(StatusStep(status="INITIATED"),),
)


def load(path: Path | None = None) -> Script:
    """Reads a scenario file, the built-in one by default; ScenarioError when it is at fault."""
    table = tomllib.loads((path or BUILT_IN).read_text(encoding="utf-8"))
    push = tuple(_scenario(entry, "payer", 202) for entry in table.get("push", []))
    redirect = tuple(_scenario(entry, "amount", 201) for entry in table.get("redirect", []))
    names = {scenario.name: scenario for scenario in (*push, *redirect)}
    payers = {scenario.payer: scenario for scenario in push}
    amounts = {scenario.amount: scenario for scenario in redirect}
    for scenario in push:
        _check(scenario, get_args(PushWord))
    for scenario in redirect:
        _check(scenario, get_args(RedirectWord))
    if len(names) != len(push) + len(redirect) or len(payers) != len(push):
        raise ScenarioError("two scenarios have one name or one payer number")
    if len(amounts) != len(redirect):
        raise ScenarioError("two scenarios have one amount")
    return Script(push, payers, names, redirect, amounts)


def _scenario(entry: dict[str, Any], key: Literal["payer", "amount"], accepted: int) -> Scenario:
    name = str(entry.get("name", "?"))
    try:
        expect = Expect(**entry["expect"])
        submit = tuple(
            SubmitStep(**{"answer": accepted, **step}) for step in entry.get("submit", [{}])
        )
        status = tuple(StatusStep(**step) for step in entry["status"])
        scenario = Scenario(
            name=str(entry["name"]),
            payer=str(entry[key]) if key == "payer" else "",
            amount=int(entry[key]) if key == "amount" else 0,
            expect=expect,
            about=str(entry.get("about", "")),
            opens=bool(entry.get("opens", False)),
            submit=submit,
            status=status,
        )
    except (KeyError, TypeError) as error:
        raise ScenarioError(f"scenario {name}: {error}") from None
    unknown = entry.keys() - {"name", key, "expect", "about", "opens", "submit", "status"}
    if unknown:
        raise ScenarioError(f"scenario {name}: unknown keys {sorted(unknown)}")
    return scenario


def _check(scenario: Scenario, words: tuple[str, ...]) -> None:
    if not scenario.submit or not scenario.status:
        raise ScenarioError(f"scenario {scenario.name}: no steps")
    for step in scenario.status:
        if step.status not in words:
            raise ScenarioError(f"scenario {scenario.name}: unknown status {step.status}")
    steps: tuple[SubmitStep | StatusStep, ...] = (*scenario.submit, *scenario.status)
    for one in steps:
        if isinstance(one.answer, str) and one.answer not in get_args(Quiet):
            raise ScenarioError(f"scenario {scenario.name}: unknown answer {one.answer}")
        if one.times < 1:
            raise ScenarioError(f"scenario {scenario.name}: a step takes place at least once")
    if scenario.expect.killed not in get_args(Killed):
        raise ScenarioError(f"scenario {scenario.name}: unknown victim {scenario.expect.killed}")
    if scenario.expect.state not in get_args(EndState):
        raise ScenarioError(f"scenario {scenario.name}: unknown end {scenario.expect.state}")


def submit_step(scenario: Scenario, nth: int) -> SubmitStep:
    """The step for the nth submission (from 0) of one reference."""
    return cast(SubmitStep, _nth(scenario.submit, nth))


def status_step(scenario: Scenario, nth: int, age_s: float) -> StatusStep:
    """The step for the nth question (from 0) that no timed step answered, at an age in seconds."""
    steps = [step for step in scenario.status if step.for_s <= 0 or age_s < step.for_s]
    if steps and steps[0].for_s > 0:
        return steps[0]
    counted = [step for step in scenario.status if step.for_s <= 0]
    return cast(StatusStep, _nth(counted or scenario.status, nth))


def coming_step(scenario: Scenario, nth: int, age_s: float) -> tuple[StatusStep, float]:
    """The step that follows the timed ones for the nth question, and in how many seconds that
    is, at an age in seconds."""
    wait_s = max([0.0, *(step.for_s - age_s for step in scenario.status if step.for_s > 0)])
    return status_step(scenario, nth, math.inf), wait_s


def _nth(steps: Any, nth: int) -> SubmitStep | StatusStep:
    for step in steps:
        if nth < step.times:
            return cast("SubmitStep | StatusStep", step)
        nth -= step.times
    return cast("SubmitStep | StatusStep", steps[-1])
