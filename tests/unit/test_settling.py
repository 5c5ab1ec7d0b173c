"""How a run's end settles its row: every kind of kind against every way to end."""

from __future__ import annotations

import pytest

from vpay_tasks import errors
from vpay_tasks.core.job import Again, Answer, Done, Park
from vpay_tasks.core.ladders import Ladder
from vpay_tasks.core.settling import (
    Ending,
    Verb,
    ending_of_answer,
    ending_of_error,
    ending_of_unknown_kind,
)
from vpay_tasks.core.task import Kind
from vpay_tasks.errors import DeadReason, Severity, VpayError

USER = Kind("mine", max_attempts=3)
BUILT_IN = Kind("grant", protected=True, built_in=True)
SINGLETON = Kind("sweep", protected=True, built_in=True, singleton="sweep:x", every=7.0)
LADDER = Ladder((5, 50, 500), jitter=0)
HOURLY = 3_600.0

RETRY, PARK = Verb.RETRY, Verb.PARK
BACKING_OFF = ("RateLimited", "Rail", "RailCredentials", "RailMismatch", "Storage", "Broker")
REJECTED = (
    *("InvalidRequest", "Authentication", "Forbidden", "NotFound", "Conflict", "Idempotency"),
)
PARKED = {
    **dict.fromkeys(REJECTED, DeadReason.REJECTED),
    "Configuration": DeadReason.MISCONFIGURED,
    "NotBuilt": DeadReason.NOT_IMPLEMENTED,
    "Internal": DeadReason.POISONED,
    "RoleRefused": DeadReason.POISONED,
    "LeaseLost": DeadReason.POISONED,
}
UNCLASSIFIED = (ValueError("v"), SystemExit(3), KeyboardInterrupt(), MemoryError())


def made(name: str) -> VpayError:
    item: type[VpayError] = getattr(errors, name)
    return item("text")


def ended(kind: Kind, error: BaseException, failures: int = 0, spread: float = 0.0) -> Ending:
    return ending_of_error(kind, error, failures, spread=spread, error_ladder=LADDER)


def test_the_tables_here_know_every_class() -> None:
    classes = {c.__name__ for c in vars(errors).values() if isinstance(c, type)}
    tree = {n for n in classes if issubclass(getattr(errors, n), VpayError)} - {"VpayError"}
    assert tree == {*BACKING_OFF, *PARKED, "AmbiguousCommit", "Exhausted"}


@pytest.mark.parametrize("name", [*BACKING_OFF, "AmbiguousCommit"])
@pytest.mark.parametrize("kind", [USER, BUILT_IN])
def test_what_time_may_heal_walks_the_error_ladder(kind: Kind, name: str) -> None:
    endings = [ended(kind, made(name), failures) for failures in (0, 1)]
    assert [(e.verb, e.delay) for e in endings] == [(RETRY, 5), (RETRY, 50)]
    assert endings[0].error == f"{name}: text"


@pytest.mark.parametrize("name", [*BACKING_OFF, "AmbiguousCommit", *PARKED])
def test_a_singleton_keeps_its_interval_whatever_happens(name: str) -> None:
    ending = ended(SINGLETON, made(name), 10**6)
    assert (ending.verb, ending.delay, ending.reason) == (RETRY, 7.0, None)


@pytest.mark.parametrize("name", BACKING_OFF)
def test_a_users_task_is_parked_after_its_last_attempt(name: str) -> None:
    assert ended(USER, made(name), 1).verb is RETRY
    last = ended(USER, made(name), 2)
    assert (last.verb, last.reason) == (PARK, DeadReason.ATTEMPTS_EXHAUSTED)
    assert last.error == f"{name}: text"


@pytest.mark.parametrize("name", BACKING_OFF)
def test_a_protected_kind_has_no_last_attempt(name: str) -> None:
    ending = ended(BUILT_IN, made(name), 10**6)
    assert (ending.verb, ending.delay) == (RETRY, 500)


@pytest.mark.parametrize("name", PARKED)
def test_what_never_heals_parks_a_users_task_at_once(name: str) -> None:
    ending = ended(USER, made(name))
    assert (ending.verb, ending.reason) == (PARK, PARKED[name])


@pytest.mark.parametrize("name", PARKED)
def test_a_failure_and_the_park_it_leads_to_are_one_alert(name: str) -> None:
    assert made(name).severity.alerts is not ended(USER, made(name)).severity.alerts


@pytest.mark.parametrize("name", PARKED)
def test_what_never_heals_sends_a_protected_kind_to_the_hourly_rung(name: str) -> None:
    ending = ended(BUILT_IN, made(name))
    assert (ending.verb, ending.delay, ending.reason) == (RETRY, HOURLY, None)


@pytest.mark.parametrize("name", PARKED)
def test_a_protected_kind_never_waits_for_an_hour_without_an_alert(name: str) -> None:
    assert made(name).severity.alerts is not ended(BUILT_IN, made(name)).severity.alerts


@pytest.mark.parametrize("kind", [USER, BUILT_IN])
def test_past_the_horizon_a_job_comes_hourly_and_is_never_parked(kind: Kind) -> None:
    ending = ended(kind, made("Exhausted"), 10**6)
    assert (ending.verb, ending.delay, ending.reason) == (RETRY, HOURLY, None)


