"""What a feed holds between two calls: the last hand-over of the engine, and the place behind each of its items. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock._engine.moving import Form
from penstock._engine.unit import Counted, Token

__all__ = ["HandOver"]


Places = Sequence[Token] | Counted
"""The place behind each of several items."""


class HandOver(NamedTuple):
    """What the feed has in hand. `items` shrinks as they are delivered; the rest stays, so any thread can read a consistent state.

    Places are looked up when somebody asks for the state, not when items are handed over.
    """

    items: list[Any]
    places: Places
    total: int
    step: int
    before: tuple[Places, int]
    """The places of earlier items, and how many of these were delivered: at least one."""
    form: Form
    epoch: int
    first_step: int
    """How many items had been delivered when the epoch began."""

    @classmethod
    def begin(cls, step: int, token: Token, form: Form, epoch: int = 0, first_step: int = 0) -> HandOver:
        """Return an empty hand at a place."""
        return cls([], (), 0, step, ((token,), 1), form, epoch, first_step)

    def then(self, items: list[Any], places: Places) -> HandOver:
        """Return what follows when all that was in hand is delivered."""
        total = self.total
        before = (self.places, total) if total else self.before
        return HandOver(items, places, len(items), self.step + total, before, self.form, self.epoch, self.first_step)

    def is_over(self, length: float) -> bool:
        """Tell whether all items of an epoch of `length` are delivered."""
        return self.now()[0] - self.first_step >= max(1, length)

    def now(self) -> tuple[int, Token]:
        """Return (step, token) behind the last delivered item. One look at the items: another thread may take the next meanwhile."""
        taken = self.total - len(self.items)
        places, count = (self.places, taken) if taken else self.before
        return self.step + taken, places.behind(count) if isinstance(places, Counted) else places[count - 1]
