"""`/__control__/…`: a stub's holds, scripts and requests over HTTP, and the client for it."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from vpay_sandbox.desk import Desk, Seen
from vpay_sandbox.httpd import Answer, Hangup, Reply, Request, Silence, json_reply
from vpay_sandbox.process import SandboxError

PREFIX = "/__control__/"
# A waiting control call is answered before clients and proxies lose patience.
LONGEST_WAIT_S = 60.0

AnswerKind = Literal["reply", "silence", "hangup"]


class Controlled:
    """The app that a stub serves: control requests move the levers, all else is the stub's."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def __call__(self, request: Request) -> Answer:
        if not request.path.startswith(PREFIX):
            return await self.desk(request)
        try:
            wish = request.json() if request.body else {}
            return json_reply(200, await self._obey(request.path.removeprefix(PREFIX), wish))
        except (ValueError, KeyError, TypeError, LookupError) as error:
            return json_reply(400, {"error": f"{type(error).__name__}: {error}"})

    async def _obey(self, verb: str, wish: dict[str, Any]) -> dict[str, Any]:
        desk, path = self.desk, wish.get("path", "*")
        match verb:
            case "hold":
                return {"id": desk.hold(path, times=wish.get("times")).id}
            case "release":
                going = [one for one in desk.holds() if wish.get("id") in (None, one.id)]
                return {"released": sum(desk.release(one) for one in going)}
            case "script":
                times, after = wish.get("times", 1), bool(wish.get("after", False))
                return {"id": desk.script(path, _answer(wish), times=times, after=after).id}
            case "forget_scripts":
                return {"met": desk.forget_scripts(wish.get("id"))}
            case "requests":
                return {"requests": [_described(seen) for seen in desk.requests(path)]}
            case "holds":
                return {"holds": [{"id": one.id, "reached": one.reached} for one in desk.holds()]}
            case "wait":
                return await self._wait(wish)
            case _:
                done = desk.service.command(verb, wish)
                if done is None:
                    raise LookupError(f"no such control: {verb}")
                return done

    async def _wait(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Until `count` requests arrived, were answered (`done`), or were caught by hold `hold`."""
        count, path = int(wish.get("count", 1)), wish.get("path", "*")
        holds = [one for one in self.desk.holds() if one.id == wish.get("hold")]

        def there() -> int:
            if "hold" in wish:
                return holds[0].reached if holds else 0
            seen = self.desk.requests(path)
            return sum(one.done for one in seen) if wish.get("done") else len(seen)

        timeout_s = min(float(wish.get("timeout_s", 10.0)), LONGEST_WAIT_S)
        reached = await self.desk.change(lambda: there() >= count, timeout_s=timeout_s)
        return {"reached": reached, "count": there()}


def _answer(wish: dict[str, Any]) -> Answer:
    kind = cast(AnswerKind, wish.get("answer", "reply"))
    match kind:
        case "silence":
            return Silence()
        case "hangup":
            return Hangup()
        case "reply":
            body = wish.get("body", "")
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            return Reply(int(wish["status"]), raw, wish.get("headers", {}))
    raise ValueError(f"answer is reply, silence or hangup, not {kind!r}")


def _described(seen: Seen) -> dict[str, Any]:
    request = seen.request
    return {
        "n": request.n,
        "t": request.at_ms,
        "method": request.method,
        "path": request.path,
        "headers": dict(request.headers),
        "body_base64": base64.b64encode(request.body).decode(),
        "done": seen.done,
        "status": seen.status,
    }


class Control:
    """The client side; every call is one HTTP request, SandboxError when the stub refuses."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)

    def call(
        self, verb: str, wish: dict[str, Any] | None = None, *, patience_s: float = 30.0
    ) -> dict[str, Any]:
        """Any verb; `wish` is the JSON object that is sent, the answer the one that comes back."""
        connection = http.client.HTTPConnection(
            self._address.hostname or "", self._address.port, timeout=patience_s
        )
        try:
            connection.request("POST", PREFIX + verb, body=json.dumps(wish or {}))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise SandboxError(f"control {verb}: {answer.status} {body.decode(errors='replace')}")
        return cast(dict[str, Any], json.loads(body))

    def hold(self, path: str = "*", *, times: int | None = None) -> int:
        """The hold's id, for `wait_held` and `release`."""
        return int(self.call("hold", {"path": path, "times": times})["id"])

    def release(self, hold: int | None = None) -> int:
        return int(self.call("release", {"id": hold})["released"])

    def script(
        self,
        path: str,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        body: object = "",
        answer: AnswerKind = "reply",
        times: int | None = 1,
        after: bool = False,
    ) -> int:
        """The script's id, for `forget_scripts`."""
        wish = {"path": path, "status": status, "headers": headers or {}, "body": body}
        wish |= {"answer": answer, "times": times, "after": after}
        return int(self.call("script", wish)["id"])

    def forget_scripts(self, script: int | None = None) -> int:
        """That one, or all; how many requests have met it."""
        return int(self.call("forget_scripts", {"id": script})["met"])

    def requests(self, path: str = "*") -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self.call("requests", {"path": path})["requests"])

    def wait(
        self, path: str = "*", count: int = 1, *, done: bool = False, timeout_s: float = 10.0
    ) -> None:
        """Until `count` requests arrived, or with `done` were answered."""
        self._reach(f"{count} of {path}", timeout_s, path=path, count=count, done=done)

    def wait_held(self, hold: int, count: int = 1, *, timeout_s: float = 10.0) -> None:
        self._reach(f"{count} held by {hold}", timeout_s, hold=hold, count=count)

    def _reach(self, what: str, timeout_s: float, **wish: Any) -> None:
        wish["timeout_s"] = timeout_s
        if not self.call("wait", wish, patience_s=timeout_s + 5.0)["reached"]:
            raise SandboxError(f"gave up after {timeout_s:g} s waiting for {what}")
