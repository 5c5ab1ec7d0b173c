"""Settings: the only reader of the environment and of files.

One TOML file (`VPAY_CONFIG`, default `./vpay.toml`); `${NAME}` takes a value from the
environment and `${file:/path}` from a file, so that no secret has to stand in it;
`VPAY_DATABASE_URL` and `VPAY_BROKER_URL` win over the file. Every fault is found in one
reading and told at once: a person mends a file once, not key by key.

All durations are seconds. Every default is production's; a sandbox's file shortens them,
nothing else differs.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, PrivateAttr, SecretStr, ValidationError, field_validator

from vpay_tasks import transport
from vpay_tasks.errors import Configuration
from vpay_tasks.placeholders import Filling
from vpay_tasks.stand_ins import faults_of_rails, places_of_credentials
from vpay_tasks.tables import InboxTable, Name, Rungs, Seconds, SentryTable, Table, out_of_order
from vpay_tasks.transport import Pooled, Verified, VerifiedPooled

T = TypeVar("T", bound=Table)


def _address(value: SecretStr, *schemes: str) -> SecretStr:
    if fault := transport.unreadable(value.get_secret_value(), schemes):
        raise ValueError(fault)
    return value


class DatabaseTable(Table):
    url: SecretStr = SecretStr("postgresql:///vpay")

    @field_validator("url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        return _address(value, "postgresql", "postgres")

    pool: Annotated[int, Field(ge=1, le=200)] = 20
    """Connections per process for handlers, at the most. Below the threads (deploy/ starts 16),
    handlers wait for each other."""
    pulse: Literal["lock", "lease"] = "lock"
    """`lease` behind a transaction pooler: no session lock, no listening, nothing asked of a
    session when it begins; only leases tell the dead."""


class BrokerTable(Table):
    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")

    @field_validator("url")
    @classmethod
    def _is_broker(cls, value: SecretStr) -> SecretStr:
        return _address(value, "redis", "rediss", "valkey", "valkeys", "unix", "amqp", "amqps")


class DispatchTable(Table):
    queues: tuple[Name, ...] = ("payments", "webhooks", "inbox", "housekeeping", "default")
    claim_lease: Seconds = 30
    """How long a message may lie in the broker before its jobs are claimed anew. Lower: a
    busy fleet claims twice; higher: what a lost message held waits longer."""
    window: Annotated[float, Field(ge=1, le=4)] = 1.25
    """Messages claimed and not yet started, per live worker thread."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = None


class WorkerTable(Table):
    run_lease: Seconds = 30
    """Renewed by the pulse. Lower: a stall of Postgres frees jobs that still run."""
    grace: Seconds = 25
    """From the signal to the abandoning of what still runs. Five seconds less than the
    supervisor's own patience (30 s is the usual)."""
    modules: tuple[str, ...] = ()


class WebTable(Table):
    """Of one process that serves `vpay_tasks.web:app`."""

    threads: Annotated[int, Field(ge=1, le=200)] = 8
    """At work on the database at once, each with a connection. Lower: requests wait for each
    other; higher: connections that Postgres must have room for, times the processes."""
    patience: Seconds = 1.5
    """For the database, from the reading of a body to its answer; then 503. Senders give up
    after 2 s (MTN documents that). Lower: a busy database looks like a dead one."""
    body_deadline: Seconds = 5
    """For a whole body; then 408. Lower: a sender on a bad line is refused; higher: whoever
    drips holds a socket for longer."""
    metrics: bool = False
    """Serve `GET /metrics` on the same port. For a port that the internet does not reach."""


class KeysTable(Table):
    payer_ref: tuple[SecretStr, ...] = ()
    """Fernet keys, newest first: the first encrypts, all decrypt."""


