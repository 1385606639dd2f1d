"""Makes the pictures of docs/images that show a run, each from a real run of now.

    .venv-interop/bin/python tools/pictures.py [--out docs/images] [NAME ...]

Without a name it makes all, in four minutes. `make .venv-interop/.interop` installs what they need: matplotlib, JAX, TensorBoard, Chromium.
What they show beside the times is the same in each run; a machine that has other work to do shows in the times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import penstock as ps
from browser import chromium_page, opened_timeline, perfetto, tensorboard_server
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, RandomShuffleQueue

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 150_000
WORK, STEP, WAIT, GREY = "#3d6fb6", "#1f9d62", "#e4572e", "#9aa3ad"


class Span(NamedTuple):
    """A piece of a row: when, in seconds, and in which colour."""

    row: str
    begin_s: float
    end_s: float
    colour: str


def figure(width: float, height: float) -> Any:
    """Return a figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(made)
    return made


def draw_rows(axis: Any, title: str, spans: Sequence[Span], most_s: float) -> None:
    """Draw spans as rows of bars, the first row on top."""
    rows = list(dict.fromkeys(span.row for span in spans))
    for place, row in enumerate(rows):
        mine = [span for span in spans if span.row == row]
        bars = [(span.begin_s, span.end_s - span.begin_s) for span in mine]
        axis.broken_barh(bars, (place - 0.38, 0.76), color=[span.colour for span in mine], edgecolor="white", linewidth=0.5)
    axis.set_yticks(range(len(rows)), rows)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, most_s)
    axis.set_title(title, fontsize=10, loc="left")


def legend(axis: Any, colours: Mapping[str, str]) -> None:
    """Say what the colours of bars mean."""
    from matplotlib.patches import Patch

    axis.legend(handles=[Patch(color=colour, label=name) for name, colour in colours.items()], loc="lower right", fontsize=8, ncols=3)


def spans_of(path: Path, name: str, colour: str) -> list[Span]:
    """Return the spans of a name in a timeline, their times from the begin of the first."""
    records = json.loads(path.read_text())
    rows = {record["tid"]: record["args"]["name"] for record in records if record["name"] == "thread_name"}
    found = [record for record in records if record["ph"] == "X" and record["name"] == name]
    begin = min(record["ts"] for record in found)
    spans = [Span(rows[one["tid"]], (one["ts"] - begin) / 1e6, (one["ts"] + one["dur"] - begin) / 1e6, colour) for one in found]
    return sorted(spans)


# -- queues instead of feed_dict


def feed_dict(path: Path, temporary: Path) -> None:
    """Feed a device that takes no CPU in the loop, and through a queue. Making a batch waits as for a disk, as long as a step takes."""

    def make_batch(step: int) -> Any:
        time.sleep(0.004)
        return np.full((128, 1024), step, np.float32)

    def run(next_batch: Callable[[int], Any], spans: list[Span], colour: str) -> None:
        for step in range(40):
            asked_s = time.perf_counter()
            next_batch(step)
            got_s = time.perf_counter()
            time.sleep(0.004)  # the step
            spans += [Span("the loop", asked_s, got_s, colour), Span("the device", got_s, time.perf_counter(), STEP)]

    def made_ahead(spans: list[Span]) -> Iterator[Any]:
        for step in range(40):
            begin_s = time.perf_counter()
            batch = make_batch(step)
            spans.append(Span("the runner", begin_s, time.perf_counter(), WORK))
            yield batch

    alone, made, queued = list[Span](), list[Span](), list[Span]()
    run(make_batch, alone, WORK)
    queue = FIFOQueue(8, name="batches")
    with Coordinator() as coord:
        QueueRunner(queue, [made_ahead(made)]).create_threads(coord, start=True)
        run(lambda step: queue.dequeue(), queued, WAIT)
    canvas = figure(10.5, 3.6)
    upper, lower = canvas.subplots(2, 1, sharex=True, height_ratios=[2, 3])
    panels = [(upper, "feed_dict", alone), (lower, "a queue and its runner", [*made, *queued])]
    most_s = max(span.end_s for span in alone) - alone[0].begin_s
    for axis, title, spans in panels:
        begin_s, end_s = min(span.begin_s for span in spans), max(span.end_s for span in spans)
        busy = sum(span.end_s - span.begin_s for span in spans if span.row == "the device") / (end_s - begin_s)
        moved = [span._replace(begin_s=span.begin_s - begin_s, end_s=span.end_s - begin_s) for span in spans]
        draw_rows(axis, f"{title}: 40 steps in {1000 * (end_s - begin_s):.0f} ms, device busy {busy:.0%}", moved, most_s)
    legend(lower, {"makes a batch": WORK, "waits for one": WAIT, "trains": STEP})
    lower.set_xlabel("seconds")
    canvas.savefig(path)


