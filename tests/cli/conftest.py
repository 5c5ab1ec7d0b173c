"""`vpay-tasks` in this process, on a settings file of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.webhooks.world import SECRET
from vpay_tasks import cli


@dataclass(frozen=True)
class Said:
    """What a command came back with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Said]


@pytest.fixture
def vpay(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """`vpay("endpoints", "list")`; `url` is where acme/main goes."""

    monkeypatch.setenv("USER", "tester")

    def call(
        *words: str,
        url: str = "http://127.0.0.1:9/path-secret",
        types: str = "*",
        private: bool = True,
    ) -> Said:
        path = tmp_path / "vpay.toml"
        path.write_text(
            f"[egress]\nallow_private_targets = {str(private).lower()}\n"
            f'[database]\nurl = "{dsn}"\n[[merchants]]\nid = "acme"\n[[merchants.endpoints]]\n'
            f'id = "main"\nurl = "{url}"\nsecrets = ["{SECRET}"]\ntypes = ["{types}"]\n'
        )
        monkeypatch.setenv("VPAY_CONFIG", str(path))
        capsys.readouterr()
        try:
            code = cli.main(words)
        except SystemExit as ended:
            code = int(str(ended.code))
        told = capsys.readouterr()
        return Said(code, told.out, told.err)

    return call
