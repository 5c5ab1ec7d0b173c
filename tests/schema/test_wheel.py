"""What is shipped can migrate: the wheel, built by way of the sdist, installed by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.house import ROOT
from vpay_tasks.store import migrate

SOURCES = ("vpay_tasks", "vpay_sandbox", "schema", "setup.cfg", "pyproject.toml", "README.md")


def call(*words: str | Path, **env: str) -> str:
    """Output of a program that must succeed; nothing of the caller's Python reaches it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VPAY_"))}
    done = subprocess.run(
        words, cwd="/", env={**clean, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build folder that is left in the tree would end up in it."""
    source = tmp_path_factory.mktemp("source")
    for name in (*SOURCES, "LICENSE"):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, source)
    (found,) = target.glob("*.whl")
    return found


def migrates(python: Path, dsn: str) -> None:
    command = python.with_name("vpay-tasks")
    out = call(command, "migrate", VPAY_DATABASE_URL=dsn)
    assert out.splitlines()[:-1] == [f"applied {m.name}" for m in migrate.available()]
    assert call(command, "status", VPAY_DATABASE_URL=dsn).startswith("Status at ")


def test_the_wheel_holds_every_statement_migration_and_type_marker(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        *(f"vpay_tasks/schema/{path.name}" for path in (ROOT / "schema").glob("*.sql")),
        *(
            str(path.relative_to(ROOT))
            for package in ("vpay_tasks", "vpay_sandbox")
            for pattern in ("*.py", "*.sql", "*.toml", "py.typed")
            for path in (ROOT / package).rglob(pattern)
        ),
    }
    assert wanted - held == set()
    assert {name.split("/")[0].split("-")[0] for name in held} == {
        "vpay_tasks",
        "vpay_sandbox",
    }


def test_the_installed_wheel_migrates_an_empty_database(
    wheel: Path, empty_dsn: str, tmp_path: Path
) -> None:
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "-q", wheel)
    site = Path(
        call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    # The dependencies of this environment; its editable install is not seen through a .pth.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    where = call(python, "-c", "import vpay_tasks; print(vpay_tasks.__file__)").strip()
    assert Path(where).is_relative_to(site)
    migrates(python, empty_dsn)


@pytest.mark.more(seconds=60)
def test_the_wheel_brings_its_own_dependencies(wheel: Path, empty_dsn: str, tmp_path: Path) -> None:
    call(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    # psycopg's client library comes from the system or, as here, with its binary extra.
    call(python, "-m", "pip", "install", "-q", str(wheel), "psycopg[binary]")
    migrates(python, empty_dsn)
