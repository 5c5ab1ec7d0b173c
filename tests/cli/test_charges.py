"""`vpay-tasks charges` and `charges show` as somebody reads them at night."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.test_cli import Commands, run
from tests.payment_kit import APPROVED, make_attempt, make_charge, opened, scalar
from tests.webhooks.world import context, endpoint, rows, settings
from vpay_tasks.cli import charges as commands
from vpay_tasks.cli import timeline
from vpay_tasks.core.answers import Failed, Succeeded
from vpay_tasks.core.charge import AttemptClass, Charge, FailureCode, State
from vpay_tasks.payments.settlement import settle
from vpay_tasks.status import RUN_AGAIN
from vpay_tasks.store import cases, charges, deliveries
from vpay_tasks.store.db import Database
from vpay_tasks.store.deliveries import Attempt
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

__all__ = ["run"]  # a fixture

HOUR = 3_600.0


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    with opened(dsn) as database:
        yield database


@pytest.fixture
def told(run: Commands, dsn: str) -> Commands:
    run.settings = (
        f'[database]\nurl = "{dsn}"\n[rails.mtn_momo]\nbase_url = "https://momo.example"\n'
    )
    return run


def read(told: Commands, *words: str) -> str:
    done = told("charges", *words)
    assert (done.returncode, done.stderr) == (0, "")
    for secret in (APPROVED, "gAAAA"):
        assert secret not in done.stdout
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    return done.stdout


def park(database: Database, charge: Charge) -> int:
    ((id_,),) = rows(
        database,
        "UPDATE vpay.jobs SET parked_at = now(), dead_reason = 'by_operator'"
        " WHERE payload ->> 'charge_id' = %s RETURNING id",
        charge.id,
    )
    return int(id_)


def test_charges_under_way_are_listed_the_oldest_first(told: Commands, database: Database) -> None:
    assert read(told) == "No charge is under way.\n"
    assert read(told, "--unresolved") == "No charge waits for a person.\n"
    young = make_charge(database, state=State.PENDING, age=60)
    rows(database, "UPDATE vpay.jobs SET run_at = now() + interval '90 min'")
    stuck = make_charge(database, state=State.PENDING, age=2 * HOUR)
    park(database, stuck)
    old = make_charge(database, state=State.UNRESOLVED, age=31 * HOUR, with_job=False)
    over = make_charge(database, state=State.SUCCEEDED, age=40 * HOUR)
    with database.connection() as connection:
        charges.contradicted(connection, over.id)
    make_charge(database, state=State.FAILED)
    lines = read(told).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [old.id, stuck.id, young.id]
    for line, parts in zip(
        lines[1:4],
        (
            ["unresolved", "10.00 EUR", "1.3 d", "never", "no poll"],
            ["pending", "2.0 h", "parked, by_operator"],
            ["mtn_momo", "in 1.5 h"],
        ),
        strict=True,
    ):
        assert [part for part in parts if part not in line] == []
    doubted = read(told, "--unresolved").splitlines()
    assert [line.split()[0] for line in doubted[1:3]] == [over.id, old.id]
    assert "succeeded, contradicted" in doubted[1]
    seen = json.loads(read(told, "--unresolved", "--json"))
    assert seen["number"] == 2
    assert [one["id"] for one in seen["charges"]] == [over.id, old.id]


def test_a_long_list_says_how_much_is_left_out(told: Commands, database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(
            "INSERT INTO vpay.charges (id, payment_intent_id, provider_code,"
            " provider_reference_id, state, amount, currency)"
            " SELECT 'ch_' || i, 'pi_' || i, 'mtn_momo', i, 'unresolved', 1, 'EUR'"
            " FROM generate_series(1, 103) AS i"
        )
    for words in ([], ["--unresolved"]):
        assert "(the 100 oldest of 103)" in read(told, *words)


def test_a_charge_is_told_from_its_intent_to_its_webhooks(
    told: Commands, database: Database
) -> None:
    charge = make_charge(database, state=State.SUBMITTED)
    make_attempt(database, charge, None)
    make_attempt(database, charge, AttemptClass.ACCEPTED)
    with database.connection() as connection:
        charges.asked(
            connection,
            charge.id,
            from_state=State.SUBMITTED,
            to_state=State.PENDING,
            streak="over",
            seen=0,
        )
    with database.transaction() as tx:
        settle(tx, charge, Succeeded("t-77"))
    ctx = context(database, Endpoints(settings(endpoint(), merchant="m_1")))
    fanout.drain(database, ctx.endpoints)
    delivery = scalar(database, "SELECT id FROM vpay.webhook_deliveries")
    attempt = Attempt(1, 1_764_000_000.0, 0.2, 500, "<html>no</html>")
    with database.connection() as connection:
        deliveries.record(connection, delivery, attempt, state="exhausted", delay=None)
    text = read(told, "show", charge.id)
    for part in (
        f"Charge  {charge.id}",
        "State   succeeded",
        "Amount  10.00 EUR from 467******01",
        f"Rail    mtn_momo, reference {charge.provider_reference_id}",
        "of 10.00 EUR",
        "submit 1  sent",
        "no answer is written down: the rail may have it",
        "submit 2  accepted",
        "the last one; 1 ask brought no end",
        "succeeded, the rail's transaction t-77",
        "capture of 10.00 EUR, from payer_clearing to merchant_payable",
        "payment_intent.succeeded evt_",
        "to main: exhausted",
        "main, attempt 1: 500 after 0.2 s: <html>no</html>",
        f"The merchant was not told at main (exhausted): vpay-tasks deliveries show {delivery}",
    ):
        assert part in text, part
    # What an event reports stands before it, though one transaction has stamped both.
    assert text.index("succeeded, the rail's") < text.index("payment_intent.succeeded evt_")
    # In order of time, and the same by whatever name a person has.
    seen = json.loads(read(told, "show", charge.id, "--json"))
    instants = [entry["at"] for entry in seen["timeline"]]
    assert instants == sorted(instants)
    for name in (charge.payment_intent_id, charge.provider_reference_id):
        assert json.loads(read(told, "show", name, "--json"))["charge"] == seen["charge"]
    assert (seen["charge"]["payer"], seen["charge"]["txn_id"]) == ("467******01", "t-77")


def test_what_to_do_depends_on_what_is_wrong(told: Commands, database: Database) -> None:
    quiet = make_charge(database, state=State.PENDING)
    rows(database, "UPDATE vpay.jobs SET run_at = now() + interval '90 min'")
    assert to_do(database, quiet) == ["Nothing by hand: the rail is asked in 1.5 h."]

    lost = make_charge(database, state=State.PENDING, with_job=False)
    (step,) = to_do(database, lost)
    assert step.startswith("Nobody asks the rail: the poll is gone.")

    parked = make_charge(database, state=State.PENDING)
    job = park(database, parked)
    (step,) = to_do(database, parked)
    assert step.endswith(f"{RUN_AGAIN.replace('…', str(job))};")

    overdue = make_charge(database, state=State.UNRESOLVED, age=30 * HOUR)
    rows(database, "UPDATE vpay.jobs SET last_error = 'Rail: 503' WHERE parked_at IS NULL")
    first, second, third = to_do(database, overdue)
    assert f"about the reference {overdue.provider_reference_id}" in first
    assert second == "The last ask ended by: Rail: 503"
    assert third == "Nothing by hand: the rail is asked next."

    failed = make_charge(database, state=State.PENDING)
    with database.transaction() as tx:
        settle(tx, failed, Failed(FailureCode.PAYER_DECLINED, "REJECTED"))
    assert to_do(database, failed) == []
    assert "Nothing: it is over, and what is to be told is told." in read(told, "show", failed.id)
    with database.connection() as connection:
        charges.contradicted(connection, failed.id)
    (step,) = to_do(database, failed)
    assert "The rail says the opposite of failed." in step
    # The statement that it offers is one.
    rows(database, step.partition("cleared up: ")[2])
    assert to_do(database, failed) == []


def test_what_went_wrong_is_not_cut_off_before_it_says_so(
    told: Commands, database: Database
) -> None:
    charge = make_charge(database, state=State.UNRESOLVED, age=36 * HOUR)
    chain = f"Exhausted: {'x' * 200} <- RailMismatch: another amount"
    rows(database, "UPDATE vpay.jobs SET last_error = %s", chain)
    text = read(told, "show", charge.id)
    assert "RailMismatch: another amount" in text
    assert "has not given its word in 1.5 d" in text


@pytest.mark.parametrize("width", [80, 110])
def test_nothing_is_wider_than_the_screen_and_no_word_is_broken(
    database: Database, width: int
) -> None:
    charge = make_charge(database, state=State.FAILED, age=30 * HOUR, with_job=False)
    words = "the rail has words " * 7
    make_attempt(database, charge, AttemptClass.UNKNOWN)
    rows(database, "UPDATE vpay.provider_requests SET detail = %s", words)
    with database.connection() as connection:
        charges.contradicted(connection, charge.id)
        case = cases.find(connection, charge.id, rails=[])
        lines = cases.in_doubt(connection, rows=10)
    assert case is not None
    shown = commands._told(case, width)
    listed = commands._as_text(lines, unresolved=True, width=width)
    for line in (shown + "\n" + listed).splitlines():
        assert len(line) <= width, line
        assert line == line.rstrip()
    assert charge.provider_reference_id in shown
    assert charge.id in listed
    # What is wrapped goes on under its own beginning, not under the clock.
    (at,) = (i for i, line in enumerate(shown.splitlines()) if ": the rail has words" in line)
    under = shown.splitlines()[at + 1]
    assert under.startswith(" " * 30)
    # Into a file each thing is one line.
    assert words.strip() in commands._told(case)


def to_do(database: Database, charge: Charge) -> list[str]:
    with database.connection() as connection:
        case = cases.find(connection, charge.id, rails=[])
    assert case is not None
    return list(timeline.steps(case))


def test_what_names_no_charge_is_told_with_what_would(told: Commands) -> None:
    for name in ("ch_nobody", "x\x1b[31m"):
        done = told("charges", "show", name)
        assert done.returncode == 1
        assert "give its id (ch_…)" in done.stderr
        assert "\x1b" not in done.stderr
