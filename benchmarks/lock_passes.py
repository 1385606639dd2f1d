"""How often the threads of a feed take the interpreter lock again, for each image of W1: what 16 threads pass from one to the other.

    python benchmarks/lock_passes.py [--against CHECKOUT] [--quick]

Every call that lets go of the lock (a kernel, the decoder, a read, a wait) takes it back through `PyEval_RestoreThread`. `perf` counts the
calls of that function, by a probe of the kernel that costs about a microsecond, over all threads of the process while an endless feed of
two workers gives its batches; the lock that Python takes away from a thread every 5 ms does not count. Needs Linux, `perf` and the right to
set probes (root). With `--against` the package of another checkout is counted in the same run, in turns. Prints a table and writes
results/lock_passes.json.

How many images a task has depends on how long they take, and each task passes the lock a few times by itself: leave the machine alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import machine
import photos
import rounds
from data import DEFAULT_ROOT, SIZES, jpeg_list, read_listing

_EVENT = "penstock_lock:taken_again"
_BATCH_SIZE, _WORKERS = 128, 2
_WORKS = {"w1": False, "w1u": True}


def _interpreter() -> Path:
    """Return the file that has Python's functions."""
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    return Path(os.path.realpath(sys.executable))


@contextmanager
def _probe() -> Iterator[None]:
    try:
        subprocess.run(["perf", "probe", "-q", "-f", "-x", _interpreter(), f"{_EVENT}=PyEval_RestoreThread"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no probe can be set, with perf and as root: {error}")
    try:
        yield
    finally:
        subprocess.run(["perf", "probe", "-q", "-d", _EVENT], check=True)


@contextmanager
def _counted(into: dict[str, int]) -> Iterator[None]:
    """Count in all threads of this process."""
    commands, answers = os.pipe(), os.pipe()
    command = ["perf", "stat", "-x,", "-e", _EVENT, "-p", str(os.getpid()), "-D", "-1", "--control", f"fd:{commands[0]},{answers[1]}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, pass_fds=(commands[0], answers[1])) as counter:
        os.write(commands[1], b"enable\n")
        os.read(answers[0], 16)
        yield
        os.write(commands[1], b"disable\n")
        os.read(answers[0], 16)
        counter.send_signal(2)
        lines = counter.communicate()[1]
    into["passes"] = int(next(line for line in lines.splitlines() if _EVENT in line).split(",")[0])


def _count(as_uint8: bool, size: str, root: Path) -> dict[str, float]:
    """Count in this process, behind a warm-up of half an epoch."""
    run = rounds.Run(size=SIZES[size], root=root)
    num_batches = run.size.num_jpegs // _BATCH_SIZE
    found: dict[str, int] = {}
    with photos.dataset(run, _BATCH_SIZE, as_uint8).repeat().feed(num_workers=_WORKERS) as feed:
        batches = iter(feed)
        for _ in range(1 + num_batches // 2):
            next(batches)
        with _counted(found):
            for _ in range(num_batches):
                next(batches)
        stage = feed.stats().stages[0]
    return {"passes": found["passes"] / (num_batches * _BATCH_SIZE), "images_per_task": stage.num_elements / stage.num_blocks}


def _started(name: str, source: Path, args: argparse.Namespace) -> dict[str, float]:
    """Count in a process of its own, with the package of `source`."""
    command = [sys.executable, __file__, "--count", name, "--size", args.size, "--data", str(args.data)]
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Count in turns, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout, with its kernels built")
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--quick", dest="size", action="store_const", const="quick")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--data", type=Path, default=DEFAULT_ROOT)
    parser.add_argument("--out", type=Path, default=rounds.RESULTS)
    parser.add_argument("--count", choices=list(_WORKS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.count:
        print(json.dumps(_count(_WORKS[args.count], args.size, args.data)))
        return
    for path, _ in read_listing(jpeg_list(args.data, SIZES[args.size].num_jpegs)):
        Path(path).read_bytes()  # files that wait for the disk are fetched ahead, which passes the lock too
    sources = {"penstock": Path(__file__).resolve().parents[1], **({"against": args.against} if args.against else {})}
    runs: list[dict[str, Any]] = []
    with _probe():
        for turn in range(args.rounds or SIZES[args.size].rounds):
            for name in _WORKS:
                for who, source in sources.items():
                    runs.append({"work": name, "who": who, "round": turn, **_started(name, source, args)})
                    print(f"  {runs[-1]}", flush=True)
    summary = {
        f"{name} {who}": {
            key: statistics.median(run[key] for run in runs if (run["work"], run["who"]) == (name, who))
            for key in ("passes", "images_per_task")
        }
        for name in _WORKS
        for who in sources
    }
    for title, row in summary.items():
        print(f"{title:16} {row['passes']:6.2f} passes of the lock an image, {row['images_per_task']:.1f} images a task")
    report = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine.facts(), "summary": summary, "rounds": runs}
    (args.out / "lock_passes.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
