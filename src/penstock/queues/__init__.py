"""Waiting and handing over between threads, without polling."""

from __future__ import annotations

from penstock.queues.kinds import FIFOQueue
from penstock.queues.parking import ParkingLot

__all__ = ["FIFOQueue", "ParkingLot"]
