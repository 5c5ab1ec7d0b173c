"""The egress guard by livemode's rules, on real sockets, with a resolver that lies.

Every address answers here, so whatever is connected to is seen: a guard that only says
no too late would fail.
"""

from __future__ import annotations

import ssl

import pytest

from tests.network import Network
from tests.webhooks.attempts import HOST, V4, V6, Came, Case, attempt, pile_up
from vpay_tasks.webhooks.egress import Rules
from vpay_tasks.webhooks.send import Trouble


def refused(came: Came, kind: str) -> None:
    assert came.answer.trouble is Trouble.NAME
    assert came.answer.excerpt.endswith(f"dns_refused: {kind}")
    assert (came.answer.address, came.visits) == (None, [])


@pytest.mark.parametrize("address", [V4, V6])
def test_a_public_name_is_delivered_to_with_its_name_in_sni_and_host(
    network: Network, address: str
) -> None:
    came = network(attempt, Case({HOST: [[address]]}))
    assert (came.answer.status, came.answer.address) == (200, address)
    (visit,) = came.visits
    assert (visit.address, visit.sni) == (address, HOST)
    assert f"\r\nHost: {HOST}\r\n" in visit.request


FORBIDDEN = {
    "127.0.0.1": "ADDR_LOOPBACK",
    "0.0.0.0": "ADDR_UNSPECIFIED",
    "10.0.0.1": "ADDR_PRIVATE",
    "100.64.0.1": "ADDR_PRIVATE",
    "169.254.169.254": "ADDR_METADATA",
    "192.0.2.1": "ADDR_SPECIAL",
    "::1": "ADDR_LOOPBACK",
    "fd00::1": "ADDR_ULA",
    "fe80::1": "ADDR_LINKLOCAL",
    "::ffff:a9fe:a9fe": "ADDR_EMBEDDED_V4",
    "64:ff9b::a9fe:a9fe": "ADDR_EMBEDDED_V4",
    "64:ff9b::5db8:d822": "ADDR_EMBEDDED_V4",  # DNS64 of a public one: refused, too
    "64:ff9b:1::a00:1": "ADDR_EMBEDDED_V4",
    "2002:7f00:1::1": "ADDR_EMBEDDED_V4",
    "2001::f5ff:fffe": "ADDR_EMBEDDED_V4",
    "2001:4860::5efe:7f00:1": "ADDR_EMBEDDED_V4",
    "::7f00:1": "ADDR_EMBEDDED_V4",
}


@pytest.mark.parametrize(("address", "kind"), FORBIDDEN.items())
def test_a_name_that_leads_inside_is_not_connected_to(
    network: Network, address: str, kind: str
) -> None:
    refused(network(attempt, Case({HOST: [[address]]})), kind)


@pytest.mark.parametrize(
    "addresses",
    [
        [V4, "10.0.0.1"],
        ["10.0.0.1", V4],
        [V4, "fd00::1"],
        [V6, "10.0.0.1"],
        [*(f"93.184.216.{n}" for n in range(20)), "10.0.0.1"],
    ],
)
def test_one_forbidden_address_among_good_ones_refuses_them_all(
    network: Network, addresses: list[str]
) -> None:
    came = network(attempt, Case({HOST: [addresses]}))
    refused(came, "ADDR_ULA" if "fd00::1" in addresses else "ADDR_PRIVATE")


def test_a_name_that_moves_is_asked_for_once_and_what_was_vetted_is_called(
    network: Network,
) -> None:
    came = network(attempt, Case({HOST: [[V4], ["127.0.0.1"]]}))
    assert came.answer.status == 200
    assert [visit.address for visit in came.visits] == [V4]


def test_each_attempt_asks_and_vets_anew_and_keeps_no_connection(network: Network) -> None:
    came = network(attempt, Case({HOST: [[V4], [V6], ["127.0.0.1"]]}, times=3))
    assert [answer.status for answer in came.answers] == [200, 200, None]
    assert [visit.address for visit in came.visits] == [V4, V6]


def test_no_search_domain_is_tried_with_the_name(network: Network) -> None:
    came = network(attempt, Case({HOST: [[V4]], f"{HOST}.corp.test": [["10.0.0.1"]]}))
    assert came.answer.status == 200
    assert set(came.asked) == {HOST}


def test_a_name_that_the_machine_itself_leads_inside_is_refused_or_asked_for(
    network: Network,
) -> None:
    came = network(attempt, Case({}, url="https://listed.example.com/"))
    assert came.answer.trouble is Trouble.NAME
    assert came.visits == []


@pytest.mark.parametrize(("answers", "whole"), [({HOST: [[]]}, 20.0), ({HOST: [["silence"]]}, 0.3)])
def test_no_answer_is_a_trouble_of_the_name_within_the_deadline(
    network: Network, answers: dict[str, list[list[str]]], whole: float
) -> None:
    came = network(attempt, Case(answers, whole=whole))
    assert came.answer.trouble is Trouble.NAME
    assert "dns_failed: " in came.answer.excerpt
    assert came.visits == []


