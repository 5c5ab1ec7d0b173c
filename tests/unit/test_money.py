from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpay_tasks.core import money
from vpay_tasks.errors import InvalidRequest

currencies = st.sampled_from(sorted(money.EXPONENTS))
amounts = st.integers(1, 2**53 - 1)


@pytest.mark.parametrize(
    ("currency", "exponent"), [("XAF", 0), ("JPY", 0), ("EUR", 2), ("USD", 2), ("TND", 3)]
)
def test_exponents_are_those_of_the_standard(currency: str, exponent: int) -> None:
    assert money.exponent(currency) == exponent


def test_the_currencies_without_two_digits_are_these() -> None:
    none = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
    three = "BHD IQD JOD KWD LYD OMR TND"
    for exponent, codes in ((0, none), (3, three)):
        found = [code for code, digits in money.EXPONENTS.items() if digits == exponent]
        assert sorted(found) == codes.split()
    assert set(money.EXPONENTS.values()) == {0, 2, 3}


def test_the_guilders_heir_is_known_and_withdrawn_codes_are_not() -> None:
    assert money.exponent("XCG") == 2
    for code in ("ANG", "HRK", "BGN", "SLL", "ZWL", "CUC", "MRO", "STD", "VEF", "BYR"):
        assert code not in money.EXPONENTS


@pytest.mark.parametrize("currency", ["", "eur", "XXX", "EURO", "E\x00R", None, 978, ["EUR"]])
def test_an_unknown_currency_is_refused(currency: object) -> None:
    with pytest.raises(InvalidRequest):
        money.exponent(currency)


@given(amounts, currencies)
def test_what_is_written_for_a_rail_is_read_back_as_the_same_amount(
    minor: int, currency: str
) -> None:
    text = money.major_text(minor, currency)
    assert "E" not in text
    assert money.same(text, minor, currency)
    assert not money.same(text, minor + 1, currency)


@given(amounts, currencies)
def test_a_whole_amount_is_exact_or_refused(minor: int, currency: str) -> None:
    unit = 10 ** money.exponent(currency)
    if minor % unit:
        with pytest.raises(InvalidRequest):
            money.whole(minor, currency)
    else:
        assert money.whole(minor, currency) * unit == minor


@pytest.mark.parametrize("value", ["10", "10.0", "10.00", 10, Decimal("10.00"), "010"])
def test_ten_is_ten_however_it_is_written(value: object) -> None:
    assert money.same(value, 1000, "EUR")
    assert money.same(value, 10, "XAF")


@pytest.mark.parametrize(
    "value",
    [
        None, True, 10.0, "", " 10", "10 ", "+10", "-10", "1e1", "10.", ".10", "1_0", "1,0", "NaN",
        "١٠", "10.001", 11, Decimal("NaN"), Decimal("Infinity"),
        Decimal("1e999999999"), 10**30, -10, [], {},
    ],
)  # fmt: skip
def test_anything_else_is_not_ten(value: object) -> None:
    assert not money.same(value, 1000, "EUR")


def test_a_number_too_long_to_print_is_not_ten() -> None:
    assert not money.same(10**5000, 1000, "EUR")
    assert money.read_back(Decimal("1E+999999999999999999")) is None


@pytest.mark.parametrize("minor", [0, -1, 2**53, True, 1.5, "10", None])
def test_what_is_no_chargeable_amount_is_refused(minor: object) -> None:
    with pytest.raises(InvalidRequest):
        money.checked_amount(minor, "EUR")