# -- the queue's fill in TensorBoard


def tensorboard(path: Path, temporary: Path) -> None:
    """Watch a shuffle queue whose producer slows down for 14 of 46 seconds."""
    queue = RandomShuffleQueue(50, 10, name="shuffle_batch")
    begin_s = time.monotonic()

    def numbers() -> Iterator[int]:
        for number in range(10**9):
            elapsed_s = time.monotonic() - begin_s
            if elapsed_s > 46:
                return
            time.sleep(0.009 if 16 < elapsed_s < 30 else 0.001)
            yield number

    with ps.observe.tensorboard(queue, temporary / "logs" / "run"), Coordinator() as coord:
        QueueRunner(queue, [numbers()]).create_threads(coord, start=True)
        with contextlib.suppress(ps.errors.QueueClosed):
            while True:
                queue.dequeue()
                time.sleep(0.004)
    with tensorboard_server(temporary / "logs", temporary) as address, chromium_page(1300, 620) as page:
        wait_for_curve(address, "shuffle_batch/lowest")
        page.goto(f"{address}/?darkMode=false&smoothing=0&tagFilter=shuffle_batch%2F#timeseries")
        page.get_by_role("button", name="Settings").first.click()
        page.wait_for_timeout(5000)
        page.screenshot(path=str(path))


def wait_for_curve(address: str, tag: str) -> None:
    """Wait until TensorBoard has read a curve: its page does not look twice."""
    for _ in range(300):
        with contextlib.suppress(urllib.error.HTTPError):
            if tag in urllib.request.urlopen(f"{address}/data/plugin/scalars/tags", timeout=30).read().decode():
                return
        time.sleep(0.2)
    raise TimeoutError(f"TensorBoard has not read {tag}")


# -- finalizing the graph


