"""Streams with exact states, as classes of a user's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Numbers:
    """0..count-1 in every pass. `given` counts what was really read, `loaded` what was put back."""

    def __init__(self, count: int) -> None:
        self.count, self.index, self.start = count, 0, 0
        self.given = 0
        self.loaded: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        start, self.start = self.start, 0
        for number in range(start, self.count):
            self.index = number + 1
            self.given += 1
            yield self.element(number)

    def element(self, number: int) -> Any:
        return number

    def state_dict(self) -> Any:
        return {"index": self.index}

    def load_state_dict(self, state: Any) -> None:
        self.loaded.append(state)
        self.start = state["index"]


class Sticky(Numbers):
    """Begins where it was put back to in every pass from then on, unless it is told of another epoch."""

    def load_state_dict(self, state: Any) -> None:
        self.sticky = state["index"]
        super().load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        self.start = getattr(self, "sticky", 0)
        return super().__iter__()


class Told(Sticky):
    """As a Hugging Face IterableDataset does it: a state is of one epoch, and another epoch begins at its beginning."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.sticky = 0
        self.epoch = epoch

    def element(self, number: int) -> Any:
        return 100 * self.epoch + number


class Epochs(Numbers):
    """Passes that differ, numbered by the stream itself."""

    epoch, put_back = -1, False

    def __iter__(self) -> Iterator[Any]:
        if not self.put_back:
            self.epoch += 1
        self.put_back = False
        yield from super().__iter__()

    def element(self, number: int) -> Any:
        return 100 * self.epoch + number

    def state_dict(self) -> Any:
        return {"epoch": self.epoch, "index": self.index}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.epoch, self.put_back = state["epoch"], True
