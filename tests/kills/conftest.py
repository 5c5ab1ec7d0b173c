"""The world of the kill matrix: one per process and file, rebuilt once a case has failed in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
import redis

from tests.conftest import Eventually
from tests.kills.world import World


class Worlds:
    """`current` stands until a case fails in it: what it leaves is no ground for others."""

    def __init__(self, make: Callable[[ExitStack], World]) -> None:
        self._make = make
        self._stack = ExitStack()
        self._world: World | None = None

    def current(self) -> World:
        if self._world is None:
            self._world = self._make(self._stack)
        return self._world

    def end(self) -> None:
        self._world = None
        self._stack.close()


@pytest.fixture(scope="module")
def worlds(
    tmp_path_factory: pytest.TempPathFactory,
    clone: Callable[[], AbstractContextManager[str]],
    _valkey_url: str,
    eventually: Eventually,
) -> Iterator[Worlds]:
    def make(stack: ExitStack) -> World:
        with redis.Redis.from_url(_valkey_url) as client:
            client.flushdb()
        dsn = stack.enter_context(clone())
        folder = tmp_path_factory.mktemp("world")
        return stack.enter_context(World(folder, dsn, _valkey_url, eventually))

    worlds = Worlds(make)
    yield worlds
    worlds.end()


@pytest.fixture
def world(worlds: Worlds, request: pytest.FixtureRequest) -> Iterator[World]:
    before = request.session.testsfailed
    yield worlds.current()
    if request.session.testsfailed > before:
        worlds.end()
