"""Workers as threads: the default, since reading, decoding and NumPy release the GIL."""

from __future__ import annotations

import threading
import time

from penstock._engine.engine import Engine
from penstock._engine.worker import work

__all__ = ["ThreadsExecutor"]


class ThreadsExecutor:
    """Daemon threads, so that an interpreter that exits does not wait for them before the feed's finaliser has stopped them."""

    __slots__ = ("_engine", "_threads")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads: list[threading.Thread] = []

    def start(self) -> bool:
        """Start all workers of all pools; return False when not one can be started any more: since Python 3.12, in atexit handlers.

        Raises:
            RuntimeError: the system refuses threads for another reason.
        """
        engine = self._engine
        for pool, size in engine.pools.items():
            for index in range(size):
                name = f"penstock-{pool}-{index}"
                thread = threading.Thread(target=work, args=(engine, pool, index), name=name, daemon=True)
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError as error:
                    if "shutdown" not in str(error):
                        raise
                    self._threads.pop()
                    return bool(self._threads)
        return True

    def wait(self) -> None:
        """Block until there may be something to take."""
        self._engine.wait()

    def join(self, grace_period_s: float) -> list[str]:
        """Wait for the workers to end, all of them together at most `grace_period_s`; return the names of those still alive."""
        deadline = time.monotonic() + grace_period_s
        current = threading.current_thread()
        for thread in self._threads:
            if thread is current:
                continue
            try:
                thread.join(max(0.0, deadline - time.monotonic()))
            except RuntimeError:  # Ctrl-C came while it was being started: if it ever runs, it finds the engine stopped and ends
                continue
        return [thread.name for thread in self._threads if thread.is_alive() and thread is not current]
