"""W2: tf.train.Example of 256 floats and an int64 in 8 TFRecord files, batches of 256, shuffled and in file order.

`tf.data` and DALI run in the Python that `--peers PYTHON` names (an environment with their packages); without it, in this one. tf.data
reads in two forms, of which the faster counts. Penstock's index (`*.psidx`) and the one that DALI wants are built before the clock, once
for all epochs and runs; tf.data has none. What they deliver is compared with the records, before the clock.
`wake`: how late a thread wakes that only sleeps, while nothing runs and while the feed runs in one worker and a consumer.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drive
import numpy as np
import pairs
import rounds
import w2_data
from data import Size

_BATCH_SIZE = w2_data.BATCH_SIZE
_NUM_SHARDS = 8
_FLAG = "--peers"
_NAP_S = 0.002


def _count(size: Size) -> int:
    return 4 * size.num_small


def _folder(size: Size, root: Path) -> Path:
    return root / f"w2-{_count(size)}"


def _prepare(size: Size, root: Path) -> None:
    """Write the shards, with the text index that DALI wants beside each, and build Penstock's."""
    import penstock as ps
    from penstock.formats.tfrecord import frame

    folder = _folder(size, root)
    if (folder / "complete").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    floats, labels = w2_data.records(_count(size))
    for shard in range(_NUM_SHARDS):
        lines, offset = [], 0
        with (folder / f"{shard:02d}.tfrecord").open("wb") as file:
            for index in range(shard, len(labels), _NUM_SHARDS):
                framed = frame(ps.encode_example({"x": floats[index], "y": labels[index]}))
                file.write(framed)
                lines.append(f"{offset} {len(framed)}\n")
                offset += len(framed)
        (folder / f"{shard:02d}.tfrecord.idx").write_text("".join(lines))
    ps.read_tfrecord(str(folder / "*.tfrecord"))
    (folder / "complete").touch()


def _dataset(run: rounds.Run, shuffled: bool) -> Any:
    import penstock as ps

    features = {"x": ps.FixedLenFeature((w2_data.NUM_FLOATS,), "float32"), "y": ps.FixedLenFeature((), "int64")}
    dataset = ps.read_tfrecord(str(_folder(run.size, run.root) / "*.tfrecord"), features=features)
    return (dataset.shuffle(seed=7) if shuffled else dataset).batch(_BATCH_SIZE, drop_remainder=True)


