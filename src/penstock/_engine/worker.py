"""The loop of a worker thread. The one place where every error is heard: what is not a user's goes to the consumer."""

from __future__ import annotations

from penstock._engine.engine import Engine
from penstock._ops.worker import WorkerContext

__all__ = ["work"]


def work(engine: Engine, pool: str, index: int) -> None:
    """Claim and run tasks until the engine stops."""
    worker = WorkerContext(index)
    post = engine.watch.enlist(pool, worker)
    with engine.breaker.attached():
        try:
            while True:
                task = engine.claim(pool, index)
                if task is None:
                    return
                post.begin(task)
                engine.run(task, worker)
                post.end()
                del task
        except BaseException as error:
            engine.broke(error)
            if not isinstance(error, Exception):
                raise
