"""Says once in a run what worker processes, or threads, would give a loop that waits for functions called one at a time in the program."""

from __future__ import annotations

import math
import threading
import time
from typing import Any, NamedTuple

from penstock._contracts.element import bytes_of
from penstock.observe.stats import Snapshot, StageStats, gil_taken, since

_WINDOW_NS = 2_000_000_000
_WAIT_SHARE, _BUSY_SHARE = 0.10, 0.70
"""A loop that waits less has little to gain; where the thread of the functions is busy for less of the time, something else is slow."""

_LEAST_GAIN = 1.2
_MOST_WORKERS = 8
_COMPUTES = 0.5
"""Functions that are on a CPU, or queued for one, for a smaller share of their time wait for something else: many may do so at a time."""

_SENT_BYTES_PER_S, _OVERHEAD = 4e9, 1.05
"""How fast a worker process writes into memory that it shares, and what any workers take beside their functions, measured on 2 CPUs: two
processes do 1.92 times as much of a function of 0.77 ms, 1.5 times of one that makes 12 kB in 14 us."""

_HELD = 0.25
"""Functions that hold the interpreter lock for a larger share of their time are no work for threads."""

_LOOKS, _AWAY_S, _TAKEN = 20, 1e-3, 5
"""Looks for the interpreter lock: 20 of 1 ms where it is free, at most 5 of 6 ms where Python code holds it."""

_RAN = 0.5
"""Where other threads had a CPU for less of the time of the looks, the lock was free because nothing ran: 1 of 20 looks saw that of a
Python function, beside four other programs on each CPU."""


class Stretch(NamedTuple):
    """What a feed did in a part of its run.

    Attributes:
        span_s: how long it was.
        wait_s: how long the training loop waited for batches.
        loop_cpu_s: the CPU time of the loop's thread.
        sent_bytes: the size of what was delivered.
        num_cpus: that are available.
        stages: what each stage did in it.
        is_stream: whether the stage "read" is a stream, which stays in the program.
        no_processes: why there can be no worker processes; empty where there can.
    """

    span_s: float
    wait_s: float
    loop_cpu_s: float
    sent_bytes: float
    num_cpus: int
    stages: tuple[StageStats, ...]
    is_stream: bool = False
    no_processes: str = ""

    @property
    def wait_share(self) -> float:
        """The share of the time in which the loop waited."""
        return min(1.0, self.wait_s / self.span_s)

    @property
    def users(self) -> list[StageStats]:
        """The stages that call functions of the user's in the program."""
        return [stage for stage in self.stages if stage.in_program]

    @property
    def is_computing(self) -> bool:
        """Whether its functions are on a CPU for most of their time, or queued for one."""
        return sum(stage.cpu_s + stage.queued_s for stage in self.users) >= _COMPUTES * sum(stage.busy_s for stage in self.users)

    def num_workers(self) -> int:
        """Return how many worker processes, or threads, its functions are worth."""
        return num_workers_for(self.num_cpus, computing=self.is_computing)

    def gain(self, num_workers: int, lock_share: float | None = None) -> float:
        """Return how many times as many batches come in a second with so many workers: what takes longest sets the pace.

        Waiting for CPUs is left out on both sides: threads take them from each other, or other programs do.

        Args:
            num_workers: that run all stages without a `concurrency=` of their own.
            lock_share: of threads, the share of the time of the functions in which they hold the interpreter lock; None for processes,
                which have one each.
        """
        users_s = sum(map(_work_s, self.users))
        span_s = max(users_s, self.span_s - sum(stage.queued_s for stage in self.users))
        moved = [stage for stage in self.stages if stage.concurrency is None and not (self.is_stream and stage.name == "read")]
        sent_s = self.sent_bytes / _SENT_BYTES_PER_S if lock_share is None else 0.0
        cpu_s = self.loop_cpu_s + sum(stage.cpu_s for stage in self.stages)
        limits_s = [
            self.span_s - self.wait_s,
            (_OVERHEAD * sum(map(_work_s, moved)) + sent_s) / num_workers,
            (_OVERHEAD * cpu_s + sent_s) / self.num_cpus,
            (lock_share or 0.0) * users_s,
            *(stage.busy_s / (stage.concurrency or 1) for stage in self.stages if stage not in moved),
            span_s / num_workers,  # some of it no stage is busy with: claims, hand-over
        ]
        return span_s / max(limits_s)


def _work_s(stage: StageStats) -> float:
    """Return how long a stage was busy, without waiting for a CPU."""
    return max(stage.cpu_s, stage.busy_s - stage.queued_s)


def num_workers_for(num_cpus: int, *, computing: bool) -> int:
    """Return how many workers functions are worth that compute, or wait for something."""
    return min(_MOST_WORKERS, num_cpus) if computing else _MOST_WORKERS


def in_workers(num_workers: int) -> str:
    """Say how functions get so many worker processes."""
    return f"feed(num_workers={num_workers}) runs it in {num_workers} worker processes"


