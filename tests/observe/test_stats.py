"""The figures that a run's events add up to."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest
from queues.crowd import together

from penstock._contracts.event import BatchDelivered, BlockDone, ElementLost, ElementRetried, Notice, RowsPacked
from penstock.observe import Stats
from penstock.observe.stats import since

MS = 1_000_000


@pytest.mark.parametrize(
    ("deliveries", "elapsed_s", "figures"),
    [
        ([], 0.0, {"num_batches": 0, "wait_share": 0.0, "mean_ready": 0.0}),
        # the first wait is kept apart from those of the run, and counts in its length
        (
            [(100, 100, 0, 1), (150, 10, 2, 1), (200, 0, 4, 2)],
            0.2,
            {"num_batches": 4, "first_wait_s": 0.1, "wait_s": 0.01, "span_s": 0.1, "wait_share": 0.1, "mean_ready": 3.0},
        ),
        ([(500, 100, 0, 1), (600, 0, 1, 1)], 0.2, {"num_batches": 2}),
        # the end of the data is no delivery
        (
            [(100, 0, 3, 1), (150, 0, 3, 1), (900, 700, 0, 0)],
            0.05,
            {"num_batches": 2, "mean_ready": 3.0, "wait_s": 0.0, "span_s": 0.05},
        ),
    ],
)
def test_deliveries_add_up(deliveries: list[tuple[int, int, int, int]], elapsed_s: float, figures: dict[str, float]) -> None:
    stats = Stats(num_cpus=2)
    for time_ms, wait_ms, num_ready, num_delivered in deliveries:
        stats(BatchDelivered(time_ms * MS, wait_ms * MS, num_ready, num_delivered))
    snapshot = stats.snapshot()
    assert (snapshot.num_cpus, snapshot.stages, snapshot.notices) == (2, (), ())
    assert snapshot.elapsed_s == pytest.approx(elapsed_s)
    assert {name: getattr(snapshot.consumer, name) for name in figures} == pytest.approx(figures)


def test_blocks_are_added_up_per_stage_with_the_workers_seen() -> None:
    stats = Stats(num_cpus=2)
    stats(BlockDone("decode", 0, 0, 10 * MS, 9 * MS, 8))
    stats(BlockDone("decode", 1, 5 * MS, 20 * MS, 12 * MS, 8))
    stats(BlockDone("augment", 7, 20 * MS, 21 * MS, 1 * MS, 4))
    snapshot = stats.snapshot()
    decode, augment = snapshot.stages
    assert (decode.name, decode.num_elements, decode.num_blocks, decode.workers) == ("decode", 16, 2, (0, 1))
    assert decode.busy_s == pytest.approx(0.025)
    assert decode.busiest_s == pytest.approx(0.015)
    assert decode.cpu_s == pytest.approx(0.021)
    assert decode.us_per_element == pytest.approx(25_000 / 16)
    assert decode.cpu_share == pytest.approx(21 / 25)
    assert (augment.name, augment.workers) == ("augment", (7,))
    assert snapshot.elapsed_s == pytest.approx(0.021)
    assert decode.busy_share(snapshot.elapsed_s) == pytest.approx(25 / 42)


def test_the_waits_of_several_threads_are_shares_of_the_time_of_each() -> None:
    stats = Stats(num_cpus=2)
    all_here = threading.Barrier(4)

    def take(number: int) -> None:
        stats(BatchDelivered(100 * (number + 1) * MS, 90 * MS, 0, 4))
        all_here.wait()
        stats(BatchDelivered(1000 * MS + 100 * (number + 1) * MS, 900 * MS, 0, 4))

    together(*(partial(take, number) for number in range(4)))
    consumer = stats.snapshot().consumer
    assert (consumer.num_batches, consumer.num_calls, consumer.num_consumers) == (32, 8, 4)
    assert consumer.span_s == pytest.approx(4.0)
    assert consumer.wait_s == pytest.approx(3.6)
    assert consumer.wait_share == pytest.approx(0.9)


def test_a_thread_that_takes_what_it_made_is_in_line_and_another_is_not() -> None:
    stats = Stats(num_cpus=2)
    together(lambda: stats(BlockDone("decode", 0, 0, 10 * MS, 9 * MS, 8)))
    stats(BatchDelivered(11 * MS, 10 * MS, 0, 1))
    assert not stats.snapshot().in_line
    stats(BlockDone("decode", 0, 11 * MS, 20 * MS, 9 * MS, 8))
    stats(BatchDelivered(21 * MS, 10 * MS, 0, 1))
    assert stats.snapshot().in_line


def test_how_long_a_thread_was_queued_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("penstock._system.parking.THIS_THREAD", str(tmp_path / "schedstat"))
    stats = Stats(num_cpus=2)
    for end_ms, queued_ms in ((10, 500), (20, 999), (50, 530), (100, 560)):
        (tmp_path / "schedstat").write_bytes(b"7 %d 3\n" % (queued_ms * MS))
        stats(BlockDone("decode", 0, 0, end_ms * MS, 0, 8))
    (stage,) = stats.snapshot().stages
    assert (stage.watched_s, stage.queued_s) == pytest.approx((0.09, 0.06))
    assert stage.queued_share == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ([("memory", f"notice {number}") for number in range(130)], tuple(f"notice {number}" for number in range(30, 130))),
        ([("memory", text) for text in ("one", "two", "one")], ("two", "one")),
        ([("workers", "4 are tried"), ("memory", "full"), ("alone", "2 work")], ("full", "2 work")),  # only how many work now
    ],
    ids=["the last hundred", "once and last", "of active workers"],
)
def test_notices_are_kept_in_their_order(said: list[tuple[str, str]], kept: tuple[str, ...]) -> None:
    stats = Stats(num_cpus=1)
    for number, (kind, text) in enumerate(said):
        stats(Notice(number, kind, text))
    assert stats.snapshot().notices == kept
    assert stats.snapshot().is_alone == (said[-1][0] == "alone")


def test_events_from_many_threads_are_all_counted_once() -> None:
    stats = Stats(num_cpus=4)
    start = threading.Barrier(5)

    def announce(worker: int) -> None:
        start.wait()
        for number in range(5_000):
            stats(BlockDone("decode", worker, number, number + 10, 5, 3))

    together(*(partial(announce, worker) for worker in range(4)), lambda: (start.wait(), [stats.snapshot() for _ in range(50)]))
    (stage,) = stats.snapshot().stages
    assert stage.num_blocks == 20_000
    assert stage.num_elements == 60_000
    assert stage.busy_s == pytest.approx(200_000e-9)
    assert stage.workers == (0, 1, 2, 3)


def test_waiting_events_are_added_up_on_the_way_so_that_memory_stays_bounded() -> None:
    stats = Stats(num_cpus=1)
    for number in range(100_000):
        stats(BlockDone("decode", 0, number, number + 1, 1, 1))
    assert len(stats._fresh) < 2_048
    assert stats.snapshot().stages[0].num_blocks == 100_000


def test_a_snapshot_is_frozen_and_later_events_do_not_change_it() -> None:
    stats = Stats(num_cpus=1)
    stats(BlockDone("decode", 0, 0, 10, 5, 3))
    before = stats.snapshot()
    stats(BlockDone("decode", 0, 10, 20, 5, 3))
    assert before.stages[0].num_blocks == 1
    assert stats.snapshot().stages[0].num_blocks == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.elapsed_s = 1.0  # type: ignore[misc]


def test_what_came_between_two_snapshots_is_their_difference() -> None:
    stats = Stats()
    stats(BlockDone("decode", 0, 0, 10 * MS, 5 * MS, 3))
    stats(BatchDelivered(10 * MS, 10 * MS, 0, 1))
    stats(BatchDelivered(20 * MS, 5 * MS, 0, 1))  # the first wait is kept apart
    before = stats.snapshot()
    stats(BlockDone("decode", 0, 10 * MS, 30 * MS, 8 * MS, 4))
    stats(BlockDone("augment", 1, 10 * MS, 20 * MS, 9 * MS, 5))
    stats(BatchDelivered(40 * MS, 20 * MS, 0, 2))
    done = since(before, stats.snapshot())
    figures = [(one.name, one.num_elements, pytest.approx(one.busy_s), pytest.approx(one.cpu_s)) for one in done.stages]
    assert figures == [("decode", 4, 0.02, 0.008), ("augment", 5, 0.01, 0.009)]
    taken = done.consumer
    assert (taken.num_batches, taken.wait_s, taken.span_s) == (2, pytest.approx(0.02), pytest.approx(0.02))


def test_the_system_tells_the_number_of_cpus_and_how_much_of_them_is_used() -> None:
    stats = Stats()
    assert stats.snapshot().num_cpus >= 1
    assert stats.snapshot().machine_share is None
    stats(BlockDone("decode", 0, 0, 10, 5, 3))
    share = stats.snapshot().machine_share
    assert share is None or 0.0 <= share <= 1.0


def test_packed_rows_add_up_to_a_share_of_padding() -> None:
    stats = Stats(num_cpus=2)
    assert stats.snapshot().padding_share is None
    stats(RowsPacked(5, 60, 64))
    stats(RowsPacked(6, 36, 64))
    snapshot = stats.snapshot()
    assert (snapshot.packed_tokens, snapshot.packed_places) == (96, 128)
    assert snapshot.padding_share == 0.25


class Broken(Exception):
    """An error that a weak reference may point to."""


def test_elements_that_were_lost_are_counted_per_stage_and_on_from_a_state_and_their_errors_let_go() -> None:
    stats = Stats(num_cpus=2)
    error = Broken("bad")
    alive = weakref.ref(error)
    for action in ("skipped", "skipped", "replaced"):
        stats(ElementLost(0, action, "decode", 0, "line 1", ((0, 0, 0),), (0, 0), error, 0))
    stats(ElementRetried(0, "read", 0, (0, 0, 0), 1, 0.5, error))
    del error
    assert alive() is None
    snapshot = stats.snapshot()
    counts = [(one.stage, one.num_skipped, one.num_replaced, one.num_retries) for one in snapshot.failures]
    assert counts == [("decode", 2, 1, 0), ("read", 0, 0, 1)]
    assert (snapshot.num_skipped, snapshot.num_replaced) == (2, 1)
    stats.begin_from(7, 4)
    stats(ElementLost(0, "skipped", "decode", 0, "", (), None, ValueError(), 0))
    snapshot = stats.snapshot()
    assert (snapshot.num_skipped, snapshot.num_replaced) == (8, 4)
    assert snapshot.failures[0].num_skipped == 1


def test_a_snapshot_shows_a_few_lines_with_units_and_rates() -> None:
    stats = Stats(num_cpus=2)
    assert repr(stats.snapshot()) == "Snapshot (nothing was delivered yet)"
    stats(BlockDone("decode", 0, 0, 100 * MS, 50 * MS, 1000))
    stats(BatchDelivered(100 * MS, 100 * MS, 0, 1))
    stats(BatchDelivered(2000 * MS, 19 * MS, 3, 1499))
    stats(RowsPacked(2000 * MS, 80, 100))
    stats(ElementLost(0, "skipped", "decode", 0, "x", ((0, 1, 0),), None, ValueError("bad"), 0))
    stats(Notice(2000 * MS, "shard", "ranks differ"))
    snapshot = dataclasses.replace(stats.snapshot(), machine_share=0.5)
    assert repr(snapshot).splitlines() == [
        "Snapshot (750.0 batches/s on 2 CPUs, 50 % of the machine's CPU time in use)",
        "  run:    1,500 batches in 2.00 s, the first after 0.10 s, 3.0 ready on average, the training loop waited 1.0 % of the time",
        "  stage:  decode  1,000 elements, 100.0 us each; 1 worker was busy 5.0 %, 50 % of it on a CPU",
        "  packed: 80 tokens in 100 places, 20 % padding",
        "  failed: stage 'decode': 1 skipped",
        "  notice: ranks differ",
    ]
    assert str(snapshot) == repr(snapshot)
    assert "on 1 CPU," in repr(dataclasses.replace(snapshot, num_cpus=1))


def test_the_snapshot_of_a_queue_counts_elements() -> None:
    stats = Stats(num_cpus=2)
    stats(BatchDelivered(100 * MS, 100 * MS, 0, 10))
    stats(BatchDelivered(1000 * MS, 0, 1, 10))
    assert repr(dataclasses.replace(stats.snapshot(), machine_share=None)).splitlines()[0] == "Snapshot (20.0 elements/s on 2 CPUs)"
