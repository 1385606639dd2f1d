"""on_stall="skip" as a law: an element that never ends is treated like one that fails, on every plan, saved and resumed anywhere."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest
from laws.plans import plain
from laws.test_policies import REPLACED, ROWS, SIZE, Build, Reference, groups, kept, lost, numbers, standing_in, twice

import penstock as ps
from penstock.errors import FeedStalled, PlanError, StillRunning, TooManySkipped

BAD = frozenset({3, 4, 17})
SKIPPING: dict[str, Any] = {"on_stall": "skip", "stall_timeout_s": 0.2, "grace_period_s": 0.01}
OPTIONS: list[dict[str, Any]] = [{"num_workers": 1, **SKIPPING}, {"num_workers": 3, **SKIPPING}]


class Hanging:
    """A map function that does not return from some values, and remembers what it was called with."""

    def __init__(self, release: threading.Event, bad: frozenset[int] = BAD) -> None:
        self.release, self.bad, self.calls = release, bad, list[int]()

    def __call__(self, value: Any) -> Any:
        number = int(np.max(value))
        self.calls.append(number)
        if number in self.bad:
            self.release.wait()
        return value

    def __repr__(self) -> str:
        return "Hanging()"


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event that a stuck function waits for; set after the test."""
    event = threading.Event()
    yield event
    event.set()


def fine(value: int) -> bool:
    return value not in BAD


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=["1 worker", "3 workers"])
@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_what_never_ends_is_as_if_it_had_never_been_there(
    build: Build, reference: Reference, options: dict[str, Any], release: threading.Event
) -> None:
    with build(Hanging(release)).feed(**options) as feed:
        assert [plain(item) for item in feed] == reference(fine)
        stats = feed.stats()
    assert stats.num_skipped > 0
    assert stats.num_skipped == sum(stage.num_skipped for stage in stats.failures)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=["1 worker", "3 workers"])
@pytest.mark.parametrize(("build", "reference"), [row for row in REPLACED if "take" not in str(row.id)])
def test_what_never_ends_is_replaced_and_a_replacement_that_never_ends_is_passed_over(
    build: Build, reference: Reference, options: dict[str, Any], release: threading.Event
) -> None:
    with build(Hanging(release)).feed(**options) as feed:
        found = [plain(item) for item in feed]
        assert feed.stats().num_replaced > 0
    with build(Failing()).feed(executor="inline") as feed:
        assert found == [plain(item) for item in feed]


class Failing(Hanging):
    """Fails where the other hangs."""

    def __init__(self) -> None:
        super().__init__(threading.Event())

    def __call__(self, value: Any) -> Any:
        if int(np.max(value)) in self.bad:
            raise ValueError
        return value


@pytest.mark.slow
@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_a_state_saved_anywhere_resumes_with_the_same_elements_and_nothing_that_hung_is_called_again(
    build: Build, reference: Reference, release: threading.Event
) -> None:
    whole = reference(fine)
    with build(Hanging(release)).feed(**OPTIONS[1]) as feed:
        states = [feed.state_dict(), *(feed.state_dict() for _ in feed)]
    counts = [lost(state) for state in states]
    assert counts == sorted(counts)
    for stop in range(0, len(states), 3):
        again = Failing()  # quicker; what was skipped before the save is not called in either
        with build(again).feed(num_workers=2) as feed:
            feed.load_state_dict(json.loads(json.dumps(states[stop])))
            assert feed.stats().num_skipped == counts[stop]
            assert whole[:stop] + [plain(item) for item in rest(feed)] == whole
            assert lost(feed.state_dict()) == counts[-1]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("workers", [1, 8])
def test_in_completion_order_every_other_element_comes_once(batched: bool, workers: int, release: threading.Event) -> None:
    ds = numbers(200).map(Hanging(release))
    options = {**SKIPPING, "num_workers": workers, "ordered": False, "on_error": ps.Skip()}
    with (ds.batch(7) if batched else ds).feed(**options) as feed:
        items = [plain(item) for item in feed]
        assert feed.stats().num_skipped == 3
    found = [value for item in items for value in item] if batched else items
    assert sorted(found) == [value for value in range(200) if fine(value)]


def test_all_of_eight_workers_may_be_stuck_and_again(release: threading.Event) -> None:
    bad = frozenset({*range(10, 30), *range(31, 39)})
    fn = Hanging(release, bad)
    with numbers(60).map(fn).batch(6).feed(**SKIPPING, num_workers=8, on_error=ps.Skip()) as feed:
        assert [plain(item) for item in feed] == groups([value for value in range(60) if value not in bad], 6)
        assert feed.stats().num_skipped == len(bad)


