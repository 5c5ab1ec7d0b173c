from __future__ import annotations

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


@pytest.mark.parametrize("given", ["", "+", "1" * 7, "1" * 16, "0237670000001", "²3767000000", "x"])
def test_what_is_no_number_is_refused_without_being_quoted(given: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        payer.number(given)
    assert len(given) < 2 or given not in str(refusal.value)


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
