"""What a feed holds is bounded by `memory_bytes`, whatever the elements turn out to be: measured in bytes allocated, not guessed."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs import output_of

import penstock as ps
from penstock._contracts.event import Notice

KB, MB = 1 << 10, 1 << 20
BUDGET = 4 * MB
SMALL, LARGE = KB, 512 * KB
COUNT = 160
SLACK = MB // 2  # objects of Python, keys, tokens

SIZES: dict[str, Callable[[int], int]] = {
    "growing": lambda number: SMALL if number < COUNT // 2 else LARGE,
    "heavy-tailed": lambda number: LARGE if number % 20 == 13 else SMALL,
    "one giant": lambda number: 4 * LARGE if number == 90 else SMALL,
}


class Case(NamedTuple):
    """A plan, and what it makes of elements.

    Attributes:
        build: the plan on elements of these sizes.
        rows: so many elements may be in one result.
        padded: whether the result takes as much as if all of them were as large as the largest.
        folded: so many elements may have to be held by the folds.
    """

    build: Callable[[ps.Dataset], ps.Dataset]
    rows: int = 1
    padded: bool = False
    folded: int = 0
    uniform: bool = False


CASES = {
    "elements": Case(lambda ds: ds),
    "two maps": Case(lambda ds: ds.map(lambda row: row + 1).map(lambda row: row + 1)),
    "batch": Case(lambda ds: ds.batch(4), 4, uniform=True),
    "padded_batch": Case(lambda ds: ds.padded_batch(4), 4, padded=True),
    "ragged_batch": Case(lambda ds: ds.ragged_batch(4), 4),
    "filter, padded_batch": Case(lambda ds: ds.filter(lambda row: True).padded_batch(4), 4, padded=True, folded=4),
    "bucket_by_length": Case(lambda ds: ds.bucket_by_length(len, [2 * KB], [8, 2]), 8, folded=8),
    "pack_sequences": Case(lambda ds: ds.map(_some_tokens).pack_sequences(64 * KB), folded=16, rows=4),
    "window": Case(lambda ds: ds.map(lambda row: row[:SMALL].copy()).filter(lambda row: True).window(3, 1), 3, folded=3),
    "shuffle of a stream": Case(lambda ds: ds.filter(lambda row: True).shuffle(6, seed=1), folded=6),
    "flat_map": Case(lambda ds: ds.flat_map(lambda row: [row, row[:1].copy()])),  # a view counts as one byte, and holds all of its row
    "concurrency": Case(lambda ds: ds.map(lambda row: row + 1, concurrency=3).ragged_batch(2), 2),
    "zip": Case(lambda ds: ds.zip(ds).map(lambda pair: pair[0])),
    "concatenate": Case(lambda ds: ds.concatenate(ds)),
}


def _some_tokens(row: Any) -> Any:
    return row[: 64 * KB]


def source(size_of: Callable[[int], int], kind: str, uniform: bool) -> ps.Dataset:
    """Return elements of given sizes; where batches are stacked, those of one batch are alike."""

    def make(number: int) -> Any:
        size = size_of(number)
        if uniform:
            size = max(size_of(one) for one in range(number // 4 * 4, number // 4 * 4 + 4))
        return np.full(size, 1, np.uint8)

    if kind == "stream":
        return ps.from_generator(lambda: map(make, range(COUNT)))
    if kind == "read":
        return ps.from_source(Made(make))
    return ps.from_source(range(COUNT)).map(make)


class Made:
    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        return self.make(number)


def rest(feed: Any) -> None:
    """Wait until all threads of a feed wait: they have done all that they may."""
    pause = threading.Event()
    calm = 0
    while calm < 3:
        engine = feed._run._engine
        monitors = [] if engine is None else list(engine.watch.monitors)
        calm = calm + 1 if all(monitor.task is None for monitor in monitors) else 0
        pause.wait(0.001)


def peak_of(dataset: ps.Dataset, every: int = 7, **options: Any) -> tuple[int, int]:
    """Run a plan to its end with a consumer that waits now and then until nothing moves; return (most bytes held, bytes of the largest)."""
    gc.collect()
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        largest, item = 0, None
        with dataset.feed(**options) as feed:
            for number in itertools.count():
                try:
                    item = next(feed)
                except StopIteration:
                    break
                largest = max(largest, _bytes(item))
                if number % every == 0:
                    rest(feed)
        del item
        return tracemalloc.get_traced_memory()[1] - before, largest
    finally:
        tracemalloc.stop()


def _bytes(item: Any) -> int:
    if isinstance(item, dict):
        return sum(map(_bytes, item.values()))
    return sum(map(_bytes, item)) if isinstance(item, (tuple, list)) else item.nbytes


def bound(case: Case, largest_element: int, largest_result: int, num_workers: int) -> int:
    """Return what may be held: the budget, or the result delivered, the one being built, and what a fold must hold.

    An array that rows are collected in counts whole when it is allocated, though its pages take the place of the rows one by one.
    """
    collected = largest_result if case.rows > 1 else 0
    held = 2 * largest_result + collected + case.folded * largest_element
    return max(BUDGET, held) + 2 * max(1, num_workers) * largest_element + SLACK


WAYS = [(ordered, num_workers) for ordered in (True, False) for num_workers in (0, 1, 4)]
WHOLE = {("map", True, 4): "growing", ("map", False, 0): "heavy-tailed", ("stream", True, 1): "growing"}
"""Ways in which each plan is run."""
QUICK = ("map", True, 4)
QUICK_CASES = ("elements", "padded_batch", "bucket_by_length", "pack_sequences", "shuffle of a stream", "flat_map", "concurrency")
"""Those that `make test` runs."""


_ONE_OF = 7
"""Of the others every seventh is run, which has each value of each parameter: all 636 take 17 minutes of a CPU."""


def runs() -> Iterator[Any]:
    every = itertools.product(CASES, SIZES, ("map", "read", "stream"), WAYS)
    for number, (case, sizes, kind, (ordered, num_workers)) in enumerate(every):
        if kind == "stream" and case in ("zip", "concatenate"):
            continue
        if case in ("window", "batch") and not ordered:
            continue  # windows are refused; batches of elements that are alike only in order
        way = (kind, ordered, num_workers)
        if number % _ONE_OF and WHOLE.get(way) != sizes:
            continue
        quick = way == QUICK and WHOLE[way] == sizes and case in QUICK_CASES
        yield pytest.param(
            case,
            sizes,
            kind,
            ordered,
            num_workers,
            marks=() if quick else pytest.mark.slow,
            id=f"{case}-{sizes}-{kind}-{ordered}-{num_workers}",
        )


@pytest.mark.parametrize(("name", "sizes", "kind", "ordered", "num_workers"), list(runs()))
def test_what_a_feed_holds_is_bounded_whatever_elements_turn_out_to_be(
    name: str, sizes: str, kind: str, ordered: bool, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.feed.run.anonymous_memory", bytearray)  # which is counted; mapped memory is not
    case = CASES[name]
    dataset = case.build(source(SIZES[sizes], kind, case.uniform))
    executor = ps.Processes(isolate=False) if num_workers and kind != "stream" else "auto"  # what an engine process holds is not counted
    peak, largest_result = peak_of(dataset, executor=executor, num_workers=num_workers, memory_bytes=BUDGET, ordered=ordered)
    largest_element = max(map(SIZES[sizes], range(COUNT)))
    workers = num_workers + (3 if name == "concurrency" else 0) + (kind == "stream")
    assert peak <= bound(case, largest_element, largest_result, workers), (peak / MB, largest_result / MB)


def test_a_batch_above_the_budget_is_made_all_the_same_and_said_once() -> None:
    said: list[Any] = []
    dataset = ps.from_source(range(40)).map(lambda number: np.full(64 * KB, number, np.uint8)).padded_batch(8)
    with dataset.feed(executor="threads", num_workers=2, memory_bytes=256 * KB, listeners=[said.append]) as feed:
        assert [int(batch[0, 0]) for batch in feed] == list(range(0, 40, 8))
    notices = [event.text for event in said if isinstance(event, Notice) and event.kind == "memory"]
    assert notices == ["a batch takes 0.5 MB, more than memory_bytes (0.3 MB): one is made at a time"]


@pytest.mark.parametrize("num_workers", [0, 3])
def test_asynchronous_calls_hold_two_elements_each_at_most_beyond_the_budget(num_workers: int) -> None:
    async def grow(number: int) -> Any:
        return np.full(SIZES["growing"](number), 1, np.uint8)

    dataset = ps.from_source(range(COUNT)).map(grow, concurrency=4)
    peak, largest = peak_of(dataset, num_workers=num_workers, memory_bytes=BUDGET)
    assert peak <= BUDGET + 2 * (num_workers + 4) * largest + SLACK


RSS = """
import resource
import sys
import numpy as np
import penstock as ps

