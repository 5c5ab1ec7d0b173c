"""Redis or Valkey as a plain list with a blocking pop.

No acknowledgements, no scripts: what a crash loses here comes back with the database's
lease. In exchange a message is picked up in about a millisecond, many travel per round
trip, and a poisoned one can strand nobody.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import Final, cast

import dramatiq
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from vpay_tasks.errors import Broker, Configuration, describe
from vpay_tasks.runtime.carrier import CarryingBroker, advised, key
from vpay_tasks.runtime.envelope import Envelope, encode
from vpay_tasks.runtime.intake import Intake

POP_S: Final = 1.0
"""One blocking pop. Longer: a drain waits for it; shorter: more idle round trips."""


class ListBroker(CarryingBroker):
    """`publish` pushes, consumers pop. Needs Redis 7.0 or Valkey 7.2 (BLMPOP)."""

    def __init__(self, url: str, middleware: Iterable[dramatiq.Middleware] = ()) -> None:
        super().__init__(middleware)
        address = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
        try:
            self._client = redis.Redis.from_url(
                address,
                # Neither push nor pop may be repeated blindly: a repeated pop loses what the
                # first one took. The lease heals a lost answer; a retry here would not.
                retry=Retry(NoBackoff(), 0),
                socket_timeout=POP_S + 4,
                socket_connect_timeout=5,
                # A local socket has no such option, and its client refuses it.
                **({} if url.startswith("unix://") else {"socket_keepalive": True}),
            )
            # Options are read when a connection is made: told now, no thread dies of them. Not
            # by the pool, which would count it among its own: max_connections is an option.
            pool = self._client.connection_pool
            self._sample = pool.connection_class(**pool.connection_kwargs)
        except Exception as error:  # noqa: BLE001 - it raises whatever the parts of a URL do
            # Its text may quote the address, password included.
            raise Configuration(
                f"broker.url: the library can't read it, or an option of it"
                f" ({type(error).__name__})"
            ) from None

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        if not envelopes:
            return
        try:
            self._client.rpush(key(envelopes[0].queue), *map(encode, envelopes))
        except redis.RedisError as error:
            raise Broker(advised(f"publishing failed: {describe(error)}")) from None

    def ping(self) -> None:
        try:
            self._client.ping()
        except redis.RedisError as error:
            raise Broker(advised(f"the broker is out of reach: {describe(error)}")) from None

    def evicts(self) -> str | None:
        # INFO and not CONFIG GET, which rented servers refuse.
        try:
            told = cast("dict[str, object]", self._client.info("memory"))
        except redis.RedisError as error:
            raise Broker(advised(f"the broker is out of reach: {describe(error)}")) from None
        policy = str(told.get("maxmemory_policy", "noeviction"))
        return policy if told.get("maxmemory") and policy.startswith("allkeys") else None

    def gullible(self) -> str | None:
        sample = self._sample
        if not isinstance(sample, redis.SSLConnection):
            return None
        if sample.cert_reqs is ssl.CERT_REQUIRED and sample.check_hostname:
            return None
        return "take ssl_cert_reqs and ssl_check_hostname out"

    def pop(self, queue: str, most: int) -> list[bytes]:
        """Up to `most` messages, waiting up to a second for the first. Raises Broker."""
        try:
            answer = self._client.blmpop(POP_S, 1, key(queue), direction="LEFT", count=most)
        except redis.RedisError as error:
            raise Broker(advised(f"the broker is out of reach: {describe(error)}")) from None
        return cast("list[bytes]", answer[1]) if answer else []

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 1_000) -> ListConsumer:
        return ListConsumer(self, queue_name)

    def flush(self, queue_name: str) -> None:
        self._client.delete(key(queue_name))

    def close(self) -> None:
        self._client.close()


class ListConsumer(Intake):
    """Pops from one list."""

    def __init__(self, broker: ListBroker, queue: str) -> None:
        super().__init__(broker, queue)
        self._list = broker

    def take(self, most: int) -> list[bytes]:
        return self._list.pop(self._queue, most)
