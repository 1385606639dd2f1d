"""A program that is killed and started again many times. Run as a script it forks each life after the imports, which cost 0.3 s.

The process that forks has one thread and runs no feed; a life starts its threads itself. A life appends each item that it delivers to a
log, by a single write, and then saves its state: a new file, renamed over the old one. The parent sends SIGKILL at random times.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from laws.epochs import rest
from programs import output_of

import penstock as ps

WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 1},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 5, "memory_bytes": 1},
    {"executor": "processes", "num_workers": 2},
]


def keep(x: int) -> bool:
    return x % 5 != 0


def copies(x: int) -> list[int]:
    return [10 * x + number for number in range(x % 3 + 1)]


async def fetch(x: int) -> int:
    for _ in range(x % 7):  # so that the calls do not end in the order in which they began
        await asyncio.sleep(0)
    return x


def check(x: int) -> int:
    if x % 11 == 4:
        raise ValueError(f"{x} is bad")
    return x


def tokens(x: int) -> Any:
    return np.full(x % 6 + 1, x, np.int32)


def uneven(x: int) -> int:
    return sum(range(x % 97 * 50)) * 0 + x


def noisy(x: int, rng: np.random.Generator) -> int:
    return x * 1000 + int(rng.integers(1000))


def length(x: int) -> int:
    return x % 7


def three() -> ps.Dataset:
    """Mix three sources; nothing of it is an element of two of them."""
    a = ps.from_source(range(120)).shuffle(seed=1)
    b = ps.from_arrays(np.arange(1000, 1070)).map(int)
    c = ps.from_source(range(2000, 2060)).shuffle(seed=2).cache()
    return a.mix(b, c, weights=[3, 2, 1.5], stop="all_exhausted")


def elements(bad: Path | None = None) -> ps.Dataset:
    rows = three().filter(keep).flat_map(copies).map(fetch, concurrency=8)
    return rows.map(check, on_error=ps.Skip(quarantine=bad)).map(uneven)


def packed(rows: ps.Dataset) -> ps.Dataset:
    return rows.map(tokens).pack_sequences(16, num_bins=4)


def bucketed(bad: Path | None = None) -> ps.Dataset:
    return elements(bad).as_completed().bucket_by_length(length, [2, 5], [4, 3, 2]).repeat(2)


def batches(bad: Path | None = None) -> ps.Dataset:
    return ps.from_source(range(150)).shuffle(seed=3).map(noisy).repeat(3).batch(3)


def numbers(item: Any) -> list[int]:
    return [int(x) for x in item]


def sequences(item: dict[str, Any]) -> list[int]:
    """Return the element behind each sequence of a packed row."""
    return [int(item["tokens"][item["segment_ids"] == number][0]) for number in range(1, int(item["segment_ids"].max()) + 1)]


class Plan(NamedTuple):
    """A pipeline, given the file of what it skips, the elements of one item of it, and whether their order is open."""

    dataset: Callable[[Path | None], ps.Dataset]
    parts: Callable[[Any], list[int]]
    unordered: bool


PLANS = {
    "everything, packed": Plan(lambda bad: packed(elements(bad).as_completed()), sequences, True),
    "everything, in buckets, twice": Plan(bucketed, numbers, True),
    "everything in order": Plan(lambda bad: packed(elements(bad)), sequences, False),
    "batches in any order": Plan(batches, numbers, True),
    "shuffle, noise, batches over epochs": Plan(batches, numbers, False),
    "buffer and window": Plan(
        lambda bad: ps.from_source(range(240)).filter(keep).shuffle(40, seed=4).map(noisy).window(4, 3).repeat(2), numbers, False
    ),
}


def live(plan: Plan, folder: Path, way: dict[str, Any], beat: int) -> None:
    """Run one life: to the end of the dataset, unless it is killed before."""
    state = folder / "state.json"
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with _opened(plan, state, way) as feed:
        os.write(log, f"begin {feed.step}\n".encode())
        os.write(beat, b".")
        for item in rest(feed):
            os.write(log, (json.dumps([feed.step, plan.parts(item)]) + "\n").encode())
            (folder / "state.new").write_text(json.dumps(feed.state_dict()))
            os.replace(folder / "state.new", state)
            os.write(beat, b".")
    os.write(log, b"end\n")


def _opened(plan: Plan, state: Path, way: dict[str, Any]) -> ps.Feed:
    feed = plan.dataset(state.parent / "bad.jsonl").feed(**way)
    if state.exists():
        feed.load_state_dict(state.read_text())
    return feed


def forked(plan: Plan, folder: Path, way: dict[str, Any]) -> tuple[int, int]:
    """Start a life; return its process and the pipe that has a byte for each item."""
    hear, beat = os.pipe()
    pid = os.fork()
    if pid:
        os.close(beat)
        return pid, hear
    status = 1
    try:
        os.close(hear)
        live(plan, folder, way, beat)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def run(plan: Plan, folder: Path, num_kills: int, chance: random.Random) -> int:
    """Let lives follow each other until one comes to its end; return how many were killed, at most `num_kills`."""
    killed = 0
    while True:
        way = dict(chance.choice(WAYS))
        if plan.unordered and chance.random() < 0.7:
            way["ordered"] = False
        pid, pipe = forked(plan, folder, way)
        if killed < num_kills:
            _wait(pipe, chance.randrange(30), chance.random() ** 2 * 0.01)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(pipe)
        if status == 0:
            return killed
        assert os.WIFSIGNALED(status), f"a life ended with status {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL
        killed += 1


def _wait(pipe: int, num_items: int, and_s: float) -> None:
    """Wait until a life delivered so many items, or ended, and then for a moment."""
    got = 0
    while got < num_items:
        heard = len(os.read(pipe, num_items - got))
        if not heard:
            return
        got += heard
    select.select([], [], [], and_s)


def run_all(name: str, folder: Path, num_kills: int, seed: int) -> None:
    """Run a plan again and again, each time in a folder of its own, until so many lives were killed."""
    with PLANS[name].dataset(None).feed(executor="inline") as feed:  # imports what a feed needs; starts no thread
        next(feed)
    chance = random.Random(f"{name} {seed}")
    left = num_kills
    while left:
        here = folder / f"{left}"
        here.mkdir(parents=True)
        left -= run(PLANS[name], here, min(left, chance.randrange(3, 20)), chance)


def killed(name: str, folder: Path, num_kills: int, seed: int = 0) -> list[Path]:
    """Run a plan with so many kills in a process of its own; return the folders of its runs."""
    environment = {"PYTHONWARNINGS": "error,ignore:element epoch"}
    with tempfile.TemporaryDirectory() as temporary:  # the fork server of a life that is killed leaves an empty folder
        assert output_of("-m", "faults.lives", name, folder, num_kills, seed, timeout_s=3600, TMPDIR=temporary, **environment) == ""
    runs = sorted(folder.iterdir())
    assert sum(lives(run) - 1 for run in runs) <= num_kills  # a life that was killed before it began left no line
    return runs


def lives(folder: Path) -> int:
    """Count the lives that began."""
    return sum(line.startswith("begin") for line in (folder / "log").read_text().splitlines())


def quarantined(folder: Path) -> set[str]:
    """Return the keys of the elements that were skipped; after a kill one may stand in the file twice."""
    lines = (folder / "bad.jsonl").read_text().splitlines() if (folder / "bad.jsonl").exists() else []
    return {json.dumps(json.loads(line)["keys"]) for line in lines if line.endswith("}")}  # a kill may cut one


def delivered(folder: Path) -> list[list[int]]:
    """Join the logs of all lives of a run at the saved positions."""
    lines = (folder / "log").read_text().splitlines()
    assert lines[-1] == "end"
    items: list[list[int]] = []
    for line in lines:
        if line == "end":  # a life may be killed between this line and its own end
            continue
        _, begins, step_text = line.partition("begin ")  # behind a line that a kill has cut, perhaps
        if begins:
            step = int(step_text)
            assert len(items) - 1 <= step <= len(items)  # the state was saved behind the last item, or one before it
            del items[step:]
            continue
        step, parts = json.loads(line)
        items.append(parts)
        assert step == len(items)
    return items


if __name__ == "__main__":
    run_all(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
