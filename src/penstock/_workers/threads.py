"""Workers as threads: the default, since reading, decoding and NumPy release the GIL."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from penstock._engine.compute import HERE, Computer
from penstock._engine.engine import Engine
from penstock._engine.program import IN_PROGRAM
from penstock._engine.segment import RETRY_WORKER
from penstock._engine.turns import Stopped
from penstock._ops.worker import WorkerContext
from penstock._workers.event_loop import EventLoop

_EVENT_LOOP, _RETRY_WORKER = "penstock-event-loop", f"penstock-{RETRY_WORKER}-0"


class ThreadsExecutor:
    """Daemon threads, so that an interpreter that exits does not wait for them before the feed's finaliser has stopped them."""

    def __init__(self, engine: Engine, computer: Callable[[str, int], Computer] = lambda pool, index: HERE) -> None:
        """Prepare; `computer` gives what computes for each worker."""
        self._engine, self._computer = engine, computer
        self._loop = EventLoop(engine) if engine.awaited else None
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        engine.grow = self._grow

    def start(self) -> bool:
        """Start all workers of all pools; return False when not one can be started any more: since Python 3.12, in atexit handlers.

        Raises:
            RuntimeError: the system refuses threads for another reason.
        """
        with self._starting:
            started = {thread.name for thread in self._threads}
            for name, body in self._bodies():
                if name in started or self._engine.stopping:
                    continue
                thread = threading.Thread(target=body, name=name, daemon=True)
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError as error:
                    if "shutdown" not in str(error):
                        raise
                    self._threads.pop()
                    return bool(self._threads)
        return True

    def _grow(self) -> None:
        """Start the shared workers that the engine has come to want, as far as the system lets it. From a worker."""
        with contextlib.suppress(RuntimeError):
            self.start()

    def _bodies(self) -> Iterator[tuple[str, Callable[[], None]]]:
        engine, loop = self._engine, self._loop
        if loop is not None:
            yield _EVENT_LOOP, loop.serve
            if loop.retries:
                yield _RETRY_WORKER, loop.mend
        for pool, size in engine.pools.items():
            if loop is not None and pool in engine.awaited:
                yield f"penstock-{pool}-claim", partial(loop.claim, pool)
                continue
            for index in range(size):
                yield f"penstock-{pool}-{index}", partial(self.work, pool, index)

    def work(self, pool: str, index: int) -> None:
        """Be the worker `index` of a pool, in this thread."""
        work(self._engine, pool, index, self._computer(pool, index))

    def wait(self) -> None:
        """Block until there may be something to take."""
        self._engine.wait()

    def join(self, grace_period_s: float) -> list[str]:
        """Wait for the workers to end, all of them together at most `grace_period_s`; return the names of those still alive."""
        deadline = time.monotonic() + grace_period_s
        if self._loop is not None:
            self._loop.stop()
        current = threading.current_thread()
        self._engine.grow = None
        with self._starting:  # a worker may start more
            threads = list(self._threads)
        for thread in threads:
            if thread is current:
                continue
            try:
                thread.join(max(0.0, deadline - time.monotonic()))
            except RuntimeError:  # Ctrl-C came while it was being started: if it ever runs, it finds the engine stopped and ends
                continue
        return [self._words(thread.name) for thread in threads if thread.is_alive() and thread is not current]

    def _words(self, name: str) -> str:
        calls = self._loop.still_running() if self._loop is not None and name == _EVENT_LOOP else ""
        return f"{name} ({calls})" if calls else name


def work(engine: Engine, pool: str, index: int, computer: Computer = HERE, worker: WorkerContext | None = None) -> None:
    """Claim and run tasks until the engine stops. An error that is not a user function's goes to the consumer."""
    worker = worker or WorkerContext(index)
    worker.errand = None if pool == IN_PROGRAM.pool else engine.errand
    worker.gate, worker.draws = engine.gate, engine.draws
    monitor = engine.watch.enlist(pool, worker)
    with engine.breaker.attached():
        try:
            while True:
                task = engine.claim(pool, index)
                if task is None:
                    return
                monitor.begin(task)
                engine.run(task, worker, computer)
                monitor.end()
                del task
        except Stopped:
            return
        except BaseException as error:
            engine.broke(error)
            if not isinstance(error, Exception):
                raise
