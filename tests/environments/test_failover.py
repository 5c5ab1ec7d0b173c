"""The primary dies and its standby takes over. A synchronous one has all that was answered; an
asynchronous one may have lost the latest of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import Eventually
from tests.e2e.conftest import STEERING
from tests.environments.servers import Pair, asked, waiting
from tests.environments.street import CUSTOMERS, Street
from vpay_tasks.core.task import Kind
from vpay_tasks.errors import AmbiguousCommit
from vpay_tasks.store import db, jobs

BEFORE = 12
AFTER = 24
DOCS = Path(__file__).parents[2] / "docs" / "failover.md"
DOCTOR = "import sys; from vpay_tasks.cli import main; sys.exit(main(['doctor', '--json']))"
SHOP = "tests shop"


def findings(street: Street) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR],
        env=street.fleet.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    return {found["code"]: found["what"] for found in json.loads(done.stdout)["findings"]}


def all_live(street: Street) -> bool:
    """No process has ended: each went on by itself."""
    return all(one.popen.poll() is None for one in street.fleet.processes)


@pytest.mark.more(seconds=40)
def test_a_failover_to_a_synchronous_standby_loses_nothing_that_was_answered(
    pair: Pair, street: Street, eventually: Eventually
) -> None:
    street.open(eventually)
    with street.customers() as charges:
        eventually(lambda: charges() >= BEFORE, within=60)
        pair.fail_over()
        known = charges()
        eventually(lambda: charges() >= known + AFTER, within=60)
    new = pair.standby.url()
    street.drain(new, eventually)
    assert street.check(new) == {}
    assert asked(new, "SELECT id FROM vpay.jobs WHERE parked_at IS NOT NULL") == []
    assert all_live(street)


@pytest.mark.more(seconds=60)
def test_without_its_synchronous_standby_nothing_is_answered_and_with_it_all_goes_on(
    pair: Pair, street: Street, eventually: Eventually
) -> None:
    street.open(eventually)
    old = pair.primary.url()
    with street.customers() as charges:
        eventually(lambda: charges() >= BEFORE, within=60)
        with pair.alone():
            eventually(lambda: len(waiting(old, SHOP)) == CUSTOMERS)
            known = charges()
            found = eventually(lambda: findings(street).get("standby_awaited", ""))
            assert "nothing is written" in found
            # Whoever is told to stop while its commits wait ends all the same.
            stopped = next(one for one in street.fleet.processes if one.name == "workers")
            stopped.signal(signal.SIGTERM)
            assert stopped.wait(60) == 1
            street.fleet.processes.remove(stopped)
            stopped.end()
            assert charges() == known
        street.fleet.workers(threads=4)
        eventually(lambda: charges() >= known + AFTER, within=60)
    street.drain(old, eventually)
    assert street.check(old) == {}
    assert asked(old, "SELECT id FROM vpay.jobs WHERE parked_at IS NOT NULL") == []
    assert all_live(street)
    # And the standby has it, too.
    pair.fail_over()
    assert street.check(pair.standby.url()) == {}


GATE = """
CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4242);
    RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON vpay.provider_requests
    FOR EACH ROW EXECUTE FUNCTION public.gate();
"""
"""Where a confirm has committed its charge and not yet that it will submit it."""


class Lost:
    """What happens on a primary whose standby hears nothing of it any more."""

    def __init__(self, pair: Pair, street: Street, eventually: Eventually) -> None:
        self.pair, self.street, self.eventually = pair, street, eventually
        self.old, self.new = pair.primary.url(), pair.standby.url()
        asked(self.old, STEERING + GATE)

    def replicated(self, query: str, *params: object) -> Any:
        """What the standby answers, once it has an answer."""
        return self.eventually(lambda: asked(self.new, query, *params))

    def cut_off_behind_a_charge(self) -> str:
        """The standby's last news is a charge whose attempt it never hears of; its id."""
        with ThreadPoolExecutor(1) as pool, psycopg.connect(self.old) as holder:
            holder.execute("SELECT pg_advisory_lock(4242)")
            paying = pool.submit(self.street.pay)
            ((charge,),) = self.replicated("SELECT id FROM vpay.charges WHERE state = 'submitting'")
            self.pair.link.refuse()
            holder.execute("SELECT pg_advisory_unlock(4242)")
            assert paying.result() == charge
        return str(charge)


def enqueued(url: str, gate: str) -> int:
    """A job that runs until `gate` is open, not before somebody pulls it forward."""
    with closing(db.connect(url, application="aside")) as connection:
        made = jobs.enqueue(connection, Kind("held"), {"gate": gate}, delay=3_600)
    assert made.id is not None
    return made.id


