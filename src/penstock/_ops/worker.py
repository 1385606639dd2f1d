"""What one worker thread owns: its scratch memory and its keyed random generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._contracts.transform import Scratch

__all__ = ["KeyedGenerator", "WorkerContext"]


class KeyedGenerator:
    """One NumPy Generator that is set to the stream of a key before each use.

    The stream is that of `numpy.random.Philox(key=[seed, stage], counter=[0, lane, index, epoch])` (Salmon et al., SC 2011). Setting the
    state costs 0.9 us where a new generator costs 7.5.
    """

    __slots__ = ("_bits", "_state", "generator")

    def __init__(self, seed: int, stage: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed, stage], np.uint64))
        self._state: dict[str, Any] = dict(self._bits.state)
        self.generator = np.random.Generator(self._bits)

    def at(self, epoch: int, index: int, lane: int) -> np.random.Generator:
        """Return the generator at the start of the stream of one element. It is valid until the next call."""
        self._state["state"]["counter"] = np.array((0, lane, index, epoch), np.uint64)
        self._bits.state = self._state
        return self.generator


class WorkerContext:
    """Per-thread working state, handed to every operator. Not shared."""

    __slots__ = ("_generators", "_scratch", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self._scratch: dict[tuple[int, int], Scratch] = {}
        self._generators: dict[tuple[int, int], KeyedGenerator] = {}

    def scratch(self, owner: int, step: int) -> Scratch:
        """Return the scratch memory of one step of one operator."""
        found = self._scratch.get((owner, step))
        if found is None:
            found = self._scratch[owner, step] = Scratch()
        return found

    def keyed(self, seed: int, stage: int) -> KeyedGenerator:
        """Return this worker's generator for one random operator."""
        found = self._generators.get((seed, stage))
        if found is None:
            found = self._generators[seed, stage] = KeyedGenerator(seed, stage)
        return found