@pytest.mark.parametrize("read", [False, True], ids=["map", "read"])
def test_who_is_stuck_in_c_is_left_there(tmp_path: Path, read: bool) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no FIFOs here")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def opened(value: int) -> int:
        if value == 7:
            with open(fifo, "rb") as file:
                file.read()
        return value

    class Files:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> int:
            return opened(index)

    ds = ps.from_source(Files()).map(abs) if read else numbers(20).map(opened, name="opened")
    policy: dict[str, Any] = {"on_read_error" if read else "on_error": ps.Skip()}
    try:
        with ds.batch(4).feed(**SKIPPING, **policy, num_workers=2) as feed:
            assert [plain(item) for item in feed] == groups([value for value in range(20) if value != 7], 4)
        assert [(stage.stage, stage.num_skipped) for stage in feed.stats().failures] == [("read" if read else "opened", 1)]
    finally:
        with open(fifo, "wb"):  # whoever reads gets its end
            pass


def test_one_that_wakes_up_later_writes_into_no_batch_of_others() -> None:
    stuck, go, over = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def late(row: Any) -> Any:
        if int(row[0]) == 5:
            threads.append(threading.current_thread())
            stuck.set()
            go.wait()
            return np.full(1000, -1)
        if int(row[0]) == 60:  # the batch of 5 was delivered long ago, and its buffer is in use again
            go.set()
            threads[0].join()
            over.set()
        return row

    data = np.repeat(np.arange(120), 1000).reshape(120, 1000)
    with ps.from_arrays(data).map(late).batch(4).feed(**SKIPPING, num_workers=2, on_error=ps.Replace(), memory_bytes=1 << 16) as feed:
        found = np.concatenate([np.array(batch) for batch in feed])
    wanted = data.copy()
    wanted[5] = 6
    assert np.array_equal(found, wanted)
    assert over.is_set()
    assert len(threads) == 1


def test_the_quarantine_has_the_stall_with_its_stack_and_reads_back(tmp_path: Path, release: threading.Event) -> None:
    file = tmp_path / "bad.jsonl"
    ds = numbers().shuffle(seed=2).map(Hanging(release), name="hangs").batch(4)
    with ds.feed(**SKIPPING, num_workers=2, on_error=ps.Skip(), quarantine=str(file)) as feed:
        list(feed)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(line["keys"][0][1] for line in lines) == sorted(BAD)
    for line in lines:
        assert (line["action"], line["error"], line["stage"], line["retries"]) == ("skipped", "FeedStalled", "hangs", 0)
        assert "has been with one element of stage 'hangs' for " in line["text"]
        assert "self.release.wait()" in line["traceback"]
        assert f"index {line['keys'][0][1]} (element " in line["text"]
    again = ps.read_quarantine(str(file), numbers().shuffle(seed=2).map(abs))
    assert sorted(again) == sorted(BAD)


def test_more_stalls_than_the_limit_are_an_error_whose_cause_is_the_last(release: threading.Event) -> None:
    with pytest.raises(TooManySkipped, match="2 elements were skipped, the limit is 1") as caught:
        list(numbers().map(Hanging(release)).batch(4).feed(**SKIPPING, num_workers=2, on_error=ps.Skip(limit=1)))
    assert isinstance(caught.value.__cause__, FeedStalled)


def test_a_stall_is_not_tried_again(release: threading.Event) -> None:
    fn = Hanging(release)
    policy = ps.Retry(5, then=ps.Skip())
    with numbers().map(fn).feed(**SKIPPING, num_workers=2, on_error=policy) as feed:
        assert [plain(item) for item in feed] == kept(fine)
        assert all(stage.num_retries == 0 for stage in feed.stats().failures)
    assert fn.calls.count(17) == 1


def test_an_element_that_hangs_only_when_it_is_tried_again_is_skipped(release: threading.Event) -> None:
    tried: list[int] = []

    def flaky(value: int) -> int:
        if value == 6:
            tried.append(value)
            if len(tried) == 1:
                raise OSError("once")
            release.wait()
        return value

    with numbers().map(flaky).batch(5).feed(**SKIPPING, num_workers=2, on_error=ps.Retry(5, then=ps.Skip())) as feed:
        assert [plain(item) for item in feed] == groups(kept(lambda value: value != 6), 5)
    assert tried == [6, 6]


def test_of_the_elements_that_one_gives_only_those_that_stall_or_fail_are_left_out(release: threading.Event) -> None:
    def picky(value: int) -> int:
        if value in (5, 108):
            release.wait()
        if value in (105, 8, 9, 109):
            raise ValueError(value)
        return value

    ds = numbers(12).flat_map(twice).map(picky, on_error=ps.Skip()).batch(3)
    with ds.feed(**SKIPPING, num_workers=2) as feed:
        bad = {5, 108, 105, 8, 9, 109}
        assert [plain(item) for item in feed] == groups([y for x in range(12) for y in twice(x) if y not in bad], 3)
        assert feed.stats().num_skipped == 6


