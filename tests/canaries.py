"""Secrets that are planted to be recognised, in every spelling that a program may give them."""

from __future__ import annotations

import base64
import binascii
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

SHORTEST: Final = 8
"""Of a spelling: less of one is found by chance in any binary file."""

CHUNK: Final = 1 << 20
PREFIXES: Final = ("whsec_", "whsk_", "Bearer ", "Basic ")


def spellings(canary: str) -> set[bytes]:
    """`canary` as text, URL-encoded, in hex, base64 (wherever in a longer text it stood), escaped
    by repr or JSON; of one that is base64 itself also what it says."""
    plain = canary.encode()
    found = _of_bytes(plain)
    for quote in (urllib.parse.quote, urllib.parse.quote_plus):
        found.add(quote(canary, safe="").encode())
    found.add(json.dumps(canary)[1:-1].encode())
    found.add(repr(canary)[1:-1].encode())
    for prefix in PREFIXES:
        bare = canary.removeprefix(prefix)
        if bare != canary:
            found |= _of_bytes(bare.encode())
        if (said := _decoded(bare)) is not None:
            found |= _of_bytes(said)
    return {one for one in found if len(one) >= SHORTEST}


def _of_bytes(plain: bytes) -> set[bytes]:
    found = {plain, plain.hex().encode(), plain.hex().upper().encode(), repr(plain)[2:-1].encode()}
    for offset in range(3):
        # Three bytes make four characters. Those that its neighbours have a part in are cut off.
        encoded = base64.b64encode(b"\0" * offset + plain)
        first = (0, 2, 3)[offset]
        last = (len(plain) + offset) * 8 // 6
        found |= {encoded[first:last], encoded[first:last].translate(URL_SAFE)}
    return found


URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def _decoded(text: str) -> bytes | None:
    """What a key's base64 says, if it is one."""
    try:
        said = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return said if len(said) >= 16 else None


class Search:
    """Which of some canaries stand in some bytes, by name."""

    def __init__(self, canaries: Mapping[str, str]) -> None:
        self.needles = {name: spellings(value) for name, value in canaries.items()}
        every = {one: name for name, ones in self.needles.items() for one in ones}
        self._names = every
        self.longest = max(map(len, every), default=1)
        self._any = re.compile(b"|".join(map(re.escape, sorted(every, key=len, reverse=True))))

    def in_bytes(self, text: bytes) -> set[str]:
        if not self._names:
            return set()
        return {self._names[found] for found in self._any.findall(text)}

    def in_file(self, path: Path) -> set[str]:
        found: set[str] = set()
        tail = b""
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                block = tail + chunk
                found |= self.in_bytes(block)
                tail = block[-self.longest :]
        return found

    def in_files(self, folder: Path, *, but: Iterable[Path] = ()) -> Iterator[tuple[str, Path]]:
        """(name, path below `folder`) of every file; `but` are those, or folders of those, that
        may hold one: where the secrets lie, what stands for the other side."""
        left_out = tuple(but)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            if not any(path.is_relative_to(one) for one in left_out):
                for name in sorted(self.in_file(path)):
                    yield name, path.relative_to(folder)

    def in_process(self, pid: int) -> Iterator[str]:
        """Of what any user of the machine, or whoever looks after it, can see of a process: its
        command line and its environment."""
        for place in ("cmdline", "environ"):
            for name in sorted(self.in_bytes(Path(f"/proc/{pid}/{place}").read_bytes())):
                yield f"{name} is readable in the {place} of a process"
