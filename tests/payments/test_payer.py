from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from vpay_tasks.config import KeysTable
from vpay_tasks.errors import Internal, InvalidRequest
from vpay_tasks.payments import payer

NUMBER = "237670000001"


@pytest.mark.parametrize(
    "given", [NUMBER, "+237670000001", "+237 670 00-00-01", "(237) 670.000001"]
)
def test_a_number_is_the_same_however_a_person_writes_it(given: str) -> None:
    assert payer.number(given) == NUMBER


REFUSED = ["", "+", "1" * 7, "1" * 16, "0237670000001", "²3767000000", "x", 46733123601, None]
# Said with the zero from abroad, it is another number.
REFUSED += ["+46 (0)733-123", "46(0) 733123601", "+46 ( 0733) 123 601", "+46(-0)733123601"]


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_number_is_refused_without_being_quoted(given: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        payer.number(given)
    assert len(str(given)) < 2 or str(given) not in str(refusal.value)


WRITTEN = [
    "46733123601",
    "+46 733 123 601",
    "46733-123-601",
    "46733  123601",
    "46/733/123/601",
    "46_733_123_601",
    "467,331,236,01",
    "+46\u00a0733\u00a0123\u00a0601",
    "46\u200b733\u2009123\u2014601",
    "4.6.7.3.3.1.2.3.6.0.1",
    "(46)(733)|123|601",
    "46\t733\n123\x00601",
    "\u0664\u0666\u0667\u0663\u0663\u0661\u0662\u0663\u0666\u0660\u0661",
    "\uff14\uff16\uff17\uff13\uff13\uff11\uff12\uff13\uff16\uff10\uff11",
    "\u2463\u2465\u2466\u2462\u2462\u2460\u2461\u2462\u2465\u24ea\u2460",
    "\u2074\u2076\u2077\u00b3\u00b3\u00b9\u00b2\u00b3\u2076\u2070\u00b9",
]


@pytest.mark.parametrize("written", WRITTEN, ids=range(len(WRITTEN)))
def test_a_number_is_taken_out_of_a_rails_words_however_it_is_written(written: str) -> None:
    left = payer.without_numbers(f"payer {written} is unknown")
    assert left.replace("+", "").replace("(", "") == "payer *** is unknown"


def test_words_and_short_numbers_stay() -> None:
    text = "ERR_1042: 3 of 10 tries, limit 50000"
    assert payer.without_numbers(text) == text


@pytest.mark.parametrize("digits", ["12345678", NUMBER, "123456789012345"])
def test_a_masked_number_shows_five_digits(digits: str) -> None:
    shown = payer.masked(digits)
    assert len(shown) == len(digits)
    assert sum(c.isdigit() for c in shown) == 5


def test_a_new_key_encrypts_and_an_old_one_still_opens() -> None:
    old, new = Fernet(Fernet.generate_key()), Fernet(Fernet.generate_key())
    sealed = payer.PayerRing([old]).seal(NUMBER)
    rotated = payer.PayerRing([new, old])
    assert rotated.open(sealed) == NUMBER
    assert payer.PayerRing([new]).open(rotated.seal(NUMBER)) == NUMBER
    with pytest.raises(Internal):
        payer.PayerRing([new]).open(sealed)
    with pytest.raises(Internal):
        payer.PayerRing([]).open(sealed)


def test_every_key_that_is_none_is_a_fault_and_none_is_quoted() -> None:
    faults: list[str] = []
    good = Fernet.generate_key().decode()
    keys = KeysTable(payer_ref=(SecretStr("canary"), SecretStr(good), SecretStr("é" * 44)))
    made = payer.ring(keys, faults)
    assert [fault.split(":")[0] for fault in faults] == ["keys.payer_ref.0", "keys.payer_ref.2"]
    assert "canary" not in str(faults)
    assert good not in repr(made)
    assert made.open(made.seal(NUMBER)) == NUMBER
