"""Queues between threads, as TensorFlow's input queues were, and the waiting under them: no polling, first come, first served."""

from __future__ import annotations

from penstock.queues.kinds import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from penstock.queues.parking import ParkingLot

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "ParkingLot", "PriorityQueue", "RandomShuffleQueue"]
