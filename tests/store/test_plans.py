"""What the hot statements read, with a million rows and with the statistics that a queue has
at its worst. Bounds are pages looked at: times depend on the machine, these don't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.store.plans import (
    QUEUES,
    STATISTICS,
    TABLES,
    Plan,
    claiming,
    explain,
    explain_kept,
    keep,
    leased,
    load,
    some_uuid,
)
from vpay_tasks.core import walk
from vpay_tasks.store import (
    charges,
    claims,
    customers,
    db,
    deliveries,
    events,
    gauges,
    idempotency,
    inbox,
    jobs,
    lanes,
    leases,
    listing,
    ratelimit,
    sessions,
    settles,
    sql,
    strays,
)
from vpay_tasks.store.db import Connection, connect

pytestmark = pytest.mark.more(seconds=3)

MODES = ("force_custom_plan", "force_generic_plan")
VERBS = ["finish", "retry", "again", "park"]


@dataclass(frozen=True)
class Case:
    """One statement with its parameters, and the most it may read, sort and throw away.
    `rows` is how many leased rows it is given."""

    statement: sql.Statement
    params: dict[str, Any] = field(default_factory=dict)
    buffers: int = 0
    sorts: int = 0
    thrown_away: int = 0
    fetched: int = 500
    rows: int = 0


NUDGE = {"dedupe_key": "k500000", "floor": 0.0, "wait": 0.0, "adding": "{}"}
RAIL = {"provider_code": "rail0"}
REAP = {"max_crashes": 5, "protected": ["p"]}
GONE = {**REAP, "silence": 1.2, "settling": 0.0}
RUN = {"run": some_uuid(), "worker": "w", "run_lease": 30.0, "known": ["k"]}
ENDINGS = {
    "verbs": VERBS * 25,
    "delays": [1.0] * 100,
    "errors": ["e"] * 100,
    "reasons": ["by_task"] * 100,
}
FRONT = {"after_at": walk.FRONT.at, "after_id": walk.FRONT.id}
JOB = {"kind": "k", "payload": "{}", "priority": 1, "delay": 0.0}
FAN_OUT = {
    "event_ids": [f"ev{n}" for n in range(1_000_001, 1_000_051)],
    "for_events": [f"ev{n}" for n in range(1_000_001, 1_000_051)],
    "endpoint_ids": ["e"] * 50,
    "delivery_ids": [f"new{n}" for n in range(50)],
    "queue": "webhooks",
    "kind": "deliver_webhook",
    "priority": 2,
    "key_prefix": "webhook:",
}
STANDING = {
    "queue": "webhooks",
    "merchant_ids": ["m"],
    "endpoint_ids": ["e"],
    "cap": 1_000,
}
SCAN = {
    "merchant_id": "m",
    "endpoint_id": "e",
    "created_at": "2020-01-01Z",
    "id": "",
    "older": 60.0,
    "page": 500,
    "key_prefix": "webhook:",
}
INBOX = {"key_prefix": "inbox:", "queue": "inbox", "kind": "k", "priority": 1, "page": 500}
CASES = {
    "inbox waiting": Case(inbox.SQL["waiting"], {"cap": 1_000}, 2_500, 1_000, fetched=1_200),
    # One of them waits still.
    "inbox outcomes": Case(
        inbox.SQL["outcomes"], {"row_ids": list(range(1, 101))}, 500, thrown_away=1
    ),
    "inbox scan": Case(inbox.SQL["scan"], INBOX, 20_000, 1_000, fetched=1_100),
    "inbox sweep": Case(inbox.SQL["sweep_inbox"], {"age": 30 * 86_400.0}, 100, 3),
    "due_queues": Case(claims.SQL["due_queues"], {"queues": [*QUEUES, "empty"]}, 150),
    "stage": Case(claims.SQL["stage"], {"queue": "waiting"}, 400),
    # 28 rows (7 threads of each process), each leaving one index and entering another.
    "claim, a backlog of a million": Case(claims.SQL["claim"], claiming("plain"), 800, 28),
    "claim, batches": Case(claims.SQL["claim"], claiming("plain", batch=64), 12_000, 500),
    "claim, a saturated lane first": Case(claims.SQL["claim"], claiming("saturated"), 400, 28),
    "claim, a paused lane first": Case(claims.SQL["claim"], claiming("paused"), 400, 28),
    "claim, 100,000 waiting lanes": Case(claims.SQL["claim"], claiming("waiting"), 50, 1),
    "claim, 10,000 due lanes": Case(claims.SQL["claim"], claiming("lanes"), 1_100, 28),
    "claim, an empty queue": Case(claims.SQL["claim"], claiming("empty"), 10, 1),
    "start": Case(jobs.SQL["start"], RUN, 2_000, 100, rows=100),
    "release": Case(jobs.SQL["release"], {}, 3_000, 100, rows=100),
    "settle": Case(settles.SQL["settle"], ENDINGS, 3_000, 100, rows=100),
    "renew": Case(leases.SQL["renew"], {"run_lease": 30.0}, 2_000, 100, rows=100),
    "still_held": Case(leases.SQL["still_held"], {}, 600, rows=100),
    # The leased rows are looked through, and nothing but those.
    "reap_expired": Case(leases.SQL["reap_expired"], REAP, 500, thrown_away=204),
    "reap_gone": Case(leases.SQL["reap_gone"], GONE, 500, thrown_away=204),
    "pull_forward": Case(jobs.SQL["pull_forward"], NUDGE, 40),
    "stands_by": Case(jobs.SQL["stands_by"], NUDGE, 15),
    "a callback's reference": Case(
        charges.SQL["find_by_reference"], {**RAIL, "reference": "r50000"}, 15
    ),
    "a callback's reference, unknown": Case(
        charges.SQL["find_by_reference"], {**RAIL, "reference": "r0"}, 10
    ),
    "a callback's key": Case(charges.SQL["find_by_callback_key"], {**RAIL, "key": "k50000"}, 15),
    "a callback's key, unknown": Case(
        charges.SQL["find_by_callback_key"], {**RAIL, "key": "k0"}, 10
    ),
    "next_ask": Case(charges.SQL["next_ask"], {"id": "ck_50", "floor": 10.0, "window": 60.0}, 15),
    # Most of it is the trigger's function, read anew in each session.
    "asking": Case(charges.SQL["asking"], {"id": "ck_50"}, 100),
    "enqueue": Case(
        jobs.SQL["enqueue"], {**JOB, "queue": "plain", "dedupe_key": "new", "lane": "l"}, 40
    ),
    "enqueue, a key that is there": Case(
        jobs.SQL["enqueue"], {**JOB, "queue": "plain", "dedupe_key": "k5", "lane": None}, 15
    ),
    # The other parked rows are looked through.
    "adopt_unknown": Case(jobs.SQL["adopt_unknown"], {"kinds": ["k"]}, 60, thrown_away=100),
    "fan-out page": Case(events.SQL["page"], {"page": 50}, 150),
    "fan-out flip": Case(events.SQL["flip"], FAN_OUT, 2_500, 50),
    "deliveries read": Case(
        deliveries.SQL["read"], {"delivery_id": "d50000", "queue": "webhooks"}, 20
    ),
    "a page of a merchant's events": Case(
        listing.SQL["page_listed"], {"merchant_id": "m", "after": 500_000, "limit": 101}, 150
    ),
    "waiting_endpoints": Case(lanes.SQL["waiting_endpoints"], {}, 20),
    # What is pending is counted up to the cap.
    "standing": Case(lanes.SQL["standing"], STANDING, 400, 300, fetched=1_000),
    # A page of old events in the middle of a million.
    "events page_behind": Case(
        events.SQL["page_behind"], {"after": 500_000, "keep": 3_600.0, "page": 500}, 50
    ),
    "sweep_old": Case(
        events.SQL["sweep_old"],
        {"seqs": list(range(500_000, 500_500)), "page": 500},
        14_000,
        500,
        thrown_away=500,
    ),
    "events of one customer": Case(
        events.SQL["page_of_customer"], {"customer_id": "cus_5", "page": 500}, 10
    ),
    "customers page_idle": Case(
        customers.SQL["page_idle"], {**FRONT, "idle": 3.2e7, "page": 100}, 20, 100
    ),
    "customers page_to_redact": Case(
        customers.SQL["page_to_redact"], {**FRONT, "page": 100}, 10, 100
    ),
    "forget_intents": Case(
        customers.SQL["forget_intents"], {"id": "cus_5", "page": 500}, 20, 1, thrown_away=1
    ),
    "sessions page_due": Case(sessions.SQL["page_due"], {**FRONT, "page": 100}, 60, 100),
    "charges sweep_words": Case(charges.SQL["sweep_words"], {"keep": 7.8e6, "page": 500}, 20),
    "sweep_idempotency_keys": Case(
        idempotency.SQL["sweep_idempotency_keys"], {"page": 1_000}, 80, 3
    ),
    "count_attempt": Case(
        ratelimit.SQL["count_attempt"], {"id": b"x" * 32, "scope": "s", "window": 60.0}, 60
    ),
    "gauges: queues": Case(gauges.SQL["queues"], {}, 300),
    "gauges: jobs_by_state": Case(
        gauges.SQL["jobs_by_state"], {"queues": QUEUES, "cap": 100}, 800, 1_500, fetched=400
    ),
    # One step per lane that is due, up to 10,000.
    "gauges: queue_ages": Case(
        gauges.SQL["queue_ages"], {"queues": QUEUES}, 60_000, 10_100, fetched=10_100
    ),
    "gauges: parked_jobs": Case(gauges.SQL["parked_jobs"], {"queues": QUEUES, "limit": 20}, 30, 20),
}


KEPT = {
    "due_queues": db.CLAIM_PLANS,
    "stage": db.CLAIM_PLANS,
    "claim": db.CLAIM_PLANS,
    "start": db.RUN_PLANS,
    "settle": db.RUN_PLANS,
}
"""What runs on connections that keep their plans: the dispatcher's, starts' and settles'."""


