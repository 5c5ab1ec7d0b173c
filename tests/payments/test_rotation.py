"""Key rotation: every number ends under the newest key, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cryptography.fernet import Fernet

from tests.payment_kit import RING, make_charge, opened, scalar
from tests.webhooks.world import rows
from vpay_tasks.core.charge import State
from vpay_tasks.payments.payer import PayerRing
from vpay_tasks.payments.rotation import PASSES, Walk, rotate
from vpay_tasks.store import payers
from vpay_tasks.store.db import Database

OLD, NEW, LOST = (Fernet(Fernet.generate_key()) for _ in range(3))
BOTH = PayerRing([NEW, OLD])
NUMBERS = "23767000{:04d}"


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    with opened(dsn) as database:
        yield database


def fill(database: Database, number: int, *, key: Fernet = OLD, named: str = "ch_") -> None:
    """Charges whose payers are sealed with `key`."""
    ring = PayerRing([key])
    sealed = [ring.seal(NUMBERS.format(n)) for n in range(number)]
    with database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "INSERT INTO vpay.charges (id, payment_intent_id, provider_code,"
            " provider_reference_id, state, amount, currency, payer_ref, payer_masked)"
            " SELECT %(named)s || lpad(i::text, 4, '0'), %(named)s || i, 'mtn_momo',"
            " %(named)s || i, 'pending', 1, 'EUR', sealed, '237***'"
            " FROM unnest(%(sealed)s::text[]) WITH ORDINALITY AS given (sealed, i)",
            {"named": named, "sealed": sealed},
        )


def stored(database: Database) -> list[str]:
    found = rows(database, "SELECT payer_ref FROM vpay.charges WHERE payer_ref IS NOT NULL")
    return [sealed for (sealed,) in found]


def quiet(_: Walk) -> None:
    pass


def turned(database: Database, ring: PayerRing = BOTH, **more: bool) -> list[Walk]:
    return rotate(database, ring, told=quiet, **more)


def test_after_a_rotation_the_newest_key_alone_opens_every_number(database: Database) -> None:
    number = 2 * payers.PAGE + 50
    fill(database, number)
    first, second = turned(database)
    assert (first.older, first.renewed, first.unopened) == (number, number, 0)
    assert (second.older, second.renewed, second.looked_at) == (0, 0, number)
    alone = PayerRing([NEW])
    assert sorted(map(alone.open, stored(database))) == [NUMBERS.format(n) for n in range(number)]
    (again,) = turned(database)
    assert (again.older, again.renewed) == (0, 0)


def test_rotating_changes_nothing_else_about_a_charge(database: Database) -> None:
    make_charge(database, state=State.SUCCEEDED)
    make_charge(database, state=State.PENDING)
    query = "SELECT to_jsonb(charges) - 'payer_ref' FROM vpay.charges ORDER BY id"
    before = rows(database, query)
    passes = rotate(database, PayerRing([NEW, *_kit_keys()]), told=quiet)
    assert passes[0].renewed == 2
    assert rows(database, query) == before


def _kit_keys() -> list[Fernet]:
    ring = RING._ring
    assert ring is not None
    return list(ring._fernets)


def test_charges_without_a_payer_are_passed_over(database: Database) -> None:
    fill(database, 3)
    with database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "INSERT INTO vpay.charges (id, payment_intent_id, provider_code,"
            " provider_reference_id, state, amount, currency)"
            " VALUES ('ch_0002a', 'x', 'orange_money', 'x', 'pending', 1, 'EUR')"
        )
    assert [walk.looked_at for walk in turned(database)] == [3, 3]


def test_a_dry_run_counts_and_changes_nothing(database: Database) -> None:
    fill(database, 3)
    fill(database, 2, key=NEW, named="ch_new")
    fill(database, 1, key=LOST, named="ch_lost")
    before = stored(database)
    (walk,) = turned(database, dry_run=True)
    assert (walk.looked_at, walk.older, walk.unopened, walk.renewed) == (6, 4, 1, 0)
    assert stored(database) == before


def test_what_no_key_opens_is_named_and_the_rest_is_done(database: Database) -> None:
    fill(database, 3)
    fill(database, 25, key=LOST, named="ch_lost")
    last = turned(database)[-1]
    assert (last.older, last.unopened) == (25, 25)
    assert last.names == tuple(f"ch_lost{n:04d}" for n in range(1, 21))
    alone = PayerRing([NEW])
    assert sum(alone.is_newest(sealed) for sealed in stored(database)) == 3
    # With the lost key back at the end of the ring, the rest follows.
    assert turned(database, PayerRing([NEW, OLD, LOST]))[-1].older == 0
    assert all(map(alone.is_newest, stored(database)))


def test_a_number_that_is_written_behind_the_page_is_found_by_the_next_pass(
    database: Database,
) -> None:
    fill(database, 3)
    late = once(lambda: fill(database, 2, named="ch_0000"))
    passes = rotate(database, BOTH, told=late)
    assert [walk.older for walk in passes] == [3, 2, 0]
    assert all(map(PayerRing([NEW]).is_newest, stored(database)))


def test_a_process_that_goes_on_sealing_with_an_older_key_is_noticed(database: Database) -> None:
    fill(database, 1)
    names = iter("zyxwvut")  # each behind the one before, so behind every page

    def told(_: Walk) -> None:
        fill(database, 1, named=f"ch_0000{next(names)}")

    passes = rotate(database, BOTH, told=told)
    assert len(passes) == PASSES
    assert passes[-1].older > passes[-1].unopened


def once(act: Callable[[], None]) -> Callable[[Walk], None]:
    left = [act]

    def told(_: Walk) -> None:
        if left:
            left.pop()()

    return told


def test_a_number_that_somebody_has_changed_meanwhile_is_left_as_it_is(
    database: Database,
) -> None:
    fill(database, 2)
    with database.connection() as connection:
        page = payers.page(connection, "")
        first = next(iter(page))
        newer = PayerRing([NEW]).seal(NUMBERS.format(99))
        rows(database, "UPDATE vpay.charges SET payer_ref = %s WHERE id = %s", newer, first)
        renewed = {id_: (stood, "ours") for id_, stood in page.items()}
        assert payers.swap(connection, renewed) == 1
        assert payers.swap(connection, renewed) == 0
    query = "SELECT payer_ref FROM vpay.charges WHERE id = %s"
    assert scalar(database, query, first) == newer


def test_a_ring_without_keys_opens_and_renews_nothing() -> None:
    sealed = PayerRing([OLD]).seal(NUMBERS.format(1))
    assert not PayerRing([]).is_newest(sealed)
    assert PayerRing([]).renewed(sealed) is None
    assert not BOTH.is_newest(sealed)
    assert not BOTH.is_newest("no token")
    assert BOTH.renewed("no token") is None
