"""What alarms see of the inbox."""

from __future__ import annotations

from tests.inbox.bench import InboxBench, done, granting
from tests.inbox.signing import by_hand, by_stripe, stripe_event
from vpay_tasks.runtime.metrics import Metrics


def test_what_waits_and_what_is_dead_is_counted_and_its_age_told(box: InboxBench) -> None:
    def seen() -> dict[tuple[str, str], float]:
        return {
            (sample.name, sample.labels.get("state", "")): sample.value
            for family in Metrics(box.database).collect()
            for sample in family.samples
            if sample.name.startswith("vpay_inbox_")
        }

    assert seen()["vpay_inbox_oldest_seconds", ""] == 0
    for number in range(3):
        box.deliver(by_stripe(stripe_event(f"evt_{number}")))
    box.deliver(by_hand(b"no json"))
    box.ask("UPDATE vpay.inbox_events SET received_at = now() - interval '1 hour' WHERE id = 2")
    found = seen()
    assert found["vpay_inbox_events", "open"] == 3
    assert found["vpay_inbox_events", "dead"] == 1
    assert 3_600 <= found["vpay_inbox_oldest_seconds", ""] < 7_200
    with granting(done):
        while box.run():
            pass
    found = seen()
    assert found["vpay_inbox_events", "open"] == 0
    assert found["vpay_inbox_oldest_seconds", ""] == 0
