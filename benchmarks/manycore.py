"""Many cores, on a machine that has few: shares of the training loop's ceiling, with 16 CPUs said to be there.

A worker's native work is a sleep, which needs neither a CPU nor the interpreter lock; its Python between two sleeps is real. A training
step launches: a little Python, then a call that lets go of the lock, many times; then it waits for its device. Each work is fed to steps
of 50 ms and of 2 ms, in batches that sixteen workers make one and a half times as fast as the step takes them. The ceiling is the loop with
a batch that is there. `feed` is a feed as it is; "threads" and "processes" have `num_workers=16`, "processes_in_program" without an engine
process, "isolated" with threads in one, "isolated_8" with 8 there; "threads_8" has the number of active threads held at 8.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rounds
from data import Size

_CPUS = 16
_HELD = (1, 2, 4, 8, 16)
_SECONDS = {"full": 3.0, "quick": 1.5, "tiny": 0.05}
_WARM_S = {"full": 4.0, "quick": 3.0, "tiny": 0.0}
_MANY = 1 << 33
_ROW = np.zeros(64, np.float32)
_LOOPS = 27.0  # of `python`, in a microsecond of a CPU that was current in 2025
_LAUNCHED = bytes(16 << 10)


def python(microseconds: float) -> int:
    """Hold the interpreter lock: by count, for time in which others hold it is not this thread's."""
    total = 0
    for number in range(int(_LOOPS * microseconds)):
        total += number & 7
    return total


# -- the works: functions of one number ------------------------------------------------------------------------------------------------


def photo(number: Any) -> Any:
    """Take 8 ms of native code, touched ten times by 15 us of Python."""
    for _ in range(10):
        time.sleep(8e-4)
        python(15)
    return _ROW + number


def users(number: Any) -> Any:
    """Take 8 ms of native code and 1 ms of Python."""
    time.sleep(4e-3)
    python(1000)
    time.sleep(4e-3)
    return _ROW + number


def small(number: Any) -> Any:
    """Take 200 us of native code and 5 of Python."""
    time.sleep(2e-4)
    python(5)
    return _ROW + number


def waits(number: Any) -> Any:
    """Wait 4 ms, as for a server."""
    time.sleep(4e-3)
    return _ROW + number


def trivial(element: Any) -> Any:
    """Do next to nothing."""
    return {"x": element}


class Work(NamedTuple):
    """A work.

    Attributes:
        function: of an element.
        own: whether it counts as an operator of Penstock's own.
        row_s: what an element takes of one worker.
        behind: a function of the user's behind it.
        options: of the feed as it is.
    """

    function: Callable[[Any], Any]
    own: bool
    row_s: float
    behind: Callable[[Any], Any] | None = None
    options: dict[str, Any] = {}  # noqa: RUF012


WORKS = {
    "photos": Work(photo, True, 8.65e-3),
    "users": Work(users, False, 9.1e-3, options={"num_workers": _CPUS}),
    "small": Work(small, True, 2.6e-4),
    "waits": Work(waits, False, 4.1e-3, options={"executor": "threads"}),
    "trivial": Work(photo, True, 8.65e-3, behind=trivial),
}
STEPS_S = {"50ms": 50e-3, "2ms": 2e-3}
_STEP_LAUNCHES = {"50ms": 500, "2ms": 50}
"""Of about 35 us each: 25 us of Python, and 10 us in which a CPU works without the interpreter lock."""


def training(step: str) -> Callable[[Any], None]:
    """Return a training step: it launches, and then waits for its device."""

    def train(batch: Any) -> None:
        end_s = time.perf_counter() + STEPS_S[step]
        for _ in range(_STEP_LAUNCHES[step]):
            python(25)
            hashlib.sha256(_LAUNCHED)
        time.sleep(max(0.0, end_s - time.perf_counter()))

    return train


# -- the ways --------------------------------------------------------------------------------------------------------------------------


class _Held:
    """In the place of what looks for the number of active threads: it stays."""

    notice, subject, found, has_room = "", "workers", None, True

    def __init__(self, most: int, *_: Any, **__: Any) -> None:
        self.limit = self.ceiling = most
        self.num_items, self.num_rows = 0, defaultdict[str, int](int)
        self.steps: deque[Any] = deque(maxlen=1)

    def begin(self, *_: Any, **__: Any) -> None:
        """Learn nothing."""

    observe = begin


def _say_cpus() -> None:
    os.sched_getaffinity = lambda _: set(range(_CPUS))  # before the package asks