@pytest.fixture(scope="module", params=STATISTICS)
def big(
    request: pytest.FixtureRequest, clone: Callable[[], AbstractContextManager[str]]
) -> Iterator[Connection]:
    """The loaded database, analysed afterwards or not."""
    with clone() as url, connect(url, application="tests") as connection:
        connection.prepare_threshold = None
        load(connection)
        if request.param == "fresh":
            for table in TABLES:
                connection.execute(f"VACUUM (ANALYZE) vpay.{table}".encode())
        yield connection


def plans(connection: Connection, case: Case) -> Iterator[Plan]:
    given = leased(connection, case.rows) if case.rows else {}
    params = {**given, **case.params}
    # What other cases wrote and rolled back stays in the indexes until a scan comes by, which
    # pays for looking at it and marks it. One that isn't measured does that, or a case's
    # figures would be those of the cases before it.
    explain(connection, case.statement, params, cache=MODES[0])
    for mode in MODES:
        yield explain(connection, case.statement, params, cache=mode)


@pytest.mark.parametrize("name", CASES)
def test_a_hot_statement_reads_what_it_needs_among_a_million_rows(
    big: Connection, name: str
) -> None:
    case = CASES[name]
    for plan in plans(big, case):
        assert plan.read_whole == []
        assert plan.buffers <= case.buffers
        assert plan.sorted_rows <= case.sorts
        assert plan.thrown_away <= case.thrown_away
        assert plan.fetched <= case.fetched


