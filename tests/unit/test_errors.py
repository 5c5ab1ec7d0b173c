"""The error tree against the contract's table, and what is written of an error."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks import errors
from vpay_tasks.errors import (
    LAST_ERROR_MAX,
    DeadReason,
    Retry,
    Severity,
    VpayError,
    describe,
    sanitise,
)

NEVER, BACK_OFF = Retry.NEVER, Retry.BACK_OFF
INFO, WARN, ERROR, PAGE = Severity.INFO, Severity.WARN, Severity.ERROR, Severity.PAGE

TABLE = {
    # name: retry, severity, HTTP, exit, how a job is parked
    "InvalidRequest": (NEVER, INFO, 400, 64, "rejected"),
    "Authentication": (NEVER, INFO, 401, 77, "rejected"),
    "Forbidden": (NEVER, INFO, 403, 77, "rejected"),
    "NotFound": (NEVER, INFO, 404, 1, "rejected"),
    "Conflict": (NEVER, INFO, 409, 1, "rejected"),
    "Idempotency": (NEVER, INFO, 400, 64, "rejected"),
    "RateLimited": (BACK_OFF, WARN, 429, 1, None),
    "Rail": (BACK_OFF, WARN, 502, 69, None),
    "RailCredentials": (BACK_OFF, PAGE, 502, 69, None),
    "RailMismatch": (BACK_OFF, ERROR, 502, 69, None),
    "Storage": (BACK_OFF, ERROR, 503, 69, None),
    "AmbiguousCommit": (BACK_OFF, ERROR, 503, 69, None),
    "Broker": (BACK_OFF, ERROR, 503, 69, None),
    "Configuration": (NEVER, ERROR, 500, 78, "misconfigured"),
    "NotBuilt": (NEVER, ERROR, 501, 1, "not_implemented"),
    "Exhausted": (BACK_OFF, ERROR, 502, 1, None),
    "Internal": (NEVER, PAGE, 500, 1, "poisoned"),
    "RoleRefused": (NEVER, PAGE, 500, 77, "poisoned"),
    "LeaseLost": (NEVER, WARN, 500, 1, "poisoned"),
}

CLASSES = {
    name: item
    for name, item in vars(errors).items()
    if inspect.isclass(item) and issubclass(item, VpayError) and item is not VpayError
}


def test_the_table_knows_every_class_of_the_tree() -> None:
    assert CLASSES.keys() == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_a_class_is_classified_as_the_contract_says(name: str) -> None:
    item = CLASSES[name]
    retry, severity, http, exit_code, reason = TABLE[name]
    assert (item.retry, item.severity, item.http, item.exit) == (retry, severity, http, exit_code)
    if reason is not None:
        assert item.dead_reason is DeadReason(reason)


@pytest.mark.parametrize("name", TABLE)
def test_the_tree_in_the_docstring_is_the_tree(name: str) -> None:
    tree = errors.__doc__ or ""
    (line,) = [line for line in tree.splitlines() if f"─ {name} " in line]
    depth = len(inspect.getmro(CLASSES[name])) - len(inspect.getmro(VpayError))
    assert (line.index("─ ") - 4) // 4 + 1 == depth


def test_errors_and_pages_alert() -> None:
    assert [s for s in Severity if s.alerts] == [ERROR, PAGE]


def test_the_whole_chain_of_causes_is_described() -> None:
    def fail() -> None:
        try:
            try:
                raise KeyError("a")
            except KeyError as error:
                raise ValueError("b") from error
        except ValueError:
            raise errors.Rail("c")  # noqa: B904 - an implicit context counts too

    with pytest.raises(errors.Rail) as caught:
        fail()
    assert describe(caught.value) == "Rail: c <- ValueError: b <- KeyError: 'a'"


def test_a_suppressed_context_is_not_described() -> None:
    with pytest.raises(errors.Rail) as caught:
        try:
            raise KeyError("secret")
        except KeyError:
            raise errors.Rail("told") from None
    assert describe(caught.value) == "Rail: told"


def test_a_cycle_of_causes_ends() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert describe(one).count("<-") == 7


def test_an_error_without_a_text_is_described_by_its_class() -> None:
    assert describe(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\x00b", "a b"),
        ("a\nb\tc\r", "a b c "),
        ("\x1b[31mred", " [31mred"),
        ("a\ud800b", "a b"),
        ("\u202egnp", " gnp"),
        ("é – ✓", "é – ✓"),
    ],
)
def test_what_postgres_or_a_terminal_refuses_becomes_a_space(text: str, clean: str) -> None:
    assert sanitise(text) == clean


@given(st.text(max_size=3 * LAST_ERROR_MAX), st.integers(1, LAST_ERROR_MAX))
def test_sanitised_text_always_fits(text: str, limit: int) -> None:
    clean = sanitise(text, limit)
    assert len(clean) <= limit
    assert clean.isprintable()
    clean.encode("utf-8")
