"""Submit attempts (provider_requests): what was sent, and what class of answer came back."""

from __future__ import annotations

from vpay_tasks.core.charge import Attempt, AttemptClass, FailureCode
from vpay_tasks.store import sql

SQL = sql.load(__name__)


def open_attempt(connection: sql.Connection, charge_id: str) -> int:
    """Write that a submit is about to be sent; its id."""
    ((id_,),) = sql.run(connection, SQL["open_attempt"], {"charge_id": charge_id})
    assert isinstance(id_, int)
    return id_


def close_attempt(
    tx: sql.Connection,
    attempt_id: int,
    answer: AttemptClass,
    *,
    code: FailureCode | None = None,
    detail: str | None = None,
) -> bool:
    """Write the class of the answer; False if one stands already. `detail` is sanitised."""
    return bool(
        sql.run(
            tx,
            SQL["close_attempt"],
            {
                "id": attempt_id,
                "class": answer.value,
                "code": None if code is None else code.value,
                "detail": detail,
            },
        )
    )


def sweep_words(connection: sql.Connection, *, keep: float, page: int) -> int:
    """Take a rail's words away from a page of answers older than `keep` seconds; how many."""
    return len(sql.run(connection, SQL["sweep_words"], {"keep": keep, "page": page}))


def of_charge(connection: sql.Connection, charge_id: str) -> list[Attempt]:
    """The attempts of a charge, oldest first."""
    return [
        Attempt(
            id=id_,
            answer=None if answer is None else AttemptClass(answer),
            code=None if code is None else FailureCode(code),
            detail=detail or "",
        )
        for id_, answer, code, detail in sql.run(
            connection, SQL["of_charge"], {"charge_id": charge_id}
        )
    ]
