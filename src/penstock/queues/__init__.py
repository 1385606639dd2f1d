"""Queues between threads, as TensorFlow's input queues were, and the waiting under them: no polling, first come, first served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.queues.parking import ParkingLot

if TYPE_CHECKING:
    from penstock.queues.kinds import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "ParkingLot", "PriorityQueue", "RandomShuffleQueue"]

_KINDS = {"FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"}


def __getattr__(name: str) -> Any:
    """Import the queues when they are first used: a feed needs only the parking."""
    if name in _KINDS:
        from penstock.queues import kinds

        return getattr(kinds, name)
    raise AttributeError(f"module 'penstock.queues' has no attribute {name!r}")
