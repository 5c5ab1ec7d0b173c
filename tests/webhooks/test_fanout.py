"""From the outbox to deliveries: pages, poison, and several drains at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.webhooks.world import MERCHANT, append, append_many, endpoint, rows, settings
from vpay_tasks.errors import AmbiguousCommit, Internal, Storage, VpayError
from vpay_tasks.store import events
from vpay_tasks.store.db import Connection, Database
from vpay_tasks.store.events import Blame
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints
from vpay_tasks.webhooks.fanout import Pass, drain


@pytest.fixture
def two() -> Endpoints:
    return Endpoints(settings(endpoint(id="one"), endpoint(id="two")))


def poison(database: Database, *event_ids: str, state: str = "23514") -> None:
    """The database refuses deliveries of these events, with this SQLSTATE."""
    rows(database, "CREATE TABLE IF NOT EXISTS public.poison (id text, state text)")
    for event_id in event_ids:
        rows(database, "INSERT INTO public.poison VALUES (%s, %s)", event_id, state)
    rows(
        database,
        """
        CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE found text := (SELECT max(state) FROM public.poison WHERE id = NEW.event_id);
        BEGIN
            IF found IS NOT NULL THEN
                RAISE EXCEPTION 'poisoned' USING ERRCODE = found;
            END IF;
            RETURN NEW;
        END $$
        """,
    )
    rows(
        database,
        "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON vpay.webhook_deliveries"
        " FOR EACH ROW EXECUTE FUNCTION public.refuse()",
    )


def states(database: Database) -> dict[str, tuple[str, int]]:
    found = rows(database, "SELECT id, fanout_state, fanout_attempts FROM vpay.events")
    return {id_: (state, attempts) for id_, state, attempts in found}


def delivered(database: Database) -> list[tuple[str, str]]:
    query = "SELECT event_id, endpoint_id FROM vpay.webhook_deliveries ORDER BY 1, 2"
    return [(event_id, endpoint_id) for event_id, endpoint_id in rows(database, query)]


def alerts(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    found = (getattr(record, "fields", {}) for record in caplog.records)
    return [fields for fields in found if fields.get("alert")]


def test_nothing_pending_is_a_pass_that_moves_nothing(database: Database, two: Endpoints) -> None:
    assert drain(database, two) == Pass()


def test_each_event_becomes_one_delivery_per_endpoint_that_wants_it(database: Database) -> None:
    endpoints = Endpoints(
        settings(endpoint(id="all"), endpoint(id="failed", types=["payment_intent.payment_failed"]))
    )
    with database.transaction() as tx:
        first = append(tx)
        second = append(tx, type="payment_intent.payment_failed")
        other = append(tx, merchant_id="other")
    assert drain(database, endpoints) == Pass(seen=3, done=3, deliveries=3)
    assert delivered(database) == [(first, "all"), (second, "all"), (second, "failed")]
    assert states(database)[other] == ("done", 0)
    keys = rows(database, "SELECT dedupe_key FROM vpay.jobs ORDER BY 1")
    ids = rows(database, "SELECT 'webhook:' || id FROM vpay.webhook_deliveries ORDER BY 1")
    assert keys == ids


def test_a_pass_takes_a_page_and_says_when_there_is_more(
    database: Database, two: Endpoints
) -> None:
    append_many(database, 150)
    first = drain(database, two)
    assert (first.seen, first.done, first.again_now) == (100, 100, True)
    second = drain(database, two)
    assert (second.seen, second.done, second.again_now) == (50, 50, False)


def test_an_event_that_somebody_holds_stops_nobody_and_comes_later(
    database: Database, two: Endpoints
) -> None:
    held, free = append_many(database, 2)
    with database.transaction() as tx:
        tx.execute("SELECT 1 FROM vpay.events WHERE id = %s FOR UPDATE", (held,))
        assert drain(database, two).done == 1
    assert states(database) == {held: ("pending", 0), free: ("done", 0)}
    assert drain(database, two).done == 1


def test_an_event_that_commits_late_with_a_lower_number_is_found(
    database: Database, two: Endpoints
) -> None:
    with database.transaction() as tx:
        late = append(tx)
        append_many(database, 1)
        assert drain(database, two).done == 1
    assert drain(database, two).done == 1
    assert states(database)[late] == ("done", 0)
    ((last,),) = rows(database, "SELECT id FROM vpay.events ORDER BY list_seq DESC LIMIT 1")
    assert last == late


def test_drains_at_once_make_every_delivery_once(database: Database, two: Endpoints) -> None:
    ids = append_many(database, 250)
    barrier = threading.Barrier(4)
    passes: list[Pass] = []

    def run() -> None:
        barrier.wait()
        passes.extend(drain(database, two) for _ in range(4))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.done for one in passes) == 250
    assert delivered(database) == [(id_, name) for id_ in ids for name in ("one", "two")]
    listed = rows(database, "SELECT id FROM vpay.events ORDER BY list_seq")
    assert [id_ for (id_,) in listed] == ids


def test_four_failures_and_then_a_cure_lose_nothing(
    database: Database, two: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    (sick, healthy) = append_many(database, 2)
    poison(database, sick)
    for _ in range(4):
        drain(database, two)
    assert states(database) == {sick: ("pending", 4), healthy: ("done", 0)}
    rows(database, "DELETE FROM public.poison")
    assert drain(database, two) == Pass(seen=1, done=1, deliveries=2)
    assert alerts(caplog) == []
    assert len(delivered(database)) == 4


@pytest.mark.parametrize("state", ["23514", "22P02", "54000", "P0001", "VP001", "38001", "21000"])
def test_a_poisoned_event_is_given_up_with_exactly_one_alert(
    database: Database, two: Endpoints, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    sick, healthy = append_many(database, 2)
    poison(database, sick, state=state)
    for _ in range(8):
        drain(database, two)
    assert states(database) == {sick: ("failed", 5), healthy: ("done", 0)}
    assert [fields["event_id"] for fields in alerts(caplog)] == [sick]
    ((listed,),) = rows(database, "SELECT count(list_seq) FROM vpay.events")
    assert listed == 2


def test_99_poisoned_events_cost_99_alerts_and_their_neighbour_nothing(
    database: Database, two: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    *sick, healthy = append_many(database, 100)
    poison(database, *sick)
    first = drain(database, two)
    assert (first.done, first.again_now) == (1, True)
    assert states(database)[healthy] == ("done", 0)
    for _ in range(5):
        drain(database, two)
    assert sorted(str(fields["event_id"]) for fields in alerts(caplog)) == sorted(sick)


def test_a_full_page_of_poison_does_not_spin(database: Database, two: Endpoints) -> None:
    poison(database, *append_many(database, 100))
    assert not drain(database, two).again_now


PASSING = ["40P01", "40001", "55P03", "53100", "57P01", "57P02", "08006", "58030"]


@pytest.mark.parametrize("state", PASSING)
def test_what_passes_by_itself_ends_the_pass_and_counts_nothing(
    database: Database, two: Endpoints, state: str
) -> None:
    healthy, sick = append_many(database, 2)
    poison(database, sick, state=state)
    with pytest.raises(Storage):
        drain(database, two)
    assert states(database) == {sick: ("pending", 0), healthy: ("pending", 0)}


def test_what_passes_by_itself_ends_the_fallback_too_and_keeps_what_was_done(
    database: Database, two: Endpoints
) -> None:
    sick, healthy, unlucky = append_many(database, 3)
    poison(database, sick)
    poison(database, unlucky, state="40P01")
    with pytest.raises(Storage):
        drain(database, two)
    assert states(database) == {
        sick: ("pending", 1),
        healthy: ("done", 0),
        unlucky: ("pending", 0),
    }


class Impatient(Database):
    """Waits 50 ms for a lock instead of 15 s."""

    @contextmanager
    def transaction(self, **how: float) -> Iterator[Connection]:
        with super().transaction(**how) as tx:
            tx.execute("SET LOCAL lock_timeout = '50ms'")
            yield tx


def test_a_lock_that_is_not_given_in_time_counts_nothing(
    database: Database, dsn: str, two: Endpoints
) -> None:
    append_many(database, 1)
    impatient = Impatient(dsn, application="tests")
    with database.transaction() as tx:
        tx.execute("LOCK TABLE vpay.webhook_deliveries IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Storage, match="55P03"):
            drain(impatient, two)
    impatient.close()
    assert set(states(database).values()) == {("pending", 0)}


INSTALLATIONS = ["42501", "42883", "0A000", "25006", "55000", "57014", "XX000", "3F000", "28000"]


@pytest.mark.parametrize("state", INSTALLATIONS)
def test_what_hits_one_event_of_many_is_its_own_whatever_it_is_called(
    database: Database, two: Endpoints, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    sick, healthy = append_many(database, 2)
    poison(database, sick, state=state)
    assert drain(database, two) == Pass(seen=2, done=1, deliveries=2)
    assert states(database) == {sick: ("pending", 1), healthy: ("done", 0)}
    for _ in range(4):
        append_many(database, 1)
        drain(database, two)
    assert states(database)[sick] == ("failed", 5)
    assert [fields["event_id"] for fields in alerts(caplog)] == [sick]


@pytest.mark.parametrize("state", INSTALLATIONS)
def test_what_hits_every_event_is_nobodys_and_is_raised(
    database: Database, two: Endpoints, state: str
) -> None:
    ids = append_many(database, 3)
    poison(database, *ids, state=state)
    for _ in range(6):
        with pytest.raises((Internal, Storage), match=state):
            drain(database, two)
    assert set(states(database).values()) == {("pending", 0)}


def test_an_event_that_nobody_wants_clears_no_installation(
    database: Database, two: Endpoints
) -> None:
    (sick,) = append_many(database, 1)
    with database.transaction() as tx:
        unwanted = append(tx, merchant_id="other")
    poison(database, sick, state="42501")
    with pytest.raises(Internal, match="42501"):
        drain(database, two)
    assert states(database) == {sick: ("pending", 0), unwanted: ("done", 0)}


def test_poisoned_neighbours_of_a_missing_right_are_counted_and_it_is_not(
    database: Database, two: Endpoints
) -> None:
    sick, unlucky = append_many(database, 2)
    poison(database, sick)
    poison(database, unlucky, state="42501")
    with pytest.raises(Internal, match="42501"):
        drain(database, two)
    assert states(database) == {sick: ("pending", 1), unlucky: ("pending", 0)}


def test_a_page_that_cannot_even_be_read_is_raised(database: Database, two: Endpoints) -> None:
    rows(database, "ALTER TABLE vpay.events RENAME TO elsewhere")
    with pytest.raises(Internal, match="42P01"):
        drain(database, two)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (Storage("no connection"), Blame.NOBODY),
        (AmbiguousCommit("lost"), Blame.NOBODY),
        (Internal("the client can't send it"), Blame.INSTALLATION),
    ],
)
def test_what_the_client_says_itself_blames_no_event(error: VpayError, blamed: Blame) -> None:
    assert events.blame(error) is blamed


def test_a_missing_right_is_no_events_fault(database: Database, two: Endpoints) -> None:
    append_many(database, 2)
    rows(database, "ALTER TABLE vpay.webhook_deliveries RENAME TO elsewhere")
    with pytest.raises(Internal):
        drain(database, two)
    rows(database, "ALTER TABLE vpay.elsewhere RENAME TO webhook_deliveries")
    assert set(states(database).values()) == {("pending", 0)}
    assert drain(database, two).done == 2


def test_an_event_that_another_pass_moved_during_the_fallback_is_no_failure(
    database: Database, two: Endpoints
) -> None:
    (event_id,) = append_many(database, 1)
    page = [events.PendingEvent(event_id, MERCHANT, "payment_intent.succeeded")]
    drain(database, two)
    assert fanout._one_by_one(database, two, page) == Pass(seen=1)
    assert states(database) == {event_id: ("done", 0)}


def test_a_committed_pass_wakes_the_dispatchers_and_an_idle_one_does_not(dsn: str) -> None:
    class Sink:
        def __init__(self) -> None:
            self.keys: list[set[str]] = []

        def add(self, keys: set[str]) -> None:
            self.keys.append(keys)

        def close(self) -> None:
            pass

    sink = Sink()
    database = Database(dsn, application="tests", hints=sink)
    endpoints = Endpoints(settings(endpoint()))
    append_many(database, 1)
    drain(database, endpoints)
    drain(database, endpoints)
    database.close()
    assert sink.keys == [{"fanout:events"}, {""}]
