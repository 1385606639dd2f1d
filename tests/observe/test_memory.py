"""Where the memory of a run is: the parts add up to what the process grows by, kept batches are named, a limit is warned about in time."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core
from feeds import state_behind
from observe.test_curves import points_of
from programs import output_of

import penstock as ps
from penstock._contracts.event import BatchDelivered, BlockDone, Event, Notice
from penstock._system.memory import FeedMemory
from penstock.observe import Stats, tensorboard
from penstock.observe import curves as curves_module
from penstock.observe.curves import Curves, EventFile
from penstock.observe.memory import MemorySample, RunMemory, parts_of
from penstock.queues import FIFOQueue, RandomShuffleQueue

MB = 1 << 20
MS = 1_000_000

# -- the parts --------------------------------------------------------------------------------------------------------------------

PARTS = """
import json, sys, threading, time
import numpy as np
import penstock as ps
from penstock.observe.memory import this_process

def make(number):
    return np.full(1 << 20, number % 256, np.uint8)

def text(number):
    return b"%d" % (number % 10) * (1 << 20)

def rest(feed):
    calm = 0
    while calm < 20:
        calm = calm + 1 if all(monitor.task is None for monitor in list(feed._run._engine.watch.monitors)) else 0
        threading.Event().wait(0.002)
    while time.perf_counter_ns() < this_process()._last.due_ns:  # until then the figures of the last walk over all pages hold
        threading.Event().wait(0.002)

numbers = ps.from_source(range(4000))
arrays = numbers.map(make, name="make")
datasets = {
    "batch": lambda: arrays.batch(16),
    "batch of texts": lambda: numbers.map(text, name="make").batch(16),
    "padded_batch": lambda: arrays.padded_batch(16),
    "map above batch": lambda: arrays.batch(16).map(lambda batch: {"image": batch, "more": batch + 1}),
    "shuffle of a stream": lambda: ps.from_generator(lambda: map(make, range(4000))).shuffle(100, seed=1).batch(4),
    "two stages": lambda: arrays.map(lambda row: row + 1, concurrency=2, name="add").filter(lambda row: True).batch(8),
    "elements": lambda: arrays,
    "completion order": lambda: arrays.batch(16),
}
name, keep, ordered = sys.argv[1], sys.argv[2] == "keep", sys.argv[1] != "completion order"
queue = ps.queues.FIFOQueue(100, name="images")
with datasets[name]().feed(executor="threads", num_workers=2, memory_bytes=160 << 20, ordered=ordered) as feed:
    kept = []
    for step, item in enumerate(feed):
        if keep:
            kept.append(item)
        if step == 10:
            break
    for number in range(20):
        queue.enqueue(make(number))
    rest(feed)
    memory = feed.stats().memory
