"""Everything in the consumer's thread: the reference answer."""

from __future__ import annotations

from penstock._engine.engine import Engine
from penstock._ops.worker import WorkerContext

__all__ = ["InlineExecutor"]


class InlineExecutor:
    """Runs one task at a time, when the consumer has nothing to take."""

    __slots__ = ("_engine", "_worker")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = WorkerContext(0)

    def start(self) -> bool:
        """Start nothing; return True: there is always a thread to run in."""
        return True

    def wait(self) -> None:
        """Run one task in this thread.

        Raises:
            KeyboardInterrupt: of the user, in the middle of a task; the task will be run again.
        """
        task = self._engine.try_claim()
        if task is None:
            return
        try:
            self._engine.run(task, self._worker)
        except BaseException:
            self._engine.put_back(task)
            raise

    def join(self, grace_period_s: float) -> list[str]:
        """Return the names of threads that are still alive: none."""
        return []
