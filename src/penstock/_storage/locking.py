"""Locks between processes that the system frees when their holder dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import StorageError

__all__ = ["FileLock", "held", "try_lock", "wait_for_lock"]


class FileLock:
    """A lock that is held, on a file of that name; the file goes with it."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Remove the file and let go. Who waits sees that the file is another one, and takes that."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass  # somebody emptied the folder
        finally:
            os.close(self._descriptor)


def try_lock(path: str) -> FileLock | None:
    """Take a lock if nobody has it.

    Raises:
        OSError: the file cannot be made.
    """
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_current(descriptor, path):
            return FileLock(path, descriptor)
        os.close(descriptor)


def wait_for_lock(path: str, limit_s: float) -> FileLock:
    """Take a lock; wait for who has it.

    The kernel knows no lock with a time limit, so a thread waits in our place. When time is up it is left waiting, and ends with the lock.

    Raises:
        StorageError: the time is up.
        OSError: the file cannot be made.
    """
    deadline = time.monotonic() + limit_s
    while True:
        lock = try_lock(path)
        if lock is not None:
            return lock
        waiter = _Waiter(path)
        waiter.join(max(0.0, deadline - time.monotonic()))
        if waiter.is_alive():
            raise StorageError(
                f"another process holds {path!r} and did not finish in {limit_s:g} s",
                where=path,
                fix="look for a process that hangs; or give another cache_dir",
            )
        if waiter.error is not None:
            raise waiter.error


@contextmanager
def held(path: str) -> Iterator[int]:
    """Hold the lock of a file that stays, for a short time; gives its descriptor."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


class _Waiter(threading.Thread):
    """Waits until a lock was free once."""

    def __init__(self, path: str) -> None:
        super().__init__(name="penstock-lock", daemon=True)
        self.error: OSError | None = None
        self._path = path
        self.start()

    def run(self) -> None:
        try:
            descriptor = _open(self._path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.error = error


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_current(descriptor: int, path: str) -> bool:
    """Tell whether the file of a lock is still the one of that name: its last holder may have removed it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))
