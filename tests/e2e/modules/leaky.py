"""Tasks that have secrets everywhere an error report looks."""

from __future__ import annotations

from typing import Any

from vpay_tasks import Again, Done, task
from vpay_tasks.errors import Internal, Rail


@task(max_attempts=3, budget=60)
def leaks(job: Any, ctx: Any, *, secret: str) -> Done:
    """A page, from a statement's parameter that Postgres quotes in its error."""
    local = {"number": secret, "header": f"Bearer {secret}"}
    try:
        with ctx.db.connection() as connection:
            connection.execute("SELECT %s::integer", (local["number"],))
    except Exception as error:
        raise Internal(f"could not parse {local['header']} of /v1/x?token={secret}") from error
    return Done()


@task(max_attempts=3, budget=60)
def warns(job: Any, ctx: Any) -> Again:
    """A warning: no rail's trouble alerts by itself."""
    raise Rail("no answer")
