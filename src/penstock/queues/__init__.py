"""Queues between threads, as TensorFlow's input queues were, and the waiting under them: no polling, first come, first served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._system.parking import ParkingLot

if TYPE_CHECKING:
    from penstock.queues.base import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
    from penstock.queues.coordinator import Coordinator
    from penstock.queues.runner import QueueRunner, add_queue_runner, start_queue_runners

__all__ = [
    "Coordinator",
    "FIFOQueue",
    "PaddingFIFOQueue",
    "ParkingLot",
    "PriorityQueue",
    "QueueRunner",
    "RandomShuffleQueue",
    "add_queue_runner",
    "start_queue_runners",
]

_HOMES = {
    "Coordinator": "coordinator",
    "FIFOQueue": "base",
    "PaddingFIFOQueue": "base",
    "PriorityQueue": "base",
    "QueueRunner": "runner",
    "RandomShuffleQueue": "base",
    "add_queue_runner": "runner",
    "start_queue_runners": "runner",
}


def __getattr__(name: str) -> Any:
    """Import the queues, coordinators and runners when they are first used: a feed needs only the parking."""
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(f"penstock.queues.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock.queues' has no attribute {name!r}")
