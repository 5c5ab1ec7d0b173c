"""Which addresses are somebody else's public ones: a table of our own, and no by default.

From IANA's special-purpose address registries for IPv4 and IPv6, and its multicast ones; what
they leave out and what is stricter here has its reason beside it. Not `ipaddress.is_global`,
which calls NAT64, 6to4, multicast and site-local addresses global.

IPv6 outside of 2000::/3 is refused without being named. An IPv4 address inside an IPv6 one
is refused, whichever it is: what carries it decides where the packet ends up, not we. So
does a resolver with DNS64, which makes such addresses of every IPv4-only name: deliveries
need a network with IPv4, or a receiver with IPv6.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final


class Kind(StrEnum):
    """What an address that is not called is."""

    UNSPECIFIED = "ADDR_UNSPECIFIED"
    LOOPBACK = "ADDR_LOOPBACK"
    PRIVATE = "ADDR_PRIVATE"
    LINK_LOCAL = "ADDR_LINKLOCAL"
    ULA = "ADDR_ULA"
    METADATA = "ADDR_METADATA"
    MULTICAST = "ADDR_MULTICAST"
    EMBEDDED_V4 = "ADDR_EMBEDDED_V4"
    SPECIAL = "ADDR_SPECIAL"
    RESERVED = "ADDR_RESERVED"


@dataclass(frozen=True)
class Block:
    """A row of the table; `name` is the registry's, `rfc` what it refers to."""

    network: IPv4Network | IPv6Network
    kind: Kind
    name: str
    rfc: str


def _block(network: str, kind: Kind, name: str, rfc: str) -> Block:
    return Block(ip_network(network), kind, name, rfc)


