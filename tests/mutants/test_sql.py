"""What `make mutants-sql` takes out, and that what is known of it is still there."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.run_sql import STORE, UNTRIED, known, run
from tests.mutants.sql import mutants

ROOT = Path(__file__).parents[2]
SAMPLE = """\
-- name: take
-- A comment WHERE nothing AND nobody counts.
WITH held AS (
    SELECT id
    FROM vpay.jobs
    JOIN given ON jobs.id = given.id
    WHERE run_at <= now()
        AND (paused OR NOT due)
        AND cap IS DISTINCT FROM 2
    ORDER BY id
    LIMIT 5
    FOR UPDATE SKIP LOCKED
)
UPDATE vpay.jobs
SET lease = NULL,
    crashes = CASE WHEN held.ran THEN coalesce(crashes, 0) + 1 END
FROM held
WHERE jobs.id = held.id

-- name: look
SELECT 1
WHERE id = %(id)s::text
"""


def test_each_condition_lock_order_and_assignment_is_taken_out_once(tmp_path: Path) -> None:
    file = tmp_path / "sample.sql"
    file.write_text(SAMPLE, "utf-8")
    found = mutants(file)
    assert [mutant.name.removeprefix("sample.sql:") for mutant in found] == [
        "take: jobs.id = given.id → true",
        "take: run_at <= now() → true",
        "take: (paused OR NOT due) → true",
        "take: paused → false",
        "take: NOT due → false",
        "take: cap IS DISTINCT FROM 2 → true",
        "take: held.ran → true",
        "take: jobs.id = held.id → true",
        "take: FOR UPDATE SKIP LOCKED → nothing",
        "take: ORDER BY id → nothing",
        "take: SKIP LOCKED → nothing",
        "take: lease = NULL, → nothing",
        "take: , crashes = CASE WHEN held.ran THEN coalesce(crashes, 0) + 1 END → nothing",
        "look: id = %(id)s::text → true",
    ]
    assert found[-1].of(SAMPLE) == SAMPLE.replace("id = %(id)s::text", "true")
    assert "WHERE true\n        AND (paused" in found[1].of(SAMPLE)


def test_a_mutant_that_no_test_would_meet_is_told_and_not_met_by_all() -> None:
    mutant, *_ = mutants(ROOT / STORE / "jobs.sql")
    assert run(mutant, []) == UNTRIED


def test_what_is_known_to_do_no_harm_is_still_there() -> None:
    names = {mutant.name for file in (ROOT / STORE).glob("*.sql") for mutant in mutants(file)}
    assert set(known()) <= names
