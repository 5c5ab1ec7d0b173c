"""What `dramatiq vpay_tasks.actors` loads: the broker, and one actor per queue.

Importing this reads the settings, and ends the process with every fault of them named
(exit 78); it connects nothing, so that it may happen before or after a fork.
"""

from __future__ import annotations

import sys

import dramatiq

from vpay_tasks import config, secrecy, telemetry, wiring
from vpay_tasks.errors import VpayError

try:
    secrecy.leave_no_core()
    telemetry.log_as_json()
    broker = wiring.worker(config.load(), config.settings_path())
except VpayError as error:
    print(f"error: {error}", file=sys.stderr)  # noqa: T201 - for whoever starts it by hand
    sys.exit(error.exit)

dramatiq.set_broker(broker)
