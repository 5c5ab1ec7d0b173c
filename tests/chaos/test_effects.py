"""What an injector takes for its effect is its own."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.chaos.processes import written_by_a_clock


def test_a_wrong_clock_is_seen_by_what_it_writes_from_now_on(tmp_path: Path) -> None:
    log = tmp_path / "webhooks.log"

    def write(hours: int) -> None:
        at = datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=hours)
        with log.open("a") as file:
            file.write(f'no JSON\n[]\n{{"at": "{at.isoformat()}", "message": "worker ready"}}\n')

    write(-1)
    begun = log.stat().st_size
    write(0)
    assert not written_by_a_clock(log, begun, -1)
    write(-1)
    assert written_by_a_clock(log, begun, -1)
    assert not written_by_a_clock(log, begun, 1)
