"""What the batches of a feed become when the training loop takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Output"]


class Output(Protocol):
    """Makes arrays of a framework out of NumPy batches. A feed calls it from one thread at a time.

    Attributes:
        depth: how many batches are sent ahead of the one that the loop takes; 0 sends each when it is taken.
        allocate: returns the memory of a batch buffer, so many bytes, from any thread; None leaves it to the engine.
    """

    depth: int
    allocate: Callable[[int], Any] | None

    def send(self, batch: Any) -> Any:
        """Begin what makes a batch one of the framework, without waiting; `batch` stays valid until that has ended."""
        ...

    def finish(self) -> None:
        """Wait until what was sent is done with its arrays: what was not received is dropped."""
        ...

    def receive(self, sent: Any) -> Any:
        """Return the framework's batch of what `send` gave, once."""
        ...
