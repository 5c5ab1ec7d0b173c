"""What the installation talks to and does not own: a payment rail, a merchant's receiver."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.model.sessions import TIME, current
from vpay_tasks import errors
from vpay_tasks.core.charge import FailureCode, Flow
from vpay_tasks.rails.port import (
    Accepted,
    ByReference,
    Capabilities,
    Declined,
    Failed,
    Inquiry,
    Named,
    NotFound,
    Order,
    Pending,
    StatusAnswer,
    SubmitAnswer,
    Succeeded,
    Unknown,
)

SAYS = ("answers", "declines", "is silent", "is not reached", "knows nothing")
"""`is silent`: it acted, and nobody hears. `is not reached`: it never saw the request."""

SILENT = errors.Rail("the rail did not answer in time")


class Rail:
    """A push rail. A reference is an order, and an order is paid once, however often it is
    sent. Its books are `orders`; a session that calls it stops before and behind the effect."""

    code = "model_rail"
    flow = Flow.PUSH
    capabilities = Capabilities(frozenset({"EUR"}), False, True, False)

    def __init__(self) -> None:
        self.orders: dict[str, str] = {}
        self.amounts: dict[str, int] = {}
        self.submits: Counter[str] = Counter()
        self.honest = False
        """Nothing goes wrong any more: whatever was meant to happen, it answers."""

    def submit(self, order: Order, *, deadline: float) -> SubmitAnswer:
        says = self._called("rail.submit", deadline)
        if says == "is not reached":
            return Unknown(errors.Rail("the rail could not be reached"))
        self.submits[order.reference] += 1
        if self._is_new(order.reference):
            self.amounts[order.reference] = order.amount
            self.orders[order.reference] = "declined" if says == "declines" else "pending"
        if not self._answers("rail.submitted", says):
            return Unknown(SILENT)
        if self.orders[order.reference] == "declined":
            return Declined(FailureCode.PAYER_LIMIT_REACHED, "limit")
        return Accepted()

    def _is_new(self, reference: str) -> bool:
        """A decline leaves no order behind. Where one submit was never answered, another's
        decline decides nothing, by contract, and the charge is asked about for ever: so in
        the end the payer has the money."""
        return self.orders.get(reference) in ((None, "declined") if self.honest else (None,))

    def query_status(self, inquiry: Inquiry, *, deadline: float) -> StatusAnswer:
        says = self._called("rail.query", deadline)
        if says == "is not reached":
            raise errors.Rail("the rail could not be reached")
        state = self.orders.get(inquiry.reference)
        if says == "knows nothing" and state in (None, "pending"):
            state = None  # a replica of the rail's that lags
        if not self._answers("rail.queried", says):
            raise errors.Rail(str(SILENT))
        match state:
            case None | "declined":
                return NotFound()
            case "pending":
                return Pending()
            case "succeeded":
                return Succeeded(f"txn-{inquiry.reference}")
            case _:
                return Failed(FailureCode.PAYER_DECLINED, "no")

    def parse_callback(self, body: bytes) -> Named:
        return ByReference(body.decode())

    def decide(self, number: int, *, pays: bool) -> None:
        """The payer of one of the orders that wait for a payer."""
        # In the order in which they came: references fall otherwise in every replay.
        waiting = [ref for ref, state in self.orders.items() if state == "pending"]
        if waiting:
            order = waiting[number % len(waiting)]
            self.orders[order] = "succeeded" if pays else "failed"

    def decide_all(self) -> None:
        """Every payer does, some this way and some that."""
        for place, order in enumerate(self.orders):
            if self.orders[order] == "pending":
                self.orders[order] = "succeeded" if place % 2 else "failed"

    def _called(self, at: str, deadline: float) -> str:
        session = current()
        assert session is not None
        session.pause(at)
        says = "answers" if self.honest else session.says or "answers"
        session.says = None
        # As the adapters do: what can't be over in time is not begun.
        return "is not reached" if TIME.monotonic() >= deadline else says

    def _answers(self, at: str, says: str) -> bool:
        session = current()
        assert session is not None
        session.pause(at)
        return says != "is silent" or self.honest


@dataclass
class Post:
    """One webhook as the merchant got it."""

    event_id: str
    endpoint: str
    body: bytes
    status: int | None


@dataclass
class Receiver:
    """A merchant's server. `mood` is what it answers now; None: it hangs up without a word."""

    posts: list[Post] = field(default_factory=list)
    mood: int | None = 200

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(receiver) -> Callable[..., BaseHTTPRequestHandler]:  # noqa: N805 - two selves
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.mood
                receiver.posts.append(Post(self.headers["webhook-id"], self.path[1:], body, status))
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        return Handler
