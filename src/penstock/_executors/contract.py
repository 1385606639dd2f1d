"""What a feed asks of an executor."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Executor"]


@runtime_checkable
class Executor(Protocol):
    """Runs the tasks of one engine, which it is made with: `engine.claim` or `try_claim`, then `engine.run`, in its own threads or none."""

    def start(self) -> bool:
        """Start the workers; return False when not one can be started any more (the interpreter exits): the feed then runs inline."""

    def wait(self) -> None:
        """Block the consumer until there may be something to take, or until the engine stops; an executor without threads works here."""

    def join(self, grace_period_s: float) -> list[str]:
        """Wait until all workers have ended, at most `grace_period_s`; return the names of those still alive. The engine is stopped."""
