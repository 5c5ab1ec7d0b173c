"""The merchants' webhook endpoints, over real HTTP.

python -m vpay_sandbox.stub_receiver --port 0 --journal receiver.jsonl --config endpoints.toml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from vpay_sandbox import merchant
from vpay_sandbox.journal import Journal
from vpay_sandbox.merchant import Endpoint, Merchants, Sabotage
from vpay_sandbox.stub import InThread, run


class StubReceiver(InThread):
    """The receiver in a thread of this process."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint] = (),
        *,
        journal: Path | None = None,
        port: int = 0,
        sabotage: Sabotage | None = None,
    ) -> None:
        super().__init__(Merchants(Journal(journal), endpoints, sabotage=sabotage), port=port)

    def endpoint_url(self, merchant_id: str, endpoint_id: str) -> str:
        return f"{self.url}/hooks/{merchant_id}/{endpoint_id}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vpay_sandbox.stub_receiver")
    parser.add_argument("--port", type=int, default=0, help="0: a free one, printed when ready")
    parser.add_argument("--journal", type=Path, help="JSON lines, one per delivery")
    parser.add_argument("--config", type=Path, help="[[endpoints]] as TOML, or JSON")
    parser.add_argument(
        "--endpoint",
        action="append",
        default=[],
        metavar="MERCHANT/ID=SECRET[,SECRET…]",
        help="an endpoint without a file",
    )
    parser.add_argument("--sabotage", choices=get_args(Sabotage))
    args = parser.parse_args(argv)
    try:
        endpoints = merchant.load(args.config) if args.config else []
        endpoints += [_endpoint(text) for text in args.endpoint]
        journal = Journal(args.journal)
    except (OSError, ValueError) as error:
        print(f"stub-receiver: {error}", file=sys.stderr)
        return 78
    merchants = Merchants(journal, endpoints, sabotage=args.sabotage)
    return run(merchants, name="stub-receiver", port=args.port)


def _endpoint(text: str) -> Endpoint:
    name, equals, secrets = text.partition("=")
    merchant_id, slash, endpoint_id = name.partition("/")
    if not (equals and slash and merchant_id and endpoint_id and secrets):
        raise ValueError(f"--endpoint {text!r} is not MERCHANT/ID=SECRET")
    return Endpoint(merchant_id, endpoint_id, tuple(secrets.split(",")))


if __name__ == "__main__":
    sys.exit(main())
