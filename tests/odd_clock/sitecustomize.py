"""Imported by a Python that runs under libfaketime: there `time.sleep` fails with EINVAL, for
the library moves the instant that the kernel is to wake it at and not the clock it is read by.
Another way to wait is left alone.
"""

import threading
import time


def sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


time.sleep = sleep  # type: ignore[assignment] # any number will do
