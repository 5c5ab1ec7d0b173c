"""The HTTP side: rails' callbacks, vendors' webhooks, health. `uvicorn vpay_tasks.web:app` serves
it.

`app` is made when it is first asked for, from the settings, as `vpay_tasks.actors` makes the
workers' broker: faults of them are named and end the process (exit 78). Nothing is connected
before a request needs it, so uvicorn may fork or spawn as it likes. Importing a module of this
package reads no settings; `frame.make(settings)` is an app by hand. (No module here may be
called app: importing it would put a module in the app's place.)
"""

from __future__ import annotations

import sys

from starlette.applications import Starlette

from vpay_tasks import config, secrecy, telemetry
from vpay_tasks.errors import VpayError
from vpay_tasks.web import frame

app: Starlette


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        secrecy.leave_no_core()
        telemetry.log_as_json()
        frame.quieten_the_server()
        made = frame.make(config.load())
    except VpayError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - for whoever starts it by hand
        sys.exit(error.exit)
    globals()["app"] = made
    return made
