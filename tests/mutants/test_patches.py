"""A mutant that no longer applies proves nothing: whoever moves a guard moves its patch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATCHES = sorted(HERE.glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_every_patch_applies_to_the_code_as_it_is(patch: Path) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", patch],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"remake it from the guard's new text: {done.stderr.strip()}"
