"""Figures of a run, their meaning in words, curves and traces: afterwards, or while it runs."""

from __future__ import annotations

from penstock.observe.curves import Curves, tensorboard
from penstock.observe.diagnose import explain
from penstock.observe.finalized_step import FinalizedStep, finalize_step
from penstock.observe.stats import ConsumerStats, Snapshot, StageStats, Stats
from penstock.observe.trace import Trace, trace

__all__ = [
    "ConsumerStats",
    "Curves",
    "FinalizedStep",
    "Snapshot",
    "StageStats",
    "Stats",
    "Trace",
    "explain",
    "finalize_step",
    "tensorboard",
    "trace",
]
