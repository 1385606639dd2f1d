"""A real TensorBoard reads the event files: its accumulator, its web server, and TensorFlow's record reader."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from browser import tensorboard_server
from penstock.observe import tensorboard
from penstock.observe.curves import EventFile
from penstock.queues import FIFOQueue, RandomShuffleQueue

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def accumulator() -> Any:
    return pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed")


def loaded(accumulator: Any, folder: Path) -> Any:
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def test_the_curves_of_queues_and_feeds_are_scalars_under_tensorflows_tags(accumulator: Any, tmp_path: Path) -> None:
    files, shuffled = FIFOQueue(32, name="filenames"), RandomShuffleQueue(50, 10, name="shuffle_batch")
    for number in range(20):
        files.enqueue(number)
        shuffled.enqueue(number)
    with ps.from_source(range(200)).map(float).batch(4).feed(executor="threads", num_workers=1) as feed:
        next(feed)
        with tensorboard([files, shuffled, feed], tmp_path):
            for _ in range(20):
                next(feed)
                time.sleep(0.01)
    found = loaded(accumulator, tmp_path)
    tags = set(found.Tags()["scalars"])
    assert {"filenames/fraction_of_32_full", "shuffle_batch/fraction_over_10_of_40_full", "filenames/lowest"} <= tags
    assert any(re.fullmatch(r"feed/ready/fraction_of_\d+_full", tag) for tag in tags)
    (fill,) = found.Scalars("filenames/fraction_of_32_full")
    assert (fill.step, fill.value) == (21, 20 / 32)
    assert abs(fill.wall_time - time.time()) < 60


def test_a_resumed_run_takes_the_place_of_what_the_killed_one_wrote_beyond_its_state(accumulator: Any, tmp_path: Path) -> None:
    killed, resumed = EventFile(tmp_path), EventFile(tmp_path)
    killed.begin(0)
    for step in range(0, 100, 10):
        killed.write(step, [("in/fill", 1.0)])
    resumed.begin(55)
    for step in range(60, 130, 10):
        resumed.write(step, [("in/fill", 0.5)])
    killed.close()
    resumed.close()
    found = [(one.step, one.value) for one in loaded(accumulator, tmp_path).Scalars("in/fill")]
    assert found == [(step, 1.0) for step in range(0, 60, 10)] + [(step, 0.5) for step in range(60, 130, 10)]


@pytest.mark.parametrize("cut", [1, 7, 40, 100, 500])
def test_a_file_that_a_kill_cut_is_read_up_to_its_last_whole_record(accumulator: Any, tmp_path: Path, cut: int) -> None:
    file = EventFile(tmp_path)
    sizes = []
    for step in range(50):
        file.write(step, [("in/fill", step / 50)])
        sizes.append(file.num_bytes)
    file.close()
    os.truncate(file.path, file.num_bytes - cut)
    whole = sum(size <= file.num_bytes - cut for size in sizes)
    assert [one.step for one in loaded(accumulator, tmp_path).Scalars("in/fill")] == list(range(whole))


def test_a_real_tensorboard_serves_the_curve_over_http(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    queue = FIFOQueue(8, name="input")
    queue.enqueue(1)
    with tensorboard(queue, tmp_path / "run"):
        time.sleep(0.1)
    with tensorboard_server(tmp_path, tmp_path) as address:
        points = answer(address, "/data/plugin/scalars/scalars?run=run&tag=input%2Ffraction_of_8_full")
    assert [point[1:] for point in points] == [[0, 0.125]]


def answer(address: str, query: str) -> Any:
    """Ask until the server has read the log directory."""
    for _ in range(100):
        try:
            with urllib.request.urlopen(address + query, timeout=30) as reply:
                return json.load(reply)
        except urllib.error.HTTPError:
            time.sleep(0.2)
    raise AssertionError("TensorBoard did not serve the curve")
