"""The vendors of the settings' `[inbox.*]`, each with its scheme, its keys and its rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vpay_tasks.core import inbox as rules
from vpay_tasks.core.strict_json import Unparseable, read_event
from vpay_tasks.inbox.vendors import github, standard_webhooks, stripe, token
from vpay_tasks.inbox.vendors.scheme import Rules, Scheme, Sources
from vpay_tasks.inbox.verify import Headers, Reason, Refused
from vpay_tasks.tables import InboxTable

SCHEMES: Final[dict[str, Scheme]] = {
    "stripe": stripe.SCHEME,
    "standard-webhooks": standard_webhooks.SCHEME,
    "github": github.SCHEME,
    "token": token.SCHEME,
}
"""Closed, and none of them is "none": the settings know the same words."""

_SOURCE: Final = re.compile(r"header:[A-Za-z0-9-]{1,64}|[^.:\s]{1,64}(\.[^.:\s]{1,64}){0,15}")


@dataclass(frozen=True)
class Described:
    """What a verified delivery says of itself. `unparseable` tells what its body is not."""

    event_id: str
    type: str
    reference: str | None
    unparseable: str | None


@dataclass(frozen=True)
class Vendor:
    """One `[inbox.<name>]`. `keys` and `fingerprints` go by account; "" has those of accounts
    that have none of their own."""

    name: str
    scheme_name: str
    tolerance: float
    header: str
    id: Sources
    type: Sources
    reference: Sources
    any_account: bool
    keys: Mapping[str, Sequence[bytes]] = field(repr=False)
    fingerprints: Mapping[str, Sequence[str]] = field(repr=False)

    def verify(self, headers: Headers, body: bytes, account: str, *, now: float) -> str:
        """What it was verified with: the scheme and the secret's fingerprint. Raises Refused
        and nothing else, whatever it is given."""
        owner = account if account in self.keys else ""
        if owner != account and not self.any_account:
            raise Refused(Reason.MISMATCH)  # each account has its own secrets, this one none
        scheme = SCHEMES[self.scheme_name]
        at = Rules(now=now, tolerance=self.tolerance, header=self.header)
        place = scheme.check(headers, body, self.keys[owner], at)
        return f"{self.scheme_name}/{self.fingerprints[owner][place]}"

    def describe(self, headers: Headers, body: bytes) -> Described:
        """Read a body that was verified; never raises for what it holds."""
        json, unparseable = None, None
        try:
            json = read_event(body)
        except Unparseable as error:
            unparseable = str(error)
        singles = headers.singles()
        reference = rules.reference_of(rules.look_up(self.reference, json, singles))
        own = rules.look_up(self.id, json, singles)
        return Described(
            event_id=rules.event_id(own, body, reference),
            type=rules.type_of(rules.look_up(self.type, json, singles)),
            reference=reference,
            unparseable=unparseable,
        )


def build(tables: Mapping[str, InboxTable], faults: list[str]) -> dict[str, Vendor]:
    """The vendors by name; what is wrong with one is appended to `faults`."""
    built = {}
    for name, table in tables.items():
        before = len(faults)
        vendor = _vendor(name, table, f"inbox.{name}", faults)
        if len(faults) == before:
            built[name] = vendor
    return built


def _vendor(name: str, table: InboxTable, where: str, faults: list[str]) -> Vendor:
    scheme = SCHEMES[table.scheme]
    if table.header is not None and not scheme.header_is_free:
        faults.append(f"{where}.header: the scheme {table.scheme!r} has its own")
    if table.tolerance is not None and not scheme.timed:
        faults.append(f"{where}.tolerance: the scheme {table.scheme!r} signs no time")
    for what in ("id", "type", "reference"):
        for place, source in enumerate(getattr(table, what) or ()):
            if not _SOURCE.fullmatch(source):
                faults.append(
                    f"{where}.{what}.{place}: write header:x-name or keys: data.object.id"
                )
            elif what != "type" and not _signed(scheme, source):
                faults.append(
                    f"{where}.{what}.{place}: the scheme {table.scheme!r} doesn't sign this header:"
                    " with another one a caught delivery would be a new event"
                )
    secrets = {
        account: [secret.get_secret_value() for secret in given]
        for account, given in [("", table.secrets)]
        + [(account, own.secrets) for account, own in (table.accounts or {}).items()]
    }
    return Vendor(
        name=name,
        scheme_name=table.scheme,
        tolerance=table.tolerance if table.tolerance is not None else 300.0,
        header=table.header or scheme.header,
        id=scheme.id if table.id is None else table.id,
        type=scheme.type if table.type is None else table.type,
        reference=scheme.reference if table.reference is None else table.reference,
        any_account=table.accounts is None,
        keys={
            account: _keys(scheme, given, _where(where, account), faults)
            for account, given in secrets.items()
        },
        fingerprints={
            account: [fingerprint(secret) for secret in given] for account, given in secrets.items()
        },
    )


def _signed(scheme: Scheme, source: str) -> bool:
    kind, _, name = source.partition(":")
    signed = scheme.signed_headers
    return kind != "header" or signed is None or name.lower() in signed


def _where(where: str, account: str) -> str:
    return f"{where}.accounts.{account}.secrets" if account else f"{where}.secrets"


def _keys(scheme: Scheme, secrets: Sequence[str], where: str, faults: list[str]) -> list[bytes]:
    keys = []
    for place, secret in enumerate(secrets):
        try:
            keys.append(scheme.key(secret))
        except ValueError as error:
            faults.append(f"{where}.{place}: {error}")
    return keys


def fingerprint(secret: str) -> str:
    """To tell secrets apart, in rows and logs, without telling them."""
    return hashlib.sha256(b"vpay inbox key\0" + secret.encode()).hexdigest()[:12]
