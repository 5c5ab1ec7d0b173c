"""What deploy/ starts exists, takes these options, and agrees with the settings."""

from __future__ import annotations

import argparse
import configparser
import re
import shlex
import subprocess
from typing import Any

import pytest
import uvicorn
import yaml
from dramatiq.cli import make_argument_parser

from tests.house import ROOT
from vpay_tasks import config
from vpay_tasks.config import Settings

DEPLOY = ROOT / "deploy"
QUEUES = set(Settings().dispatch.queues)
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
OURS = {
    name: service
    for name, service in COMPOSE["services"].items()
    if service["image"] == "vpay-tasks"
}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", "utf-8")


def commands() -> set[str]:
    """The commands that an installation has."""
    scripts = SETUP["options.entry_points"]["console_scripts"].split("\n")
    return {line.partition("=")[0].strip() for line in scripts if line} | {"dramatiq", "uvicorn"}


def served(words: list[str]) -> list[str]:
    """The queues of a command of workers, read as Dramatiq reads it."""
    assert words[0] == "dramatiq"
    parser: argparse.ArgumentParser = make_argument_parser()  # type: ignore[no-untyped-call]
    arguments = parser.parse_args(words[1:])
    assert arguments.broker == "vpay_tasks.actors"
    return list(arguments.queues)


def serves(words: list[str]) -> None:
    """Options of uvicorn, read as it reads them."""
    context = uvicorn.main.make_context("uvicorn", list(words), resilient_parsing=True)
    options = context.params
    assert options["app"] == "vpay_tasks.web:app"
    assert options["limit_concurrency"] == 1_000
    assert options["timeout_graceful_shutdown"] <= Settings().worker.grace
    assert not options["workers"]


def directive(unit: str, name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", unit, re.M)
    return str(found)


def started(unit: str, instance: str) -> list[str]:
    """What a unit runs: its specifiers replaced as systemd does, and by a real shell."""
    line = directive(unit, "ExecStart").replace("%i", instance).replace("%%", "%")
    words = shlex.split(line.replace("$$", "$"))
    if words[0] != "/bin/sh":
        return words
    script = words[2].replace("exec ", "exec echo ")
    told = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    return told.stdout.split()


def test_units_start_what_an_installation_has() -> None:
    for path in UNITS:
        words = started(path.read_text("utf-8"), "some-queue-2")
        folder, _, command = words[0].rpartition("/")
        assert folder == "/opt/vpay/bin"
        assert command in commands()
        if command == "dramatiq":
            assert served([command, *words[1:]]) == ["some-queue"]
        if command == "uvicorn":
            serves(words[1:])


def test_supervisors_wait_for_longer_than_the_grace() -> None:
    grace = Settings().worker.grace
    for path in UNITS:
        unit = path.read_text("utf-8")
        assert float(directive(unit, "TimeoutStopSec")) >= grace + 5
        assert directive(unit, "Restart") == "always"
    for name in QUEUES:
        assert float(OURS[name]["stop_grace_period"].removesuffix("s")) >= grace + 5


def test_no_process_may_write_its_memory_to_a_disk() -> None:
    for path in UNITS:
        assert directive(path.read_text("utf-8"), "LimitCORE") == "0"
    for service in OURS.values():
        assert service["ulimits"] == {"core": 0}


def test_the_target_wants_a_dispatcher_and_two_groups_for_every_queue() -> None:
    target = (DEPLOY / "systemd" / "vpay.target").read_text("utf-8")
    wanted = [name for line in re.findall(r"^Wants=(.*)$", target, re.M) for name in line.split()]
    groups = {f"vpay-worker@{queue}-{n}.service" for queue in QUEUES for n in (1, 2)}
    web = {f"vpay-web@{port}.service" for port in (8001, 8002)}
    assert set(wanted) == groups | web | {"vpay-dispatch.service"}
    assert {re.sub(r"@.*\.", "@.", name) for name in wanted} == {path.name for path in UNITS}


@pytest.mark.parametrize("name", sorted(OURS))
def test_services_run_what_the_image_has(name: str) -> None:
    words = OURS[name]["command"]
    assert words[0] in commands()
    if words[0] == "dramatiq":
        assert served(words) == [name]
        assert OURS[name]["deploy"]["replicas"] == 2
    if words[0] == "uvicorn":
        serves(words[1:])


def test_compose_serves_every_queue_and_dispatches() -> None:
    workers = {name for name, service in OURS.items() if service["command"][0] == "dramatiq"}
    assert workers == QUEUES
    assert OURS["dispatch"]["command"] == ["vpay-dispatch"]
    assert OURS["migrate"]["command"] == ["vpay-tasks", "migrate"]
    waits = {name for name in OURS if "migrate" in OURS[name]["depends_on"]}
    assert waits == set(OURS) - {"migrate"}


def test_the_example_settings_are_valid_and_prometheus_scrapes_their_port() -> None:
    environment = dict(OURS["dispatch"]["environment"])
    environment = {name: re.sub(r"\$\{.*?\}", "x", text) for name, text in environment.items()}
    settings = config.read(DEPLOY / "vpay.example.toml", environment)
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"dispatch:{settings.dispatch.metrics_port}"
    (target,) = scraped["scrape_configs"][1]["static_configs"][0]["targets"]
    assert target == f"web:{OURS['web']['expose'][0]}"
    assert settings.web.metrics
    assert OURS["dispatch"]["expose"] == [str(settings.dispatch.metrics_port)]
    assert scraped["rule_files"] == ["vpay.rules.yml"]


def test_files_that_compose_mounts_and_builds_are_there() -> None:
    mounts = [
        mount
        for service in COMPOSE["services"].values()
        for mount in service.get("volumes", ())
        if mount.startswith("./")
    ]
    assert mounts
    assert [m for m in mounts if not (DEPLOY / m.split(":")[0]).exists()] == []
    build = OURS["migrate"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_the_image_installs_extras_that_exist_and_runs_a_command_of_ours() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    (extras,) = re.findall(r"/src\[([\w,]+)\]", text)
    assert set(extras.split(",")) <= set(SETUP["options.extras_require"])
    (command,) = re.findall(r'^CMD \["([\w-]+)"\]$', text, re.M)
    assert command in commands()