@pytest.mark.more(seconds=10)
def test_lookups_that_nobody_waits_for_do_not_pile_up_without_end(network: Network) -> None:
    assert 0 < network(pile_up, 350) <= 256


@pytest.mark.parametrize("environment", ["HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS"])
def test_the_resolvers_environment_leads_nowhere_else(network: Network, environment: str) -> None:
    value = {"RES_OPTIONS": "ndots:9", "LOCALDOMAIN": "evil.test"}.get(environment, "/etc/hosts")
    answers = {HOST: [[V4]], f"{HOST}.evil.test": [["10.0.0.1"]]}
    came = network(attempt, Case(answers, environment={environment: value}))
    assert (came.answer.status, set(came.asked)) == (200, {HOST})


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://[::1]/",
        f"https://{V4}/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://①②⑦.0.0.1/",
        "https://[fe80::1%25lo]/",
        f"http://{HOST}/",
        f"https://{HOST}:8443/",
        f"https://u:p@{HOST}/",
        "https://localhost/",
    ],
)
def test_a_url_that_is_refused_as_written_is_neither_asked_for_nor_called(
    network: Network, url: str
) -> None:
    came = network(attempt, Case(url=url))
    assert came.answer.trouble is Trouble.URL
    assert (came.asked, came.visits) == ([], [])


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "header",
    [
        "Location: http://127.0.0.1/",
        "Location: //169.254.169.254/",
        f"Location: https://{HOST}/hook",
        "Location: https://other.example.com/",
        "Refresh: 0; url=https://127.0.0.1/",
    ],
)
def test_a_redirect_is_an_answer_and_leads_nowhere(
    network: Network, status: int, header: str
) -> None:
    reply = f"HTTP/1.1 {status} Go\r\n{header}\r\nContent-Length: 0\r\n\r\n".encode()
    came = network(attempt, Case(reply=reply))
    assert came.answer.status == status
    assert len(came.visits) == 1
    assert set(came.asked) == {HOST}


@pytest.mark.parametrize(
    "name", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"]
)
def test_no_proxy_of_the_environment_is_asked(network: Network, name: str) -> None:
    came = network(attempt, Case(environment={name: f"http://{V4}:3128"}))
    assert (came.answer.status, came.proxy) == (200, [])


def test_nothing_of_netrc_is_sent(network: Network) -> None:
    came = network(attempt, Case(netrc=f"machine {HOST} login l password p\n"))
    assert came.answer.status == 200
    assert "authorization" not in came.visits[0].request.lower()


def test_the_keys_of_a_connection_are_written_nowhere(network: Network) -> None:
    came = network(attempt, Case(environment={"SSLKEYLOGFILE": "HOME/keys"}))
    assert (came.answer.status, came.files) == (200, [])


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (Case(certificate="other.example.com"), "Hostname mismatch"),
        (Case(certificate="*.com"), "Hostname mismatch"),
        (Case(certificate=V4), "Hostname mismatch"),
        (Case(days=(-3, -1)), "certificate has expired"),
        (Case(days=(1, 3)), "not yet valid"),
        (Case(trusted=False), "CERTIFICATE_VERIFY_FAILED"),
        (Case(encrypted=False), "SSL"),
        (Case(use="subject"), "Hostname mismatch"),
        (Case(newest=ssl.TLSVersion.TLSv1_1), "PROTOCOL_VERSION"),
    ],
    ids=[
        *("name", "star", "address", "expired", "early", "unknown CA", "no TLS"),
        *("name in the subject", "TLS 1.1"),
    ],
)
def test_a_receiver_that_can_not_prove_its_name_gets_nothing(
    network: Network, case: Case, says: str
) -> None:
    came = network(attempt, case)
    assert (came.answer.status, came.answer.trouble) == (None, None)
    assert says in came.answer.excerpt
    assert "evt_1" not in came.visits[0].request


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n", "a\r", "a\0", "é", "\u2028"])
def test_a_header_that_would_break_out_opens_no_connection(network: Network, value: str) -> None:
    came = network(attempt, Case(headers={"Vpay-Event-Id": value}))
    assert (came.answer.status, came.visits) == (None, [])


def test_what_is_percent_encoded_in_a_url_stays_so_on_the_wire(network: Network) -> None:
    came = network(attempt, Case(url=f"https://{HOST}/%0d%0aX-Evil:1"))
    assert came.visits[0].request.startswith("POST /%0d%0aX-Evil:1 HTTP/1.1\r\nHost: ")


def test_a_port_that_is_allowed_is_called_and_stands_in_the_host_header(network: Network) -> None:
    rules = Rules(ports=frozenset({443, 3128}))
    came = network(attempt, Case(url=f"https://{HOST}:3128/", rules=rules))
    assert len(came.proxy) == 1  # a plain server is there, so TLS fails behind the connection
    assert came.answer.address == V4


def test_a_sandbox_reaches_inside_where_livemode_would_not(network: Network) -> None:
    rules = Rules(livemode=False, private=True)
    came = network(attempt, Case({HOST: [["10.0.0.1"]]}, rules=rules))
    assert (came.answer.status, came.visits[0].address) == (200, "10.0.0.1")
