"""Two feeds that run for hours and must not grow: FAULTS G1. `setsid --wait python tests/faults/long_run.py [minutes] [file.json]`.

One feed has two worker processes, the other two threads. Both read a text file, records, arrays and a list, for ever. What each process
holds is noted every few seconds. The first fifth of the time does not count. Memory may grow by 1 MiB an hour, and by the 4 MiB that an
allocator takes and gives at any moment. So growth of 2 MiB an hour is found in eight hours, and of 11 MiB an hour in 30 minutes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from faults.outside import descriptors_of, kilobytes_of, processes_of

import penstock as ps
from penstock.formats.tfrecord import RecordWriter
from penstock.testing import check_no_leaks

_GROWTH, _GROWTH_PER_HOUR = 4 << 20, 1 << 20
_MOST_SHARED = 256 << 20
_WARM_UP = 0.2
_FIRST_BATCHES = 500
"""They come before the clock begins: until then tasks and buffers find their sizes, however busy the machine is."""
_COMPARED_S = 20 * 60.0
"""Speed is compared in runs of at least so long: others of the machine matter less then."""


class Sample(NamedTuple):
    """What the processes hold at one moment.

    Attributes:
        at_s: seconds since the beginning.
        num_items: that were delivered so far.
        memory: bytes of each process that it shares with no other, by its number.
        descriptors: how many each has.
        threads: how many each has.
        shared_bytes: of all processes, each byte once.
    """

    at_s: float
    num_items: int
    memory: dict[str, int]
    descriptors: dict[str, int]
    threads: dict[str, int]
    shared_bytes: int

    @classmethod
    def now(cls, at_s: float, num_items: int) -> Sample:
        """Look at the processes of this session."""
        pids = [process.pid for process in processes_of(os.getsid(0))]
        return cls(
            at_s,
            num_items,
            {str(pid): 1024 * kilobytes_of(pid, "Anonymous") for pid in pids},
            {str(pid): len(descriptors_of(pid)) for pid in pids},
            {str(pid): len(os.listdir(f"/proc/{pid}/task")) for pid in pids},
            sum(1024 * kilobytes_of(pid, "Pss_Shmem") for pid in pids),
        )


def faults_of(samples: Sequence[Sample]) -> list[str]:
    """Say in words what grows, is lost or slows down."""
    samples = settled(samples)
    early, late = samples[: len(samples) // 4], samples[-(len(samples) // 4) :]
    faults = []
    if any(sample.memory.keys() != samples[0].memory.keys() for sample in samples):
        faults.append("other processes than at the beginning")
    most = _GROWTH + _GROWTH_PER_HOUR * (samples[-1].at_s - samples[0].at_s) / 3600
    for pid in samples[0].memory.keys() & samples[-1].memory.keys():
        grown = growth(samples, pid)
        if grown > most:
            faults.append(f"process {pid}: memory grew by {grown / (1 << 20):.1f} MiB, at most {most / (1 << 20):.1f}")
        for name in ("descriptors", "threads"):
            first, last = (min(getattr(sample, name).get(pid, 0) for sample in part) for part in (early, late))
            if first != last:
                faults.append(f"process {pid}: {last} {name}, {first} at the beginning")
    if (shared := max(sample.shared_bytes for sample in samples)) > _MOST_SHARED:
        faults.append(f"{shared >> 20} MiB of shared memory, at most {_MOST_SHARED >> 20}")
    if samples[-1].at_s >= _COMPARED_S and rate(late) < 0.95 * rate(early):
        faults.append(f"{rate(late):.0f} items a second, {rate(early):.0f} at the beginning")
    return faults


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples behind the warm-up."""
    return [sample for sample in samples if sample.at_s >= _WARM_UP * samples[-1].at_s]