def test_a_read_of_many_at_once_is_done_again_one_by_one(release: threading.Event) -> None:
    class AtOnce:
        """Reads a block at once, and hangs over it when 9 is in it."""

        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> int:
            raise AssertionError

        def gather(self, indices: list[int], rows: list[Any]) -> None:
            if 9 in indices:
                release.wait()
            rows.extend(indices)

        def describe(self, index: int) -> str:
            return f"number {index}"

        def fingerprint(self) -> dict[str, Any]:
            return {}

        def label(self) -> str:
            return "columns"

    with ps.from_source(AtOnce()).batch(4).feed(**SKIPPING, num_workers=1, on_error=ps.Skip()) as feed:
        assert [plain(item) for item in feed] == groups([value for value in range(20) if value != 9], 4)


def test_who_comes_to_after_all_calls_nothing_more() -> None:
    go, threads = threading.Event(), list[Any]()
    late: list[int] = []

    def fn(value: int) -> int:
        if go.is_set() and threading.current_thread() in threads:
            late.append(value)
        if value == 30:
            threads.append(threading.current_thread())
            go.wait()
            raise ValueError("late")
        return value

    with numbers(64).map(fn).batch(64).feed(**SKIPPING, num_workers=1, on_error=ps.Retry(3, then=ps.Replace())) as feed:
        assert [plain(item) for item in feed] == [standing_in(list(range(64)), frozenset({30}))]
    go.set()
    for thread in threads:
        thread.join(30)
    assert late == []
    assert len(threads) == 1


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("batched", [False, True])
def test_calls_that_never_end_are_cancelled_and_not_called_again(batched: bool, ordered: bool) -> None:
    cancelled: list[int] = []
    calls: list[int] = []

    async def fetch(value: int) -> int:
        calls.append(value)
        if value in BAD:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(value)
        await asyncio.sleep(0)
        return value

    ds = numbers(40).map(fetch, concurrency=6)
    with (ds.batch(4) if batched else ds).feed(**SKIPPING, num_workers=2, on_error=ps.Skip(), ordered=ordered) as feed:
        items = [plain(item) for item in feed]
        assert feed.stats().num_skipped == 3
    found = [value for item in items for value in item] if batched else items
    assert (found if ordered else sorted(found)) == [value for value in range(40) if fine(value)]
    assert set(cancelled) >= BAD
    assert all(calls.count(value) == 1 for value in BAD)


def test_calls_that_do_not_even_end_when_they_are_cancelled_keep_no_place() -> None:
    go: list[Any] = []

    async def stubborn(value: int) -> int:
        if value in BAD:
            event = asyncio.Event()
            go.append((asyncio.get_running_loop(), event))
            while not event.is_set():
                try:
                    await event.wait()
                except asyncio.CancelledError:
                    continue
        return value

    try:
        with numbers(40).map(stubborn, concurrency=2).batch(4).feed(**SKIPPING, num_workers=1, on_error=ps.Skip()) as feed:
            assert [plain(item) for item in feed] == groups([value for value in range(40) if fine(value)], 4)
    finally:
        for loop, event in go:
            loop.call_soon_threadsafe(event.set)


def test_a_call_that_hangs_only_when_it_is_made_again_is_given_up_and_the_others_go_on() -> None:
    tried: list[int] = []
    waiting: list[Any] = []

    async def flaky(value: int) -> int:
        if value in (7, 8, 21):
            tried.append(value)
            if tried.count(value) == 1:
                raise OSError(value)
            waiting.append((asyncio.get_running_loop(), asyncio.Event()))
            await waiting[-1][1].wait()
        return value

    ds = numbers(40).map(flaky, concurrency=4, on_error=ps.Retry(3, then=ps.Skip())).batch(4)
    try:
        with ds.feed(**SKIPPING, num_workers=2) as feed:
            assert [plain(item) for item in feed] == groups([value for value in range(40) if value not in (7, 8, 21)], 4)
            assert feed.stats().num_skipped == 3
    finally:
        for loop, event in waiting:
            if not loop.is_closed():  # that of the feed is: its calls were cancelled
                loop.call_soon_threadsafe(event.set)


def test_behind_a_flat_map_only_the_call_that_stalls_is_left_out() -> None:
    async def fetch(value: int) -> int:
        if value == 103:
            await asyncio.Event().wait()
        return value

    ds = numbers(12).flat_map(twice).map(fetch, concurrency=4, on_error=ps.Skip()).batch(5)
    with ds.feed(**SKIPPING, num_workers=2) as feed:
        assert [plain(item) for item in feed] == groups([y for x in range(12) for y in twice(x) if y != 103], 5)


