"""The copy that root runs Postgres from: whole, shared, and not where others can slip one in."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from vpay_sandbox import install
from vpay_sandbox.process import Account, SandboxError

from .processes import with_path

ROOT = Path(__file__).parents[2]
COPY = """
import sys
from pathlib import Path
from vpay_sandbox import install
from vpay_sandbox.process import Account
print(install.postgres_bin(Account("a", int(sys.argv[1]), int(sys.argv[2])), [Path(sys.argv[3])]))
"""


@pytest.fixture
def account() -> Account:
    """Who Postgres would run as; the copy logic is the same when we are that user ourselves."""
    entry = pwd.getpwuid(os.geteuid())
    return install.unprivileged() or Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def test_two_processes_at_once_share_one_whole_copy(account: Account, shared_place: Path) -> None:
    command = [sys.executable, "-c", COPY, str(account.uid), str(account.gid), str(shared_place)]
    env = with_path(ROOT)
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, env=env) for _ in range(2)]
    answers = {process.communicate(timeout=60)[0] for process in both}
    assert len(answers) == 1
    bin_folder = Path(answers.pop().decode().strip())
    assert subprocess.run([bin_folder / "postgres", "--version"], check=True).returncode == 0
    home = shared_place / f"vpay-sandbox-{os.geteuid()}"
    assert not list(home.glob("part-*"))
    assert len(list(home.glob("postgres-*"))) == 1


def test_a_copy_that_lost_a_file_is_made_again(account: Account, shared_place: Path) -> None:
    psql = install.postgres_bin(account, [shared_place]) / "psql"
    psql.unlink()
    assert install.postgres_bin(account, [shared_place]) / "psql" == psql
    assert psql.is_file()


def test_everybody_can_read_a_copy_and_only_we_can_change_it(
    account: Account, shared_place: Path
) -> None:
    old = os.umask(0o077)
    try:
        bin_folder = install.postgres_bin(account, [shared_place])
    finally:
        os.umask(old)
    for path in (bin_folder, *bin_folder.parents):
        if path == shared_place:
            break
        assert path.stat().st_mode & 0o777 == 0o755
    assert (bin_folder / "postgres").stat().st_mode & 0o777 == 0o755


def link(path: Path) -> None:
    path.symlink_to("/etc")


def writable(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def file(path: Path) -> None:
    path.write_text("")


@pytest.mark.parametrize("put", [link, writable, file])
def test_a_folder_that_somebody_put_there_is_refused_and_named(
    account: Account, shared_place: Path, put: object
) -> None:
    path = shared_place / f"vpay-sandbox-{os.geteuid()}"
    assert callable(put)
    put(path)
    with pytest.raises(SandboxError, match=f"{path.name} .not ours"):
        install.own_folder(account, [shared_place])


def test_a_place_where_others_can_rename_our_folder_is_refused(
    account: Account, shared_place: Path
) -> None:
    shared_place.chmod(0o777)
    with pytest.raises(SandboxError, match="can be trusted"):
        install.own_folder(account, [shared_place])


def test_the_next_place_is_tried(account: Account, shared_place: Path, tmp_path: Path) -> None:
    assert install.own_folder(account, [tmp_path / "none", shared_place]).parent == shared_place


def test_a_dead_owners_data_is_swept_and_a_living_ones_is_not(
    account: Account, shared_place: Path
) -> None:
    living = install.PrivateFolder(account, [shared_place])
    dead = living.path.with_name("data-dead")
    dead.mkdir()
    dead.with_suffix(".lock").write_text("")
    newer = install.PrivateFolder(account, [shared_place])
    assert living.path.is_dir()
    assert not dead.exists()
    for folder in (living, newer):
        folder.remove()
    assert not list(living.path.parent.glob("data-*"))
