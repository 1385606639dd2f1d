"""FAULTS A17 to A19, B2 and B9 for a feed: what a forked process may do with one of its parent's, and with the dataset of it."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _storage.forks import forked
from core import core
from programs import output_of

import penstock as ps
from penstock.errors import FeedClosed, PlanError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

COUNT = 600


async def _soon(x: Any) -> Any:
    await asyncio.sleep(0)
    return x


def _numbers() -> Iterator[int]:
    yield from range(COUNT)


class Counter:
    """A stream with states."""

    def __init__(self) -> None:
        self.begin = self.place = 0

    def __iter__(self) -> Iterator[int]:
        begin, self.begin = self.begin, 0
        for number in range(begin, COUNT):
            self.place = number + 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin = state["place"]


def _lines(folder: Path) -> ps.Dataset:
    (folder / "a.txt").write_text("".join(f"{number}\n" for number in range(COUNT)))
    return ps.read_text(str(folder / "a.txt")).map(lambda line: int(line["text"]))


def _jpegs(folder: Path) -> ps.Dataset:
    from PIL import Image

    for number in range(4):
        Image.fromarray(np.full((40, 40, 3), number, np.uint8)).save(folder / f"{number}.png")
    return ps.read_files(str(folder / "*.png")).repeat(50).map(ps.image.decode("data")).map(ps.image.resize("data", (8, 8))).map(_first)


def _first(element: dict[str, Any]) -> int:
    return int(element["data"][0, 0, 0])


def _parquet(folder: Path) -> ps.Dataset:
    ps.pack(ps.from_arrays({"x": np.arange(COUNT)}), folder / "p", format="parquet", executor="threads")
    return ps.read_parquet(str(folder / "p/*.parquet")).map(lambda row: int(row["x"]))


DATASETS: dict[str, Callable[[Path], ps.Dataset]] = {
    "arrays in batches": lambda _: ps.from_arrays(np.arange(COUNT)).batch(8).unbatch().map(int),
    "async": lambda _: ps.from_source(range(COUNT)).map(_soon, concurrency=4),
    "cached": lambda _: ps.from_source(range(COUNT)).map(float).cache(),
    "cached on disk": lambda folder: ps.from_source(range(COUNT)).map(float).cache(str(folder / "cache")),
    "filtered": lambda _: ps.from_source(range(COUNT)).filter(lambda x: x % 3).shuffle(buffer_size=10, seed=1),
    "generator": lambda _: ps.from_generator(_numbers, fast_forward=True),
    "images": _jpegs,
    "lines": _lines,
    "parquet": _parquet,
    "stream with states": lambda _: ps.from_stream(Counter()),
}

WAYS: dict[str, dict[str, Any]] = {"in the consumer": {"num_workers": 0}, "threads": {"executor": "threads", "num_workers": 3}}


@pytest.mark.parametrize("options", core(WAYS.values(), [WAYS["threads"]]), ids=WAYS)
@pytest.mark.parametrize("make", DATASETS.values(), ids=DATASETS)
def test_a_feed_raises_at_once_in_a_forked_process_where_a_new_one_gives_everything(
    make: Callable[[Path], ps.Dataset], options: dict[str, Any], tmp_path: Path
) -> None:
    dataset = make(tmp_path)
    expected = list(dataset.feed(num_workers=0))
    feed, new = dataset.feed(**options), dataset.feed(**options)
    seen = [next(feed) for _ in range(5)]
    state = feed.state_dict()

    def child() -> None:
        for inherited in (feed, new):
            with pytest.raises(FeedClosed, match="was forked from it"):
                next(inherited)
            with pytest.raises(FeedClosed, match=r"make a new feed here with ds.feed\(\); ds.shard"):
                list(inherited)
            with pytest.raises(FeedClosed, match="load_state_dict"):
                inherited.load_state_dict(state)
        assert (feed.state_dict(), feed.step) == (state, 5)
        assert feed.report()
        with dataset.feed(**options) as own:
            assert list(own) == expected
        feed.close()
        with pytest.raises(FeedClosed):
            next(feed)

    forked(child)
    seen += [next(feed) for _ in range(5)]
    forked(child_that_drops(feed))
    assert seen + list(feed) == expected
    assert list(new) == expected


def child_that_drops(feed: ps.Feed) -> Callable[[], None]:
    """Return what drops a feed and what it runs; the test still names it, so all that it refers to goes instead."""

    def child() -> None:
        feed.__dict__.clear()
        gc.collect()

    return child


def test_a_feed_whose_lock_is_held_by_a_thread_that_waits_in_it_raises_in_a_forked_process() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(x: int) -> int:
        if x == 3:
            inside.set()
            go_on.wait(60)
        return x

    feed = ps.from_source(range(9)).map(slow).feed(executor="threads", num_workers=2)
    out: list[int] = []
    consumer = threading.Thread(target=lambda: out.extend(feed))
    consumer.start()
    assert inside.wait(60)

    def child() -> None:
        with pytest.raises(FeedClosed, match="was forked from it"):
            next(feed)
        feed.close()

    try:
        forked(child)
    finally:
        go_on.set()
        consumer.join()
    assert out == list(range(9))


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_what_a_forked_process_leaves_behind_is_not_finalised_there(options: dict[str, Any], tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    def numbers() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            with marks.open("a") as file:
                file.write(f"{os.getpid()}\n")

    feed = ps.from_generator(numbers).map(_soon, concurrency=2).feed(**options)
    unordered = ps.from_source(range(COUNT)).feed(ordered=False, **options)
    assert next(feed) == 0
    first = next(unordered)

    def child() -> None:
        for one in (feed, unordered):
            one.close()
            one.__dict__.clear()
        gc.collect()

    forked(child)
    assert not marks.exists()
    assert [next(feed) for _ in range(COUNT)] == list(range(1, COUNT + 1))
    feed.close()
    assert sorted([first, *unordered]) == list(range(COUNT))
    assert marks.read_text().split() == [str(os.getpid())]


EXIT = """
import os, sys, threading
import penstock as ps