def refused(ds: ps.Dataset, **options: Any) -> FeedStalled:
    with pytest.raises(FeedStalled) as caught:
        list(ds.feed(**{**SKIPPING, "num_workers": 2, "on_error": ps.Skip(), **options}))
    return caught.value


def test_what_cannot_be_skipped_raises_and_says_why(release: threading.Event) -> None:
    def rows() -> Iterator[int]:
        yield 1
        release.wait()

    async def block(value: int) -> int:
        release.wait()
        return value

    error = refused(ps.from_generator(rows).map(abs))
    assert "cannot be skipped: what a generator gives next is not known before it has given this" in error.what
    error = refused(numbers().map(Hanging(release), name="strict", on_error=ps.Raise()))
    assert "it cannot be skipped: the policy of stage 'strict' raises it" in error.what
    error = refused(numbers().map(Hanging(release), on_error=ps.Skip(errors=ValueError)).map(abs, on_error=ps.Skip()))
    assert "raises it" in error.what
    error = refused(numbers().map(block, concurrency=2))
    assert "it cannot be skipped: no other call can go on while it holds up their loop" in error.what
    release.set()


@pytest.mark.parametrize(
    ("ds", "options"),
    [
        (numbers(), {}),
        (numbers().map(abs, on_error=ps.Retry(3)), {}),
        (numbers().map(abs, on_error=ps.Skip(errors=ValueError)), {"on_error": ps.Replace(errors=KeyError)}),
    ],
)
def test_without_a_policy_for_it_the_feed_is_refused(ds: ps.Dataset, options: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match='on_stall="skip" treats an element that stalls as one that failed, and no policy here skips'):
        ds.feed(on_stall="skip", **options)
    ds.feed(on_stall="skip", on_read_error=ps.Retry(2, then=ps.Replace()))
    ds.map(abs, on_error=ps.Skip(errors=TimeoutError)).feed(on_stall="skip")


def test_close_names_who_is_still_stuck(release: threading.Event) -> None:
    feed = numbers(100).map(Hanging(release), name="hangs").feed(**SKIPPING, num_workers=2, on_error=ps.Skip())
    assert [next(feed) for _ in range(6)] == [0, 1, 2, 5, 6, 7]
    with pytest.raises(StillRunning, match="penstock-workers-"):
        feed.close()


def test_stalls_and_failures_in_one_unit_are_each_booked_once(release: threading.Event) -> None:
    def both(value: int) -> int:
        if value % 10 == 3:
            raise ValueError(value)
        if value in (7, 24):
            release.wait()
        return value

    for options in OPTIONS:
        with numbers(40).map(both, on_error=ps.Skip()).batch(40).feed(**options) as feed:
            (batch,) = [plain(item) for item in feed]
            assert batch == [value for value in range(40) if value % 10 != 3 and value not in (7, 24)]
            assert feed.stats().num_skipped == 6


def test_an_error_that_raises_behind_a_stall_still_comes_in_its_place(release: threading.Event) -> None:
    def both(value: int) -> int:
        if value == 9:
            release.wait()
        if value == 12:
            raise KeyError(value)
        return value

    for options in OPTIONS:
        found: list[int] = []
        with numbers(40).map(both, on_error=ps.Skip(errors=TimeoutError)).feed(**options) as feed, pytest.raises(KeyError):
            found.extend(feed)
        assert found == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_the_next_element_of_the_order_stands_in(release: threading.Event) -> None:
    with numbers().map(Hanging(release)).feed(**OPTIONS[0], on_error=ps.Replace()) as feed:
        assert list(feed) == standing_in(list(range(SIZE)), BAD)


class Row(np.ndarray):
    """An array that can be watched."""


def test_who_is_stuck_holds_nothing_of_what_was_computed_without_it(release: threading.Event) -> None:
    made: dict[int, list[Any]] = {}

    def fn(value: int) -> Any:
        if value in BAD:
            release.wait()
        row = np.full(10, value).view(Row)
        made.setdefault(value, []).append(weakref.ref(row))
        return [row]

    with numbers(40).map(fn).feed(**SKIPPING, num_workers=1, on_error=ps.Skip()) as feed:
        assert sum(1 for _ in feed) == 37
    again = [refs for refs in made.values() if len(refs) > 1]
    assert again
    last = time.monotonic() + 10
    while any(refs[-1]() is not None for refs in again) and time.monotonic() < last:
        gc.collect()  # the worker that is not stuck may still be leaving its last unit: close() gives it 10 ms
        time.sleep(0.01)
    assert not any(refs[-1]() is not None for refs in again)
