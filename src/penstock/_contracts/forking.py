"""Locks of objects that a forked process goes on using."""

from __future__ import annotations

import os
import threading

__all__ = ["OwnLocks"]


class OwnLocks:
    """A lock for each process: a thread that held one when another thread forked is not there to let go of it in the child.

    `with locks.own():` is held by one thread of this process. What it guards may have been in the middle of a change at the fork, and is
    put in order by whoever is the first to be told that `is_new`. From any thread.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._locks = {self._pid: threading.Lock()}

    def own(self) -> threading.Lock:
        """Return the lock of this process."""
        pid = os.getpid()
        return self._locks.get(pid) or self._locks.setdefault(pid, threading.Lock())

    def is_new(self) -> bool:
        """Tell, once and only with the lock in hand, that this process was forked from the one that was told so or made this."""
        pid = os.getpid()
        if pid == self._pid:
            return False
        self._pid = pid
        return True