@pytest.mark.parametrize("error", UNCLASSIFIED, ids=lambda e: type(e).__name__)
def test_whatever_a_users_task_raises_walks_its_ladder_to_its_last_attempt(
    error: BaseException,
) -> None:
    assert [(ended(USER, error, n).verb, ended(USER, error, n).delay) for n in (0, 1)] == [
        (RETRY, 5),
        (RETRY, 50),
    ]
    assert ended(USER, error, 2).reason is DeadReason.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("error", UNCLASSIFIED, ids=lambda e: type(e).__name__)
def test_whatever_a_built_in_kind_raises_is_our_bug_and_hourly(error: BaseException) -> None:
    ending = ended(BUILT_IN, error, 2)
    assert (ending.verb, ending.delay) == (RETRY, HOURLY)


def test_a_kind_with_a_ladder_of_its_own_walks_that_one() -> None:
    own = Kind("own", ladder=Ladder((1, 2), jitter=0))
    assert [ended(own, made("Rail"), n).delay for n in (0, 1, 2)] == [1, 2, 2]


def test_an_error_may_ask_for_patience_but_never_for_haste() -> None:
    patient, hasty = made("Rail"), made("Rail")
    patient.not_sooner, hasty.not_sooner = 77.0, 1.0
    assert ended(BUILT_IN, patient).delay == 77.0
    assert ended(BUILT_IN, hasty).delay == 5


def test_jitter_is_the_ladders() -> None:
    jittered = Kind("own", ladder=Ladder((10,), jitter=0.5))
    assert ended(jittered, made("Rail"), spread=0.5).delay == 12.5


def test_an_error_text_that_postgres_refuses_is_mended() -> None:
    ending = ended(USER, ValueError("a\x00b" + "x" * 5_000))
    assert ending.error is not None
    assert ending.error.startswith("ValueError: a b")
    assert len(ending.error) == 2_000


@pytest.mark.parametrize(
    ("kind", "answer", "verb", "delay"),
    [
        (USER, None, Verb.FINISH, 0),
        (USER, Done(), Verb.FINISH, 0),
        (USER, Again(3), Verb.AGAIN, 3),
        (BUILT_IN, Done(), Verb.FINISH, 0),
        (BUILT_IN, Again(0), Verb.AGAIN, 0),
        (SINGLETON, None, Verb.AGAIN, 7.0),
        (SINGLETON, Done(), Verb.AGAIN, 7.0),
        (SINGLETON, Again(0), Verb.AGAIN, 0),
    ],
)
def test_an_answer_is_taken_at_its_word(
    kind: Kind, answer: Answer | None, verb: Verb, delay: float
) -> None:
    assert ending_of_answer(kind, answer) == Ending(verb, delay)


def test_a_task_that_gives_up_is_parked_with_its_text() -> None:
    ending = ending_of_answer(USER, Park("no\x00 way"))
    assert ending == Ending(
        Verb.PARK, error="no  way", reason=DeadReason.BY_TASK, severity=Severity.ERROR
    )


def test_a_built_in_kind_parks_for_a_reason_that_it_has_told_itself() -> None:
    ending = ending_of_answer(BUILT_IN, Park("other bytes", reason=DeadReason.POISONED))
    assert (ending.verb, ending.reason, ending.severity) == (
        PARK,
        DeadReason.POISONED,
        Severity.WARN,
    )


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 367 * 86_400])
def test_an_impossible_delay_is_refused_where_it_is_answered(after: float) -> None:
    with pytest.raises(ValueError, match="0 to 366 days"):
        Again(after)


@pytest.mark.parametrize(
    ("unknown_for", "verb", "reason"),
    [(0, Verb.UNKNOWN, None), (599.9, Verb.UNKNOWN, None), (600, PARK, DeadReason.UNKNOWN_KIND)],
)
def test_an_unknown_kind_waits_for_its_code_and_is_then_parked(
    unknown_for: float, verb: Verb, reason: DeadReason | None
) -> None:
    ending = ending_of_unknown_kind(unknown_for, every=30, give_up_after=600)
    assert (ending.verb, ending.reason) == (verb, reason)
    if verb is PARK:
        assert ending.severity is Severity.ERROR, "nobody has told it before"
        assert ending.error == ("no worker knows this kind: deploy its module, or delete the job")
    else:
        assert ending == Ending(Verb.UNKNOWN, 30)


@pytest.mark.parametrize("kind", [USER, BUILT_IN, SINGLETON])
@pytest.mark.parametrize("name", [*BACKING_OFF, *PARKED, "AmbiguousCommit", "Exhausted"])
def test_the_row_keeps_what_went_wrong_whatever_becomes_of_it(kind: Kind, name: str) -> None:
    for failures in (0, 2):
        assert ended(kind, made(name), failures).error == errors.describe(made(name))
    for error in UNCLASSIFIED:
        assert ended(kind, error).error == errors.describe(error)


def test_the_last_attempt_alerts_whatever_was_told_of_the_failures_before_it() -> None:
    for error in (made("Rail"), ValueError("v")):
        assert ended(USER, error, failures=2).severity is Severity.ERROR
