"""`GET /v1/events`: a merchant reads its own events, as they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from tests.web.client import Client, Told
from tests.web.conftest import Serve
from tests.webhooks.world import append, endpoint, event_body, rows
from tests.webhooks.world import settings as with_endpoints
from vpay_tasks.config import MerchantTable, Settings
from vpay_tasks.store.db import Database
from vpay_tasks.webhooks import fanout
from vpay_tasks.webhooks.endpoints import Endpoints

ACME, OLD, OTHER = "a" * 32, "o" * 40, "b" * 32


@pytest.fixture
def settings(settings: Settings) -> Settings:
    merchants = (
        MerchantTable(id="acme", api_keys=(SecretStr(ACME), SecretStr(OLD))),
        MerchantTable(id="other", api_keys=(SecretStr(OTHER),)),
        MerchantTable(id="keyless"),
    )
    return settings.model_copy(update={"merchants": merchants})


@pytest.fixture
def client(serve: Serve) -> Iterator[Client]:
    with serve() as client:
        yield client


def ask(client: Client, path: str, key: str = ACME) -> Told:
    return client.get(path, Authorization=f"Bearer {key}")


def listed(database: Database, count: int, **more: Any) -> list[str]:
    """So many events, fanned out, in the order of the list."""
    with database.transaction() as tx:
        found = [append(tx, **more) for _ in range(count)]
    while fanout.drain(database, Endpoints(with_endpoints(endpoint()))).again_now:
        pass
    return found


def ids(told: Told) -> list[str]:
    return [event["id"] for event in told.body["data"]]


def test_an_event_is_read_as_the_bytes_that_are_stored(client: Client, database: Database) -> None:
    odd = b'{"z":1.10,"a":1e2,"note":"\xc3\xa9"}'
    (id_,) = listed(database, 1, body=odd)
    raw = client.bytes_back(
        f"GET /v1/events/{id_} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: bearer {OLD}\r\n\r\n".encode()
    )
    assert raw.partition(b"\r\n\r\n")[2] == odd
    whole = client.bytes_back(
        "GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {ACME}\r\n\r\n".encode()
    )
    assert whole.partition(b"\r\n\r\n")[2] == (
        b'{"object":"list","data":[' + odd + b'],"has_more":false}'
    )


def test_pages_go_on_from_an_event_and_skip_nothing_that_commits_late(
    client: Client, database: Database
) -> None:
    with database.transaction() as late:
        append(late, event_id="evt_late")  # the lowest number of all, committed last
        first = listed(database, 3)
        page = ask(client, "/v1/events?limit=2")
        assert (ids(page), page.body["has_more"]) == (first[:2], True)
        page = ask(client, f"/v1/events?limit=2&after={first[1]}")
        assert (ids(page), page.body["has_more"]) == (first[2:], False)
    listed(database, 0)
    page = ask(client, f"/v1/events?after={first[2]}")
    assert (ids(page), page.body["has_more"]) == (["evt_late"], False)


def test_a_pending_event_is_not_listed_yet_and_a_given_up_one_is(
    client: Client, database: Database
) -> None:
    with database.transaction() as tx:
        id_ = append(tx)
    assert ids(ask(client, "/v1/events")) == []
    assert ask(client, f"/v1/events/{id_}").status == 404
    rows(
        database,
        "UPDATE vpay.events SET fanout_state = 'failed', list_seq = nextval('vpay.event_list_seq')",
    )
    assert ids(ask(client, "/v1/events")) == [id_]
    assert ask(client, f"/v1/events/{id_}").body == json.loads(event_body(id_))


def test_nobody_reads_or_goes_on_from_another_merchants_event(
    client: Client, database: Database
) -> None:
    (id_,) = listed(database, 1)
    for path in (f"/v1/events/{id_}", f"/v1/events?after={id_}", "/v1/events/evt_none"):
        told = ask(client, path, OTHER)
        assert (told.status, told.body) == (404, {"error": "not_found"})
    assert ids(ask(client, "/v1/events", OTHER)) == []
    assert ids(ask(client, "/v1/events")) == [id_]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {ACME[:-1]}",
        f"Bearer {ACME}a",
        f"Bearer {ACME.upper()}",
        f"Bearer {ACME} {ACME}",
        f"Basic {ACME}",
        ACME,
        "Bearer " + "x" * 4_000,
        "Bearer é",
    ],
)
@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/evt_1", "/v1/events?limit=zero"])
def test_whoever_has_no_key_learns_nothing(client: Client, path: str, header: str) -> None:
    told = client.get(path, Authorization=header.encode().decode("latin-1"))
    assert (told.status, told.body) == (401, {"error": "authentication"})
    assert told.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=-1", "limit=1001", "limit=1e2", "limit=", "limit=1&limit=2"),
        *("after=", "after=a%00b", "after=" + "x" * 65, "merchant=other", "after=%C3%A9"),
    ],
)
def test_a_question_that_cant_be_meant_is_refused(client: Client, query: str) -> None:
    told = ask(client, f"/v1/events?{query}")
    assert (told.status, told.body) == (400, {"error": "invalid_request"})


def test_an_id_that_is_none_is_refused_before_it_is_looked_up(client: Client) -> None:
    assert ask(client, "/v1/events/a%00b").status == 400


def test_without_a_key_in_the_settings_there_is_no_such_route(
    settings: Settings, serve: Serve
) -> None:
    settings.__dict__["merchants"] = (MerchantTable(id="acme"),)
    with serve() as client:
        assert ask(client, "/v1/events").status == 404
        assert ask(client, "/v1/events/evt_1").status == 404


def test_keys_show_in_no_repr_and_no_log(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    ask(client, "/v1/events")
    ask(client, "/v1/events", "c" * 32)
    for key in (ACME, OLD, OTHER, "c" * 32):
        assert key not in repr(settings) + caplog.text