def _pipeline(work: Work, step: str) -> Any:
    import penstock as ps

    batch_size = max(1, int(STEPS_S[step] * _CPUS / (1.5 * work.row_s)))
    if work.own:
        work.function.__module__ = f"{ps.__name__}.image.sleeping"  # whose functions may run anywhere, several calls at a time
    made = ps.from_source(range(_MANY)).map(work.function)
    return (made if work.behind is None else made.map(work.behind)).batch(batch_size)


@contextmanager
def _ceiling(work: Work, step: str) -> Iterator[Iterator[Any]]:
    yield iter(int, 1)


def _feed(executor: Any = None, **options: Any) -> Callable[[Work, str], Any]:
    """Return a way to run; `executor` is a short form, or a function of the package."""

    @contextmanager
    def fed(work: Work, step: str) -> Iterator[Iterator[Any]]:
        _say_cpus()
        import penstock as ps

        made = {} if executor is None else {"executor": executor(ps) if callable(executor) else executor}
        with _pipeline(work, step).feed(**(made | options or work.options)) as feed:
            yield iter(feed)

    return fed


def _held(count: int) -> Callable[[Work, str], Any]:
    @contextmanager
    def fed(work: Work, step: str) -> Iterator[Iterator[Any]]:
        _say_cpus()
        from penstock._engine import scheduler

        scheduler.ActiveWorkers = _Held  # type: ignore[assignment,misc]
        with _pipeline(work, step).feed(executor="threads", num_workers=count) as feed:
            yield iter(feed)

    return fed


WAYS: dict[str, Callable[[Work, str], Any]] = {
    "ceiling": _ceiling,
    "feed": _feed(),
    "threads": _feed(executor="threads", num_workers=_CPUS),
    "processes": _feed(executor="processes", num_workers=_CPUS),
    "processes_in_program": _feed(executor=lambda ps: ps.Processes(isolate=False), num_workers=_CPUS),
    "isolated": _feed(executor=lambda ps: ps.Threads(isolate=True), num_workers=_CPUS),
    "isolated_8": _feed(executor=lambda ps: ps.Threads(isolate=True), num_workers=8),
    **{f"threads_{count}": _held(count) for count in _HELD},
}


def _measure(work: Work, step: str, way: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        train, warm_s, seconds = training(step), _WARM_S[run.size.name], _SECONDS[run.size.name]
        with WAYS[way](work, step) as batches:
            begin_s, count, due_s, waited_s = 0.0, 0, time.perf_counter() + warm_s, 0.0
            while True:
                asked_s = time.perf_counter()
                batch = next(batches)
                now_s = time.perf_counter()
                if begin_s:
                    waited_s += now_s - asked_s
                    if now_s >= begin_s + seconds and count:
                        return {"rate": count / (now_s - begin_s), "waited": waited_s / (now_s - begin_s)}
                    count += 1
                elif now_s >= due_s:
                    begin_s = now_s
                train(batch)

    return measure


def _prepare(size: Size, root: Path) -> None:
    """Make nothing: the elements are numbers."""


_ALSO = {"waits": ("threads", "threads_16"), "small": ("threads", "processes"), "trivial": ("threads", "processes")}
"""Beside the ceiling and the feed as it is. Of the others every way is run."""

CONTESTANTS = {
    f"{name}_{step}_{way}": _measure(work, step, way)
    for name, work in WORKS.items()
    for step in STEPS_S
    for way in WAYS
    if way in ("ceiling", "feed", *_ALSO.get(name, WAYS))
}

CLAIM = rounds.Claim(
    name="manycore",
    title="Many cores: a training loop's share of its ceiling, with 16 CPUs said to be there",
    unit="steps/s",
    prepare=_prepare,
    reference="photos_50ms_ceiling",
    references={name: "_".join((*name.split("_")[:2], "ceiling")) for name in CONTESTANTS if not name.endswith("ceiling")},
    also=("waited",),
    targets=tuple(
        rounds.Target(contestant=f"{name}_{step}_feed", metric="ratio", sense=">=", bound=bound)
        for step, bound in (("50ms", 0.97), ("2ms", 0.75))
        for name in WORKS
    )
    + tuple(
        rounds.Target(contestant=f"photos_{step}_{way}", metric="ratio", sense=">=", bound=bound)
        for step, bound in (("50ms", 0.99), ("2ms", 0.95))
        for way in ("processes", "isolated")
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, CONTESTANTS)
