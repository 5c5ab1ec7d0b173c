"""What applications and handlers both call: intents, customers, checkout sessions."""

from vpay_tasks.payments.checkout import create_session, expire_session, session_of_secret
from vpay_tasks.payments.confirm import (
    ApproveOnPhone,
    Confirmation,
    Confirmed,
    Declined,
    Exists,
    Processing,
    Redirect,
    confirm,
)
from vpay_tasks.payments.customers import (
    create_customer,
    erase_customer,
    touch_customer,
    update_customer,
)
from vpay_tasks.payments.intent import cancel, create_intent
from vpay_tasks.payments.payer import PayerRing

__all__ = [
    "ApproveOnPhone",
    "Confirmation",
    "Confirmed",
    "Declined",
    "Exists",
    "PayerRing",
    "Processing",
    "Redirect",
    "cancel",
    "confirm",
    "create_customer",
    "create_intent",
    "create_session",
    "erase_customer",
    "expire_session",
    "session_of_secret",
    "touch_customer",
    "update_customer",
]
