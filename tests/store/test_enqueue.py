"""Enqueue: in the caller's transaction, once per key, never with what can't be stored."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row

from tests.factories import a_job, row
from vpay_tasks.errors import Configuration, InvalidRequest
from vpay_tasks.store import jobs
from vpay_tasks.store.db import Abandon, Connection, Database

KIND = "deliver_webhook"


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        "text",
        {1: "a"},
        {"a": math.nan},
        {"a": [math.inf]},
        {"a": "x" * 65_537},
        {"a": "nul \x00"},
        {"nul \x00": 1},
        {"a": object()},
        {"a": "\ud800"},
    ],
)
def test_a_payload_that_cant_be_stored_is_refused_and_nothing_is_written(
    database: Database, payload: Any
) -> None:
    with database.transaction() as tx:
        with pytest.raises(InvalidRequest):
            jobs.enqueue(tx, KIND, payload)
        assert tx.execute("SELECT count(*) FROM vpay.jobs").fetchone() == (0,)


def test_a_payload_of_just_the_limit_is_stored(database: Database) -> None:
    with database.transaction() as tx:
        assert jobs.enqueue(tx, KIND, {"a": "x" * 65_528}).inserted


def test_the_spelling_of_nul_is_no_nul(database: Database) -> None:
    with database.transaction() as tx:
        assert jobs.enqueue(tx, KIND, {"a": "\\u0000"}).inserted


@pytest.mark.parametrize("factory", [dict_row, namedtuple_row, scalar_row])
def test_the_rows_that_an_application_likes_do_not_matter(dsn: str, factory: Any) -> None:
    with psycopg.connect(dsn, row_factory=factory) as theirs:
        first = jobs.enqueue(theirs, KIND, {}, dedupe_key="k")
        again = jobs.enqueue(theirs, KIND, {}, dedupe_key="k")
    assert (first.inserted, again.inserted, again.id) == (True, False, first.id)


def test_a_job_stands_and_falls_with_the_callers_transaction(database: Database, dsn: str) -> None:
    with psycopg.connect(dsn) as theirs:
        jobs.enqueue(theirs, KIND, {})
        theirs.rollback()
        kept = jobs.enqueue(theirs, KIND, {})
        theirs.commit()
    assert kept.id is not None
    assert row(database, kept.id) is not None

    def given_up(tx: Connection) -> int | None:
        gone.append(jobs.enqueue(tx, KIND, {}).id)
        raise Abandon

    gone: list[int | None] = []
    with database.transaction() as tx:
        given_up(tx)
    assert row(database, gone[0] or 0) is None


def test_a_key_that_stands_is_answered_with_its_job_and_left_as_it_is(
    database: Database,
) -> None:
    first = a_job(database, dedupe_key="k", delay=500)
    before = row(database, first)
    with database.transaction() as tx:
        again = jobs.enqueue(tx, KIND, {"other": 1}, dedupe_key="k")
    assert (again.id, again.inserted) == (first, False)
    assert row(database, first) == before


def test_jobs_without_a_key_are_never_the_same(database: Database) -> None:
    assert a_job(database) != a_job(database)


def test_a_kind_that_nobody_declared_is_a_configuration_fault(database: Database) -> None:
    with database.transaction() as tx, pytest.raises(Configuration, match="no task 'nope'"):
        jobs.enqueue(tx, "nope", {})


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 10**12])
def test_a_delay_that_is_no_duration_is_refused(database: Database, delay: float) -> None:
    with database.transaction() as tx, pytest.raises(InvalidRequest):
        jobs.enqueue(tx, KIND, {}, delay=delay)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x00b", "two\nlines"])
def test_a_key_that_cant_be_stored_is_refused(database: Database, key: str) -> None:
    with database.transaction() as tx, pytest.raises(InvalidRequest):
        jobs.enqueue(tx, KIND, {}, dedupe_key=key)


@pytest.mark.parametrize("priority", [-1, 4, 7, True, "1"])
def test_a_priority_out_of_range_is_refused(database: Database, priority: Any) -> None:
    with database.transaction() as tx, pytest.raises(InvalidRequest):
        jobs.enqueue(tx, KIND, {}, priority=priority if priority is not True else 9)


def test_numbers_that_grow_in_the_database_are_refused_as_the_callers_own(
    database: Database,
) -> None:
    with pytest.raises(InvalidRequest, match="can't be stored"), database.transaction() as tx:
        jobs.enqueue(tx, KIND, {"a": [1e308] * 3_000})
