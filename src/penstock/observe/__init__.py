"""What a run did, told afterwards or while it runs: figures, their meaning in words, and a picture."""

from __future__ import annotations

from penstock.observe.diagnose import explain
from penstock.observe.stats import ConsumerStats, Snapshot, StageStats, Stats

__all__ = ["ConsumerStats", "Snapshot", "StageStats", "Stats", "explain"]
