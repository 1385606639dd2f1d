"""Probes: what is counted of a call, of calls inside calls, of iterators and of async functions."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from penstock.doctor.probes import Probe, ProbeRecorder, Tally, percentile_ns


def probe_of(recorder: ProbeRecorder, name: str = "fn") -> Probe:
    return Probe(recorder, 1, "map", name)


def test_calls_of_all_threads_are_added_up_with_what_they_return() -> None:
    recorder = ProbeRecorder()
    probe = probe_of(recorder)
    double = probe.around(lambda value, *, by: np.full(value, by, np.int32))
    threads = [threading.Thread(target=double, args=(5,), kwargs={"by": 2}) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert double(2, by=7).tolist() == [7, 7]
    tally = recorder.total(probe)
    assert (tally.num_calls, tally.bytes_out) == (4, 3 * 20 + 8)
    assert 0 < tally.running_ns == tally.wall_ns


def test_a_call_excludes_the_calls_in_it() -> None:
    recorder = ProbeRecorder()
    inner, outer = probe_of(recorder, "inner"), probe_of(recorder, "outer")
    slept: list[float] = []

    def sleep() -> None:
        begin = time.perf_counter()
        time.sleep(0.05)
        slept.append(time.perf_counter() - begin)

    sleep_measured = inner.around(sleep)
    begin = time.perf_counter()
    outer.around(lambda: [sleep_measured(), sleep_measured()])()
    took_s = time.perf_counter() - begin
    assert recorder.total(inner).wall_ns / 1e9 >= sum(slept)
    assert recorder.total(outer).wall_ns / 1e9 <= took_s - sum(slept)


def test_a_call_that_fails_is_counted_and_its_error_is_the_functions_own() -> None:
    recorder = ProbeRecorder()
    probe = probe_of(recorder)
    error = ValueError("bad")

    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="bad") as caught:
        probe.around(fail)()
    assert caught.value is error
    assert (recorder.total(probe).num_calls, recorder.total(probe).bytes_out) == (1, 0)
    assert recorder.here().span is None


def test_an_iterator_counts_its_elements_and_is_closed_with_what_it_reads() -> None:
    recorder = ProbeRecorder()
    probe = probe_of(recorder)
    closed: list[bool] = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    assert list(probe.iterate(numbers())) == [0, 1, 2, 3, 4]
    assert recorder.total(probe).num_calls == 5
    begun = probe.iterate(numbers())
    assert next(begun) == 0
    begun.close()
    assert closed == [True, True]


def test_an_async_call_lasts_until_its_result_and_runs_only_in_its_steps() -> None:
    recorder = ProbeRecorder()
    probe = probe_of(recorder)
    waits: list[float] = []

    async def fetch(value: int) -> bytes:
        begin = time.perf_counter()
        await asyncio.sleep(0.1)
        waits.append(time.perf_counter() - begin)
        return bytes(value)

    async def both() -> list[bytes]:
        measured = probe.around_async(fetch)
        return list(await asyncio.gather(*(asyncio.ensure_future(wrapped(measured, size)) for size in (3, 4))))

    async def wrapped(measured, size):  # type: ignore[no-untyped-def]
        return await measured(size)

    assert asyncio.run(both()) == [bytes(3), bytes(4)]
    tally = recorder.total(probe)
    assert (tally.num_calls, tally.bytes_out) == (2, 7)
    assert tally.wall_ns / 1e9 >= sum(waits)
    assert tally.running_ns < tally.wall_ns / 2


def test_an_async_call_that_is_cancelled_or_fails_passes_it_on() -> None:
    recorder = ProbeRecorder()
    probe = probe_of(recorder)
    seen: list[str] = []

    async def wait(error: type[Exception] | None) -> None:
        try:
            await asyncio.sleep(0 if error else 60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        assert error is not None
        raise error("own")

    async def main() -> None:
        async def call(error: type[Exception] | None) -> None:
            await probe.around_async(wait)(error)

        with pytest.raises(KeyError, match="own"):
            await call(KeyError)
        task = asyncio.ensure_future(call(None))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled"]
    assert recorder.total(probe).num_calls == 2


def test_the_peak_of_a_call_is_what_it_allocated_at_once_that_of_calls_in_it_included() -> None:
    tracemalloc.start()
    try:
        recorder = ProbeRecorder(memory=True)
        inner, outer = probe_of(recorder, "inner"), probe_of(recorder, "outer")
        kept = np.ones(10_000_000, np.uint8)
        measured = inner.around(lambda: int(np.ones(3_000_000, np.uint8).sum()))

        def work() -> int:
            before = np.ones(2_000_000, np.uint8)
            total = measured() + measured() + int(before.sum())
            del before
            return total

        assert outer.around(work)() == 8_000_000
        assert int(kept.sum()) == 10_000_000
    finally:
        tracemalloc.stop()
    assert recorder.total(inner).peak_bytes == pytest.approx(3_000_000, rel=0.05)
    assert recorder.total(outer).peak_bytes == pytest.approx(5_000_000, rel=0.05)


def test_percentiles_are_found_within_their_buckets() -> None:
    tally = Tally()
    for lasted_ns in [1000] * 90 + [50_000] * 9 + [7_000_000]:
        tally.count(lasted_ns, 0)
    assert percentile_ns(tally.lasted, 0.5) == pytest.approx(1000, rel=0.022)
    assert percentile_ns(tally.lasted, 0.99) == pytest.approx(50_000, rel=0.022)
    assert percentile_ns(tally.lasted, 1.0) == pytest.approx(7_000_000, rel=0.022)
    assert percentile_ns({}, 0.5) is None


def test_what_ran_at_a_moment_is_known_after_it() -> None:
    recorder = ProbeRecorder()
    first, second = probe_of(recorder, "first"), probe_of(recorder, "second")
    record = recorder.here()
    assert record.at(time.perf_counter_ns()) is None
    moments = []
    first.around(lambda: moments.append(time.perf_counter_ns()))()
    between = time.perf_counter_ns()
    found = []
    second.around(lambda: found.append((record.at(time.perf_counter_ns()), record.at(between))))()
    assert found == [(second, None)]
    assert record.at(between) is second  # a later call, of which it is not known when the others were
    assert record.at(time.perf_counter_ns()) is None
