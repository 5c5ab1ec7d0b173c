"""A receiver's answer, read byte by byte: hostile, endless, or cut off.

The status line decides. What follows is only for the log, so it is bounded and never
decompressed, and whatever is wrong with it changes nothing.
"""

from __future__ import annotations

import re
from typing import Final

from vpay_tasks.webhooks.sign import spellings

READ_MAX: Final = 16_384
"""Bytes read of an answer, its head included. The log keeps 2,000 characters of them."""
EXCERPT_MAX: Final = 2_000
INTERIM_MAX: Final = 5
"""1xx answers before the real one. More is a receiver that stalls on purpose."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n")
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_BODILESS: Final = frozenset({204, 304})


class Incoming:
    """Collects an answer; says when enough of it is here."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._begin = 0  # of the current head: behind those of interim answers
        self._scanned = 0
        self._interim = 0
        self._body_at: int | None = None
        self._headers: dict[str, str] = {}
        self.fault: str | None = None

    def feed(self, chunk: bytes) -> None:
        self._raw += chunk
        while self._body_at is None and self.fault is None and self._take_head():
            pass

    @property
    def room(self) -> int:
        """Bytes that may still be read."""
        return READ_MAX - len(self._raw)

    @property
    def status(self) -> int | None:
        """Of the final answer, as soon as its status line is here."""
        found = _STATUS.match(self._raw, self._begin)
        status = int(found[1]) if found else None
        return None if status is not None and status < 200 else status

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come, or wanted."""
        if self.fault is not None or self.room <= 0:
            return True
        if self._body_at is None:
            return False
        if self.status in _BODILESS:
            return True
        body = len(self._raw) - self._body_at
        if "transfer-encoding" in self._headers:
            # May also stand in the midst of the data: then the excerpt is shorter.
            return self._raw.endswith(b"0\r\n\r\n")
        length = self._headers.get("content-length", "")
        return bool(re.fullmatch("[0-9]{1,18}", length)) and body >= int(length)

    def header(self, name: str) -> str | None:
        """The first header of that (lower-case) name."""
        return self._headers.get(name)

    @property
    def body(self) -> bytes:
        """What of the body was read; without its chunks' framing, never decompressed."""
        raw = bytes(self._raw[self._body_at :]) if self._body_at is not None else b""
        return _unchunked(raw) if "transfer-encoding" in self._headers else raw

    def _take_head(self) -> bool:
        """Read a complete head. True: it was an interim answer's, look for the next."""
        end = _BLANK_LINE.search(self._raw, max(self._begin, self._scanned - 2))
        self._scanned = len(self._raw)
        if not _could_be_http(self._raw, self._begin):
            self.fault = "what came back is not HTTP/1.1"
            return False
        if end is None:
            return False
        if self.status is not None:
            self._body_at = end.end()
            self._headers = _headers(bytes(self._raw[self._begin : end.start()]))
            return False
        self._interim += 1
        self._begin = self._scanned = end.end()
        if self._interim > INTERIM_MAX:
            self.fault = f"more than {INTERIM_MAX} interim answers"
        return True


def excerpt(raw: bytes, hide: tuple[str, ...] = ()) -> str:
    """`raw` as text that is safe to store and to show: NUL, control, bidi and invisible
    characters escaped, at most 2,000 characters, none of the secrets `hide` in it."""
    text = raw.decode("utf-8", "backslashreplace")
    for secret in hide:
        for spelling in spellings(secret):
            text = text.replace(spelling, "[secret]")
    text = text[:EXCERPT_MAX]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown[:EXCERPT_MAX]


def _could_be_http(raw: bytearray, begin: int) -> bool:
    line_end = raw.find(b"\n", begin)
    if line_end >= 0:
        return _STATUS.match(raw, begin) is not None
    start = bytes(raw[begin : begin + 7])
    return b"HTTP/1."[: len(start)] == start


def _headers(head: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in head.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        key = name.strip().lower().decode("latin-1")
        found.setdefault(key, value.strip().decode("latin-1"))
    return found


def _unchunked(raw: bytes) -> bytes:
    parts, at = [], 0
    while (line_end := raw.find(b"\n", at)) >= 0:
        size = raw[at:line_end].split(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size) or int(size, 16) == 0:
            break
        parts.append(raw[line_end + 1 : line_end + 1 + int(size, 16)])
        at = line_end + 1 + int(size, 16) + 2
    return b"".join(parts)
