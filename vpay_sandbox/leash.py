"""Become another program that dies with its parent. Run by path, never imported.

    python -I -S leash.py PARENT DEATH UID GID PROGRAM [ARGS…]      (UID -1: stay who we are)

The order matters. The user is dropped first because the kernel clears the death signal when the
user changes; the parent is compared last because it may have died before the signal was asked
for. It starts as root and drops by itself: the interpreter may lie where nobody else can read.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, death, uid, gid = (int(word) for word in sys.argv[1:5])
    argv = sys.argv[5:]
    libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if libc.prctl(PR_SET_PDEATHSIG, death, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the parent died before the leash was on")
    os.execvp(argv[0], argv)  # noqa: S606 no shell is the point


if __name__ == "__main__":
    main()