STAYS = "what it changes in this program (globals, counters, open files) then stays in the workers"


def advice(window: Stretch, lock_share: float | None) -> str:
    """Return what to say of a window; empty where the loop does not wait for its functions, or has nothing to gain.

    Args:
        window: what was measured.
        lock_share: how often the interpreter lock was held while the functions ran; None where that is not known.
    """
    num_workers = window.num_workers()
    gain = window.gain(num_workers)
    if not _worth_it(window) or gain < _LEAST_GAIN:
        return ""
    stage = max(window.users, key=lambda stage: stage.busy_s)
    busy, waits = (f"{100 * time_s / window.span_s:.0f} %" for time_s in (stage.busy_s, window.wait_s))
    found = f"'{stage.name}' takes {busy} of the time, one call at a time in this program, and the loop waits {waits} of it"
    more, cannot = f"would give about {gain:.1f} times as many batches a second", window.no_processes
    text = f"worker processes {more}, but cannot run it: {cannot}" if cannot else f"{in_workers(num_workers)} and {more}; {STAYS}"
    with_threads = 0.0 if lock_share is None or lock_share >= _HELD else window.gain(num_workers, lock_share)
    if with_threads < _LEAST_GAIN:
        return f"{found}: {text}"
    count = "" if num_workers == window.num_cpus else f", num_workers={num_workers}"
    threads = (
        f'it lets go of the interpreter lock, so feed(executor="threads"{count}) would give about {with_threads:.1f} times as many'
        " in this program, where it has to be safe to call in several threads at a time"
    )
    return f"{found}: {threads}; {text}" if cannot else f"{found}: {text}; {threads}"


def _worth_it(window: Stretch) -> bool:
    busy_s = sum(stage.busy_s for stage in window.users)
    return window.wait_share >= _WAIT_SHARE and busy_s >= _BUSY_SHARE * window.span_s


class _Mark(NamedTuple):
    """Where a window begins or ends: the time, the loop's thread with its CPU time, and the figures until then."""

    time_ns: int
    thread: int
    cpu_ns: int
    figures: Snapshot


class Advice:
    """Looks at windows of a run of 2 s, 4 s and so on until it has something to say. In the training loop's thread.

    Attributes:
        due_ns: when it wants to look again; a feed asks no sooner.
    """

    def __init__(self, *, wanted: bool) -> None:
        """Begin with the first delivery where it is `wanted`: where functions may run in the program because nothing else was asked for."""
        self.due_ns = 0.0 if wanted else math.inf
        self._span_ns = _WINDOW_NS
        self._begin: _Mark | None = None

    def text(self, now_ns: int, figures: Snapshot, batch: Any) -> str:
        """Look at the figures of a run, and a batch of it; return what there is to say, once, or nothing."""
        begin, self._begin = self._begin, _Mark(now_ns, threading.get_ident(), time.thread_time_ns(), figures)
        if not any(stage.in_program for stage in figures.stages):
            self.due_ns = math.inf
            return ""
        self._span_ns *= 1 if begin is None else 2
        self.due_ns = now_ns + self._span_ns
        if begin is None or begin.thread != self._begin.thread:
            return ""
        window = _between(begin, self._begin, bytes_of(batch))
        text = advice(window, None)
        if not text:
            return ""
        self.due_ns = math.inf
        return advice(window, _lock_share(window))


def _between(begin: _Mark, end: _Mark, batch_bytes: int) -> Stretch:
    done = since(begin.figures, end.figures)
    return Stretch(
        span_s=(end.time_ns - begin.time_ns) / 1e9,
        wait_s=done.consumer.wait_s,
        loop_cpu_s=(end.cpu_ns - begin.cpu_ns) / 1e9,
        sent_bytes=batch_bytes * done.consumer.num_batches,
        num_cpus=done.num_cpus,
        stages=done.stages,
        is_stream=done.is_stream,
        no_processes=done.no_processes,
    )


def _lock_share(window: Stretch) -> float | None:
    """Return for how much of their time functions hold the interpreter lock; None where that cannot be told at the moment.

    Those that wait hold it while they are on a CPU at most. Of others it is looked for, which tells nothing unless they run meanwhile.
    """
    users = window.users
    if not window.is_computing:
        return sum(stage.cpu_s for stage in users) / sum(stage.busy_s for stage in users)
    begin_ns, begin_cpu, taken, number = time.perf_counter_ns(), _cpu_of_others_ns(), 0, 0
    while number < _LOOKS and taken < _TAKEN:
        found = gil_taken(_AWAY_S)
        if found is None:
            return None
        number, taken = number + 1, taken + found
    ran = (_cpu_of_others_ns() - begin_cpu) / (time.perf_counter_ns() - begin_ns)
    return taken / number if ran >= _RAN else None


def _cpu_of_others_ns() -> int:
    """Return the CPU time of all other threads of this process."""
    return time.process_time_ns() - time.thread_time_ns()