print(json.dumps([memory.growth_bytes, memory.parts_bytes, memory.slots_bytes, dict(memory.held_bytes), dict(memory.queue_bytes)]))
"""


NAMES = ["batch", "batch of texts", "padded_batch", "map above batch", "shuffle of a stream", "two stages", "completion order"]


@pytest.mark.parametrize(
    ("name", "keep"),
    core(
        [
            *((name, keep) for name in NAMES for keep in ("keep", "let go")),
            ("elements", "let go"),
        ],
        [("batch", "keep"), ("elements", "let go")],
    ),
)
def test_the_parts_add_up_to_what_the_process_grew_by(name: str, keep: str) -> None:
    growth, parts, slots, held, queues = json.loads(output_of("-c", PARTS, name, keep))
    assert growth > 30 * MB
    assert parts == pytest.approx(growth, rel=0.1)
    assert queues == {"images": 20 * MB}
    assert parts >= slots + sum(held.values()) + 20 * MB
    if name in ("batch", "completion order"):
        assert slots > 10 * MB
    else:
        assert sum(held.values()) > 10 * MB


def test_stages_hold_what_they_made_and_batches_are_in_buffers() -> None:
    dataset = ps.from_source(range(64)).map(large, name="make").map(lambda row: row, concurrency=1, name="pass").batch(4)
    stats = Stats()
    with dataset.feed(executor="threads", num_workers=2, listeners=[stats]) as feed:
        next(feed)
        memory = feed.memory()
        assert memory.filled_by == "pass"
        assert memory.budget_bytes == 256 * MB
        assert memory.slots_bytes >= 4 * 64_000
        assert {name for name, _ in memory.held} <= {"read+make", "pass", "training loop"}
    assert feed.memory().slots_bytes <= 64 * MB  # free buffers for the next feed of this dataset
    assert parts_of([("feed", feed), ("neither", object())]) == {"slots": feed.memory().slots_bytes, "kept": 0}


def test_what_was_there_before_a_run_is_no_part_of_its_growth() -> None:
    queue = FIFOQueue(4, name="before")
    queue.enqueue(np.zeros(8 * MB, np.uint8))
    memory = RunMemory(Fed([MemorySample(process_bytes=100 * MB)]))
    memory.begin_once()
    stats = memory.stats()
    assert dict(stats.queue_bytes)["before"] == 8 * MB
    assert stats.begin_bytes <= 92 * MB
    assert stats.growth_bytes == stats.parts_bytes


# -- kept batches -----------------------------------------------------------------------------------------------------------------


def large(number: int) -> Any:
    return np.full(64_000, number % 256, np.uint8)


def test_batches_that_the_loop_keeps_are_counted_with_their_bytes_and_the_oldest_is_named() -> None:
    with ps.from_source(range(64)).map(large).batch(4).feed(executor="threads", num_workers=1) as feed:
        kept = [next(feed) for _ in range(6)]
        memory = feed.stats().memory
        assert memory.num_kept == 5  # beside the last one
        assert memory.kept_bytes == 5 * 4 * 64_000
        assert memory.kept == "of step 1 (first element 0 of epoch 0)"
        del kept[:2]
        memory = feed.stats().memory
        assert memory.num_kept == 3
        assert memory.kept.startswith("of step 3")
        view = kept[0][1:2, :10]
        kept = kept[-1:]
        assert feed.stats().memory.num_kept == 1, "a view keeps all of its buffer"
        del view
        check_nothing_is_kept(feed)


def check_nothing_is_kept(feed: Any) -> None:
    """Wait for the workers: one that reports its task still holds the batch that it has delivered, on a busy machine for up to 20 ms."""
    deadline_s = time.monotonic() + 10.0
    while (memory := feed.stats().memory).num_kept and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert (memory.num_kept, memory.kept_bytes, memory.kept) == (0, 0, "")


ABOVE: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "padded_batch": lambda ds: ds.padded_batch(4),
    "a map above batch": lambda ds: ds.batch(4).map(lambda batch: batch + 1),
    "a map that hands on": lambda ds: ds.batch(4).map(lambda batch: {"nested": [{"image": batch}]}),
    "batch behind a filter": lambda ds: ds.filter(lambda row: True).batch(4),
    "shuffled batches": lambda ds: ds.batch(4).shuffle(3, seed=1),
}
WAYS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 2, "ordered": False},
]


@pytest.mark.parametrize(
    ("name", "options"), [(name, way) for name in ABOVE for way in WAYS if name != "shuffled batches" or "ordered" not in way]
)
def test_kept_batches_are_seen_wherever_they_lie(name: str, options: dict[str, Any]) -> None:
    dataset = ABOVE[name](ps.from_source(range(64)).map(large))
    with dataset.feed(**options) as feed:
        kept = [next(feed) for _ in range(6)]
        memory = feed.stats().memory
        assert memory.num_kept == 5
        assert memory.kept_bytes == pytest.approx(5 * 4 * 64_000, rel=0.01)
        assert memory.kept.startswith("of step 1")
        del kept
        check_nothing_is_kept(feed)


def test_of_small_batches_that_share_a_buffer_those_that_are_kept_are_counted() -> None:
    with (
        ps.from_source(range(40_000))
        .map(lambda number: {"a": number, "b": float(number)})
        .batch(4)
        .feed(executor="threads", num_workers=1) as feed
    ):
        kept = [next(feed) for _ in range(3000)]
        assert feed.stats().memory.num_kept == 2999
        kept = kept[-500:]
        assert 499 <= feed.stats().memory.num_kept <= 500
        assert feed.stats().memory.kept.startswith("of steps ")
        last = kept.pop()
        kept.clear()
        for _ in range(1000):
            if feed.stats().memory.num_kept == 0:  # on a busy machine a worker may still be about to let go of what it has delivered
                break
            threading.Event().wait(0.01)
        assert feed.stats().memory.num_kept == 0
        assert last["a"][-1] == 11_999


def test_steps_of_kept_batches_go_on_behind_a_resume() -> None:
    dataset = ps.from_source(range(64)).map(large).batch(4)
    state = state_behind(dataset, 3, executor="threads", num_workers=1)
    with dataset.feed(executor="threads", num_workers=1) as feed:
        feed.load_state_dict(state)
        kept = [next(feed) for _ in range(3)]
        assert feed.stats().memory.kept == "of step 4 (first element 12 of epoch 0)"
        assert len(kept) == 3


def test_the_figures_of_the_end_stay_until_the_next_epoch() -> None:
    with ps.from_source(range(32)).map(large).batch(4).feed(executor="threads", num_workers=1) as feed:
        kept = list(feed)
        ended = feed.stats().memory
        assert (ended.num_kept, ended.kept) == (7, "of step 1 (first element 0 of epoch 0)")
        assert ended.slots_bytes >= 8 * 4 * 64_000
        kept.clear()
        assert feed.stats().memory == ended
        kept = [next(iter(feed))]
        assert feed.stats().memory.num_kept == 0
    assert feed.stats().memory.begin_bytes == ended.begin_bytes
    assert len(kept) == 1


def test_a_loop_that_keeps_many_large_batches_is_a_notice_and_again_when_they_have_doubled() -> None:
    heard: list[Event] = []
    dataset = ps.from_source(range(400)).map(large).batch(4)
    with dataset.feed(executor="threads", num_workers=1, memory_bytes=8 * MB, listeners=[heard.append]) as feed:
        kept = list(feed)
    assert len(kept) == 100
    texts = [event.text for event in heard if isinstance(event, Notice) and event.kind == "kept"]
    pattern = (
        r"the training loop keeps (\d+) batches beside the last one, (\d+) MB; the oldest is of step 1 \(first element 0 of epoch 0\): "
        "drop batches that are done with, and copy what must be kept of them"
    )
    found = [re.fullmatch(pattern, text) for text in texts]
    counts = [(int(one[1]), int(one[2])) for one in found if one is not None]
    assert len(counts) == len(texts) >= 2
    assert all(size == round(number * 0.256) for number, size in counts)
    assert all(2 * before[0] <= after[0] for before, after in itertools.pairwise(counts))
    assert texts[-1] in feed.stats().notices


def test_a_loop_that_drops_its_batches_has_no_such_notice_and_none_are_kept() -> None:
    heard: list[Event] = []
    with (
        ps.from_source(range(4000))
        .map(large)
        .batch(4)
        .feed(executor="threads", num_workers=2, memory_bytes=8 * MB, listeners=[heard.append]) as feed
    ):
        for _ in feed:
            assert feed.memory().num_kept <= 1  # the name in the loop stands for the batch before until the next is there
    assert [event for event in heard if isinstance(event, Notice) and event.kind == "kept"] == []
    assert [text for text in feed.stats().notices if "keeps" in text] == []


# -- samples that are fed ---------------------------------------------------------------------------------------------------------


class Fed:
    """A system that has the memory that it is given: one sample after the other, the last one for ever."""

    def __init__(self, samples: list[MemorySample]) -> None:
        self._samples = samples
        self.num_looks = 0

    def sample(self) -> MemorySample:
        return self._samples.pop(0) if len(self._samples) > 1 else self._samples[0]

    def limit(self) -> tuple[int, int] | None:
        self.num_looks += 1
        return self.sample().limit


def at(used: int, limit: int = 512) -> MemorySample:
    return MemorySample(process_bytes=used * MB, limit=(limit * MB, used * MB))


class Feed:
    """What a feed says of its memory."""

    def __init__(self, held: FeedMemory) -> None:
        self.held = held
        self.heard: list[Event] = []

    def memory(self) -> FeedMemory:
        return self.held

    def announce(self, event: Event) -> None:
        self.heard.append(event)


def test_swapping_and_page_faults_are_those_since_the_run_began() -> None:
    begin = MemorySample(process_bytes=100 * MB, num_major_faults=40)
    now = MemorySample(process_bytes=90 * MB, swapped_bytes=30 * MB, num_major_faults=1040, limit=(200 * MB, 120 * MB))
    stats = Stats(memory=RunMemory(Fed([begin, now])))
    stats(BatchDelivered(5 * MS, 5 * MS, 0, 1))
    memory = stats.snapshot().memory
    assert memory.swapped_bytes == 30 * MB
    assert memory.num_major_faults == 1000
    assert (memory.limit_bytes, memory.limit_used_bytes) == (200 * MB, 120 * MB)


def test_near_the_limit_there_is_one_warning_which_every_listener_of_the_feed_hears() -> None:
    held = FeedMemory(
        slots_bytes=200 * MB,
        held=(("decode", 120 * MB), ("training loop", 2 * MB)),
        num_kept=3,
        kept_bytes=60 * MB,
        kept="of step 7",
        filled_by="augment",
        budget_bytes=256 * MB,
    )
    feed, memory = Feed(FeedMemory()), RunMemory(Fed([at(80), at(200), at(200), at(430), at(430)]))
    stats = Stats(memory=memory)
    memory.begin(feed.memory, feed.announce)
    feed.held = held
    stats(BlockDone("decode", 0, 0, 1 * MS, MS, 1))
    assert stats.snapshot().notices == ()
    with pytest.warns(RuntimeWarning, match="of the 537 MB that the cgroup of this process allows are in use") as caught:
        stats(BatchDelivered(1000 * MS, 0, 1, 1))
    stats(BatchDelivered(2000 * MS, 0, 1, 1))
    assert len(caught) == 1
    (notice,) = feed.heard
    assert isinstance(notice, Notice)
    assert notice.kind == "memory"
    assert notice.text == str(caught[0].message)
    said = notice.text.partition("the process grew by ")[2].partition(": ")[2]
    assert said.startswith("batch buffers, which stage 'augment' fills, take 149 MB; elements of stage 'decode' take 126 MB; ")
    assert "the training loop keeps 3 batches of stage 'augment', 63 MB, the oldest of step 7" in said
    assert notice.text.endswith("To change: lower memory_bytes, now 268 MB")


@pytest.mark.parametrize("event", [BlockDone("decode", 0, 0, 1000 * MS, MS, 1), BatchDelivered(1000 * MS, 0, 1, 1)])
def test_figures_without_a_feed_warn_too_and_keep_the_notice(event: Event) -> None:
    stats = Stats(memory=RunMemory(Fed([at(80), at(430)])))
    stats(BatchDelivered(0, 0, 1, 1))
    with pytest.warns(RuntimeWarning, match="the functions up to stage '' and the training loop have 367 MB"):
        stats(event)
    (text,) = stats.snapshot().notices
    assert text.startswith("451 MB of the 537 MB")


def test_looks_are_few_and_come_sooner_where_less_is_left() -> None:
    system = Fed([at(0, limit=16_000)])
    memory = RunMemory(system)
    assert memory.due_ns > 1 << 60  # not begun
    memory.begin_once()
    assert memory.due_ns == 0
    memory.look(7 * MS, list[Event]().append)
    assert memory.due_ns == 257 * MS
    near = RunMemory(Fed([at(399)]))
    near.begin_once()
    near.look(7 * MS, list[Event]().append)
    assert near.due_ns == 17 * MS
    stats = Stats(memory=memory)
    for number in range(1000):
        stats(BatchDelivered(number * MS, 0, 1, 1))
    assert system.num_looks <= 5


@pytest.mark.parametrize("later", [None, at(100)])
def test_without_a_limit_there_is_no_look(later: MemorySample | None) -> None:
    system = Fed([MemorySample()] if later is None else [later, MemorySample()])
    stats = Stats(memory=RunMemory(system))
    for number in range(1000):
        stats(BatchDelivered(number * MS, 0, 1, 1))
    assert system.num_looks == (later is not None)  # a limit that was lifted is not looked at again


# -- queues -----------------------------------------------------------------------------------------------------------------------


def test_queues_of_the_process_are_parts_by_their_names(tmp_path: Path) -> None:
    queues = [FIFOQueue(10, name="twice"), RandomShuffleQueue(10, 2, name="twice"), FIFOQueue(10, name="empty one")]
    for queue in queues[:2]:
        queue.enqueue(np.zeros(MB, np.uint8))
    memory = RunMemory().stats()
    assert dict(memory.queue_bytes)["twice"] == 2 * MB
    assert "empty one" not in dict(memory.queue_bytes)


# -- over time --------------------------------------------------------------------------------------------------------------------


def test_curves_have_the_parts_and_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves_module, "_POINT_S", 0.0)
    queue = FIFOQueue(10, name="images")
    queue.enqueue(np.zeros(3 * MB, np.uint8))
    begin = MemorySample(num_major_faults=5)
    now = MemorySample(
        process_bytes=2 * 10**8, freed_bytes=10**7, swapped_bytes=4 * 10**7, num_major_faults=25, limit=(5 * 10**8, 4 * 10**8)
    )
    with ps.from_source(range(64)).map(large).batch(4).feed(executor="threads", num_workers=1) as feed:
        kept = [next(feed) for _ in range(4)]
        watched = [*watched_of(tensorboard([feed, queue], tmp_path / "real"))]
        with Curves(watched, EventFile(tmp_path), lambda: 1, Fed([begin, now])) as curves:
            pass
    assert len(kept) == 4
    values = points_of(curves.path)[1][0][1]
    assert values["memory/slots_MB"] >= 4 * 0.256
    assert values["memory/kept_MB"] == pytest.approx(0.768)
    assert values["memory/queue_images_MB"] == pytest.approx(3 * 1.048576)
    assert values["process/memory_MB"] == 200
    assert values["process/freed_MB"] == 10
    assert values["process/swap_MB"] == 40
    assert values["process/major_page_faults"] == 20
    assert values["cgroup/used_fraction"] == pytest.approx(0.8)


def watched_of(curves: Curves) -> Iterator[Any]:
    with curves:
        yield from curves._watched


def test_a_timeline_has_the_parts_as_counters(tmp_path: Path) -> None:
    queue = FIFOQueue(10, name="images")
    queue.enqueue(np.zeros(3 * MB, np.uint8))
    with ps.from_source(range(64)).map(large).batch(4).feed(executor="threads", num_workers=1) as feed:
        timeline = ps.observe.trace(tmp_path / "t.json", [feed, queue])
        for _ in feed:
            pass
        timeline.close()
    counters = [
        record["args"] for record in json.loads((tmp_path / "t.json").read_text()) if record["name"] == "memory of feeds and queues"
    ]
    assert counters
    assert all({"slots_MB", "kept_MB", "queue_images_MB"} <= set(one) for one in counters)
    assert {one["queue_images_MB"] for one in counters} == {3.1}


def test_no_figure_of_memory_is_missing_where_the_system_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock._system.memory._text", lambda path: "")
    monkeypatch.setattr("penstock._system.memory._mallinfo", lambda: None)
    memory = RunMemory()
    memory.begin_once()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory.look(0, list[Event]().append)
    assert memory.stats().limit_bytes is None
    assert memory.stats().swapped_bytes == 0
