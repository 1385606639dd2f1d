"""The stacks of all threads, asked for without risk of a deadlock."""

from __future__ import annotations

import gc
import sys
from types import FrameType

__all__ = ["current_frames"]


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's number.

    Clear the result after use: the caller's own frame is in it, so it is a reference cycle.

    `sys._current_frames` holds the interpreter's list of threads while it allocates. Before Python 3.11.9 and 3.12.3 the garbage collector
    may run in between and let another thread run; if that one starts or ends a thread, the process hangs for ever
    (https://github.com/python/cpython/issues/106883). So the collector is off meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()
