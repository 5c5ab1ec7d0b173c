"""Which URLs the guard lets through as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssrfguard import Policy, SSRFGuardError

from tests.house import ROOT
from vpay_tasks.config import Settings
from vpay_tasks.stand_ins import STAND_INS
from vpay_tasks.webhooks import egress, hosts
from vpay_tasks.webhooks.egress import SANDBOX, EgressRefused, Rules

LIVE = Rules()
TEST = Rules(livemode=False)
VECTORS: Path = ROOT / "tests" / "data" / "ssrf.tsv"


def _vectors() -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in VECTORS.read_text("ascii").splitlines()[1:]]
    return [(expected, url.encode().decode("unicode_escape")) for expected, url in rows]


def verdict(url: str, rules: Rules = LIVE) -> str:
    try:
        egress.parse(url, rules)
    except EgressRefused as refused:
        return str(refused).removeprefix("ssrf_blocked: ") if refused.why else "no reason"
    return "OK"


CHOSEN = {
    "OK on the wire only if sent still percent-encoded; else SYNTAX": "OK",  # and it is
    "OK or HOST_LITERAL by policy": "HOST_LITERAL",
    "DNS->ADDR_LOOPBACK": "OK",  # as written; its answer is refused: test_network.py
}


@pytest.mark.parametrize(("expected", "url"), _vectors(), ids=ascii)
def test_each_vector_is_refused_as_its_class(expected: str, url: str) -> None:
    assert verdict(url) == CHOSEN.get(expected, expected.partition(" (")[0])


def test_what_is_percent_encoded_in_a_path_is_sent_as_it_is() -> None:
    found = egress.parse("https://hooks.example.com/%0d%0aX-Evil:1?a=%23", LIVE)
    assert found.path == "/%0d%0aX-Evil:1?a=%23"


def test_a_host_is_one_name_for_dns_tls_and_header() -> None:
    found = egress.parse("https://Hooks.EXAMPLE.com:443/", LIVE)
    assert (found.host, found.authority, found.literal) == (
        "hooks.example.com",
        "hooks.example.com",
        False,
    )


OURS_ALONE = {
    "http://hooks.example.com/": "it takes http, too",
    "https://LOCALHOST./": "names: left to its resolver step",
    "https://ip6-localhost/": "names: left to its resolver step",
    "https://0x7f000001/": "hex: left to its resolver step",
    "https://0x7f.1/": "hex: left to its resolver step",
    "https://0o177.0.0.1/": "left to its resolver step",
    "https://168.63.129.16/": "not in its table",
    "https://metadata.google.internal/": "names: left to its resolver step",
    "https://192.31.196.1/": "IANA calls it reachable",
    "https://[::ffff:0:127.0.0.1]/": "not in its table",
    "https://[2001:4860::5efe:7f00:1]/": "ISATAP: not in its table",
    "https://hooks.example.com#@127.0.0.1/": "it takes a fragment",
    "https://hooks.example.com/\u202e": "it takes any path",
    "https://hooks.examp\u217ce.com/": "it goes on with what IDNA makes of it",
    "https://ho\u043eks.example.com/": "it goes on with what IDNA makes of it",
    "https://fa\xdf.de/": "it goes on with what IDNA makes of it",
    "https://\u0661\u0662\u0667.0.0.1/": "it goes on with what IDNA makes of it",
    "https://example.com\u200b/": "it goes on with what IDNA makes of it",
    "https://xn--0.pt/": "it does not decode names",
    "https://intranet/": "names: left to its resolver step",
    "https://db.internal/": "names: left to its resolver step",
    "https://x.onion/": "names: left to its resolver step",
    "https://1.0.0.127.in-addr.arpa/": "names: left to its resolver step",
    "https://hooks.example.com./": "it cuts the dot off",
    "https://hooks.example.com:00443/": "it reads the port as a number",
    "https://93.184.216.34/": "it takes public addresses",
}
"""Where we refuse and the oracle does not, and why it does not."""


def test_the_oracle_refuses_nothing_that_we_call_and_each_difference_is_listed() -> None:
    policy = Policy()
    ours_alone = set()
    for _, url in _vectors():
        try:
            policy.check_url(url)
        except SSRFGuardError:
            assert verdict(url) != "OK", ascii(url)
        else:
            if verdict(url) != "OK":
                ours_alone.add(url)
    assert ours_alone == set(OURS_ALONE)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://hooks.example.com:8080/", "OK"),
        ("https://93.184.216.34/", "OK"),
        ("https://[2606:4700::1111]:8443/", "OK"),
        ("https://127.0.0.1/", "ADDR_LOOPBACK"),
        ("https://[::ffff:7f00:1]/", "ADDR_EMBEDDED_V4"),
        ("https://intranet/", "HOST_NAME"),
        ("https://2130706433/", "HOST_NUMERIC"),
        ("ftp://hooks.example.com/", "SCHEME"),
        ("https://u@hooks.example.com/", "USERINFO"),
    ],
)
def test_test_mode_takes_http_and_literals_but_only_public_ones(url: str, expected: str) -> None:
    assert verdict(url, TEST) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:9/", "OK"),
        ("http://[::1]:9/", "OK"),
        ("http://receiver_1:8080/", "OK"),
        ("http://receiver.internal/", "OK"),
        ("http://127.1/", "HOST_NUMERIC"),
        ("http://127.0.0.1./", "HOST_NUMERIC"),
        ("http://[fe80::1%25eth0]/", "HOST_ZONE_ID"),
        ("http://u@127.0.0.1/", "USERINFO"),
        ("http://localhost\\@127.0.0.1/", "SYNTAX"),
        ("http://loc\u0430lhost/", "HOST_UNICODE"),
        ("http://\u212aerberos/", "HOST_UNICODE"),
    ],
)
def test_a_sandbox_reaches_its_own_network_by_urls_that_are_read_as_strictly(
    url: str, expected: str
) -> None:
    assert verdict(url, SANDBOX) == expected


@pytest.mark.parametrize("port", [443, 8443])
def test_livemode_calls_the_ports_that_are_allowed(port: int) -> None:
    rules = Rules(ports=frozenset({443, 8443}))
    assert verdict(f"https://hooks.example.com:{port}/", rules) == "OK"
    assert verdict("https://hooks.example.com:8444/", rules) == "PORT"


@pytest.mark.parametrize("word", STAND_INS)
def test_livemode_calls_no_stand_in(word: str) -> None:
    url = f"https://{word.upper()}-1.example.com/"
    assert verdict(url) == "HOST_NAME"
    assert verdict(url, TEST) == "OK"


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("xn--bcher-kva.example.com", True),
        ("xn--fa-hia.de", True),
        ("xn--.com", False),
        ("xn--abc-.com", False),
        ("xn--99999999999999.com", False),
        ("a" * 63 + ".com", True),
        ("a" * 64 + ".com", False),
        (".".join(["a" * 49] * 5) + ".co", True),
        (".".join(["a" * 49] * 5) + ".comm", False),
        ("a_b.example.com", False),
        ("a-.example.com", False),
        ("example.com", True),
        ("com", False),
        ("example.com.", False),
        (".example.com", False),
    ],
)
def test_a_public_name_is_one_in_every_respect(host: str, right: bool) -> None:
    assert hosts.is_public_name(host) is right


@given(st.text(max_size=60), st.sampled_from([LIVE, TEST, SANDBOX]))
def test_any_text_is_a_target_or_the_one_refusal(text: str, rules: Rules) -> None:
    for url in (text, f"https://{text}", f"https://h.example.com{text}"):
        try:
            found = egress.parse(url, rules)
        except EgressRefused:
            continue
        assert (found.authority + found.path).isascii()
        assert (found.authority + found.path).isprintable()
        assert " " not in found.path


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("db", True),
        ("a_b.c-d", True),
        ("", False),
        ("a..b", False),
        (".a", False),
        ("a.", False),
        ("a" * 63, True),
        ("a" * 64, False),
        (".".join("a" * size for size in (63, 63, 62, 62)), True),
        (".".join("a" * size for size in (63, 63, 63, 62)), False),
        ("é", False),
    ],
)
def test_a_local_name_is_one_in_every_label(host: str, right: bool) -> None:
    assert hosts.is_local_name(host) is right


def test_the_rules_are_those_of_the_settings() -> None:
    assert egress.rules(Settings()) == Rules(livemode=False, ports=frozenset({443}))
    own = {"ports": [443, 8443], "allow_private_targets": True}
    found = egress.rules(Settings.model_validate({"egress": own}))
    assert found == Rules(livemode=False, ports=frozenset({443, 8_443}), private=True)
