"""A merchant's side: endpoints that check signatures with code that is not ours."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from standardwebhooks import Webhook
from stripe import SignatureVerificationError, WebhookSignature

from vpay_sandbox.httpd import Answer, Reply, Request
from vpay_sandbox.journal import Journal

PREFIX = "/hooks/"
# What the vendors' libraries use: an older timestamp is a replay.
TOLERANCE_S = 300

Sabotage = Literal["drop-one", "wrong-secret"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL of one merchant, `/hooks/{merchant}/{id}`, and how it behaves.

    `secrets` are all tried. `fail_first`: so many attempts of each event are answered
    `fail_status`. `drop`: so many events are answered 2xx and left out of the journal.
    """

    merchant: str
    id: str
    secrets: tuple[str, ...]
    fail_first: int = 0
    fail_status: int = 500
    slow_ms: int = 0
    drop: int = 0


def load(path: Path) -> list[Endpoint]:
    """Reads `[[endpoints]]` of a TOML file (or the same in JSON); ValueError when at fault."""
    text = path.read_text(encoding="utf-8")
    table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    endpoints = []
    for entry in table.get("endpoints", []):
        try:
            endpoints.append(Endpoint(**{**entry, "secrets": tuple(entry["secrets"])}))
        except (TypeError, KeyError) as error:
            raise ValueError(f"{path}: endpoint {entry.get('id', '?')}: {error}") from None
    return endpoints


@dataclass(slots=True)
class Verdict:
    """What a delivery looked like. `stripe` and `standard` are None when the headers are absent."""

    merchant: str
    endpoint: str
    event: str | None = None
    stripe: bool | None = None
    standard: bool | None = None
    why: str = ""
    journalled: bool = True

    @property
    def verified(self) -> bool:
        return self.stripe is True and self.standard is not False and not self.why


class Merchants:
    """Every endpoint of every merchant of the sandbox."""

    def __init__(
        self, journal: Journal, endpoints: Iterable[Endpoint], *, sabotage: Sabotage | None = None
    ) -> None:
        self._journal = journal
        self._endpoints = {(one.merchant, one.id): one for one in endpoints}
        self._attempts: dict[tuple[str, str, str], int] = {}
        self._dropped: set[tuple[str, str, str]] = set()
        self._verdicts: dict[int, Verdict] = {}
        if self._endpoints and sabotage is not None:
            key, first = next(iter(self._endpoints.items()))
            wrong = tuple(f"{secret}x" for secret in first.secrets)
            self._endpoints[key] = (
                replace(first, drop=1) if sabotage == "drop-one" else replace(first, secrets=wrong)
            )

    def arrived(self, request: Request) -> None:
        merchant, _, endpoint = request.path.removeprefix(PREFIX).partition("/")
        self._verdicts[request.n] = Verdict(merchant, endpoint)

    async def answer(self, request: Request) -> Answer:
        verdict = self._verdicts[request.n]
        endpoint = self._endpoints.get((verdict.merchant, verdict.endpoint))
        if endpoint is None or not request.path.startswith(PREFIX) or request.method != "POST":
            verdict.why = "no such endpoint"
            return Reply(404)
        _verify(request, endpoint.secrets, verdict)
        await asyncio.sleep(endpoint.slow_ms / 1000)
        if not verdict.verified:
            return Reply(400, verdict.why.encode())
        return Reply(self._status(endpoint, verdict))

    def _status(self, endpoint: Endpoint, verdict: Verdict) -> int:
        key = (endpoint.merchant, endpoint.id, verdict.event or "")
        nth = self._attempts[key] = self._attempts.get(key, 0) + 1
        if nth <= endpoint.fail_first:
            return endpoint.fail_status
        mine = [one for one in self._dropped if one[:2] == key[:2]]
        if key in self._dropped or len(mine) < endpoint.drop:
            self._dropped.add(key)
            verdict.journalled = False
        return 200

    def answered(self, request: Request, status: int | None) -> None:
        """One line per delivery, written before its answer goes out."""
        verdict = self._verdicts.pop(request.n)
        if not verdict.journalled:
            return
        self._journal.write(
            "delivery",
            n=request.n,
            at=request.at_ms,
            merchant=verdict.merchant,
            endpoint=verdict.endpoint,
            event=verdict.event,
            attempt=request.headers.get("vpay-attempt"),
            sha256=hashlib.sha256(request.body).hexdigest(),
            length=len(request.body),
            verified=verdict.verified,
            stripe=verdict.stripe,
            standard=verdict.standard,
            why=verdict.why,
            status=status,
        )

    def command(self, verb: str, wish: dict[str, Any]) -> dict[str, Any] | None:
        """`endpoint`: adds an endpoint, or changes how one behaves from now on."""
        if verb != "endpoint":
            return None
        key = (str(wish["merchant"]), str(wish["id"]))
        if "secrets" in wish:
            wish = {**wish, "secrets": tuple(wish["secrets"])}
        known = self._endpoints.get(key)
        self._endpoints[key] = replace(known, **wish) if known else Endpoint(**wish)
        return {}

    def close(self) -> None:
        self._journal.close()


def _verify(request: Request, secrets: Sequence[str], verdict: Verdict) -> None:
    headers = request.headers
    if "stripe-signature" in headers:
        verdict.stripe = any(
            _stripe_accepts(request.body, headers["stripe-signature"], one) for one in secrets
        )
    if "webhook-signature" in headers:
        verdict.standard = any(_standard_accepts(request, secret) for secret in secrets)
    verdict.event = _event_id(request.body)
    if verdict.stripe is None:
        verdict.why = "no Stripe-Signature"
    elif not verdict.stripe:
        verdict.why = "stripe refuses the signature"
    elif verdict.standard is False:
        verdict.why = "standardwebhooks refuses the signature"
    elif headers.get("vpay-signature") != headers["stripe-signature"]:
        verdict.why = "Vpay-Signature and Stripe-Signature differ"
    elif verdict.event is None:
        verdict.why = "the body is no event with an id"
    elif headers.get("vpay-event-id", verdict.event) != verdict.event:
        verdict.why = "Vpay-Event-Id names another event"


def _stripe_accepts(body: bytes, header: str, secret: str) -> bool:
    try:
        # Decoded here: the oldest supported release of the package takes text only.
        WebhookSignature.verify_header(body.decode(), header, secret, TOLERANCE_S)
    except (SignatureVerificationError, UnicodeDecodeError):
        return False
    return True


def _standard_accepts(request: Request, secret: str) -> bool:
    """The library takes a text as base64 after `whsec_`, and bytes as they are."""
    forms: list[str | bytes] = [secret]
    if not secret.startswith("whsec_"):
        forms.append(secret.encode())
    for form in forms:
        try:
            Webhook(form).verify(request.body, dict(request.headers), json_parse=False)
        except Exception:  # noqa: BLE001, S112 its releases differ in what a bad secret raises
            continue
        return True
    return False


def _event_id(body: bytes) -> str | None:
    try:
        event = json.loads(body)
    except ValueError:
        return None
    identity = event.get("id") if isinstance(event, dict) else None
    return identity if isinstance(identity, str) else None
