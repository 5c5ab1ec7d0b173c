"""Money is an integer of minor units and a currency; its exponent stands in one table.

A float never holds money. Towards a rail an amount becomes a Decimal, and what a rail
reads back is compared as one: "10" is "10.00".
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from vpay_tasks.errors import InvalidRequest

AMOUNT_MAX: Final = 2**53 - 1
"""Receivers that read JSON numbers as doubles round anything larger; the columns refuse it."""

# ISO 4217, active currencies that are tender; every code not in one of the three has two.
_NONE = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_TWO = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD"
    " CDF CHF CNY COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD"
    " GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL"
    " MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN"
    " PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP"
    " SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG"
)
_THREE = "BHD IQD JOD KWD LYD OMR TND"

EXPONENTS: Final[dict[str, int]] = {
    code: exponent
    for exponent, codes in ((0, _NONE), (2, _TWO), (3, _THREE))
    for code in codes.split()
}

_PLAIN = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,9})?", re.ASCII)


def exponent(currency: object) -> int:
    """Digits after the point. Raises InvalidRequest for a code that is not in the table."""
    code = currency if isinstance(currency, str) else ""
    if code not in EXPONENTS:
        raise InvalidRequest(f"currency {code[:8]!r}: an ISO 4217 code in capitals, such as XAF")
    return EXPONENTS[code]


def checked_amount(minor: object, currency: str) -> int:
    """`minor` if it can be charged: a whole number from 1 to AMOUNT_MAX of a known currency.
    Raises InvalidRequest."""
    exponent(currency)
    if isinstance(minor, bool) or not isinstance(minor, int) or not 1 <= minor <= AMOUNT_MAX:
        raise InvalidRequest(f"amount: a whole number of minor units from 1 to {AMOUNT_MAX}")
    return minor


def major(minor: int, currency: str) -> Decimal:
    """1050 of EUR is Decimal("10.50")."""
    return Decimal(minor).scaleb(-exponent(currency))


def major_text(minor: int, currency: str) -> str:
    """The same as plain digits, as rails want it: never 1E+3."""
    return format(major(minor, currency), "f")


def whole(minor: int, currency: str) -> int:
    """The amount for a rail that takes whole numbers only. Raises InvalidRequest on a
    fraction: to round it would charge another amount than the merchant asked for."""
    amount = major(minor, currency)
    if amount != amount.to_integral_value():
        raise InvalidRequest(f"amount: this rail takes whole {currency} only, not {amount}")
    return int(amount)


def read_back(value: object) -> Decimal | None:
    """An amount in a rail's answer, or None for what is no plain number. A float is none: it
    has lost what was written."""
    match value:
        case bool():
            return None
        case int() | Decimal():
            number = Decimal(value)
            # Before it is written out: 1e999999999 would be a gigabyte of digits.
            if not number.is_finite() or number.adjusted() > 18 or number < 0:
                return None
            text = format(number, "f")
        case str():
            text = value
        case _:
            return None
    return Decimal(text) if _PLAIN.fullmatch(text) else None


def same(value: object, minor: int, currency: str) -> bool:
    """Whether a rail's `value` is exactly our amount: 10 and "10.00" are, "10.001" isn't."""
    amount = read_back(value)
    return amount is not None and amount == major(minor, currency)
