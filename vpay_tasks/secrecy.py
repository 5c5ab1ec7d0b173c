"""What a process of ours must not leave behind."""

from __future__ import annotations

import resource


def leave_no_core() -> None:
    """From now on this process, and what it forks, writes no core file: it would be all of its
    memory, keys and payers included, on a disk that nobody wipes. Whoever needs one to find a
    crash can raise the limit again from outside (prlimit). Where the kernel pipes cores to a
    program, that program decides: systemd's honours the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
