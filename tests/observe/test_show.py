"""The picture of `feed.show()`: its rows and marks, on a real terminal with what the program prints, and its end."""

from __future__ import annotations

import io
import re
import threading
import time
from typing import Any

from observe.terminals import on_a_terminal
from programs import output_of
from rich.console import Console

import penstock as ps
from penstock._contracts.event import Fill
from penstock.observe.live import FeedLook, FeedPlace, picture
from penstock.observe.stats import ConsumerStats, Snapshot, StageStats


def stage(name: str, num_elements: int, busy_s: float, workers: tuple[int, ...]) -> StageStats:
    return StageStats(name=name, num_elements=num_elements, num_blocks=9, busy_s=busy_s, cpu_s=busy_s, workers=workers, busiest_s=busy_s)


def look(time_s: float, num_batches: int, wait_s: float, *, total: int | None = 1000) -> FeedLook:
    span_s = time_s - 1.0
    stats = Snapshot(
        elapsed_s=time_s,
        num_cpus=8,
        stages=(stage("read", 10 * num_batches, 0.1 * time_s, (0, 1)), stage("decode", 10 * num_batches, 1.9 * time_s, (2, 3))),
        consumer=ConsumerStats(
            num_batches=num_batches, first_wait_s=1.0, wait_s=wait_s, span_s=span_s, mean_ready=0.2, num_calls=num_batches
        ),
        notices=(),
    )
    return FeedLook(time_s, FeedPlace(1, num_batches, total, "batches", 10), stats, [Fill("ready", 0, 6), Fill("before_decode", 5, 10)])


def rows_of(drawn: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=90)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_stages_and_buffers_stand_in_order_with_rates_and_waits_of_the_last_seconds_and_the_bottleneck_marked() -> None:
    rows = rows_of(picture(look(6.0, 100, 2.5), look(11.0, 200, 6.5)))
    assert rows[0] == "epoch 1: 200/1,000 batches (20 %), 0:40 left"
    names = [re.split(r"\s{2,}", row.strip())[0] for row in rows[1:6]]
    assert names == ["read", "waiting", "decode", "ready", "training loop"]
    assert rows[1].endswith("200/s, 2 workers 5 % busy")
    assert rows[2].endswith("5 of 10")
    assert rows[2].count("━") == 8
    assert rows[3].endswith("200/s, 2 workers 95 % busy, bottleneck")
    assert rows[4].endswith("0 of 6")
    assert "━" not in rows[4]
    assert rows[5].endswith("20/s, waits 80 %")
    assert " ".join(rows[6:]).startswith("stage 'decode' is the bottleneck, CPU-bound with CPUs to spare: its 2 workers were busy 95 %")


def test_where_the_step_limits_no_stage_is_marked_and_without_a_length_no_time_is_left() -> None:
    rows = rows_of(picture(look(6.0, 100, 0.0, total=None), look(11.0, 200, 0.0, total=None)))
    assert rows[0] == "epoch 1: 200 batches"
    assert not any(", bottleneck" in row for row in rows)
    assert rows[6].startswith("the training step is the bottleneck")


def test_the_first_look_alone_can_be_drawn() -> None:
    assert rows_of(picture(look(6.0, 100, 1.0), look(6.0, 100, 1.0)))[5].endswith("0/s, waits 0 %")


def slow(value: float) -> float:
    time.sleep(0.002)
    return value


def test_into_a_file_the_last_picture_of_a_feed_is_written_and_the_thread_ends_with_it() -> None:
    stream = io.StringIO()
    with ps.from_source(range(800)).map(float).map(slow, concurrency=2).batch(4).feed(executor="threads", num_workers=1) as feed:
        shown = feed.show(stream=stream)
        assert sum(len(batch) for batch in feed) == 800
    assert "penstock-show" not in [thread.name for thread in threading.enumerate()]
    rows = stream.getvalue().splitlines()
    assert rows[0].startswith("epoch 0: 200/200 batches (100 %)")
    assert [row.split()[0] for row in rows[1:6]] == ["read+float", "waiting", "slow", "ready", "training"]
    shown.close()
    assert stream.getvalue().count("epoch") == 1


def test_a_with_block_ends_it_before_the_feed() -> None:
    stream = io.StringIO()
    with ps.from_source(range(8)).batch(2).feed(num_workers=0) as feed:
        with feed.show(stream=stream):
            next(feed)
        assert stream.getvalue().startswith("epoch 0: 1/4 batches (25 %)")
        assert len(list(feed)) == 3


def test_a_feed_that_is_gone_ends_it() -> None:
    feed = ps.from_source(range(8)).batch(2).feed(num_workers=0)
    shown = feed.show(stream=io.StringIO())
    del feed, shown
    until_s = time.monotonic() + 10
    while "penstock-show" in [thread.name for thread in threading.enumerate()] and time.monotonic() < until_s:
        time.sleep(0.02)
    assert "penstock-show" not in [thread.name for thread in threading.enumerate()]


PROGRAM = """
import os, sys, time
import penstock as ps
def slow(value):
    time.sleep(0.004)
    return value
with ps.from_source(range(300)).map(slow, name="decode").batch(2).feed(executor="threads", num_workers=1) as feed:
    with feed.show():
        for number, batch in enumerate(feed):
            if number % 50 == 0:
                print("loss at", number)
            if number == 100:
                child = os.fork()
                if not child:
                    print("from a child", type(sys.stdout).__name__, flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
print("done", type(sys.stdout).__name__)
"""


def test_on_a_real_terminal_it_is_drawn_in_place_under_what_the_program_prints_and_a_forked_process_prints_as_before() -> None:
    written = on_a_terminal(PROGRAM, 100)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert written.count("\x1b[1A") > 10
    for words in (
        "loss at 0\r\n",
        "loss at 50\r\n",
        "loss at 100\r\n",
        "from a child TextIOWrapper",
        "done TextIOWrapper\r\n",
        "bottleneck",
    ):
        assert words in plain
    assert plain.rpartition("epoch 0: ")[2].startswith("150/150 batches (100 %)")
    assert written.endswith("done TextIOWrapper\r\n")


def test_without_rich_the_command_that_installs_it_is_named() -> None:
    program = (
        "import sys; sys.modules['rich.console'] = None\n"
        "import penstock as ps\n"
        "with ps.from_source(range(3)).feed() as feed:\n"
        "    try: feed.show()\n"
        "    except ps.errors.MissingExtra as error: print(error.fix)\n"
    )
    assert output_of("-W", "error", "-c", program) == 'pip install "penstock[live]"\n'
