"""How full a buffer is: what queues and feeds tell of themselves, and observers read."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Fill"]


class Fill(NamedTuple):
    """What a buffer holds at a moment.

    Attributes:
        name: of the queue, or of a buffer of a feed.
        size: how many elements, batches or blocks it holds.
        capacity: how many it holds at most.
        margin: how many reads leave in; they do not count as fill.
    """

    name: str
    size: int
    capacity: int
    margin: int = 0

    @property
    def fraction(self) -> float:
        """The part that is in use, from 0.0 to 1.0."""
        return min(1.0, max(0, self.size - self.margin) / max(1, self.capacity - self.margin))

    @property
    def tag(self) -> str:
        """The name of its curve, as TensorFlow's queues called theirs."""
        if self.margin:
            return f"{self.name}/fraction_over_{self.margin}_of_{self.capacity - self.margin}_full"
        return f"{self.name}/fraction_of_{self.capacity}_full"
