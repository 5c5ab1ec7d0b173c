"""The folder of one run: logs, journals, settings, and the data of its servers."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "vpay-sandbox-run-"


class KeepFolder(Exception):
    """What is raised out of a run whose logs and journals somebody should read."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """Removed at the end. After KeepFolder the servers' data goes, the rest stays."""
    place = Path(tempfile.gettempdir()).resolve()
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    keep = False
    try:
        yield folder
    except KeepFolder:
        keep = True
        raise
    finally:
        if keep:
            _drop_data(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _drop_data(folder: Path) -> None:
    for name in ("data", "data.part"):
        shutil.rmtree(folder / "postgres" / name, ignore_errors=True)


def _sweep(place: Path) -> None:
    """A run that was killed could not remove its data (tens of MB). Its lock is free."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            # Another user's folder, or one without a lock yet, is not ours to look into.
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _drop_data(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
