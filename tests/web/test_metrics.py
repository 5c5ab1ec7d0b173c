"""What a web process counts, and who may see it."""

from __future__ import annotations

import uuid

from prometheus_client.parser import text_string_to_metric_families

from tests.rails.benches import MTN
from tests.web.client import Client
from tests.web.conftest import Serve


def callbacks(client: Client) -> dict[tuple[str, str], float]:
    """By rail and outcome, of those that were counted."""
    page = client.get("/metrics")
    assert page.status == 200
    return {
        (sample.labels["rail"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(page.body)
        for sample in family.samples
        if sample.name == "vpay_callbacks_total" and sample.value
    }


def test_metrics_are_shown_where_the_settings_say_so(serve: Serve) -> None:
    with serve() as client:
        assert client.get("/metrics").status == 404
    with serve(metrics=True) as client:
        page = client.get("/metrics").body
    assert 'vpay_pages_total{source="web"}' in page
    assert 'vpay_callbacks_total{outcome="failed",rail="mtn_momo"} 0.0' in page


def test_callbacks_are_counted_by_rail_and_outcome_and_strangers_make_no_series(
    serve: Serve,
) -> None:
    with serve(metrics=True) as client:
        client.call_back(MTN.code, MTN.callback(str(uuid.uuid4())))
        client.call_back(MTN.code, b"{}")
        for n in range(5):
            client.call_back(f"visa{n}", b"{}")
        assert callbacks(client) == {
            ("mtn_momo", "unknown"): 1,
            ("mtn_momo", "refused"): 1,
            ("unknown", "refused"): 5,
        }
    with serve(metrics=True, patience=0.2, url="postgresql://nobody@127.0.0.1:1/x") as client:
        client.call_back(MTN.code, MTN.callback("r-1"))
        assert callbacks(client) == {("mtn_momo", "failed"): 1}
