"""The end of a feed that was not closed: it is no longer referred to, or the interpreter exits."""

from __future__ import annotations

import threading
import warnings

from penstock._engine.engine import Engine
from penstock._executors.contract import Executor

__all__ = ["abandon"]


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
