"""A merchant's application that confirms one payment, and does as the documents say: what was
refused before anything was sent is confirmed again.

python -m tests.kills.customer INTENT PAYER

Prints a JSON line per answer or error; its last `said` is the answer's name.
"""

from __future__ import annotations

import json
import sys

from vpay_tasks import config, payments, telemetry, wiring
from vpay_tasks.errors import Storage

TRIES = 5


def main(intent: str, payer: str) -> None:
    telemetry.log_as_json()
    settings = config.load()
    database, rail = wiring.database(settings), wiring.rails(settings)["mtn_momo"]
    for _ in range(TRIES):
        try:
            answer = payments.confirm(database, intent, rail=rail, payer=payer)
        except Storage as error:
            print(json.dumps({"action": "refused", "error": type(error).__name__}), flush=True)
        else:
            print(json.dumps({"action": "said", "answer": type(answer).__name__}), flush=True)
            break
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
