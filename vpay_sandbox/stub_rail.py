"""A mobile-money rail that plays `scenarios.toml` over real HTTP.

python -m vpay_sandbox.stub_rail --port 0 --journal rail.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from vpay_sandbox import scenarios
from vpay_sandbox.journal import Journal
from vpay_sandbox.momo import Credentials, MomoRail, Sabotage
from vpay_sandbox.scenarios import StatusStep, Word
from vpay_sandbox.stub import InThread, run


class StubRail(InThread):
    """The rail in a thread of this process: `with StubRail(journal=…) as rail: rail.url …`."""

    def __init__(
        self,
        *,
        journal: Path | None = None,
        scenarios: Path | scenarios.Script | None = None,
        port: int = 0,
        credentials: Credentials | None = None,
        token_ttl_s: float = 3600.0,
        sabotage: Sabotage | None = None,
    ) -> None:
        self.credentials = credentials or Credentials()
        self.rail = MomoRail(
            Journal(journal),
            _script(scenarios),
            credentials=self.credentials,
            token_ttl_s=token_ttl_s,
            sabotage=sabotage,
        )
        super().__init__(self.rail, port=port)

    def expire_tokens(self) -> int:
        """Every token handed out so far is refused from now on. Returns how many."""
        return self.rail.expire_tokens()

    def decide(self, reference: str, status: Word, *, reason: str = "") -> None:
        """From now on the rail answers so for this payment; KeyError when it does not have it."""
        self.rail.decide(reference, StatusStep(status=status, reason=reason))


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
    parser.add_argument("--token-ttl", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--sabotage", choices=get_args(Sabotage))
    args = parser.parse_args(argv)
    try:
        script = scenarios.load(args.scenarios)
        journal = Journal(args.journal)
    except (OSError, ValueError) as error:
        print(f"stub-rail: {error}", file=sys.stderr)
        return 78
    rail = MomoRail(
        journal,
        script,
        credentials=Credentials(args.subscription_key, args.api_user, args.api_key),
        token_ttl_s=args.token_ttl,
        sabotage=args.sabotage,
    )
    return run(rail, name="stub-rail", port=args.port)


if __name__ == "__main__":
    sys.exit(main())
