"""Curves: what a point says, which steps it stands at, when the thread ends, and what happens when the file cannot be written."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from programs import output_of

import penstock as ps
from penstock._contracts.event import Fill
from penstock.errors import PlanError
from penstock.formats.tfrecord import read_records
from penstock.observe import curves as curves_module
from penstock.observe import tensorboard
from penstock.observe.curves import Curve
from penstock.queues import FIFOQueue, RandomShuffleQueue


def points_of(path: Path) -> tuple[list[int], list[tuple[int, dict[str, float]]]]:
    """Return the steps at which runs begin in an event file, and its points: (step, value of each tag)."""
    begins, points = [], []
    with path.open("rb") as file:
        for record in list(read_records(file))[1:]:
            step, place = varint(bytes(record), 10)
            data = bytes(record)[place:]
            if data[:1] == b"\x3a":
                begins.append(step)
                continue
            _, place = varint(data, 1)
            values: dict[str, float] = {}
            while place < len(data):
                _, place = varint(data, place + 1)
                size, place = varint(data, place + 1)
                tag = data[place : place + size].decode()
                values[tag] = struct.unpack("<f", data[place + size + 1 : place + size + 5])[0]
                place += size + 5
            points.append((step, values))
    return begins, points


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def test_a_point_is_the_mean_weighted_by_time_the_lowest_and_the_shares_at_zero_and_at_full() -> None:
    curve = Curve(Fill("in", 4, 8))
    for size, elapsed_s in ((8, 1.0), (0, 1.95), (2, 0.05), (2, 1.0)):
        curve.add(Fill("in", size, 8), elapsed_s)
    point = dict(curve.take())
    assert point["in/fraction_of_8_full"] == pytest.approx((0.5 * 1.0 + 1.0 * 1.95 + 0.0 * 0.05 + 0.25 * 1.0) / 4)
    assert point["in/lowest"] == 0.0
    assert point["in/time_empty"] == pytest.approx(0.05 / 4)
    assert point["in/time_full"] == pytest.approx(1.95 / 4)
    assert dict(curve.take()) == {"in/fraction_of_8_full": 0.25, "in/lowest": 0.25, "in/time_empty": 0.0, "in/time_full": 0.0}


def test_what_reads_leave_in_does_not_count() -> None:
    queue = RandomShuffleQueue(50, 10, name="shuffled")
    assert queue.fill().tag == "shuffled/fraction_over_10_of_40_full"
    for number in range(20):
        queue.enqueue(number)
    assert queue.fill().fraction == 0.25
    assert FIFOQueue(32, name="q").fill().tag == "q/fraction_of_32_full"


def test_a_queue_without_listeners_gets_its_curve_with_a_dip(tmp_path: Path) -> None:
    assert curves_module.SAMPLE_S <= 0.025  # so that a dip of 50 ms has two samples
    queue = FIFOQueue(4, name="in")
    for number in range(4):
        queue.enqueue(number)
    with tensorboard(queue, tmp_path) as curves:
        time.sleep(0.6)
        for _ in range(4):
            queue.dequeue()
        time.sleep(0.2)
        for number in range(4):
            queue.enqueue(number)
        time.sleep(0.6)
    ((step, values),) = points_of(curves.path)[1]
    assert step == 4  # elements that were dequeued
    assert values["in/lowest"] == 0.0
    assert values["process/memory_MB"] > 10
    assert values["process/major_page_faults"] >= 0
    assert 0.0 < values["in/time_empty"] < 0.5
    assert 0.5 < values["in/fraction_of_4_full"] < 1.0


def test_the_thread_ends_with_a_queue_that_is_closed_and_empty_or_gone(tmp_path: Path) -> None:
    queue, other = FIFOQueue(4), FIFOQueue(4)
    queue.enqueue(1)
    queue.close()
    curves = tensorboard([queue, other], tmp_path)
    assert queue.dequeue() == 1
    time.sleep(0.1)
    del other
    curves._ticker.join(10)
    assert not curves.is_alive
    assert "FIFOQueue_2/lowest" in points_of(curves.path)[1][0][1]
    curves.close()


def test_a_feed_stands_at_its_own_steps_with_its_stage_buffers(tmp_path: Path) -> None:
    dataset = ps.from_source(range(400)).map(float).map(abs, concurrency=2).batch(4)
    with dataset.feed(executor="threads", num_workers=2) as feed:
        curves = feed.observe(tensorboard=tmp_path)
        for number, _ in enumerate(feed):
            if number % 10 == 0:
                time.sleep(0.02)
    begins, points = points_of(curves.path)
    assert begins == [begins[0]]
    assert begins[0] <= points[-1][0] == 100
    tags = {tag.split("/fraction")[0] for tag in points[-1][1] if "fraction" in tag}
    assert tags == {"feed/ready", "feed/before_map_abs"} or tags == {"feed/ready", "feed/before_abs"}
    assert not curves.is_alive


def test_a_queue_stands_at_the_steps_of_the_feed_that_runs_or_at_those_that_are_given(tmp_path: Path) -> None:
    queue = FIFOQueue(4)
    with ps.from_source(range(30)).batch(3).feed(num_workers=0) as feed:
        for _ in range(7):
            next(feed)
        with tensorboard(queue, tmp_path / "a") as curves:
            time.sleep(0.1)
            next(feed)
        with tensorboard(queue, tmp_path / "b", step=lambda: 1234, name="mine") as given:
            time.sleep(0.1)
    assert points_of(curves.path)[1][-1][0] == 8
    assert points_of(given.path)[1][-1][0] == 1234
    assert "mine/lowest" in points_of(given.path)[1][-1][1]


def test_a_resumed_run_begins_at_the_step_of_its_state(tmp_path: Path) -> None:
    dataset = ps.from_source(range(300)).batch(1)
    paths = []
    state: dict[str, Any] | None = None
    for num_steps in (120, 200):
        with dataset.feed(executor="threads", num_workers=1) as feed:
            if state is not None:
                feed.load_state_dict(state)
            curves = feed.observe(tensorboard=tmp_path)
            paths.append(curves.path)
            while feed.step < num_steps:
                next(feed)
                while curves._begun_at is None:  # its thread may be late on a machine that is busy
                    time.sleep(0.001)
                if feed.step == 100 and state is None:
                    state = feed.state_dict()
    assert points_of(paths[0])[1][-1][0] == 120
    begins, points = points_of(paths[1])
    assert 100 <= begins[0] <= 101
    assert points[-1][0] == 200


def test_what_is_no_queue_or_feed_is_refused(tmp_path: Path) -> None:
    for wrong in (3, [], [FIFOQueue(1), "queue"]):
        with pytest.raises(PlanError, match=r"observe\.tensorboard\(\)"):
            tensorboard(wrong, tmp_path)


PROGRAM = """
import sys, threading, time
import penstock as ps
queue = ps.queues.FIFOQueue(8, name="in")
ps.observe.tensorboard(queue, sys.argv[1])
def fill():
    while True:
        queue.enqueue(1)
