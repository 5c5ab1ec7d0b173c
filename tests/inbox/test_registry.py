"""Which function grants an event, and which could never."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inbox.bench import done
from vpay_tasks.errors import Configuration
from vpay_tasks.inbox import on
from vpay_tasks.inbox.registry import GRANTS, Grants


def test_the_most_exact_grant_is_called() -> None:
    grants = Grants()

    def named(name: str) -> Any:
        def grant(_event: Any, _job: Any) -> None: ...

        grant.__qualname__ = name
        return grant

    for type_ in ("*", "a.*", "a.b.*", "a.b.c"):
        grants.add("v", type_, named(type_))
    found = {
        type_: getattr(grants.find("v", type_), "__qualname__", None)
        for type_ in ("a.b.c", "a.b.d", "a.b", "a.c", "ab.c", "", "a")
    }
    assert found == {
        "a.b.c": "a.b.c",
        "a.b.d": "a.b.*",
        "a.b": "a.*",
        "a.c": "a.*",
        "ab.c": "*",
        "": "*",
        "a": "*",
    }
    assert grants.find("w", "a.b.c") is None
    with pytest.raises(Configuration, match="stands twice"):
        grants.add("v", "a.b.c", named("another"))


@pytest.mark.parametrize("type_", ["", "a*", "*.a", "a.*.b", "**"])
def test_a_type_that_could_never_match_is_refused(type_: str) -> None:
    with pytest.raises(Configuration):
        on("v", type_)


def test_a_function_that_could_never_grant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRANTS, "_grants", {})

    async def later(_event: Any, _job: Any) -> None: ...

    def in_pieces(_event: Any, _job: Any) -> Any:
        yield

    def without_a_job(_event: Any) -> None: ...

    def wants_more(_event: Any, _job: Any, _database: Any) -> None: ...

    wrong: list[Any] = [later, in_pieces, without_a_job, wants_more]
    for grant in wrong:
        with pytest.raises(Configuration, match=grant.__name__):
            on("v")(grant)
    assert GRANTS.find("v", "t") is None
    right: list[Any] = [done, lambda *_: None, lambda _event, _job, more=1: more]
    for number, grant in enumerate(right):
        assert on("v", f"t{number}")(grant) is grant