class EndpointSecret(Table):
    secret: SecretStr
    expires: datetime | None = None

    @field_validator("expires")
    @classmethod
    def _aware(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("needs a time zone, as in 2030-01-31T00:00:00Z")
        return value


class EndpointTable(Table):
    id: Name
    url: Annotated[str, Field(min_length=1, max_length=2_048)]
    secrets: tuple[EndpointSecret, ...] = ()
    """Newest first. An endpoint without one is never posted to: its attempts fail."""
    types: tuple[str, ...] = ("*",)
    cap: Annotated[int, Field(ge=1, le=64)] | None = None

    @field_validator("secrets", mode="before")
    @classmethod
    def _bare_strings(cls, value: object) -> object:
        if isinstance(value, list):
            return [{"secret": item} if isinstance(item, str) else item for item in value]
        return value


ApiKey = Annotated[SecretStr, Field(min_length=32, max_length=255)]
"""Long enough that nobody guesses it, so its hash needs no salt and no stretching."""


class MerchantTable(Table):
    id: Name
    api_keys: tuple[ApiKey, ...] = ()
    """What `GET /v1/events` asks of this merchant, as `Authorization: Bearer …`; several, so
    that one is replaced without a gap. Without any the merchant has no such access."""
    endpoints: tuple[EndpointTable, ...] = ()


class LivemodeTable(Table):
    enabled: bool = False
    """Real money. Refused beside whatever is a sandbox's."""


class EgressTable(Table):
    """Where deliveries may go; see webhooks/egress.py."""

    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (443,)
    """Those that livemode calls. Each one more is a service that a URL can be aimed at."""
    allow_private_targets: bool = False
    """For sandboxes: addresses of this machine's own network. Never in livemode."""


class LaddersTable(Table):
    """Delays in seconds; the last rung repeats (spec 1 and 2) or ends the walk
    (delivery, inbox)."""

    error: Rungs = (5, 15, 60, 300, 900, 3_600)
    poll: Rungs = (10, 20, 30, 45, 60, 90, *(120,) * 14, 900)
    delivery: Rungs = (10, 30, 120, 600, 3_600, 21_600, 86_400)
    inbox: Rungs = (2, 4, 8, 16, 30, 60, 300, 1_800, 7_200, 86_400)
    """Between attempts to grant a vendor's event; the one after the last rung is the last."""
    hourly: Seconds = 3_600
    """For what is never parked: protected kinds after a bug, charges past the horizon."""
    unknown_kind: Seconds = 30


class WindowsTable(Table):
    submit_deadline: Seconds = 45
    """For everything a confirm does, rail call included; must stay below `recovery`."""
    recovery: Seconds = 60
    """A `submitting` charge younger than this still belongs to its confirm."""
    not_found: Seconds = 60
    """How long a rail denies a submit before it is submitted again; at least `submit_deadline`,
    or two submits of a charge are on their way at once. Lower: a lagging replica of the rail's
    has its way; higher: a payer whose submit was lost waits longer."""
    horizon: Seconds = 86_400
    """A charge without a terminal answer by then is unresolved: a person's, and submitted no
    more. Lower: rails that come back after a day of trouble find it given up."""
    unknown_kind: Seconds = 600
    callback_floor: Seconds = 10
    rail_connect: Seconds = 5
    rail_request: Seconds = 20
    delivery_connect: Seconds = 5
    delivery_attempt: Seconds = 10
    fan_out_every: Seconds = 5
    inbox_answer: Annotated[float, Field(gt=0, le=30)] = 2
    """From a vendor's request to its answer. Vendors count one of over 5 s as a failure."""
    scan_every: Seconds = 600
    sweep_every: Seconds = 3_600
    keep_events: Annotated[float, Field(ge=86_400, le=90 * 86_400)] = 90 * 86_400
    """What merchants can list and have sent again: events with their deliveries and attempts.
    At most 90 days, since receivers' answers are kept beside them and may name a payer."""


class Settings(Table):
    database: DatabaseTable = DatabaseTable()
    broker: BrokerTable = BrokerTable()
    dispatch: DispatchTable = DispatchTable()
    worker: WorkerTable = WorkerTable()
    web: WebTable = WebTable()
    rails: dict[str, dict[str, Any]] = Field(default_factory=dict, repr=False)
    keys: KeysTable = KeysTable()
    merchants: tuple[MerchantTable, ...] = ()
    inbox: dict[Name, InboxTable] = Field(default_factory=dict)
    livemode: LivemodeTable = LivemodeTable()
    egress: EgressTable = EgressTable()
    sentry: SentryTable = SentryTable()
    ladders: LaddersTable = LaddersTable()
    windows: WindowsTable = WindowsTable()
    _files: tuple[Path, ...] = PrivateAttr(())

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that `${file:…}` took values from: a secret is rotated in its own file."""
        return self._files

    @property
    def database_url(self) -> str:
        """The URL as connections are made with it: it knows what it leads to, and by which way
        only."""
        kinds = ((str, Pooled), (Verified, VerifiedPooled))
        kind = kinds[self.livemode.enabled][self.database.pulse == "lease"]
        return kind(self.database.url.get_secret_value())


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process. Raises Configuration with every fault, a line each."""
    env = os.environ if environ is None else environ
    path = Path(env.get("VPAY_CONFIG", "vpay.toml"))
    return read(path, env)


def settings_path() -> Path:
    """Where `load()` reads from: watched by workers for changed endpoints."""
    return Path(os.environ.get("VPAY_CONFIG", "vpay.toml"))


def operator(environ: Mapping[str, str] | None = None) -> str | None:
    """Who runs this command, for what is written down about it: whoever became root by sudo
    before root. None if the environment doesn't say."""
    env = os.environ if environ is None else environ
    return env.get("SUDO_USER") or env.get("USER") or env.get("LOGNAME") or None


WEBHOOK_SECRET = "VPAY_WEBHOOK_SECRET"  # noqa: S105 - the variable's name


def webhook_secrets() -> list[str]:
    """That of the environment, for commands that sign and verify by hand."""
    return [os.environ[WEBHOOK_SECRET]] if WEBHOOK_SECRET in os.environ else []


def read(path: Path, env: Mapping[str, str]) -> Settings:
    """The settings in `path`. A missing file is a fault only if the environment names none
    of the two addresses either: a container may be run by environment alone."""
    faults: list[str] = []
    raw: dict[str, Any] = {}
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if "VPAY_DATABASE_URL" not in env or "VPAY_CONFIG" in env:
            raise Configuration(
                f"no settings file {path}: create it, or name one with VPAY_CONFIG"
            ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Configuration(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Configuration(f"{path} is not TOML: {error}") from None
    filling = Filling(env, faults)
    raw = filling.fill(raw)
    for table, variable in (("database", "VPAY_DATABASE_URL"), ("broker", "VPAY_BROKER_URL")):
        if variable in env:
            raw[table] = {**raw.get(table, {}), "url": env[variable]}
            filling.written.pop(f"{table}.url", None)
    settings = checked(Settings, raw, "", faults)
    if settings is not None:
        faults += _cross_faults(settings)
        if settings.livemode.enabled:
            faults += _livemode_faults(settings, filling)
    if faults or settings is None:
        lines = "\n".join(f"  {fault}" for fault in sorted(set(faults)))
        raise Configuration(f"{path}: {len(set(faults))} fault(s)\n{lines}")
    settings._files = tuple(dict.fromkeys(filling.files))  # noqa: SLF001 its own module
    return settings


def checked(model: type[T], raw: Mapping[str, Any], where: str, faults: list[str]) -> T | None:
    """`raw` as `model`, or None with every fault appended to `faults` (paths under `where`)."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            path = _dotted((*where.split("."), *item["loc"]) if where else item["loc"])
            if item["type"] == "extra_forbidden":
                faults.append(f"{path}: unknown key{_nearest(model, item['loc'])}")
            else:
                faults.append(f"{path}: {item['msg'].removeprefix('Value error, ')}")
        return None


def _cross_faults(settings: Settings) -> Iterable[str]:
    windows = settings.windows
    yield from out_of_order(
        windows.submit_deadline, windows.recovery, windows.not_found, windows.horizon
    )
    seen = set()
    for merchant in settings.merchants:
        if merchant.id in seen:
            yield f"merchants: id {merchant.id!r} stands twice"
        seen.add(merchant.id)
        ids = [endpoint.id for endpoint in merchant.endpoints]
        for twice in sorted({i for i in ids if ids.count(i) > 1}):
            yield f"merchants.{merchant.id}.endpoints: id {twice!r} stands twice"
    keys = [(m.id, key.get_secret_value()) for m in settings.merchants for key in m.api_keys]
    for merchant_id, value in keys:
        if sum(value == other for _, other in keys) > 1:
            yield f"merchants.{merchant_id}.api_keys: one stands twice; a key is one merchant's"
        if not value.isascii() or not value.isprintable() or " " in value:
            yield f"merchants.{merchant_id}.api_keys: one holds what no header carries"


def _livemode_faults(settings: Settings, filling: Filling) -> Iterable[str]:
    """What may be so in a sandbox, and never beside real money. Endpoints' URLs and the
    length of their secrets: webhooks/vetting.py."""
    if settings.egress.allow_private_targets:
        yield "egress.allow_private_targets: is a sandbox's; livemode calls public addresses only"
    if not settings.keys.payer_ref:
        yield "keys.payer_ref: livemode stores payers' numbers under a key, so it needs one"
    if "SSLKEYLOGFILE" in filling.env:
        yield "SSLKEYLOGFILE is set: rails' connections would write their keys to that file"
    for where in _places_of_secrets(settings):
        if not {where, f"{where}.secret"} & filling.keys:
            yield f"{where}: in livemode ${{NAME}} or ${{file:/path}}; a settings file gets copied"
    servers = {"database.url": settings.database.url, "broker.url": settings.broker.url}
    yield from transport.faults(
        {where: url.get_secret_value() for where, url in servers.items()},
        written=filling.written,
        env=filling.env,
        pooled=settings.database.pulse == "lease",
    )
    yield from faults_of_rails(settings.rails)
    yield from settings.sentry.livemode_faults()


def _places_of_secrets(settings: Settings) -> Iterable[str]:
    yield from (f"keys.payer_ref.{n}" for n in range(len(settings.keys.payer_ref)))
    for m, merchant in enumerate(settings.merchants):
        yield from (f"merchants.{m}.api_keys.{n}" for n in range(len(merchant.api_keys)))
        for e, endpoint in enumerate(merchant.endpoints):
            where = f"merchants.{m}.endpoints.{e}.secrets"
            yield from (f"{where}.{n}" for n in range(len(endpoint.secrets)))
    for vendor, table in settings.inbox.items():
        yield from (f"inbox.{vendor}.{place}" for place in table.places_of_secrets())
    yield from places_of_credentials(settings.rails)
    yield from settings.sentry.places_of_secrets()


def _dotted(loc: Iterable[object]) -> str:
    return ".".join(str(part) for part in loc)


def _nearest(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """`, did you mean …?` with the known key nearest to the last part of `loc`."""
    owner: type[BaseModel] | None = model
    for part in loc[:-1]:
        if isinstance(part, str) and owner is not None and part in owner.model_fields:
            owner = _table_in(owner.model_fields[part].annotation)
    known = list(owner.model_fields) if owner is not None else []
    close = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else f"; known here: {', '.join(sorted(known))}"


def _table_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        if (table := _table_in(inner)) is not None:
            return table
    return None