threading.Thread(target=fill, daemon=True).start()
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    queue.dequeue()
    time.sleep(0.001)
"""


def test_a_program_that_ends_without_a_word_has_its_last_point(tmp_path: Path) -> None:
    output_of("-c", PROGRAM, tmp_path, 300)
    (path,) = tmp_path.iterdir()
    assert points_of(path)[1][-1][0] == 300


def test_a_killed_program_leaves_its_points_up_to_the_last_two_seconds(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), "1000000"], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        program.stdout.readline()
        (path,) = tmp_path.iterdir()
        deadline = time.monotonic() + 60
        while b"/lowest" not in path.read_bytes() and time.monotonic() < deadline:  # it may be in the middle of a write
            time.sleep(0.05)
        program.kill()
    begins, points = points_of(path)
    assert len(begins) == 1
    assert points[0][0] > 0


def test_a_step_that_cannot_be_used_ends_the_curves_with_one_warning(tmp_path: Path) -> None:
    queue = FIFOQueue(4)
    steps = iter([1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tensorboard(queue, tmp_path / "a", step=lambda: next(steps)):
            pass
    (text,) = [str(one.message) for one in caught]
    assert re.fullmatch(r"penstock-tensorboard has ended: StopIteration: ?; training goes on", text)
    with tensorboard(queue, tmp_path / "b", step=lambda: 7.9) as curves:  # type: ignore[arg-type, return-value]
        pass
    assert points_of(curves.path)[1][0][0] == 7
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError):
        tensorboard(queue, tmp_path / "c", step=lambda: 1 // 0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_curves_that_begin_before_the_feed_stand_at_its_steps(tmp_path: Path) -> None:
    queue = FIFOQueue(4)
    with tensorboard(queue, tmp_path) as curves, ps.from_source(range(30)).batch(3).feed(num_workers=0) as feed:
        for _ in range(7):
            next(feed)
        curves.close()
    assert points_of(curves.path)[1][-1][0] == 7


def test_between_two_epochs_there_is_no_point(tmp_path: Path) -> None:
    with ps.from_source(range(30)).batch(3).feed(executor="threads", num_workers=1) as feed:
        curves = feed.observe(tensorboard=tmp_path)
        list(feed)
        time.sleep(0.1)
        curves._write()
        curves._write()
    assert len(points_of(curves.path)[1]) <= 1
