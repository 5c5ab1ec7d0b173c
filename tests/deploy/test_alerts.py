"""Alert rules speak of metrics that exist, and of headings that tell what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import yaml

from tests.house import ROOT
from vpay_tasks.runtime.metrics import Metrics
from vpay_tasks.store.db import Database
from vpay_tasks.web.callbacks import OUTCOMES
from vpay_tasks.web.metrics import Seen

DEPLOY = ROOT / "deploy"
RUNBOOKS = (DEPLOY / "runbooks.md").read_text("utf-8")
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "vpay.rules.yml").read_text("utf-8"))[
        "groups"
    ]
    for rule in group["rules"]
]
each_alert = pytest.mark.parametrize("rule", [pytest.param(r, id=r["alert"]) for r in RULES])

USE = re.compile(r"\b(vpay_\w+)(?:\{([^}]*)\})?")
UP = re.compile(r"\bup\{job=\"([\w-]+)\"\}")
MATCHER = re.compile(r"(\w+)(?:=~|!~|!=|=)\"")
GROUPING = re.compile(r"\b(?:by|on|without) \(([^)]*)\)")


@pytest.fixture(scope="module")
def exported(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[dict[str, set[str]]]:
    """Every metric of a scrape by name, with the names of its labels."""
    with clone() as url:
        database = Database(url, size=1)
        with database.connection() as connection:
            connection.execute("VACUUM ANALYZE vpay.jobs")
        found = {
            f"{family.name}_total" if family.type == "counter" else family.name: set(
                getattr(family, "_labelnames")  # noqa: B009 - only its subclasses declare it
            )
            for family in Metrics(database).collect()
        }
        yield found | {
            sample.name: set(sample.labels)
            for family in Seen(["mtn_momo"], OUTCOMES).registry.collect()
            for sample in family.samples
        }
        database.close()


def words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",") if word.strip()}


@each_alert
def test_every_metric_and_label_of_an_alert_is_exported(
    rule: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    uses = USE.findall(rule["expr"])
    # Prometheus' own metric of the jobs that our example scrapes.
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    jobs = {job["job_name"] for job in scraped["scrape_configs"]}
    assert uses or set(UP.findall(rule["expr"])) & jobs
    known: set[str] = set()
    for name, matchers in uses:
        assert name in exported
        assert set(MATCHER.findall(matchers)) <= exported[name]
        known |= exported[name]
        if "source" in exported[name]:
            assert "source" in MATCHER.findall(matchers), f"{name} of which source?"
    for grouping in GROUPING.findall(rule["expr"]):
        assert words(grouping) <= known


@each_alert
def test_every_alert_tells_a_person_what_is_wrong(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "error", "warn"}
    summary = rule["annotations"]["summary"].strip()
    assert summary.endswith(".")
    assert len(summary.split()) >= 5, "a sentence, not a name"
    kept = {label for group in GROUPING.findall(rule["expr"]) for label in words(group)}
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= kept


@each_alert
def test_every_alert_leads_to_its_heading(rule: dict[str, Any]) -> None:
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / path == DEPLOY / "runbooks.md"
    assert anchor == rule["alert"].lower()
    section = re.search(rf"^## {rule['alert']}\n(.*?)(?=^## |\Z)", RUNBOOKS, re.M | re.S)
    assert section is not None
    assert re.findall(r"^\*\*(\w+)\*\*", section[1], re.M) == ["Means", "Look", "Do"]


def test_headings_and_alerts_come_in_pairs() -> None:
    names = [rule["alert"] for rule in RULES]
    assert re.findall(r"^## (.*)$", RUNBOOKS, re.M) == names
    assert len(set(names)) == len(names)
