"""Small datasets to pack, disks that misbehave, and a packer that runs in a process of its own."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.packing import disk as steps
from penstock.packing import pack

COUNT = 50


class Disk:
    """Stands in for `os` in the module that makes every step on the disk. Subclasses change, fail or note a step. Picklable."""

    def __init__(self) -> None:
        self.folders: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(os, name)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Pack with this disk."""
        before, steps.os = steps.os, self  # type: ignore[misc, attr-defined]
        try:
            yield
        finally:
            steps.os = before  # type: ignore[misc, attr-defined]

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            descriptor = self.create(path)
            self.folders.pop(descriptor, None)  # a lock had this number, which is closed elsewhere
            return descriptor
        descriptor = os.open(path, flags, mode)
        self.folders[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        if self.folders.pop(descriptor, None) is None:
            self.close_file(descriptor)
        else:
            os.close(descriptor)

    def fsync(self, descriptor: int) -> None:
        self.sync(descriptor)

    def replace(self, source: str, target: str) -> None:
        self.rename(source, target)

    def unlink(self, path: str) -> None:
        self.remove(path)

    def makedirs(self, path: str, exist_ok: bool) -> None:
        self.make_folder(path)

    def rmdir(self, path: str) -> None:
        self.remove_folder(path)

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close_file(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)


def element(number: int, rng: np.random.Generator) -> dict[str, Any]:
    """Make every kind of field; some numbers are random."""
    return {
        "number": number,
        "name": f"é {number}",
        "data": bytes(rng.integers(0, 256, 40 + number % 7, dtype=np.uint8)),
        "pixels": np.full((2, 3), number % 256, np.uint8),
        "vector": np.arange(number % 5, dtype=np.float32),
        "exact": number / 3,
        "drawn": int(rng.integers(1 << 40)),
    }


def odd(element: dict[str, Any]) -> bool:
    return bool(element["number"] % 2)


def twice(element: dict[str, Any]) -> list[dict[str, Any]]:
    return [element] * (element["number"] % 3)


def bad_at_7(element: dict[str, Any]) -> dict[str, Any]:
    if element["number"] == 7:
        raise ValueError("number 7 is bad")
    return element


def obeying(element: dict[str, Any], orders: str) -> dict[str, Any]:
    """Do in a worker process what a file says: at some elements tell it to a pipe and go no further, or, without a pipe, die once."""
    try:
        given = json.loads(Path(orders).read_text())
    except FileNotFoundError:
        return element
    if element["number"] in given["numbers"] and os.getpid() != given["packer"]:
        if given["fifo"]:
            with open(given["fifo"], "wb", buffering=0) as pipe:
                pipe.write(b"x")
        else:
            os.unlink(orders)
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()
    return element


def give_orders(orders: str | Path, numbers: list[int], fifo: str | None = None) -> None:
    """Write orders for the workers of this process."""
    Path(orders).write_text(json.dumps({"numbers": numbers, "packer": os.getpid(), "fifo": fifo}))


def obedient(orders: str | Path, count: int = 400) -> ps.Dataset:
    """Return elements whose maker obeys."""
    return dataset(count).map(partial(obeying, orders=str(orders)))


class Stream:
    """Numbers that can only be read from their beginning; it may end the process by SIGKILL at one of them."""

    count = 400

    def __init__(self, dies_at: int = -1) -> None:
        self.dies_at, self.num_passes = dies_at, 0

    def __iter__(self) -> Iterator[int]:
        self.num_passes += 1
        for number in range(self.count):
            if number == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()
            yield number


def mortal(element: dict[str, Any]) -> dict[str, Any]:
    """End the process by SIGKILL at the element that its environment names."""
    if element["number"] == int(os.environ.get("DIES_AT", "-1")):
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()
    return element


def pack_stream(dest: str | Path, stream: Stream, num_workers: int = 1) -> Any:
    """Pack a stream into about ten files."""
    ds = ps.from_stream(stream).map(element, seed=5).map(mortal)
    return pack(ds, dest, num_workers=num_workers, shard_bytes=10_000)


def life_of_stream(dest: str, read_dies_at: int, map_dies_at: int) -> None:
    """Pack a stream, and be killed at an element, while it is read or mapped."""
    os.environ["DIES_AT"] = str(map_dies_at)
    pack_stream(dest, Stream(read_dies_at))


def life_of_names(dest: str, after: bool) -> None:
    """Pack a stream, and be killed when the third shard gets its name."""
    given = os.replace
    names = []

    def replace(source: str, target: str) -> None:
        names.append(target)
        dies = sum(name.endswith(".tfrecord") for name in names) == 3
        if dies and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        given(source, target)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace  # type: ignore[assignment]
    pack_stream(dest, Stream())


def dataset(count: int = COUNT) -> ps.Dataset:
    return ps.from_source(range(count)).map(element, seed=5)


def hashes(folder: Path) -> dict[str, str]:
    """Return the hash of every file, in sub-folders too."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def shards(folder: Path) -> dict[str, str]:
    """Return the hashes of what stands under a final name."""
    return {name: value for name, value in hashes(folder).items() if not name.startswith(".packing")}


def packed_with(disk: Disk, dest: Path, count: int = COUNT, **options: Any) -> None:
    """Pack in one thread, through a disk of ours."""
    with disk.used():
        pack(dataset(count), dest, num_workers=1, executor="threads", **{"num_shards": 3, **options})


class StepDisk(Disk):
    """Counts the steps; something happens at step `at`, before it is made or after."""

    def __init__(self, at: int, *, after: bool = False) -> None:
        super().__init__()
        self.at, self.after, self.count = at, after, 0
        self.names: list[str] = []

    def happen(self, name: str) -> None:
        """Do it."""

    def _step(self, name: str, make: Any) -> Any:
        mine = self.count == self.at
        self.count += 1
        self.names.append(name)
        if mine and not self.after:
            self.happen(name)
        result = make()
        if mine and self.after:
            self.happen(name)
        return result

    def create(self, path: str) -> int:
        return int(self._step("create", lambda: Disk.create(self, path)))

    def write(self, descriptor: int, data: memoryview) -> int:
        return int(self._step("write", lambda: Disk.write(self, descriptor, data)))

    def sync(self, descriptor: int) -> None:
        self._step("sync", lambda: Disk.sync(self, descriptor))

    def close_file(self, descriptor: int) -> None:
        self._step("close", lambda: Disk.close_file(self, descriptor))

    def rename(self, source: str, target: str) -> None:
        self._step("rename", lambda: Disk.rename(self, source, target))

    def remove(self, path: str) -> None:
        self._step("remove", lambda: Disk.remove(self, path))

    def make_folder(self, path: str) -> None:
        self._step("make_folder", lambda: Disk.make_folder(self, path))

    def remove_folder(self, path: str) -> None:
        self._step("remove_folder", lambda: Disk.remove_folder(self, path))


class FailingDisk(StepDisk):
    """Raises an OSError at one step. A descriptor that cannot be closed is closed all the same, as Linux does it."""

    def __init__(self, at: int, code: int = errno.ENOSPC, *, after: bool = False) -> None:
        super().__init__(at, after=after)
        self.code = code

    def happen(self, name: str) -> None:
        raise OSError(self.code, os.strerror(self.code))

    def create(self, path: str) -> int:
        if self.count != self.at or not self.after:
            return super().create(path)
        os.close(Disk.create(self, path))  # made, and then told that it was not
        self.count += 1
        raise OSError(self.code, os.strerror(self.code))

    def close_file(self, descriptor: int) -> None:
        try:
            super().close_file(descriptor)
        except OSError:
            if not self.after:
                os.close(descriptor)
            raise


class DeadlyDisk(StepDisk):
    """Ends the process by SIGKILL at one step."""

    def happen(self, name: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()


class FullForTheSecond(Disk):
    """Has no room for the second shard that any worker comes to write. The first, and the others, go on when that was told.

    Args:
        fifo: a named pipe that the caller keeps open to read and write.
    """

    def __init__(self, fifo: str) -> None:
        super().__init__()
        self._fifo = fifo

    def write(self, descriptor: int, data: memoryview) -> int:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        if name.startswith("data-0") and ".json." not in name:
            with open(self._fifo, "r+b", buffering=0) as fifo:
                if not self._is("first") and self._is("second"):
                    fifo.write(b"x" * 1000)  # for each of the others
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                fifo.read(1)
        return super().write(descriptor, data)

    def in_workers(self, element: dict[str, Any], packer: int) -> dict[str, Any]:
        """Give an element; worker processes have this disk from then on."""
        if os.getpid() != packer:
            steps.os = self  # type: ignore[misc, attr-defined, assignment]
        return element

    def _is(self, place: str) -> bool:
        try:
            open(f"{self._fifo}.{place}", "x").close()
        except FileExistsError:
            return False
        return True


class ShortDisk(Disk):
    """Writes a few bytes at a time."""

    def write(self, descriptor: int, data: memoryview) -> int:
        return super().write(descriptor, data[:777])


def exit_code_of(target: Callable[..., object], *arguments: Any) -> int | None:
    """Call a function in a process of its own, and return the exit status: minus the signal that ended it."""
    process = multiprocessing.get_context("forkserver").Process(target=target, args=arguments)
    process.start()
    process.join()
    code = process.exitcode
    process.close()
    return code


def life(dest: str, at: int, after: bool) -> None:
    """Pack, and be killed at a step."""
    packed_with(DeadlyDisk(at, after=after), Path(dest))


def life_in_processes(dest: str, orders: str, fifo: str, *numbers: str) -> None:
    """Pack with two worker processes; those that come to one of these elements tell it and go no further."""
    give_orders(orders, [int(number) for number in numbers], fifo)
    pack(obedient(orders), dest, num_workers=2, num_shards=8)


class FillingDisk(Disk):
    """Somebody else fills the disk when the second shard begins."""

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        if os.path.basename(path).startswith("data-00001"):
            path = os.path.join(os.path.dirname(path), os.pardir, os.pardir, "filler")
            with contextlib.suppress(OSError), open(path, "ab", buffering=0) as filler:
                while True:
                    filler.write(bytes(512))
        return descriptor


def life_on_a_disk_that_fills(folder: str) -> None:
    """Pack until it is full, and again when there is room; print error, shards, unfinished files, and whether the files are right."""
    dest, reference = Path(folder, "dest"), Path(folder, "reference")
    packed_with(Disk(), reference)
    try:
        packed_with(FillingDisk(), dest)
    except OSError as error:
        print(error.errno, *shards(dest), len(list(dest.glob(".packing/*.part"))))
    Path(folder, "filler").unlink()
    packed_with(Disk(), dest)
    print(hashes(dest) == hashes(reference))


class WaitingDisk(StepDisk):
    """Waits at one step until it may go on."""

    def __init__(self, at: int, held: threading.Event, go_on: threading.Event) -> None:
        super().__init__(at)
        self._held, self._go_on = held, go_on

    def happen(self, name: str) -> None:
        self._held.set()
        assert self._go_on.wait(60)


class Kept:
    """What a disk that lost its power has kept of what was not synced.

    Args:
        names: of NAMES: the changes of names that were made and not synced are lost, kept, or each by chance.
        contents: of BYTES: bytes that were not synced are lost, read as zeros, are there in part (zeros between), or are all there.
        seed: of the chance.
    """

    NAMES = ("none", "some", "all")
    BYTES = ("none", "zeros", "some", "all")

    def __init__(self, names: str, contents: str, seed: int) -> None:
        self._names, self._contents = names, contents
        self._chance = random.Random(seed)

    def of_names(self, synced: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        """Return path -> file of a disk with these names."""
        both = synced | now
        kept = {path: self._names == "all" or (self._names == "some" and self._chance.random() < 0.5) for path in sorted(both)}
        return {path: (now if kept[path] else synced)[path] for path in both if path in (now if kept[path] else synced)}

    def of_bytes(self, synced: bytes, written: bytes) -> bytes:
        """Return the contents of a file."""
        rest = bytearray(written[len(synced) :])
        if self._contents == "none":
            return synced
        for begin in range(0, len(rest), 512):
            if self._contents == "zeros" or (self._contents == "some" and self._chance.random() < 0.5):
                rest[begin : begin + 512] = bytes(len(rest[begin : begin + 512]))
        return synced + rest


class LogDisk(Disk):
    """Takes notes of every step, to play them again up to any of them as a disk that lost its power would have kept them.

    Kept for certain are the bytes that were synced, and the names of folders that were synced. `Kept` says what became of the others.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = str(root)
        self.steps: list[tuple[Any, ...]] = []

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        self.steps.append(("create", path, descriptor))
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        count = super().write(descriptor, data)
        self.steps.append(("write", descriptor, bytes(data[:count])))
        return count

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        folder = self.folders.get(descriptor)
        self.steps.append(("sync", descriptor) if folder is None else ("sync_folder", folder))

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.steps.append(("rename", source, target))

    def remove(self, path: str) -> None:
        super().remove(path)
        self.steps.append(("remove", path))

    def make_folder(self, path: str) -> None:
        super().make_folder(path)
        self.steps.append(("folder", path))

    def remove_folder(self, path: str) -> None:
        super().remove_folder(path)
        self.steps.append(("remove", path))

    def replay(self, end: int, dest: Path, what: Kept) -> None:
        """Make what is left of the first `end` steps."""
        now: dict[str, Any] = {}  # path -> number of a file, or "folder"
        kept: dict[str, Any] = {}
        opened: dict[int, int] = {}
        written: list[bytes] = []
        safe: list[bytes] = []
        for step in self.steps[:end]:
            match step:
                case ("create", path, descriptor):
                    now[path] = opened[descriptor] = len(written)
                    written.append(b"")
                    safe.append(b"")
                case ("write", descriptor, data):
                    written[opened[descriptor]] += data
                case ("sync", descriptor):
                    safe[opened[descriptor]] = written[opened[descriptor]]
                case ("rename", source, target):
                    now[target] = now.pop(source)
                case ("remove", path):
                    del now[path]
                case ("folder", path):
                    now[path] = "folder"
                case ("sync_folder", folder):
                    kept = {path: what for path, what in kept.items() if os.path.dirname(path) != folder}
                    kept |= {path: what for path, what in now.items() if os.path.dirname(path) == folder}
        names = what.of_names(kept, now)
        dest.mkdir()
        for path in sorted(names):
            place = dest / os.path.relpath(path, self._root)
            if names[path] == "folder":
                place.mkdir(exist_ok=True)
            elif place.parent.is_dir():
                place.write_bytes(what.of_bytes(safe[names[path]], written[names[path]]))
