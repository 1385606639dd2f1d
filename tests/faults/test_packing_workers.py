"""Packing with several workers while one fails, dies, or all do: FAULTS D1, D4."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from core import core
from packing import small

import penstock as ps
from penstock.errors import WorkerDied
from penstock.packing import pack

pytestmark = pytest.mark.usefixtures("fork_server")
SOURCE, TESTS = str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])
COUNT, SHARDS = 400, 8
PER_SHARD = COUNT // SHARDS


def wait_for_workers(dest: Path) -> None:
    """Return when nobody is at work in a folder, not even a worker of a packer that is gone."""
    folder = os.open(dest, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    finally:
        os.close(folder)


def name_of(number: int) -> str:
    """Return the shard that an element belongs to."""
    return f"data-{number // PER_SHARD:05d}-of-{SHARDS:05d}.tfrecord"


# -- D1: other jobs stop ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("executor", "num_workers"), [("threads", 3), ("processes", 2)])
def test_when_the_disk_is_full_for_one_worker_the_others_stop(tmp_path: Path, executor: Any, num_workers: int) -> None:
    num_shards, dest, fifo = 40, tmp_path / "dest", tmp_path / "fifo"
    os.mkfifo(fifo)
    told = os.open(fifo, os.O_RDWR)  # what was written stays in it as long as this is open
    disk = small.FullForTheSecond(str(fifo))
    ds = small.dataset(80).map(partial(disk.in_workers, packer=os.getpid()))
    try:
        with disk.used() if executor == "threads" else nullcontext(), pytest.raises(OSError) as caught:
            pack(ds, dest, num_shards=num_shards, num_workers=num_workers, executor=executor)
    finally:
        os.close(told)
    assert caught.value.errno == errno.ENOSPC
    assert any("by the sample all of them would take about" in note for note in caught.value.__notes__)
    there = small.shards(dest)
    assert len(there) < num_shards // 2, "the others have gone on"
    assert "data-manifest.json" not in there
    assert not list(dest.glob(".packing/*.part"))
    wait_for_workers(dest)
    for folder in (dest, tmp_path / "reference"):
        pack(ds, folder, num_shards=num_shards, num_workers=1, executor="threads")
    expected = small.hashes(tmp_path / "reference")
    assert small.hashes(dest) == expected
    assert there.items() <= expected.items()


# -- D4: kills -------------------------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_alone_is_an_error_and_a_rerun_gives_the_same_files(tmp_path: Path) -> None:
    orders, dest = tmp_path / "orders", tmp_path / "dest"
    pack(small.obedient(orders), tmp_path / "reference", num_workers=1, num_shards=SHARDS, executor="threads")
    expected = small.hashes(tmp_path / "reference")
    small.give_orders(orders, [5 * PER_SHARD + 7])
    with pytest.raises(WorkerDied, match="SIGKILL") as caught:
        pack(small.obedient(orders), dest, num_workers=2, num_shards=SHARDS)
    assert "it was at job 5" in str(caught.value)
    there = small.shards(dest)
    assert name_of(5 * PER_SHARD) not in there
    assert "data-manifest.json" not in there
    assert there.items() <= expected.items()
    before = {name: (dest / name).stat().st_mtime_ns for name in there}
    pack(small.obedient(orders), dest, num_workers=2, num_shards=SHARDS)
    assert small.hashes(dest) == expected
    assert {name: (dest / name).stat().st_mtime_ns for name in there} == before


PROGRAM = "import sys; from packing import small\nif __name__ == '__main__': small.life_in_processes(*sys.argv[1:])"


def tmp_of(folder: Path) -> Path:
    """Return a folder with a short name: the socket of a fork server stands in it, whose path has 107 bytes at most."""
    (folder.parent / (name := f"o{folder.name[-6:]}")).mkdir()
    return folder.parent / name


class Lives:
    """Packers with two workers that are killed, alone or with them, when workers have come to certain elements."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.orders, self.fifo = folder, folder / "orders", folder / "fifo"
        pack(small.obedient(self.orders), folder / "reference", num_workers=1, num_shards=SHARDS, executor="threads")
        self.expected = small.hashes(folder / "reference")
        self.own = tmp_of(folder)
        (folder / "program.py").write_text(PROGRAM)
        os.mkfifo(self.fifo)
        self.num_finished = 0

    def live(self, dest: Path, numbers: list[int], everybody: bool) -> None:
        """Kill a packer when workers wait at these elements, of different shards; look at what it leaves, and go on."""
        dest.mkdir()
        arguments = [str(self.folder / "program.py"), str(dest), str(self.orders), str(self.fifo), *map(str, numbers)]
        told = os.open(self.fifo, os.O_RDWR)  # also to write: so it has no end
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": f"{SOURCE}:{TESTS}", "TMPDIR": str(self.own)},  # where a killed one leaves files
            start_new_session=True,
            stderr=subprocess.PIPE,
        )
        try:
            for _ in numbers:
                ready, _, _ = select.select([told, child.stderr], [], [], 100)
                assert told in ready, "no worker came so far"
                os.read(told, 1)
            os.killpg(child.pid, signal.SIGKILL) if everybody else child.kill()
        finally:
            child.kill()
            child.communicate()
            os.close(told)
        assert child.returncode == -signal.SIGKILL
        wait_for_workers(dest)
        os.unlink(self.orders)
        self._look(dest, numbers)
        pack(small.obedient(self.orders), dest, num_workers=3, num_shards=SHARDS, executor="threads")
        assert small.hashes(dest) == self.expected
        shutil.rmtree(dest)

    def _look(self, dest: Path, numbers: list[int]) -> None:
        there = small.shards(dest)
        assert there.items() <= self.expected.items()
        assert "data-manifest.json" not in there
        assert "id" in json.loads((dest / ".packing" / "run.json").read_text())
        for number in numbers:
            assert name_of(number) not in there
            assert len(list(dest.glob(f".packing/{name_of(number)}.*.part"))) == 1
        self.num_finished += len(there)


@pytest.mark.parametrize(("everybody", "numbers"), core([(False, [COUNT - 9]), (True, [2 * PER_SHARD])]), ids=["alone", "all"])
def test_a_packer_with_workers_that_is_killed_leaves_nobody_and_goes_on_to_the_same_files(
    tmp_path: Path, everybody: bool, numbers: list[int]
) -> None:
    lives = Lives(tmp_path)
    lives.live(tmp_path / "dest", numbers, everybody)
    assert lives.num_finished >= 1 or everybody, "finished shards are used again"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_packer_with_workers_is_killed_at_a_hundred_moments(tmp_path: Path, seed: int) -> None:
    chance, lives = random.Random(seed), Lives(tmp_path)
    for moment in range(5):
        # One waits and the other is anywhere.
        lives.live(tmp_path / f"dest-{moment}", [chance.randrange(COUNT)], everybody=bool(moment % 2))
