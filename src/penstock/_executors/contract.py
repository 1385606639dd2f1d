"""What a feed asks of an executor, and the end of one whose feed was not closed."""

from __future__ import annotations

import threading
import warnings
from typing import Protocol, runtime_checkable

from penstock._engine.engine import Engine


@runtime_checkable
class Executor(Protocol):
    """Runs the tasks of one engine, which it is made with: `engine.claim` or `try_claim`, then `engine.run`, in its own threads or none."""

    def start(self) -> bool:
        """Start the workers; return False when not one can be started any more (the interpreter exits): the feed then runs inline."""

    def wait(self) -> None:
        """Block the consumer until there may be something to take, or until the engine stops; an executor without threads works here."""

    def join(self, grace_period_s: float) -> list[str]:
        """Wait until all workers have ended, at most `grace_period_s`; return the names of those still alive. The engine is stopped."""


def abandon(engine: Engine, executor: Executor, grace_period_s: float) -> None:
    """End the workers and free what they held. A finaliser: it runs in whatever thread drops the feed.

    Waits for the workers. Where the garbage collector happened to run in one of them, it may hold what the others wait for, such as the
    engine's lock: then a thread waits that is started for it.
    """
    engine.stop()
    if engine.breaker.is_attached:
        threading.Thread(target=_end, args=(engine, executor, grace_period_s), name="penstock-end", daemon=True).start()
    else:
        _end(engine, executor, grace_period_s)


def _end(engine: Engine, executor: Executor, grace_period_s: float) -> None:
    alive = executor.join(grace_period_s)
    if alive:
        warnings.warn(f"penstock: a dropped feed left threads running: {', '.join(alive)}", ResourceWarning, stacklevel=1)
    else:
        engine.dispose()