async def soon(x):
    return x

def make(kind):
    ds = ps.from_source(range(10_000))
    if kind == "generator":
        return ps.from_generator(lambda: (x for x in range(10_000)))
    return ds.map(soon, concurrency=4) if kind == "async" else ds

kind, workers = sys.argv[1], int(sys.argv[2])
feed = make(kind).feed(num_workers=workers)
with feed:
    assert [next(feed) for _ in range(3)] == [0, 1, 2]
    pid = os.fork()
    if pid == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert [*feed] == list(range(3, 10_000))
    print("all")
"""


@pytest.mark.parametrize(("kind", "workers"), core([("source", "2"), ("generator", "0"), ("async", "2")]))
def test_a_forked_process_exits_by_itself_inside_the_block_of_its_parents_feed_and_says_nothing(kind: str, workers: str) -> None:
    assert output_of("-W", "ignore::DeprecationWarning", "-c", EXIT, kind, workers) == "all\n"


def test_a_function_that_forks_inside_a_feed_leaves_the_feed_to_the_parent() -> None:
    def forks(x: int) -> int:
        if x == 3:
            forked(lambda: None)
        return x

    for options in WAYS.values():
        assert list(ps.from_source(range(9)).map(forks).feed(**options)) == list(range(9))


def test_a_feed_that_has_ended_or_is_closed_says_so_in_a_forked_process_too() -> None:
    ended, closed = ps.from_source(range(3)).feed(), ps.from_source(range(3)).feed()
    assert list(ended) == [0, 1, 2]
    closed.close()

    def child() -> None:
        with pytest.raises(StopIteration):
            next(ended)
        with pytest.raises(FeedClosed, match="this feed is closed"):
            next(closed)

    forked(child)


def test_a_feed_is_not_pickled_and_says_what_is() -> None:
    with ps.from_source(range(3)).feed() as feed:
        with pytest.raises(PlanError, match="a feed cannot be pickled or copied: it belongs to the process that made it"):
            pickle.dumps(feed)
        with pytest.raises(PlanError, match="send the dataset"):
            pickle.Pickler(io.BytesIO()).dump([feed])


def test_a_leaked_object_is_never_finalised() -> None:
    program = """
from penstock._system.process import leak
class Loud:
    def __del__(self, say=print):
        say("finalised")
for thing in Loud(), Loud():
    pass
leak(thing)
del thing
"""
    assert output_of("-c", program) == "finalised\n"


def test_a_feed_in_a_worker_of_a_data_loader_is_refused_and_outside_of_one_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch itself: tests/interop/test_torch.py."""
    workers: list[Any] = [None]
    torch_data = types.SimpleNamespace(get_worker_info=lambda: workers[-1])
    monkeypatch.setitem(sys.modules, "torch.utils.data", torch_data)  # type: ignore[arg-type]
    dataset = ps.from_source(range(4))
    inherited = dataset.feed()
    assert list(dataset) == [0, 1, 2, 3]
    workers.append(types.SimpleNamespace(id=1, num_workers=3))
    refused = (
        r"worker 1 of the 3 of a torch DataLoader: each of them would deliver all of the dataset\n.*\n.*give the DataLoader num_workers=0"
    )
    for _ in range(2):
        with pytest.raises(PlanError, match=refused):
            next(iter(dataset))
        with pytest.raises(PlanError, match=refused):
            pickle.dumps(inherited)
    assert dataset[2] == 2

    def child() -> None:
        with pytest.raises(PlanError, match=refused):
            next(inherited)

    forked(child)
