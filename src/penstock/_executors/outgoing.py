"""Batches between the engine and a loop that gets them as another framework's: what is polled and sent ahead."""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from typing import Any

from penstock._contracts.frameworks import Output
from penstock._engine.engine import Engine
from penstock._engine.scheduler import Ready

__all__ = ["Outgoing"]


class Outgoing:
    """Batches on their way to a loop that gets them as another framework's.

    `polled` is what was taken from the engine ahead of the feed; `sent` what became of the next batches, by their identity, with the batch.
    """

    def __init__(self, output: Output) -> None:
        """Begin with nothing ahead."""
        self.output = output
        self.polled: deque[Ready] = deque()
        self.sent: dict[int, tuple[Any, Any]] = {}

    def poll(self, engine: Engine) -> Ready | None:
        """Take what comes next, if it is there."""
        return self.polled.popleft() if self.polled else engine.poll()

    def next_batch(self, items: list[Any], engine: Engine | None) -> Any:
        """Return the last of `items` as the output gives it, and send those behind it that are ready; `engine` has more, or is None."""
        most = self.output.depth + 1
        while engine is not None and len(items) + sum(len(ready.items) for ready in self.polled) < most:
            if self.polled and (self.polled[-1].end or self.polled[-1].error):
                break
            ready = engine.poll()
            if ready is None:
                break
            self.polled.append(ready)
        for batch in islice(chain(reversed(items), *(reversed(ready.items) for ready in self.polled)), most):
            if id(batch) not in self.sent:
                try:
                    self.sent[id(batch)] = batch, self.output.send(batch)
                except Exception:
                    if batch is not items[-1]:
                        break  # it is raised when the loop takes this batch
                    raise
        return self.output.receive(self.sent.pop(id(items[-1]))[1])