def test_a_saturated_lane_first_in_the_walk_keeps_nobody_from_their_turn(big: Connection) -> None:
    (due,) = claims.due_queues(big, ["saturated"])
    claim = claims.claim(
        big,
        due,
        dispatcher="d",
        claim_lease=30.0,
        window=1.25,
        batches={},
        lanes_first=True,
        cursor="",
    )
    leases = {id_: message.lease for message in claim.messages for id_ in message.ids}
    # A claim commits, and the next case must find what this one has found.
    assert sorted(jobs.release(big, leases)) == sorted(leases)
    ids = list(leases)
    rows = big.execute("SELECT lane FROM vpay.jobs WHERE id = ANY(%s)", (ids,)).fetchall()
    assert sorted(lane for (lane,) in rows) == sorted(f"b{n}" for n in range(1, 11))


def test_a_page_of_pending_deliveries_reads_no_other(big: Connection) -> None:
    page = Case(strays.SQL["scan_pending"], SCAN)
    ways = ("seqscan", "bitmapscan", "mergejoin")  # closed by db.CLAIM_PLANS, as the scan's are
    for way in ways:
        assert f"enable_{way}=off" in db.CLAIM_PLANS
        big.execute(f"SET enable_{way} = off".encode())
    try:
        found = list(plans(big, page))
    finally:
        for way in ways:
            big.execute(f"RESET enable_{way}".encode())
    for plan in found:
        assert plan.read_whole == []
        assert plan.buffers <= 4_500  # each row's job is looked up by its key
        assert plan.fetched <= 500


def test_while_nobody_is_gone_no_job_is_looked_at(big: Connection) -> None:
    nobody = Case(leases.SQL["reap_gone"], {**GONE, "settling": 3_600.0})
    for plan in plans(big, nobody):
        assert plan.fetched == 0
        assert plan.buffers <= 20


@pytest.fixture(scope="module")
def keeping(
    clone: Callable[[], AbstractContextManager[str]],
) -> Iterator[dict[str, Connection]]:
    """The loaded database, by connections that made their plans when it was almost empty."""
    nothing = {"ids": [1], "leases": [some_uuid()]}
    with clone() as url, connect(url, application="tests") as filling, ExitStack() as stack:
        made = {
            plans: stack.enter_context(connect(url, application="tests", plans=plans))
            for plans in set(KEPT.values())
        }

        def make_plans() -> None:
            for case in {case.statement.name: case for case in CASES.values()}.values():
                if plans := KEPT.get(case.statement.name):
                    keep(made[plans], case.statement, {**nothing, **case.params})

        load(filling, before=make_plans)
        yield made


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.statement.name in KEPT])
def test_a_plan_that_was_made_while_the_table_was_empty_stays_good(
    keeping: dict[str, Connection], name: str
) -> None:
    case = CASES[name]
    connection = keeping[KEPT[case.statement.name]]
    given = leased(connection, case.rows) if case.rows else {}
    params = {**given, **case.params}
    explain_kept(connection, case.statement, params)  # pays for what other cases rolled back
    plan = explain_kept(connection, case.statement, params)
    assert plan.read_whole == []
    assert plan.buffers <= case.buffers
    assert plan.sorted_rows <= case.sorts
    assert plan.thrown_away <= case.thrown_away
    assert plan.fetched <= case.fetched
