"""Queues between threads, as TensorFlow's input queues were, and the waiting under them: no polling, first come, first served."""

from __future__ import annotations

from penstock.queues.collecting import add_queue_runner, start_queue_runners
from penstock.queues.coordinator import Coordinator
from penstock.queues.kinds import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from penstock.queues.parking import ParkingLot
from penstock.queues.runner import QueueRunner

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
