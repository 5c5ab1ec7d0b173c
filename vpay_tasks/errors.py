"""The error tree. Every error is classified once, by the layer that raises it.

    VpayError
    ├── InvalidRequest     the caller's input can never work
    ├── Authentication     who is asking is unknown
    ├── Forbidden          who is asking may not
    ├── NotFound           what was named does not exist
    ├── Conflict           it exists already, or another writer won
    ├── Idempotency        one key, two different requests
    ├── RateLimited        asked too often
    ├── Rail               a payment rail failed to answer, or answered nonsense
    │   ├── RailCredentials    it refused our own credentials
    │   └── RailMismatch       it answered for another reference, amount or currency
    ├── Storage            Postgres failed to answer
    │   └── AmbiguousCommit    a COMMIT was sent, and whether it stands is unknown
    ├── Broker             the message broker failed to answer
    ├── Configuration      the settings or the credentials are wrong
    ├── NotBuilt           the code does not do this (yet)
    ├── Exhausted          the rail's answer is overdue by the horizon
    └── Internal           a bug, a broken invariant, a poisoned row
        ├── RoleRefused        Postgres lets the role that is connected not do this
        └── LeaseLost          the row was settled or re-claimed by another run

Job decision, HTTP status, exit code and log level are read from the class (spec 6)
and never decided again.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class Retry(Enum):
    """Whether the same call may succeed later without anybody changing anything."""

    NEVER = "never"
    BACK_OFF = "back_off"


class Severity(Enum):
    """How loudly the failure is told. ERROR and PAGE alert; PAGE wakes a person."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    PAGE = "page"

    @property
    def alerts(self) -> bool:
        return self in (Severity.ERROR, Severity.PAGE)


class DeadReason(Enum):
    """Why a job is parked. Closed: the database refuses any other word."""

    POISONED = "poisoned"
    MISCONFIGURED = "misconfigured"
    NOT_IMPLEMENTED = "not_implemented"
    REJECTED = "rejected"
    CRASHED = "crashed"
    UNKNOWN_KIND = "unknown_kind"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    BY_TASK = "by_task"
    BY_OPERATOR = "by_operator"


class VpayError(Exception):
    """Root of the tree; raise one of its children."""

    retry: ClassVar[Retry] = Retry.NEVER
    severity: ClassVar[Severity] = Severity.PAGE
    http: ClassVar[int] = 500
    exit: ClassVar[int] = 1
    dead_reason: ClassVar[DeadReason] = DeadReason.POISONED

    not_sooner: float = 0.0
    """Seconds before which a retry makes no sense, whatever rung the ladder is on (a poll's
    own ladder, a Retry-After). Set on the instance by whoever raises it."""

    @classmethod
    def word(cls) -> str:
        """The class in one word, as a stranger is answered: `not_found`."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in cls.__name__).lstrip("_")


class InvalidRequest(VpayError):
    severity = Severity.INFO
    http = 400
    exit = 64
    dead_reason = DeadReason.REJECTED


class Authentication(VpayError):
    severity = Severity.INFO
    http = 401
    exit = 77
    dead_reason = DeadReason.REJECTED


class Forbidden(VpayError):
    severity = Severity.INFO
    http = 403
    exit = 77
    dead_reason = DeadReason.REJECTED


class NotFound(VpayError):
    severity = Severity.INFO
    http = 404
    dead_reason = DeadReason.REJECTED


class Conflict(VpayError):
    severity = Severity.INFO
    http = 409
    dead_reason = DeadReason.REJECTED


class Idempotency(VpayError):
    severity = Severity.INFO
    http = 400
    exit = 64
    dead_reason = DeadReason.REJECTED


class RateLimited(VpayError):
    retry = Retry.BACK_OFF
    severity = Severity.WARN
    http = 429


class Rail(VpayError):
    retry = Retry.BACK_OFF
    severity = Severity.WARN
    http = 502
    exit = 69


class RailCredentials(Rail):
    """Every payment over this rail waits until a person mends them."""

    severity = Severity.PAGE


class RailMismatch(Rail):
    """Moves nothing; a person must compare both sides."""

    severity = Severity.ERROR


class Storage(VpayError):
    retry = Retry.BACK_OFF
    severity = Severity.ERROR
    http = 503
    exit = 69


class AmbiguousCommit(Storage):
    """The connection broke while a COMMIT was on its way: it may or may not have happened. Or
    it did, and a failover may undo it: its wait for a standby was called off."""


class Broker(VpayError):
    retry = Retry.BACK_OFF
    severity = Severity.ERROR
    http = 503
    exit = 69


class Configuration(VpayError):
    severity = Severity.ERROR
    exit = 78
    dead_reason = DeadReason.MISCONFIGURED


class NotBuilt(VpayError):
    """Spec 6's NotImplemented (that name is Python's own)."""

    severity = Severity.ERROR
    http = 501
    dead_reason = DeadReason.NOT_IMPLEMENTED


class Exhausted(VpayError):
    """A charge passed its horizon without a terminal answer: hourly, alerted, never parked."""

    retry = Retry.BACK_OFF
    severity = Severity.ERROR
    http = 502


class Internal(VpayError):
    pass


class RoleRefused(Internal):
    """A process in the wrong role, or a migration whose rights nobody has given yet."""

    exit = 77


class LeaseLost(Internal):
    """Raised by `job.finishing()` when the row no longer carries this run's token.

    Nothing was written. Let it propagate: whoever holds the row now settles it.
    """

    severity = Severity.WARN


LAST_ERROR_MAX = 2_000
"""Characters of last_error kept: enough for a cause chain; the column refuses more."""


def describe(error: BaseException) -> str:
    """The whole cause chain on one line, without NUL or control characters, truncated.

    Postgres refuses NUL in text: an unsanitised message would make the very statement
    fail that records it, for ever.
    """
    parts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(parts) < 8:  # a cycle of causes must end
        text = _text_of(link)
        if hasattr(link, "sqlstate"):
            # The database's later lines (DETAIL) quote a row's values: not for a log.
            text = text.partition("\n")[0]
        if parts and text in parts[-1]:
            text = ""  # told already by whoever wrapped it
        parts.append(f"{type(link).__name__}: {text}" if text else type(link).__name__)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return sanitise(" <- ".join(parts))


def _text_of(error: BaseException) -> str:
    """What the error says of itself; an exception of a user's may fail even at that."""
    try:
        return str(error)
    except Exception as odd:  # noqa: BLE001 - it is the text of an error that is being told
        return f"(its text raised {type(odd).__name__})"


def sanitise(text: str, limit: int = LAST_ERROR_MAX) -> str:
    """`text` fit for a log line and for a Postgres text column of `limit` characters."""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit * 2])
    # A lone surrogate is not printable, so it is gone by now; encoding can't fail.
    return clean[:limit]