def runs(url: str, what: str) -> list[int]:
    query = "SELECT job_id FROM public.runs WHERE what = %s ORDER BY at"
    return [row[0] for row in asked(url, query, what)]


PULL = "UPDATE vpay.jobs SET run_at = now() WHERE id = %s"
TOKENS = "SELECT DISTINCT lease::text FROM audit.jobs WHERE lease IS NOT NULL"


@pytest.mark.more(seconds=60)
@pytest.mark.parametrize("pair", [False], indirect=True, ids=["asynchronous"])
def test_what_an_asynchronous_standby_never_heard_is_lost_and_everything_else_holds(
    pair: Pair, street: Street, eventually: Eventually
) -> None:
    lost = Lost(pair, street, eventually)
    street.fleet.config["worker"]["modules"] = ["steered"]
    street.open(eventually)
    job = enqueued(lost.old, "g")
    lost.replicated("SELECT id FROM vpay.jobs WHERE id = %s", job)
    kept = lost.cut_off_behind_a_charge()
    # On the old timeline the job runs, and a payment is made, settled, and told.
    asked(lost.old, PULL, job)
    eventually(lambda: runs(lost.old, "began") == [job])
    gone = street.pay()
    street.drain(lost.old, eventually)
    ((intent, reference),) = asked(
        lost.old,
        "SELECT payment_intent_id, provider_reference_id FROM vpay.charges WHERE id = %s",
        gone,
    )
    assert street.check(lost.old, at_rest=False) == {}
    pair.fail_over()
    # The charge is submitted again under its own reference, and the rail has asked its payer once.
    street.drain(lost.new, eventually)
    ((state, same),) = asked(
        lost.new, "SELECT state, provider_reference_id FROM vpay.charges WHERE id = %s", kept
    )
    assert state == "succeeded"
    assert effects(street, same) == ["prompt", "moved"]
    # The job runs again. Its run of the lost timeline still stands, and settles nothing.
    asked(lost.new, PULL, job)
    eventually(lambda: runs(lost.new, "began") == [job])
    asked(lost.new, "INSERT INTO public.gates VALUES ('g')")
    eventually(lambda: not asked(lost.new, "SELECT id FROM vpay.jobs WHERE id = %s", job))
    eventually(lambda: len(runs(lost.new, "ended")) == 2)
    assert all_live(street)
    # What is lost is exactly what the standby never heard of, and the rail tells it.
    broken = street.check(lost.new)
    assert set(broken) == {"I1", "I5", "I10"}
    assert set(broken["I10"]) == {f"the rail has the reference {reference}, and no charge has"}
    assert [line.split(": the ")[1] for line in broken["I1"]] == [
        f"intent {intent} was committed and is gone",
        f"charge {gone} was committed and is gone",
    ]
    # Both payments were told of on the old timeline; the one that is kept is told of anew.
    assert len(broken["I5"]) == 2
    assert all("of which there is no delivery" in line for line in broken["I5"])
    assert unknown_to(lost.new, street) == [reference]


def effects(street: Street, reference: str) -> list[str]:
    return [
        line["effect"]
        for line in street.lines("rail")
        if line["kind"] == "effect" and line["reference"] == reference
    ]


def unknown_to(url: str, street: Street) -> list[str]:
    """What an operator finds with the statement of the docs, and the rail's own of payments."""
    submitted = {
        line["reference"]
        for line in street.lines("rail")
        if line["kind"] == "effect" and line["effect"] == "moved"
    }
    (query,) = re.findall(r"^SELECT reference FROM statement.*?;$", DOCS.read_text(), re.M | re.S)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TEMPORARY TABLE statement (reference text)")
        with connection.cursor().copy("COPY statement FROM STDIN") as copy:
            for reference in submitted:
                copy.write_row([reference])
        return [row[0] for row in connection.execute(query.encode())]


@pytest.mark.more(seconds=30)
def test_an_old_primary_that_comes_back_is_read_and_answers_no_write(
    pair: Pair, eventually: Eventually
) -> None:
    pair.fail_over()
    pair.primary.start()
    # The URL is no fence: it leads to the first host that says that it takes writes.
    with closing(db.connect(pair.url, application="writer")) as connection:
        assert connection.info.port == pair.primary.port
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(jobs.enqueue, connection, Kind("nothing"), {})
            (pid,) = eventually(lambda: waiting(pair.primary.url(), "writer"))
            assert not writing.done()
            asked(pair.primary.url(), "SELECT pg_terminate_backend(%s)", pid)
            with pytest.raises(AmbiguousCommit):
                writing.result()
