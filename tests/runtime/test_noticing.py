"""How soon a death is noticed: by what is waited for on the way, not by a clock in a test."""

from __future__ import annotations

from contextlib import closing

from vpay_tasks.config import Settings
from vpay_tasks.core.task import Registry
from vpay_tasks.runtime import pulse
from vpay_tasks.runtime.broker import make
from vpay_tasks.runtime.dispatcher import Dispatcher
from vpay_tasks.runtime.timers import Reaper
from vpay_tasks.store import leases
from vpay_tasks.store.db import Database


def test_the_pauses_between_a_kill_and_the_next_claim_are_less_than_two_seconds_together(
    settings: Settings, database: Database
) -> None:
    with (
        database.connection() as connection,
        closing(make(settings.broker.url.get_secret_value())) as broker,
        closing(Dispatcher(settings, Registry(), broker)) as dispatcher,
    ):
        until_the_reaper_looks = Reaper(Registry())(connection)
        until_a_dispatcher_looks = dispatcher.look()
    waited = leases.SILENCE_S + until_the_reaper_looks + until_a_dispatcher_looks
    assert waited < 2.0


def test_a_worker_may_miss_a_pulse_before_it_is_silent() -> None:
    assert 2 * pulse.EVERY_S < leases.SILENCE_S
