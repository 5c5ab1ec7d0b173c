"""One confirm or one resubmit, in a process of its own that a test stops or kills.

python -m tests.payments.one_submit confirm RAIL INTENT
python -m tests.payments.one_submit resubmit CHARGE SEEN

Prints `said X` at its end, X being the answer.
"""

from __future__ import annotations

import sys

from tests.payment_kit import APPROVED
from tests.webhooks.world import HandRun
from vpay_tasks import config, payments, wiring
from vpay_tasks.handlers.resubmit_charge import resubmit_charge


def confirm(code: str, intent: str) -> object:
    settings = config.load()
    rail = wiring.rails(settings)[code]
    able = rail.capabilities
    return payments.confirm(
        wiring.database(settings),
        intent,
        rail=rail,
        payer=APPROVED if able.needs_payer else None,
        return_url="https://shop.example/back" if able.needs_return_url else None,
    )


def resubmit(charge: str, seen: str) -> object:
    ctx = wiring.context(config.load(), None)
    return resubmit_charge(HandRun(ctx.db), ctx, charge_id=charge, seen=int(seen))


if __name__ == "__main__":
    what = {"confirm": confirm, "resubmit": resubmit}[sys.argv[1]]
    print("said", type(what(*sys.argv[2:])).__name__, flush=True)
