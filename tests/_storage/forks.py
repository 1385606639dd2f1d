"""What runs in a forked process while threads of its parent are busy."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_LIMIT_S = 60


def forked(check: Callable[[], None]) -> None:
    """Run `check` in a forked process; fail if it does not come back, or raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what this is about
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_LIMIT_S)  # ends one that waits for a thread that is not there
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


@contextmanager
def held_by_another_thread(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Let another thread hold a lock meanwhile."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait(_LIMIT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(_LIMIT_S)
        yield
    finally:
        done.set()
        thread.join()
