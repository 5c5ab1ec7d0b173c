"""Hosts of sandboxes and stand-ins, which real money must not end at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

STAND_INS: Final = ("wiremock", "stub", "mock", "localhost")
"""Words in the hosts of stand-ins."""

_WEB: Final = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#]*)", re.IGNORECASE)


def faults_of_rails(rails: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What of rails' tables livemode refuses, whatever the keys are called: a third party's
    rail has others than ours."""
    for code, table in rails.items():
        for key, value in table.items():
            if isinstance(value, str) and (url := _WEB.match(value)):
                where = f"rails.{code}.{key}"
                if url["scheme"] != "https":
                    yield f"{where}: in livemode https://"
                if any(word in url["host"].lower() for word in (*STAND_INS, "sandbox")):
                    yield f"{where}: a sandbox's or a stand-in's host beside real money"


_CREDENTIAL: Final = re.compile(r"(^|_)(key|secret|password|token)$", re.IGNORECASE)


def places_of_credentials(rails: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Where rails' tables hold what their servers know us by, going by the keys' names."""
    for code, table in rails.items():
        for key, value in table.items():
            if isinstance(value, str) and _CREDENTIAL.search(key):
                yield f"rails.{code}.{key}"