def growth(samples: Sequence[Sample], pid: str) -> float:
    """Return the bytes by which a process grew, on the straight line through all samples."""
    seconds, memory = np.array([(sample.at_s, sample.memory.get(pid, 0)) for sample in samples]).T
    return float(np.polyfit(seconds - seconds[0], memory, 1)[0] * (seconds[-1] - seconds[0]))


def rate(samples: Sequence[Sample]) -> float:
    """Return the items per second."""
    return (samples[-1].num_items - samples[0].num_items) / (samples[-1].at_s - samples[0].at_s)


def length_of(element: Any) -> int:
    """Return the bytes of an element."""
    return len(bytes(element["data"]) if isinstance(element, dict) and "data" in element else repr(element))


def dataset(folder: Path, fn: Any) -> ps.Dataset:
    """Write files; return an endless dataset of them, of arrays and of a list."""
    (folder / "lines.txt").write_text("".join(f"line {number}\n" for number in range(20_000)))
    with open(folder / "records.tfrecord", "wb") as file:
        writer = RecordWriter(file)
        for number in range(5000):
            writer.write(b"%d" % number * (number % 50))
        writer.close()
    sources = [
        ps.read_text(folder / "lines.txt"),
        ps.read_tfrecord(folder / "records.tfrecord"),
        ps.from_arrays({"x": np.arange(30_000)}),
        ps.from_source([f"image_{number}.jpg" for number in range(50_000)]),
    ]
    return ps.Dataset.mix(*(one.shuffle(seed=1).repeat() for one in sources)).map(fn).batch(50)


def run(seconds: float, fn: Any = length_of) -> list[Sample]:
    """Run the feeds for so long, and see that nothing is left of them.

    Raises:
        LawBroken: something is left.
        AssertionError: the two feeds differ.
    """
    list(ps.from_source(range(10)).feed(executor="processes"))  # what is imported when it is first needed stays
    with tempfile.TemporaryDirectory() as name, check_no_leaks():
        return list(_samples(seconds, fn, Path(name)))


def _samples(seconds: float, fn: Any, folder: Path) -> Iterator[Sample]:
    """Run the feeds; give a sample every five seconds, or twenty."""
    ds = dataset(folder, fn)
    with ds.feed(executor="processes", num_workers=2) as apart, ds.feed(executor="threads", num_workers=2) as beside:
        for _ in range(_FIRST_BATCHES):
            next(apart), next(beside)
        begin_s, num_items, due_s = time.monotonic(), 0, 0.0
        while (at_s := time.monotonic() - begin_s) < seconds:
            first, second = next(apart), next(beside)
            if not np.array_equal(first, second):
                raise AssertionError(f"batch {num_items}: {first} in processes, {second} in threads")
            num_items += 1
            if num_items % 100 == 0:
                json.dumps([apart.state_dict(), beside.state_dict()])
            if at_s >= due_s:
                due_s += min(5.0, seconds / 20)
                yield Sample.now(at_s, num_items)


def main(arguments: list[str]) -> int:
    """Run, and print what the processes held and what is wrong."""
    minutes = float(arguments[0]) if arguments else 30.0
    samples = run(60 * minutes)
    for pid in samples[-1].memory:
        grown, memory = growth(settled(samples), pid) / (1 << 20), samples[-1].memory[pid] / (1 << 20)
        held = f"{samples[-1].descriptors[pid]} descriptors, {samples[-1].threads[pid]} threads"
        print(f"process {pid}: {memory:.1f} MiB, grew by {grown:+.2f}; {held}")
    middle = len(samples) // 2
    print(f"{rate(samples[:middle]):.0f} batches a second in the first half, {rate(samples[middle:]):.0f} in the second")
    faults = faults_of(samples)
    print("\n".join(f"FAULT {fault}" for fault in faults) or f"long run of {minutes:g} minutes: nothing grew")
    if arguments[1:]:
        Path(arguments[1]).write_text(json.dumps([sample._asdict() for sample in samples]))
    return min(1, len(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
