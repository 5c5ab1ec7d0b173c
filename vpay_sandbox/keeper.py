"""Run a program in a process group of its own, and leave nothing of it. Run by path.

    python -I -S keeper.py PROGRAM [ARGS…]

SIGTERM is passed on to the program alone: a Dramatiq master tells its children itself. SIGUSR1
kills the whole group; it is also what the leash sends when whoever started us is gone. When the
program has ended, by itself too, what it left in its group is killed. Exit status: the program's,
or 128 + the signal that ended it.
"""

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType


def main() -> int:
    group = 0

    def kill_group(*_: int | FrameType | None) -> None:
        if not group:
            sys.exit(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def pass_on(*_: int | FrameType | None) -> None:
        if not group:
            sys.exit(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(group, signal.SIGTERM)

    signals = {signal.SIGUSR1, signal.SIGTERM}
    signal.signal(signal.SIGUSR1, kill_group)
    signal.signal(signal.SIGTERM, pass_on)
    # Held back while the program starts: a signal in between would not find its group.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    program = subprocess.Popen(
        sys.argv[1:],
        process_group=0,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, signals),  # noqa: PLW1509 no thread here
    )
    group = program.pid
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    # Not reaped before the group is killed: until then nobody else can get its number.
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    kill_group()
    code = program.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
