"""What applications and handlers both call: `payments.create_intent`, `.confirm`, `.cancel`."""

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
    "create_intent",
]