MB = 1 << 20

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def grow(number):
    return np.full(10_000 if number < 5000 else 8 * MB, 1, np.uint8)

def tail(number):
    return np.full(8 * MB if number % 50 == 25 else 10_000, 1, np.uint8)

kind, num_workers = sys.argv[1], int(sys.argv[2])
count = 5060 if kind == "grow" else 300
elements = ps.from_source(range(count)).map(grow if kind == "grow" else tail)
dataset = {
    "grow": lambda: elements,
    "padded": lambda: elements.padded_batch(8),
    "bucket": lambda: elements.bucket_by_length(len, [MB], [8, 2]),
    "unordered": lambda: elements,
}[kind]()
before = most()
total = 0
with dataset.feed(num_workers=num_workers, memory_bytes=(64 if kind == "grow" else 8) * MB, ordered=kind != "unordered") as feed:
    for item in feed:
        total += item.shape[0]
print(most() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="getrusage counts kB on Linux only")
@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize(("kind", "held_mb"), [("grow", 64), ("padded", 2 * 64), ("bucket", 3 * 16), ("unordered", 16)])
def test_the_resident_size_of_a_process_stays_in_the_bound(kind: str, held_mb: int, num_workers: int) -> None:
    """6,200 MB with one worker and 7,500 with four they were for growing elements, 155, 240 and 216 for the others."""
    assert int(output_of("-c", RSS, kind, num_workers)) <= held_mb + 2 * num_workers * 8 + 24  # threads, and what the allocator keeps
