"""The servers that the demo and the tests run against."""

from vpay_sandbox.postgres import Postgres
from vpay_sandbox.process import SandboxError
from vpay_sandbox.valkey import Valkey

__all__ = ["Postgres", "SandboxError", "Valkey"]
