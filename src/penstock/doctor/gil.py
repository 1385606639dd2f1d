"""Estimates which operators hold the GIL: a thread asks for it 100 times a second, and notes whether it had to wait, and what ran."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping

from penstock.doctor.probes import Probe, Recorder
from penstock.observe.stats import gil_wait_ns

__all__ = ["GilSampler", "holding_shares"]

_EVERY_S = 0.01
_HELD_NS = 100_000
"""The timer of the system alone is less than 0.1 ms late. Python code that holds the GIL lets it go after 5 ms."""

_FEWEST_SAMPLES = 20
_LEAST = 0.01
_PRIOR = 10
"""What the CPU time of an operator counts, in samples: a few samples that went wrong (the host took the CPU away) decide nothing then."""

_ROUNDS = 100

OTHERS = "others"
"""All other threads of the process, such as the training loop."""

Samples = Mapping[tuple[Hashable, ...], tuple[int, int]]
"""For each combination of what ran at a sample: how many samples there were, and in how many the GIL was held."""


class GilSampler:
    """Samples the GIL in a thread of its own, from `start` to `stop`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.samples: dict[tuple[Hashable, ...], tuple[int, int]] = {}

    def start(self) -> None:
        """Begin to sample; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-doctor-gil", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; blocks for at most a few hundredths of a second."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            waited_ns = gil_wait_ns(_EVERY_S)
            if waited_ns is None:
                continue
            asked_ns = time.perf_counter_ns() - waited_ns
            running = [probe for record in list(self._recorder.records) if (probe := record.at(asked_ns)) is not None]
            if running:
                key = (*sorted(running, key=id), OTHERS)
                count, held = self.samples.get(key, (0, 0))
                self.samples[key] = count + 1, held + (waited_ns >= _HELD_NS)

    def shares(self, cpu_shares: Mapping[Probe, float], others: float) -> dict[Hashable, float]:
        """Return the part of its running time in which each operator held the GIL, as `holding_shares` does."""
        known: dict[Hashable, float] = {probe: share for probe, share in cpu_shares.items()}  # noqa: C416 - dict() keeps the type of the keys
        return holding_shares(self.samples, {**known, OTHERS: others})


def holding_shares(samples: Samples, cpu_shares: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Estimate for each thing that ran in which part of its time it held the GIL; without those that ran in fewer than 20 samples.

    One of those that ran at a sample held the GIL. The samples do not say which one: what shows is that it is held more often when some of
    them run. This finds the shares under which the samples are most likely (expectation maximisation), and the shares of their
    time that they were on a CPU count as ten samples more: a thread that sleeps rarely holds the GIL.
    """
    totals: dict[Hashable, int] = {}
    for running, (count, _) in samples.items():
        for one in running:
            totals[one] = totals.get(one, 0) + count
    prior = {one: max(_LEAST, min(1.0, cpu_shares.get(one, 1.0))) for one in totals}
    shares, credits = prior, dict.fromkeys(totals, 0.0)
    for _ in range(_ROUNDS):
        credits = dict.fromkeys(totals, 0.0)
        for running, (_, held) in samples.items():
            weight = sum(shares[one] for one in running)
            for one in running:
                credits[one] += held * shares[one] / weight if weight else 0.0
        shares = {one: (credits[one] + _PRIOR * prior[one]) / (totals[one] + _PRIOR) for one in totals}
    return {one: credits[one] / totals[one] for one in totals if totals[one] >= _FEWEST_SAMPLES}
