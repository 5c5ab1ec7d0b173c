"""Mobile-money rails that play `scenarios.toml` over real HTTP: MTN MoMo and Orange Money.

python -m vpay_sandbox.stub_rail --port 0 --journal rail.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from vpay_sandbox import orange, scenarios
from vpay_sandbox.callback import Callbacks
from vpay_sandbox.httpd import Answer, Request
from vpay_sandbox.journal import Journal
from vpay_sandbox.momo import Credentials, MomoRail
from vpay_sandbox.orange import OrangeCredentials, OrangeRail
from vpay_sandbox.rail_book import Book, Sabotage, Tokens
from vpay_sandbox.scenarios import StatusStep, Word
from vpay_sandbox.stub import InThread, run


class Rails:
    """Both rails behind one address, told apart by path, with one journal and the same
    tokens."""

    def __init__(
        self,
        journal: Journal,
        script: scenarios.Script,
        *,
        credentials: Credentials | None = None,
        orange_credentials: OrangeCredentials | None = None,
        token_ttl_s: float = 3600.0,
        sabotage: Sabotage | None = None,
    ) -> None:
        self._journal = journal
        self._callbacks = Callbacks(journal)
        self._books = [Book(journal, self._callbacks, sabotage) for _ in range(2)]
        self.tokens = Tokens(token_ttl_s)
        accepted = credentials or Credentials()
        self.momo = MomoRail(journal, script, self._books[0], accepted, self.tokens)
        others = orange_credentials or OrangeCredentials()
        self.orange = OrangeRail(journal, script, self._books[1], others, self.tokens)

    def _of(self, request: Request) -> MomoRail | OrangeRail:
        return self.orange if request.path.startswith(orange.PATHS) else self.momo

    def arrived(self, request: Request) -> None:
        self._of(request).arrived(request)

    async def answer(self, request: Request) -> Answer:
        return await self._of(request).answer(request)

    def answered(self, request: Request, status: int | None) -> None:
        self._of(request).answered(request, status)

    def command(self, verb: str, wish: dict[str, Any]) -> dict[str, Any] | None:
        match verb:
            case "expire_tokens":
                return {"expired": self.tokens.expire()}
            case "decide":
                step = StatusStep(status=wish["status"], reason=wish.get("reason", ""))
                self.decide(wish["reference"], step)
                return {}
            case _:
                return None

    def decide(self, reference: str, step: StatusStep) -> None:
        """KeyError when neither rail has it."""
        holders = [book for book in self._books if reference in book.payments]
        if not holders:
            raise KeyError(reference)
        holders[0].decide(reference, step)

    def close(self) -> None:
        self._callbacks.close()
        self._journal.close()


class StubRail(InThread):
    """The rails in a thread of this process: `with StubRail(journal=…) as rail: rail.url …`."""

    def __init__(
        self,
        *,
        journal: Path | None = None,
        scenarios: Path | scenarios.Script | None = None,
        port: int = 0,
        credentials: Credentials | None = None,
        orange_credentials: OrangeCredentials | None = None,
        token_ttl_s: float = 3600.0,
        sabotage: Sabotage | None = None,
    ) -> None:
        self.credentials = credentials or Credentials()
        self.orange_credentials = orange_credentials or OrangeCredentials()
        self.rails = Rails(
            Journal(journal),
            _script(scenarios),
            credentials=self.credentials,
            orange_credentials=self.orange_credentials,
            token_ttl_s=token_ttl_s,
            sabotage=sabotage,
        )
        super().__init__(self.rails, port=port)

    @property
    def tokens(self) -> Tokens:
        return self.rails.tokens

    @property
    def orange_url(self) -> str:
        """The redirect rail's base URL."""
        return f"{self.url}{orange.BASE}"

    def expire_tokens(self) -> int:
        """Every token handed out so far is refused from now on. Returns how many."""
        return self.tokens.expire()

    def decide(self, reference: str, status: Word, *, reason: str = "") -> None:
        """From now on the rail answers so for this payment; KeyError when it does not have it."""
        self.rails.decide(reference, StatusStep(status=status, reason=reason))


def _script(source: Path | scenarios.Script | None) -> scenarios.Script:
    return source if isinstance(source, scenarios.Script) else scenarios.load(source)


def main(argv: Sequence[str] | None = None) -> int:
    default = Credentials()
    parser = argparse.ArgumentParser(prog="python -m vpay_sandbox.stub_rail")
    parser.add_argument("--port", type=int, default=0, help="0: a free one, printed when ready")
    parser.add_argument("--journal", type=Path, help="JSON lines: requests, answers, effects")
    parser.add_argument("--scenarios", type=Path, help="instead of the built-in file")
    parser.add_argument("--subscription-key", default=default.subscription_key)
    parser.add_argument("--api-user", default=default.api_user)
    parser.add_argument("--api-key", default=default.api_key)
    second = OrangeCredentials()
    parser.add_argument("--client-id", default=second.client_id)
    parser.add_argument("--client-secret", default=second.client_secret)
    parser.add_argument("--merchant-key", default=second.merchant_key)
    parser.add_argument("--token-ttl", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--sabotage", choices=get_args(Sabotage))
    args = parser.parse_args(argv)
    try:
        script = scenarios.load(args.scenarios)
        journal = Journal(args.journal)
    except (OSError, ValueError) as error:
        print(f"stub-rail: {error}", file=sys.stderr)
        return 78
    rails = Rails(
        journal,
        script,
        credentials=Credentials(args.subscription_key, args.api_user, args.api_key),
        orange_credentials=OrangeCredentials(args.client_id, args.client_secret, args.merchant_key),
        token_ttl_s=args.token_ttl,
        sabotage=args.sabotage,
    )
    return run(rails, name="stub-rail", port=args.port)


if __name__ == "__main__":
    sys.exit(main())