def finalized_step(path: Path, temporary: Path) -> None:
    """Run a step of jax.jit over sentences, padded to the longest of each batch and to one length."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(3)
    lengths = rng.integers(5, 65, 1200)
    table = rng.normal(size=(1000, 64)).astype(np.float32)

    def train(weights: Any, tokens: Any) -> Any:
        return weights + 1e-3 * jnp.tanh(weights[tokens]).mean(axis=(0, 1))

    def times_of(shape: int | None) -> tuple[list[float], list[int], str]:
        step = ps.finalize_step(jax.jit(train))
        dataset = ps.from_source(range(1200)).map(lambda number: np.full(lengths[number], number % 1000, np.int32))
        weights, times, again, words = jnp.asarray(table), list[float](), list[int](), ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number, batch in enumerate(dataset.padded_batch(8, padded_shapes=(shape,)).feed(num_workers=1)):
                before, begin_s = step.num_recompilations, time.perf_counter()
                weights = jax.block_until_ready(step(weights, batch))
                times.append(1000 * (time.perf_counter() - begin_s))
                if step.num_recompilations > before:
                    again.append(number)
        if caught:
            words = str(caught[0].message).splitlines()[0]
        return times, again, words

    canvas = figure(10.5, 3.8)
    upper, lower = canvas.subplots(2, 1, sharex=True)
    for axis, shape, title in ((upper, None, "padded to the longest of each batch"), (lower, 64, "padded to 64")):
        times, again, words = times_of(shape)
        axis.semilogy(times, ".", color=WORK, markersize=3)
        axis.semilogy(again, [times[number] for number in again], "o", color=WAIT, markersize=6)
        axis.set_ylabel("ms a step")
        axis.set_ylim(0.03, 3000)
        axis.set_title(f"{title}: {len(again)} recompilations after the first calls, {sum(times) / 1000:.2f} s", fontsize=10, loc="left")
        print(words)
    lower.set_xlabel("step")
    canvas.savefig(path)


# -- timelines, and the table of operators as a picture


def perfetto_timeline(path: Path, temporary: Path) -> None:
    """Trace a feed whose workers are slow in the middle, in Perfetto."""

    def decode(number: int) -> float:
        time.sleep(0.0028 if 500 < number < 800 else 0.001)
        return float(number)

    with ps.from_source(range(1200)).map(decode).batch(16).feed(num_workers=2) as feed:
        feed.trace(temporary / "timeline.json")
        for _ in feed:
            time.sleep(0.013)
    in_perfetto(path, temporary, "timeline.json")


def enqueuer(path: Path, temporary: Path) -> None:
    """Trace two processes that share a generator, some items of which are slow."""
    made = ps.GeneratorEnqueuer(photographs, use_multiprocessing=True, share=True)
    made.start(workers=2, max_queue_size=6)
    items = made.get()
    next(items)  # the processes have started
    with made, ps.observe.trace(temporary / "timeline.json", made):
        for _ in items:
            time.sleep(0.009)
    in_perfetto(path, temporary, "timeline.json")


def photographs() -> Iterator[Any]:
    """Make items, every seventh of which takes five times as long."""
    for number in range(80):
        time.sleep(0.04 if number % 7 == 6 else 0.008)
        yield np.full((64, 64, 3), number, np.uint8)


def in_perfetto(path: Path, temporary: Path, name: str) -> None:
    """Take a picture of a timeline in Perfetto."""
    with perfetto(temporary) as address, chromium_page(1300, 620) as page:
        opened_timeline(page, address, name, {})
        page.wait_for_timeout(3000)
        page.screenshot(path=str(path))


# -- memory


def memory(path: Path, temporary: Path) -> None:
    """Shuffle decoded images in a queue with a large min_after_dequeue, and shuffle their positions."""
    runs = {}
    for name, run in (
        ("RandomShuffleQueue(6000, min_after_dequeue=5000)", shuffled_by_a_queue),
        ("Dataset.shuffle()", shuffled_by_position),
    ):
        timeline = temporary / f"{run.__name__}.json"
        process = multiprocessing.get_context("spawn").Process(target=run, args=(str(timeline),))
        process.start()
        process.join()
        if process.exitcode:
            raise ChildProcessError(f"{run.__name__} ended with {process.exitcode}")
        records = [record for record in json.loads(timeline.read_text()) if record["name"].startswith("memory of the process")]
        begin, base = records[0]["ts"], min(next(iter(record["args"].values())) for record in records)
        runs[name] = [((record["ts"] - begin) / 1e6, next(iter(record["args"].values())) - base) for record in records]
    canvas = figure(10.5, 2.8)
    axis = canvas.subplots()
    for (name, points), colour in zip(runs.items(), (WAIT, STEP), strict=True):
        axis.plot(*zip(*points, strict=True), color=colour, label=name)
    axis.set_xlabel("seconds")
    axis.set_ylabel("MB more than at the begin")
    axis.legend(fontsize=9)
    canvas.savefig(path)


def _image(number: int) -> Any:
    time.sleep(0.0003)
    return np.full((128, 128, 3), number % 256, np.uint8)


def shuffled_by_a_queue(timeline: str) -> None:
    """Read 10,000 images through a shuffle queue."""
    warnings.simplefilter("ignore")  # it warns where half of the memory that is free is less
    queue = RandomShuffleQueue(6000, 5000, seed=1)
    with ps.observe.trace(timeline, queue), Coordinator() as coord:
        QueueRunner(queue, [map(_image, range(10_000))]).create_threads(coord, start=True)
        with contextlib.suppress(ps.errors.QueueClosed):
            while True:
                queue.dequeue_up_to(16)


def shuffled_by_position(timeline: str) -> None:
    """Read 10,000 images in a shuffled order."""
    with ps.from_source(range(10_000)).shuffle(seed=1).map(_image).batch(16).feed(num_workers=1) as feed:
        feed.trace(timeline)
        for _ in feed:
            pass


# -- tf.data and pools


def shuffle(path: Path, temporary: Path) -> None:
    """Show where each of 10,000 sorted elements goes, with a buffer of 1,000 and without one."""
    canvas = figure(10.5, 3.4)
    numbers = ps.from_source(range(10_000))
    for axis, title, shuffled in zip(
        canvas.subplots(1, 2, sharey=True),
        (".shuffle(1000): a sorted list stays nearly sorted", ".shuffle(): every order is as likely"),
        (numbers.shuffle(1000, seed=1), numbers.shuffle(seed=1)),
        strict=True,
    ):
        axis.plot(range(0, 10_000, 3), list(shuffled)[::3], ".", color=WORK, markersize=0.9)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("comes as number")
    canvas.axes[0].set_ylabel("stood in the list at")
    canvas.savefig(path)


def jobs(path: Path, temporary: Path) -> None:
    """Do the same 24 jobs, of which the first six are slow, in a Pool by parts and by parallel_jobs."""
    work = [0.25] * 6 + [0.05] * 18
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        pool.map(rest, [0.0] * 2, chunksize=1)  # the workers are there
        done = pool.map(rest, work, chunksize=12)
    pids = list(dict.fromkeys(pid for pid, _, _ in done))
    begin_s = min(begin for _, begin, _ in done)
    by_pool = [Span(f"process {pids.index(pid)}", begin - begin_s, end - begin_s, WORK) for pid, begin, end in done]
    ps.parallel_jobs(rest, work, 2, trace=temporary / "jobs.json")
    ours = spans_of(temporary / "jobs.json", "rest", WORK)
    canvas = figure(10.5, 3.0)
    upper, lower = canvas.subplots(2, 1, sharex=True)
    most_s = max(span.end_s for span in [*by_pool, *ours])
    for axis, title, spans in ((upper, "Pool, one part of the list for each process", by_pool), (lower, "parallel_jobs", ours)):
        ends: dict[str, float] = defaultdict(float)
        for span in spans:
            ends[span.row] = max(ends[span.row], span.end_s)
        words = " and ".join(f"{end_s:.1f} s" for end_s in sorted(ends.values()))
        draw_rows(axis, f"{title}: they end at {words}", sorted(spans), most_s)
    lower.set_xlabel("seconds")
    canvas.savefig(path)


def rest(seconds: float) -> tuple[int, float, float]:
    """Wait as for a disk; say where and when."""
    begin_s = time.perf_counter()
    time.sleep(seconds)
    return os.getpid(), begin_s, time.perf_counter()


PICTURES = {
    "enqueuer": enqueuer,
    "feed_dict": feed_dict,
    "finalized_step": finalized_step,
    "jobs": jobs,
    "memory": memory,
    "perfetto": perfetto_timeline,
    "shuffle": shuffle,
    "tensorboard": tensorboard,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pictures that are named, or all; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the pictures of docs/images from real runs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in PICTURES]
    if unknown:
        parser.error(f"there is no picture {', '.join(unknown)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or PICTURES:
        path = options.out / f"{name}.png"
        with tempfile.TemporaryDirectory() as temporary:
            PICTURES[name](path, Path(temporary))
        print(f"{path}: {path.stat().st_size:,} bytes")
        if path.stat().st_size > MOST_BYTES:
            print(f"pictures: {path} has more than {MOST_BYTES:,} bytes")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