def _penstock(num_workers: int, shuffled: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        dataset = _dataset(run, shuffled).with_options(executor="threads", num_workers=num_workers)
        return drive.epochs(lambda: dataset, _BATCH_SIZE, run.size.min_seconds, w2_data.checker(_count(run.size)))

    return measure


def _peer(kind: str, shuffled: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        script = Path(__file__).with_name("w2_peers.py")
        flags = [kind, str(_folder(run.size, run.root)), str(_count(run.size)), str(run.size.min_seconds), str(int(shuffled))]
        python = PEERS or sys.executable
        done = subprocess.run([python, str(script), *flags], capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("PEER ")]
        if not lines:
            raise RuntimeError(f"{kind} ended with {done.returncode}: {done.stderr[-2000:]}")
        result: dict[str, Any] = json.loads(lines[-1].removeprefix("PEER "))
        if "missing" in result:
            raise rounds.Missing(result["missing"])
        return result

    return measure


def _lateness_ms(seconds: float) -> list[float]:
    late = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        time.sleep(_NAP_S)
        late.append((time.perf_counter() - start - _NAP_S) * 1000)
    return late


def wake(run: rounds.Run) -> dict[str, Any]:
    """Measure how late a sleeping thread wakes while nothing runs, and while the feed runs; "added_ms" is the difference."""
    seconds = max(0.2, run.size.min_seconds)
    stop = threading.Event()
    dataset = _dataset(run, True).repeat().with_options(executor="threads", num_workers=1)
    num_batches = 0

    def consume() -> None:
        nonlocal num_batches
        with dataset.feed() as feed:
            for _ in feed:
                num_batches += 1
                if stop.is_set():
                    return

    idle = _lateness_ms(seconds)
    thread = threading.Thread(target=consume)
    thread.start()
    try:
        _lateness_ms(seconds)
        before, start = num_batches, time.perf_counter()
        busy = _lateness_ms(seconds)
        rate = (num_batches - before) * _BATCH_SIZE / (time.perf_counter() - start)
    finally:
        stop.set()
        thread.join()
    return {
        "rate": rate,
        "idle_ms": statistics.mean(idle),
        "busy_ms": statistics.mean(busy),
        "added_ms": statistics.mean(busy) - statistics.mean(idle),
        "added_median_ms": statistics.median(busy) - statistics.median(idle),
    }


def _work(worker: int, num_workers: int, num: int, shuffled: bool) -> pairs.Work:
    floats, _ = w2_data.records(num)
    generator = np.random.default_rng(worker)
    batch = np.zeros((_BATCH_SIZE, w2_data.NUM_FLOATS), np.float32)
    begin = worker * _BATCH_SIZE

    def rows() -> Any:
        nonlocal begin
        if shuffled:
            return generator.integers(0, num, _BATCH_SIZE)
        block = np.arange(begin, begin + _BATCH_SIZE)
        begin += num_workers * _BATCH_SIZE
        if begin + _BATCH_SIZE > num:
            begin = worker * _BATCH_SIZE
        return block

    def step() -> int:
        np.take(floats, rows(), axis=0, out=batch, mode="clip")
        return _BATCH_SIZE

    return step


def _limit(shuffled: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    """Gather rows of an array into a batch, random ones or one after the other, in two processes: no file, no parsing."""

    def measure(run: rounds.Run) -> dict[str, Any]:
        num = _count(run.size)
        return pairs.limit(_work, (num, shuffled), max(1, num // (2 * _BATCH_SIZE)), run.size.min_seconds)

    return measure


def _taken(flag: str) -> str:
    """Take a flag and its value out of the command line."""
    if flag not in sys.argv:
        return ""
    place = sys.argv.index(flag)
    value = sys.argv[place + 1]
    del sys.argv[place : place + 2]
    return value


PEERS = _taken(_FLAG)


def _targets() -> list[rounds.Target]:
    found = []
    for order in ("", "_ordered"):
        found.append(rounds.Target(contestant=f"penstock_2{order}", metric="ratio", sense=">=", bound=0.25))
        found.append(rounds.Target(contestant=f"penstock_2{order}", metric=f"times_penstock_1{order}", sense=">=", bound=1.7))
        found += [
            rounds.Target(contestant=f"penstock_2{order}", metric=f"times_{peer}{order}", sense=">=", bound=10.0)
            for peer, package in (("tfdata_best", "tensorflow"), ("dali", "nvidia"))
            if PEERS or importlib.util.find_spec(package)
        ]
    return [*found, rounds.Target(contestant="wake", metric="added_ms", sense="<=", bound=0.3)]


_CONTESTANTS = {
    f"{name}{'' if shuffled else '_ordered'}": measure
    for shuffled in (True, False)
    for name, measure in (
        ("limit", _limit(shuffled)),
        ("penstock_2", _penstock(2, shuffled)),
        ("penstock_1", _penstock(1, shuffled)),
        ("tfdata_interleave", _peer("tfdata_interleave", shuffled)),
        ("tfdata_files", _peer("tfdata_files", shuffled)),
        ("dali", _peer("dali", shuffled)),
    )
}
_BEST = {f"tfdata_best{order}": (f"tfdata_interleave{order}", f"tfdata_files{order}") for order in ("", "_ordered")}

CLAIM = rounds.Claim(
    name="w2",
    title="W2: tf.train.Example of 256 floats and an int64, batches of 256",
    unit="records/s",
    prepare=_prepare,
    references={name: "limit_ordered" if name.endswith("_ordered") else "limit" for name in [*_CONTESTANTS, *_BEST]} | {"wake": ""},
    best=_BEST,
    also=("added_ms",),
    targets=tuple(_targets()),
)


if __name__ == "__main__":
    rounds.main(CLAIM, {**_CONTESTANTS, "wake": wake}, (_FLAG, PEERS) if PEERS else ())
