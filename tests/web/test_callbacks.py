"""What a callback is answered and what it moves, over real HTTP."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

import pytest

from tests.payment_kit import APPROVED, events, make_charge, make_intent, read_charge, scalar
from tests.rails.benches import BENCHES, Bench, garbled
from tests.web.client import Client
from tests.web.conftest import Serve
from vpay_tasks.core import kinds
from vpay_tasks.core.charge import Charge, State
from vpay_tasks.store.db import Database

FINE = {"received": True}
each_rail = pytest.mark.parametrize("bench", BENCHES.values(), ids=list(BENCHES))


def a_charge(database: Database, bench: Bench, state: State = State.PENDING, **more: Any) -> Charge:
    """One of that rail whose poll is due in an hour."""
    with_job = more.pop("with_job", True)
    intent = make_intent(database, 1000, bench.currency)
    made = make_charge(
        database, intent, state=state, age=300, with_job=with_job, provider_code=bench.code, **more
    )
    with database.connection() as connection:
        connection.execute("UPDATE vpay.jobs SET run_at = now() + interval '1 hour'")
    return made


def due_in(database: Database, charge: Charge) -> float:
    return float(
        scalar(
            database,
            "SELECT EXTRACT(EPOCH FROM run_at - now())::float8 FROM vpay.jobs"
            " WHERE dedupe_key = %s",
            kinds.poll_key(charge.id),
        )
    )


def payload(database: Database) -> dict[str, Any]:
    return dict(scalar(database, "SELECT payload FROM vpay.jobs"))


def touched(database: Database) -> str:
    """Who wrote or locked each row last."""
    return str(
        scalar(
            database,
            "SELECT array_agg(row ORDER BY row) FROM ("
            " SELECT (id, xmin, xmax)::text FROM vpay.charges"
            " UNION ALL SELECT (id, xmin, xmax)::text FROM vpay.jobs) AS found (row)",
        )
    )


@each_rail
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_callback_has_the_rail_asked_now_and_moves_no_state(
    client: Client, database: Database, bench: Bench, method: str
) -> None:
    charge = a_charge(database, bench)
    for _ in range(2):
        told = client.call_back(
            bench.code, bench.callback(charge.provider_reference_id), method=method
        )
        assert (told.status, told.body) == (200, FINE)
        assert due_in(database, charge) <= 0
    assert read_charge(database, charge.id) == charge
    assert events(database) == []


def test_a_callback_that_names_only_the_key_of_an_acceptance_finds_its_charge(
    client: Client, database: Database
) -> None:
    bench = BENCHES["orange_money"]
    key = "fb5b6d7bcd45e8a8c5cbda3a3bd0ba0a7b5ab9ac0d52af1ddbcb4a2f26c4ed4c"
    charge = a_charge(
        database,
        bench,
        provider_ref_extra=json.dumps({"callback_key": key}),
        payer_ref=None,
        payer_masked=None,
    )
    told = client.call_back(bench.code, bench.said_back("another"))
    assert (told.status, told.body) == (200, FINE)
    assert due_in(database, charge) > 3_000


@each_rail
def test_unknown_and_early_callbacks_are_answered_like_known_ones_and_write_nothing(
    client: Client, database: Database, bench: Bench
) -> None:
    charge = a_charge(database, bench)
    known = client.call_back(bench.code, bench.callback(charge.provider_reference_id))
    before = touched(database)
    unknown = client.call_back(bench.code, bench.callback(str(uuid.uuid4())))
    again = client.call_back(bench.code, bench.callback(charge.provider_reference_id))
    assert (unknown.status, unknown.body) == (known.status, known.body) == (200, FINE)
    assert {*unknown.headers} == {*known.headers}
    assert (again.status, again.body) == (200, FINE)
    assert touched(database) == before


@each_rail
def test_a_reference_of_another_rail_is_unknown(
    client: Client, database: Database, bench: Bench
) -> None:
    charge = a_charge(database, next(b for b in BENCHES.values() if b is not bench))
    told = client.call_back(bench.code, bench.callback(charge.provider_reference_id))
    assert told.status == 200
    assert due_in(database, charge) > 3_000


@each_rail
def test_malformed_callbacks_are_refused_before_the_database_is_asked(
    serve: Serve, bench: Bench
) -> None:
    bodies = [*garbled(json.dumps(bench.callback("r-1")).encode()).values()]
    bodies += [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 10_000, b'"r-1"', b"NaN", b"\x00"]
    with serve(url="postgresql://nobody@127.0.0.1:1/nothing") as client:
        for body in bodies:
            told = client.call_back(bench.code, body)
            assert (told.status, told.body) == (400, {"error": "invalid_request"})


def test_unknown_rails_and_other_methods_are_refused(client: Client) -> None:
    for code in ("visa", "mtn_momo%00", "x" * 2_000, "MTN_MOMO"):
        told = client.call_back(code, {"referenceId": "r-1"})
        assert (told.status, told.body) == (404, {"error": "not_found"})
    assert client.get("/provider/mtn_momo/callback").status == 405
    assert client.get("/elsewhere").body == {"error": "not_found"}


@each_rail
def test_a_missing_poll_is_written_again(client: Client, database: Database, bench: Bench) -> None:
    charge = a_charge(database, bench, with_job=False)
    client.call_back(bench.code, bench.callback(charge.provider_reference_id))
    assert due_in(database, charge) <= 0
    assert payload(database) == {"charge_id": charge.id}


@each_rail
@pytest.mark.parametrize("with_job", [False, True])
def test_a_callback_about_a_failed_charge_asks_once_more(
    client: Client, database: Database, bench: Bench, with_job: bool
) -> None:
    charge = a_charge(database, bench, State.FAILED, with_job=with_job)
    client.call_back(bench.code, bench.callback(charge.provider_reference_id))
    assert due_in(database, charge) <= 0
    assert payload(database) == {"charge_id": charge.id, "recheck": True}


@each_rail
def test_a_callback_about_a_succeeded_charge_asks_nothing(
    client: Client, database: Database, bench: Bench
) -> None:
    charge = a_charge(database, bench, State.SUCCEEDED, with_job=False)
    before = touched(database)
    told = client.call_back(bench.code, bench.callback(charge.provider_reference_id))
    assert (told.status, told.body) == (200, FINE)
    assert scalar(database, "SELECT count(*) FROM vpay.jobs") == 0
    assert touched(database) == before


def test_nothing_of_a_callback_reaches_a_log_or_an_answer(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3").setLevel(logging.INFO)  # the test's own client
    canaries = {"payer": {"partyId": APPROVED}, "notif_token": "canary-token", "x": "canary-x"}
    answers = [
        client.call_back("mtn_momo", {"referenceId": "canary-reference", **canaries}),
        client.call_back("mtn_momo", {"referenceId": 7, **canaries}),
        client.call_back("mtn_momo", json.dumps(canaries).encode()[:-5]),
        client.call_back("canary-rail", canaries),
        client.send("/canary-path?canary=1", b"canary"),
    ]
    assert [told.status for told in answers] == [200, 400, 400, 404, 404]
    text = str(answers) + "".join(str(record.__dict__) for record in caplog.records)
    assert "canary" not in text
    assert APPROVED not in text
