"""What a URL's host may look like, before anybody is asked for its address.

"No IP literal, so it is a name" is the trap: the system's resolver takes `127.1`,
`0x7f000001` and circled digits for addresses. So a host is a name only if it looks like one
in every respect.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from vpay_tasks.stand_ins import STAND_INS


class Shape(StrEnum):
    """What is wrong with a URL as it is written. It will be wrong tomorrow, too."""

    SCHEME = "SCHEME"
    SYNTAX = "SYNTAX"
    USERINFO = "USERINFO"
    PORT = "PORT"
    NAME = "HOST_NAME"
    NUMERIC = "HOST_NUMERIC"
    UNICODE = "HOST_UNICODE"
    LITERAL = "HOST_LITERAL"
    ZONE_ID = "HOST_ZONE_ID"


SPECIAL_USE: Final = frozenset(
    {
        # IANA Special-Use Domain Names, those that are top-level; .arpa holds the rest.
        *("alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test"),
        # Never delegated (ICANN's name collision study), and what routers and offices use.
        *("corp", "home", "intranet", "lan", "localdomain", "mail", "private"),
    }
)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LOCAL_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}")


def is_numeric(host: str) -> bool:
    """Whether some reader takes the (lower-case) host for an address: those go by its last
    label, and a trailing dot hides nothing."""
    return _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]) is not None


def is_local_name(host: str) -> bool:
    """A name of any network, one label included: a container's, a machine's."""
    labels = host.split(".")
    return len(host) <= 253 and all(_LOCAL_LABEL.fullmatch(label) for label in labels)


def is_public_name(host: str) -> bool:
    """Whether the (lower-case) host is a name that the public DNS could hold. A trailing dot
    is refused and not cut off: with it TLS, Host header and this check see two names."""
    labels = host.split(".")
    return (
        len(host) <= 253
        and len(labels) >= 2
        and labels[-1] not in SPECIAL_USE
        and all(_LABEL.fullmatch(label) and _is_sound(label) for label in labels)
    )


def is_stand_in(host: str) -> bool:
    """Whether the (lower-case) host has the name of a stand-in in it."""
    return any(word in host for word in STAND_INS)


def _is_sound(label: str) -> bool:
    """False for an `xn--` label that stands for nothing, or not for itself alone."""
    if not label.startswith("xn--"):
        return True
    try:
        meant = label[4:].encode("ascii").decode("punycode")
        return not meant.isascii() and meant.encode("punycode").decode("ascii") == label[4:]
    except UnicodeError:
        return False
