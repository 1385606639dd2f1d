"""What a feed holds between two calls: the last hand-over of the engine, and the place behind each of its items. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock._engine.moving import Form
from penstock._engine.unit import Counted, Token

__all__ = ["HandOver"]


class HandOver(NamedTuple):
    """What the feed has in hand. `items` shrinks as they are delivered; the rest stays, so any thread can read a consistent state."""

    items: list[Any]
    tokens: Sequence[Token] | Counted
    total: int
    step: int
    before: Token
    form: Form

    def now(self) -> tuple[int, Token]:
        """Return (step, token) behind the last delivered item. One look at the items: another thread may take the next meanwhile."""
        taken = self.total - len(self.items)
        if taken == 0:
            return self.step, self.before
        if isinstance(self.tokens, Counted):
            return self.step + taken, self.tokens.behind(taken)
        return self.step + taken, self.tokens[taken - 1]
