"""The four queues: each gives the store, the rule and the checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._contracts.event import Listener
from penstock.queues.base import Queue, positive
from penstock.queues.components import Components
from penstock.queues.stores import FifoStore

__all__ = ["FIFOQueue"]


class FIFOQueue(Queue):
    """First in, first out."""

    def __init__(
        self,
        capacity: int,
        dtypes: Any = None,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        *,
        name: str = "FIFOQueue",
        listeners: Sequence[Listener] = (),
    ) -> None:
        super().__init__(FifoStore(), positive(capacity, "capacity"), Components(), name=name, listeners=listeners)
