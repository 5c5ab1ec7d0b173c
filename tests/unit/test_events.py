from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from vpay_tasks.core.charge import MESSAGES, FailureCode, IntentStatus, PaymentIntent
from vpay_tasks.core.events import EventType, payment_intent_object, render

INTENT = PaymentIntent(
    id="pi_1",
    merchant_id="m_1",
    customer_id="cus_1",
    amount=1050,
    currency="EUR",
    status=IntentStatus.SUCCEEDED,
    amount_received=1050,
    amount_refunded=0,
    last_payment_error=None,
    metadata={"order": "é ✓"},
    livemode=False,
    created_at=datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC),
    updated_at=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
)


def test_a_body_is_these_bytes() -> None:
    body = render(
        "evt_1",
        EventType.PAYMENT_INTENT_SUCCEEDED,
        created=1767323046,
        livemode=False,
        merchant="m_1",
        thing=payment_intent_object(INTENT, "ch_1"),
    )
    assert body.decode() == (
        '{"id":"evt_1","object":"event","type":"payment_intent.succeeded","created":1767323046,'
        '"livemode":false,"merchant":"m_1","data":{"object":{"id":"pi_1",'
        '"object":"payment_intent","amount":1050,"amount_received":1050,"amount_refunded":0,'
        '"currency":"EUR","status":"succeeded","last_payment_error":null,'
        '"metadata":{"order":"é ✓"},"created":1767323045,"latest_charge":"ch_1"}}}'
    )


@pytest.mark.parametrize("code", list(FailureCode))
def test_a_failure_is_told_by_its_code_and_a_sentence(code: FailureCode) -> None:
    failed = dataclasses.replace(
        INTENT,
        status=IntentStatus.REQUIRES_PAYMENT_METHOD,
        amount_received=0,
        last_payment_error=code,
    )
    told = payment_intent_object(failed, None)
    assert told["last_payment_error"] == {"code": code.value, "message": MESSAGES[code]}
    assert told["latest_charge"] is None
