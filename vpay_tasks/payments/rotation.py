"""Rotation: every stored payer's number under the newest key, so that an older one may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vpay_tasks.payments.payer import PayerRing
from vpay_tasks.store import payers
from vpay_tasks.store.db import Database

PASSES: Final = 3
"""The first seals anew, the second looks whether anything older was written meanwhile. If even
the third finds some, a process still seals with an older key, and more would not help."""

NAMES: Final = 20


@dataclass
class Walk:
    """One pass over all charges. `older`: sealed with another key than the newest, whether or
    not any key opens them; `renewed`: sealed anew by this pass."""

    looked_at: int = 0
    older: int = 0
    renewed: int = 0
    unopened: int = 0
    names: tuple[str, ...] = ()
    """Charges whose payer no key opens, the first NAMES of them."""


def rotate(
    db: Database, ring: PayerRing, *, told: Callable[[Walk], None], dry_run: bool = False
) -> list[Walk]:
    """Seal every number with the ring's newest key; the passes that it took, the last of which
    found nothing older unless a key is missing or another process uses an older one. A pass is
    told after each page. Killed half-way it has lost nothing: run it again.

    Safe beside workers, as long as theirs is a ring that has both keys.
    """
    passes: list[Walk] = []
    while len(passes) < (1 if dry_run else PASSES):
        passes.append(_walk(db, ring, told, dry_run=dry_run))
        if passes[-1].older == passes[-1].unopened:
            break
    return passes


def _walk(db: Database, ring: PayerRing, told: Callable[[Walk], None], *, dry_run: bool) -> Walk:
    done, after = Walk(), ""
    while True:
        with db.connection() as connection:
            page = payers.page(connection, after)
        if not page:
            return done
        after = max(page)
        older = {id_: sealed for id_, sealed in page.items() if not ring.is_newest(sealed)}
        renewed = {id_: (stood, ring.renewed(stood)) for id_, stood in older.items()}
        ready = {id_: (stood, now) for id_, (stood, now) in renewed.items() if now is not None}
        done.looked_at += len(page)
        done.older += len(older)
        done.unopened += len(older) - len(ready)
        done.names = (*done.names, *(id_ for id_ in older if id_ not in ready))[:NAMES]
        if ready and not dry_run:
            with db.connection() as connection:
                done.renewed += payers.swap(connection, ready)
        told(done)
