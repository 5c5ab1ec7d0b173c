"""A grep for secrets finds each in every spelling, or it proves nothing."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.canaries import CHUNK, Search, spellings

CANARY = "cañary/7+f9=x"
KEY = "whsec_" + base64.b64encode(bytes(range(200, 232))).decode()


@pytest.mark.parametrize(
    "spelled",
    [
        str.encode,
        lambda text: text.encode().hex().encode(),
        lambda text: text.encode().hex().upper().encode(),
        lambda text: urllib.parse.quote(text, safe="").encode(),
        lambda text: urllib.parse.urlencode({"a": text}).encode(),
        lambda text: json.dumps({"a": [text]}).encode(),
        lambda text: json.dumps({"a": [text]}, ensure_ascii=False).encode(),
        lambda text: repr({"a": text}).encode(),
        lambda text: repr(text.encode()).encode(),
        lambda text: ascii(text.encode()).encode(),
        lambda text: base64.b64encode(f"{text}:x".encode()),
        lambda text: base64.b64encode(f"x:{text}".encode()),
        lambda text: base64.b64encode(f"yx:{text}x".encode()),
        lambda text: base64.b64encode(f"x{text}".encode()),
        lambda text: base64.urlsafe_b64encode(f"x:{text}:yz".encode()),
        lambda text: base64.urlsafe_b64encode(text.encode()).rstrip(b"="),
    ],
)
def test_a_canary_is_found_however_it_is_written(spelled: Callable[[str], bytes]) -> None:
    search = Search({"it": CANARY, "another": "nothing like it"})
    assert search.in_bytes(b"<" + spelled(CANARY) + b">") == {"it"}
    assert search.in_bytes(b"<" + spelled("canary/7+f9=y") + b">") == set()


def test_of_a_key_its_bytes_are_found_too() -> None:
    search = Search({"key": KEY})
    raw = base64.b64decode(KEY.removeprefix("whsec_"))
    for shown in (raw, raw.hex().encode(), repr(raw).encode(), KEY[6:].encode()):
        assert search.in_bytes(b"a" + shown) == {"key"}


def test_no_spelling_is_so_short_that_it_is_found_by_chance() -> None:
    assert min(map(len, spellings("0123456789"))) >= 8


def test_files_are_read_across_their_chunks_and_some_are_left_out(tmp_path: Path) -> None:
    search = Search({"it": CANARY})
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text(CANARY, "utf-8")
    (tmp_path / "log").write_bytes(b"x" * (CHUNK - 5) + CANARY.encode())
    found = list(search.in_files(tmp_path, but=[tmp_path / "secrets"]))
    assert found == [("it", Path("log"))]
