"""Batches between the engine and a loop that gets them as another framework's: what is polled and sent ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
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
        self._last: Ready | None = None
        self.sent: dict[int, tuple[Any, Any]] = {}

    def poll(self, engine: Engine, keep: Callable[[Ready], Any]) -> Ready | None:
        """Take what comes next, if it is there, after `keep` has put it where the feed finds it."""
        if not self.polled:
            return engine.poll(lambda ready: ready is self._last or keep(ready))
        keep(self.polled[0])
        return self.polled.popleft()

    def _keep(self, ready: Ready) -> None:
        if ready is not self._last:
            self.polled.append(ready)
            self._last = ready

    def next_batch(self, items: list[Any], engine: Engine | None) -> Any:
        """Return the last of `items` as the output gives it, and send those behind it that are ready; `engine` has more, or is None."""
        most = self.output.depth + 1
        while engine is not None and len(items) + sum(len(ready.items) for ready in self.polled) < most:
            if self.polled and (self.polled[-1].end or self.polled[-1].error):
                break
            if engine.poll(self._keep) is None:
                break
        groups = items, *(ready.items for ready in self.polled)
        for batch, group in islice(((one, them) for them in groups for one in reversed(them)), most):
            if id(batch) not in self.sent:
                try:
                    self.sent[id(batch)] = batch, self.output.send(batch, group)
                except Exception:
                    if batch is not items[-1]:
                        break  # it is raised when the loop takes this batch
                    raise
        batch = self.output.receive(self.sent[id(items[-1])][1])
        del self.sent[id(items[-1])]
        return batch
