"""What the tables of the settings are made of, and those of the inbox."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

Seconds = Annotated[float, Field(gt=0, le=366 * 86_400)]
Rungs = Annotated[tuple[Seconds, ...], Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Table(BaseModel):
    """A table of the settings file. Unknown keys are faults: a typing error in a key would
    otherwise silently run production on a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class AccountTable(Table):
    secrets: Annotated[tuple[SecretStr, ...], Field(min_length=1, max_length=8)]


class InboxTable(Table):
    """A vendor whose webhooks are taken in at `/inbox/<its name>`."""

    scheme: Literal["stripe", "standard-webhooks", "github", "token"]
    """How its deliveries are verified. There is no "none"."""
    secrets: Annotated[tuple[SecretStr, ...], Field(min_length=1, max_length=8)]
    """Any of them verifies: add the new one, tell the vendor, drop the old one."""
    tolerance: Annotated[float, Field(gt=0, le=3_600)] | None = None
    """Of a signed time against this machine's clock; 300 unless said. Lower: a clock that
    drifts refuses all. Higher: a caught delivery can be sent again for longer."""
    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = None
    """Where the scheme `token` looks; `Authorization` unless said."""
    id: tuple[str, ...] | None = None
    """Where its events name themselves: `header:x-name`, or keys into the body, `data.id`."""
    type: tuple[str, ...] | None = None
    reference: tuple[str, ...] | None = None
    """Where they say what they are about. Events about one thing are granted one at a time."""
    accounts: dict[Name, AccountTable] | None = None
    """Secrets by account, for `/inbox/<vendor>/<account>`; then no other account is taken, and
    with `accounts = {}` none. Left out, `secrets` verify for all: what was caught of one could
    be sent to another."""

    def places_of_secrets(self) -> Iterator[str]:
        """Where they stand in this table, each of them."""
        for number in range(len(self.secrets)):
            yield f"secrets.{number}"
        for name, account in (self.accounts or {}).items():
            for number in range(len(account.secrets)):
                yield f"accounts.{name}.secrets.{number}"


_DSN: Final = re.compile(
    r"https?://[A-Za-z0-9]{1,128}@"
    r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:[1-5]?[0-9]{1,4})?(/[\w.~-]{1,64}){0,4}/[0-9]{1,20}",
    re.ASCII,
)
"""A subset of what the SDK reads, so that it never meets one that makes it raise and quote it."""


class SentryTable(Table):
    """Where alerts go besides the log; see sentry.py. Without a DSN nothing is loaded or sent."""

    dsn: SecretStr | None = None
    environment: Name = "production"

    @field_validator("dsn")
    @classmethod
    def _is_dsn(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _DSN.fullmatch(value.get_secret_value()):
            raise ValueError("must be as Sentry shows it: https://KEY@HOST/PROJECT")
        return value

    def places_of_secrets(self) -> Iterator[str]:
        """Where they stand, in dotted paths of the file."""
        if self.dsn is not None:
            yield "sentry.dsn"

    def livemode_faults(self) -> Iterator[str]:
        """What livemode refuses: ids of payments would travel in the clear."""
        if self.dsn is not None and not self.dsn.get_secret_value().startswith("https:"):
            yield "sentry.dsn: in livemode https://"


def out_of_order(
    submit_deadline: float, recovery: float, not_found: float, horizon: float
) -> Iterator[str]:
    """What is wrong with these windows beside each other, a line each."""
    if submit_deadline >= recovery:
        yield (
            "windows.submit_deadline: must be shorter than windows.recovery, or recovery"
            " judges charges whose confirm still talks to the rail"
        )
    if not_found < submit_deadline:
        yield (
            "windows.not_found: must not be shorter than windows.submit_deadline, or a charge is"
            " submitted again while its last submit is still on its way"
        )
    if horizon <= recovery + not_found:
        yield (
            "windows.horizon: must be longer than windows.recovery and windows.not_found"
            " together, or no charge is ever submitted again"
        )