TABLE: Final = (
    # Clouds' own services. Each lies in a block below or, Azure's, in public space: from
    # inside it answers with credentials. Named before the blocks, so that a person sees which.
    _block("169.254.169.254/32", Kind.METADATA, "Metadata of most clouds", "RFC3927"),
    _block("169.254.170.2/32", Kind.METADATA, "Metadata of AWS ECS", "RFC3927"),
    _block("169.254.170.23/32", Kind.METADATA, "Metadata of AWS EKS", "RFC3927"),
    _block("168.63.129.16/32", Kind.METADATA, "Azure's host", "public"),
    _block("100.100.100.200/32", Kind.METADATA, "Metadata of Alibaba Cloud", "RFC6598"),
    _block("192.0.0.192/32", Kind.METADATA, "Metadata of Oracle Cloud", "RFC6890"),
    # IANA IPv4 Special-Purpose Address Registry, those that it calls globally reachable
    # included (AS112, AMT, anycasts): services of the network, never a receiver.
    _block("0.0.0.0/8", Kind.UNSPECIFIED, '"This network"', "RFC791"),
    _block("10.0.0.0/8", Kind.PRIVATE, "Private-Use", "RFC1918"),
    _block("100.64.0.0/10", Kind.PRIVATE, "Shared Address Space", "RFC6598"),
    _block("127.0.0.0/8", Kind.LOOPBACK, "Loopback", "RFC1122"),
    _block("169.254.0.0/16", Kind.LINK_LOCAL, "Link Local", "RFC3927"),
    _block("172.16.0.0/12", Kind.PRIVATE, "Private-Use", "RFC1918"),
    _block("192.0.0.0/24", Kind.SPECIAL, "IETF Protocol Assignments", "RFC6890"),
    _block("192.0.2.0/24", Kind.SPECIAL, "Documentation (TEST-NET-1)", "RFC5737"),
    _block("192.31.196.0/24", Kind.SPECIAL, "AS112-v4", "RFC7535"),
    _block("192.52.193.0/24", Kind.SPECIAL, "AMT", "RFC7450"),
    _block("192.88.99.0/24", Kind.SPECIAL, "Deprecated (6to4 Relay Anycast)", "RFC7526"),
    _block("192.168.0.0/16", Kind.PRIVATE, "Private-Use", "RFC1918"),
    _block("192.175.48.0/24", Kind.SPECIAL, "Direct Delegation AS112 Service", "RFC7534"),
    _block("198.18.0.0/15", Kind.SPECIAL, "Benchmarking", "RFC2544"),
    _block("198.51.100.0/24", Kind.SPECIAL, "Documentation (TEST-NET-2)", "RFC5737"),
    _block("203.0.113.0/24", Kind.SPECIAL, "Documentation (TEST-NET-3)", "RFC5737"),
    _block("240.0.0.0/4", Kind.RESERVED, "Reserved, Limited Broadcast", "RFC1112, RFC8190"),
    # IANA IPv4 Multicast Address Space Registry.
    _block("224.0.0.0/4", Kind.MULTICAST, "Multicast", "RFC5771"),
    # IANA IPv6 Special-Purpose Address Registry.
    _block("::1/128", Kind.LOOPBACK, "Loopback Address", "RFC4291"),
    _block("::/128", Kind.UNSPECIFIED, "Unspecified Address", "RFC4291"),
    _block("::ffff:0:0/96", Kind.EMBEDDED_V4, "IPv4-mapped Address", "RFC4291"),
    _block("64:ff9b::/96", Kind.EMBEDDED_V4, "IPv4-IPv6 Translat. (NAT64)", "RFC6052"),
    _block("64:ff9b:1::/48", Kind.EMBEDDED_V4, "IPv4-IPv6 Translat. (local)", "RFC8215"),
    _block("100::/64", Kind.SPECIAL, "Discard-Only Address Block", "RFC6666"),
    _block("100:0:0:1::/64", Kind.SPECIAL, "Dummy IPv6 Prefix", "RFC9780"),
    _block("2001::/32", Kind.EMBEDDED_V4, "TEREDO", "RFC4380"),
    # With ORCHID, benchmarking, AMT, AS112-v6, drones and anycasts, which lie in it.
    _block("2001::/23", Kind.SPECIAL, "IETF Protocol Assignments", "RFC2928"),
    _block("2001:db8::/32", Kind.SPECIAL, "Documentation", "RFC3849"),
    _block("2002::/16", Kind.EMBEDDED_V4, "6to4", "RFC3056"),
    _block("2620:4f:8000::/48", Kind.SPECIAL, "Direct Delegation AS112 Service", "RFC7534"),
    _block("3fff::/20", Kind.SPECIAL, "Documentation", "RFC9637"),
    _block("5f00::/16", Kind.SPECIAL, "Segment Routing (SRv6) SIDs", "RFC9602"),
    _block("fc00::/7", Kind.ULA, "Unique-Local", "RFC4193"),
    _block("fe80::/10", Kind.LINK_LOCAL, "Link-Local Unicast", "RFC4291"),
    # IANA IPv6 Multicast Address Space Registry.
    _block("ff00::/8", Kind.MULTICAST, "Multicast", "RFC4291"),
    # In no registry any more; systems still route them.
    _block("fec0::/10", Kind.PRIVATE, "Site-Local (deprecated)", "RFC3879"),
    _block("::ffff:0:0:0/96", Kind.EMBEDDED_V4, "IPv4-translated (deprecated)", "RFC2765"),
    _block("::/96", Kind.EMBEDDED_V4, "IPv4-compatible (deprecated)", "RFC4291"),
)

GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All of IPv6 that is given out (IANA Internet Protocol Version 6 Address Space)."""

_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The upper half of an interface id under any prefix: its lower half is an IPv4 address
(RFC 5214)."""


def kind_of(text: str) -> Kind | None:
    """What the address is, or None: a public one, which may be called. `text` is one as a
    resolver gives it; a scope (`%eth0`) is no part of it. Raises ValueError for anything else."""
    address = ip_address(text.partition("%")[0])
    for block in TABLE:
        if address in block.network:
            return block.kind
    return _unnamed(address)


def _unnamed(address: IPv4Address | IPv6Address) -> Kind | None:
    if isinstance(address, IPv4Address):
        return None
    if address not in GLOBAL_UNICAST:
        return Kind.RESERVED
    upper_half = (int(address) >> 32) & 0xFFFF_FFFF
    return Kind.EMBEDDED_V4 if upper_half in _ISATAP else None
