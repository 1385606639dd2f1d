"""Waiting and handing over between threads, without polling."""

from __future__ import annotations

from penstock.queues.collecting import add_queue_runner, start_queue_runners
from penstock.queues.coordinator import Coordinator
from penstock.queues.kinds import FIFOQueue
from penstock.queues.parking import ParkingLot
from penstock.queues.runner import QueueRunner

__all__ = ["Coordinator", "FIFOQueue", "ParkingLot", "QueueRunner", "add_queue_runner", "start_queue_runners"]
