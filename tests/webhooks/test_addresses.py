"""The table of addresses that are not called, against the registries and against an oracle."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssrfguard import DEFAULT_DENIED

from vpay_tasks.webhooks.addresses import GLOBAL_UNICAST, TABLE, Block, Kind, kind_of

PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "11.0.0.1", "100.63.255.255", "100.128.0.1"),
    *("126.255.255.255", "128.0.0.1", "169.253.255.255", "172.15.255.255", "172.32.0.1"),
    *("192.0.1.1", "192.167.255.255", "192.169.0.1", "198.17.255.255", "198.20.0.1"),
    *("223.255.255.255", "168.63.129.15", "168.63.129.17"),
    *("2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2003::1", "2001:200::1"),
]

FORBIDDEN = {
    "0.0.0.0": Kind.UNSPECIFIED,
    "0.1.2.3": Kind.UNSPECIFIED,
    "127.0.0.1": Kind.LOOPBACK,
    "100.64.0.1": Kind.PRIVATE,
    "169.254.169.254": Kind.METADATA,
    "169.254.170.23": Kind.METADATA,
    "192.0.0.192": Kind.METADATA,
    "224.0.0.1": Kind.MULTICAST,
    "255.255.255.255": Kind.RESERVED,
    "::": Kind.UNSPECIFIED,
    "::1": Kind.LOOPBACK,
    "fe80::1": Kind.LINK_LOCAL,
    "fe80::1%eth0": Kind.LINK_LOCAL,
    "febf::1": Kind.LINK_LOCAL,
    "fec0::1": Kind.PRIVATE,
    "fd00:ec2::254": Kind.ULA,
    "ff02::1": Kind.MULTICAST,
    "2001:2::1": Kind.SPECIAL,
    "2001:1ff::1": Kind.SPECIAL,
    "2001:db8::1": Kind.SPECIAL,
    "3fff:fff::1": Kind.SPECIAL,
    "5f00::1": Kind.SPECIAL,
    "1::1": Kind.RESERVED,
    "4000::1": Kind.RESERVED,
    "e000::1": Kind.RESERVED,
    "64:ff9b:2::1": Kind.RESERVED,
}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_called(address: str) -> None:
    assert kind_of(address) is None


@pytest.mark.parametrize(("address", "kind"), FORBIDDEN.items())
def test_an_address_of_a_registry_is_not(address: str, kind: Kind) -> None:
    assert kind_of(address) is kind


def _forms(v4: IPv4Address) -> dict[str, IPv6Address]:
    low = int(v4)
    return {
        "mapped": IPv6Address((0xFFFF << 32) | low),
        "translated": IPv6Address((0xFFFF << 48) | low),
        "compatible": IPv6Address(low),
        "NAT64": IPv6Address((0x64FF9B << 96) | low),
        "local NAT64, /96": IPv6Address((0x64FF9B0001 << 80) | low),
        # RFC 6052, 2.2: the address in two halves around eight bits of nothing.
        "local NAT64, /48": IPv6Address(
            (0x64FF9B0001 << 80) | ((low >> 16) << 64) | ((low & 0xFFFF) << 40)
        ),
        "6to4": IPv6Address((0x2002 << 112) | (low << 80) | 1),
        "Teredo, client": IPv6Address((0x20010000 << 96) | (low ^ 0xFFFFFFFF)),
        "Teredo, server": IPv6Address((0x20010000 << 96) | (low << 64) | 1),
        "ISATAP": IPv6Address((0x20014860 << 96) | (0x5EFE << 32) | low),
        "ISATAP, global": IPv6Address((0x26064700 << 96) | (0x02005EFE << 32) | low),
    }


@given(st.ip_addresses(v=4).filter(lambda v4: int(v4) > 1))
def test_an_address_inside_another_is_refused_in_every_form(v4: IPv4Address) -> None:
    kinds = {form: kind_of(str(v6)) for form, v6 in _forms(v4).items()}
    assert kinds == dict.fromkeys(kinds, Kind.EMBEDDED_V4)


@given(st.ip_addresses(v=6).filter(lambda v6: v6 not in GLOBAL_UNICAST))
def test_of_ipv6_nothing_outside_of_what_is_given_out_is_called(v6: IPv6Address) -> None:
    assert kind_of(str(v6)) is not None


@pytest.mark.parametrize("block", TABLE, ids=lambda block: str(block.network))
def test_a_block_is_refused_to_its_edges(block: Block) -> None:
    for address in (block.network[0], block.network[-1]):
        assert kind_of(str(address)) is not None


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f000001", "1.2.3.4/32", "[::1]"])
def test_what_is_no_address_is_an_error_and_no_public_address(text: str) -> None:
    with pytest.raises(ValueError):
        kind_of(text)


STRICTER = {
    "168.63.129.16/32": "Azure's host answers from public space",
    "192.0.0.9/32": "an anycast of port control (PCP): no receiver",
    "192.0.0.10/32": "an anycast of TURN: no receiver",
    "192.31.196.0/24": "AS112: no receiver",
    "192.52.193.0/24": "AMT: no receiver",
    "192.175.48.0/24": "AS112: no receiver",
    "::ffff:0:0/96": "the oracle judges what is inside",
    "64:ff9b::/96": "the oracle judges what is inside",
    "2001::/32": "the oracle judges what is inside",
    "2002::/16": "the oracle judges what is inside",
    "::/96": "the oracle judges what is inside",
    "::ffff:0:0:0/96": "not in its table",
    "2001:1::1/128": "an anycast: no receiver",
    "2001:1::2/128": "an anycast: no receiver",
    "2001:1::3/128": "an anycast: no receiver",
    "2001:3::/32": "AMT: no receiver",
    "2001:4:112::/48": "AS112: no receiver",
    "2001:20::/28": "ORCHIDv2: identities, not addresses",
    "2001:30::/28": "drones: identities, not addresses",
    "2620:4f:8000::/48": "AS112: no receiver",
}
"""Where we refuse and the oracle does not. Besides: IPv6 outside of 2000::/3, and ISATAP."""


def _samples() -> list[str]:
    dice = random.Random(4)
    blocks = [block.network for block in TABLE] + [b.network for b in DEFAULT_DENIED.blocks]
    inside = [
        str(ip_address(int(network[0]) + dice.randrange(network.num_addresses)))
        for network in blocks
        for _ in range(20)
    ]
    edges = [str(network[at]) for network in blocks for at in (0, -1)]
    beside = [
        str(type(network[0])(number))
        for network in blocks
        for number in (int(network[0]) - 1, int(network[-1]) + 1)
        if 0 <= number < 2**network.max_prefixlen
    ]
    v4 = [str(IPv4Address(dice.getrandbits(32))) for _ in range(2_000)]
    v6 = [str(IPv6Address((1 << 125) | dice.getrandbits(125))) for _ in range(2_000)]
    return [*inside, *edges, *beside, *v4, *v6]


def _explained(address: IPv4Address | IPv6Address) -> bool:
    if any(address in block.network for block in TABLE if str(block.network) in STRICTER):
        return True
    if any(address in b.network for b in DEFAULT_DENIED.blocks if str(b.network) in STRICTER):
        return True
    if isinstance(address, IPv4Address):
        return False
    return address not in GLOBAL_UNICAST or (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE


def test_the_oracle_refuses_nothing_that_we_call_and_each_other_difference_is_listed() -> None:
    for text in _samples():
        address = ip_address(text)
        theirs = DEFAULT_DENIED.classify(address).blocked
        ours = kind_of(text) is not None
        assert ours or not theirs, text
        assert ours == theirs or _explained(address), text
