"""Webhooks out. `verify` is for the receiver's own code, `sign` for its tests."""

from vpay_tasks.webhooks.sign import Event, SignatureRefused, sign, verify

__all__ = ["Event", "SignatureRefused", "sign", "verify"]
