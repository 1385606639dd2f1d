"""Generators that feed a loop from threads or processes, with the calls of Keras's GeneratorEnqueuer."""

from __future__ import annotations

from penstock.enqueuer.batches import SampleBatches
from penstock.enqueuer.enqueuer import GeneratorEnqueuer

__all__ = ["GeneratorEnqueuer", "SampleBatches"]
