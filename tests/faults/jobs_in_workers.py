"""Functions of pipelines that fail, die, hang or wait at a known element. They stand in a module, so that worker processes import them."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np

LOCK = threading.Lock()
"""A lock of the module: a program may hold it while its workers take theirs."""

CLIENT: list[sqlite3.Connection] = []
"""A client that is opened when it is first used, and must be another one in each process."""


def close_client() -> None:
    """Close that of this process."""
    while CLIENT:
        CLIENT.pop().close()


def claimed(folder: Path, name: str, times: int) -> bool:
    """Tell whether this is one of the first `times` calls with a name, in whatever process."""
    for number in range(times):
        try:
            os.close(os.open(folder / f"{name}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def die(how: str) -> None:
    """End this process."""
    if how == "exit 0":
        os._exit(0)
    if how == "exit 3":
        os._exit(3)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if how == "null":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.Signals[how])


WORDS_OF_DEATH = {
    "exit 0": "ended with exit code 0 before its work was done",
    "exit 3": "ended with exit code 3 before its work was done",
    "SIGKILL": "was killed by SIGKILL",
    "SIGSEGV": "was killed by SIGSEGV",
    "SIGABRT": "was killed by SIGABRT",
    "null": "was killed by SIGSEGV",
}


def number_of(x: Any) -> int:
    """Return the number of an element: itself, or the first one of a batch."""
    return int(np.ravel(x)[0])


class Dies:
    """Ends its process at some elements, the first `times` times."""

    def __init__(self, folder: Path, how: str, places: dict[int, int]) -> None:
        self.folder, self.how, self.places = folder, how, places

    def __call__(self, x: Any) -> Any:
        times = self.places.get(number_of(x), 0)
        if times and claimed(self.folder, f"died at {number_of(x)}", times):
            die(self.how)
        return x


class TwoArguments(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, place: int, what: str) -> None:
        super().__init__(f"{what} at {place}")


class HoldsALambda(Exception):
    """Cannot be pickled."""

    def __init__(self, place: int) -> None:
        super().__init__(f"no colour at {place}")
        self.undo = lambda: place


def raise_like(kind: str, place: int) -> Any:
    """Raise an error of a kind."""
    if kind == "sys.exit(0)":
        raise SystemExit(0)
    if kind == "MemoryError":
        return np.empty(1 << 58, np.uint8)
    if kind == "two arguments":
        raise TwoArguments(place, "no colour")
    if kind == "a lambda":
        raise HoldsALambda(place)
    raise {
        "ValueError": ValueError,
        "StopIteration": StopIteration,
        "StopAsyncIteration": StopAsyncIteration,
        "GeneratorExit": GeneratorExit,
        "KeyboardInterrupt": KeyboardInterrupt,
        "SystemExit": SystemExit,
    }[kind](f"no colour at {place}")


class Raises:
    """Raises an error at some elements."""

    def __init__(self, kind: str, *places: int) -> None:
        self.kind, self.places = kind, places

    def __call__(self, x: Any) -> Any:
        return raise_like(self.kind, number_of(x)) if number_of(x) in self.places else x


class Waits:
    """Waits at an element, the first time, until the program opens the FIFO `go` of a folder and closes it. Its process is in `pid`."""

    def __init__(self, folder: Path, place: int, times: int = 1) -> None:
        self.folder, self.place, self.times = folder, place, times

    def __call__(self, x: Any) -> Any:
        if number_of(x) == self.place and claimed(self.folder, "waits", self.times):
            (self.folder / "pid").write_text(str(os.getpid()))
            with open(self.folder / "go", "rb") as go:
                go.read()
        return x


class Hangs:
    """Never comes back from an element, the first `times` times."""

    def __init__(self, folder: Path, how: str, place: int, times: int) -> None:
        self.folder, self.how, self.place, self.times = folder, how, place, times

    def __call__(self, x: Any) -> Any:
        if number_of(x) == self.place and claimed(self.folder, "hangs", self.times):
            hang(self.how, self.folder)
        return x


def hang(how: str, folder: Path) -> None:
    """Never come back."""
    if how == "a loop":
        while True:
            pass
    if how == "a call of C":
        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # goes on behind a signal, other than sleep()
    if how == "a lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if how == "a FIFO":
        with open(folder / "never", "rb") as never:
            never.read()
    if how == "SIGSTOP":
        os.kill(os.getpid(), signal.SIGSTOP)


def number_in_line(x: dict[str, Any]) -> int:
    """Return the number that a line of a text file is."""
    return int(x["text"])


def doubled(x: int) -> int:
    return 2 * x


def row(x: Any) -> Any:
    """Return a row of numbers that tells its element."""
    return np.arange(number_of(x), number_of(x) + 50, dtype=np.int32)


def large_row(x: Any) -> Any:
    """Return a row of 64 kB."""
    return np.full(1 << 14, number_of(x), np.int32)


def with_process(x: Any) -> tuple[int, int]:
    """Return the element, and the process that computed it."""
    return number_of(x), os.getpid()


def keep(x: int) -> bool:
    return x % 5 != 0


def copies(x: int) -> list[int]:
    return [10 * x + number for number in range(x % 3)]


def noisy(x: int, rng: np.random.Generator) -> int:
    return x * 1000 + int(rng.integers(1000))


def words(x: int) -> dict[str, Any]:
    """Return an element with a text and an array."""
    return {"x": x, "text": f"no. {x} " + "é" * (x % 7), "a": np.full(3, x, np.float32)}


def ragged(x: int) -> Any:
    """Return an array whose size depends on the element: from nothing to 200 kB."""
    return np.full((x * 7919) % 25_000 if x % 4 else x % 5, x, np.int64)


def batch_sum(batch: Any) -> Any:
    return {"sum": np.asarray(batch, np.int64).sum(), "batch": batch}


class TakesLock:
    """Takes the lock of this module, which another one may hold in the program."""

    def __call__(self, x: int) -> int:
        with LOCK:
            return x


def from_client(x: int) -> tuple[int, int]:
    """Ask a client that each process opens for itself."""
    if not CLIENT:
        CLIENT.append(sqlite3.connect(":memory:", check_same_thread=False))  # so that the program may close it
    return int(CLIENT[0].execute("select ? + 1", (x,)).fetchone()[0]), os.getpid()


def product(x: int) -> int:
    """Return 200 x, by BLAS, in as many threads as it likes."""
    return int((np.full((200, 200), float(x)) @ np.ones((200, 200)))[0, 0])


class StartsProgram:
    """Starts a program at an element, and does not end it; its process is in a file."""

    def __init__(self, folder: Path, place: int) -> None:
        self.folder, self.place = folder, place

    def __call__(self, x: int) -> int:
        if x == self.place and claimed(self.folder, "program", 1):
            child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            (self.folder / "grandchild").write_text(str(child.pid))
            child.returncode = 0  # what subprocess says of one that still runs is not the subject
        return x


def drawn(x: int) -> tuple[int, int, float, float]:
    """Draw from the generators of the process."""
    return x, os.getpid(), float(np.random.random()), random.random()


class Changes:
    """Changes what belongs to the process: folder, mask, environment, handlers, standard input."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, x: int) -> int:
        if x == self.place:
            os.chdir("/")
            os.umask(0o077)
            os.environ["PENSTOCK_TEST"] = "changed"
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.close(0)
        return x


class Unreadable:
    """A function that cannot be read in another process: each process that reads it ends, or gets an error."""

    def __init__(self, how: str) -> None:
        self.how, self.pid = how, os.getpid()

    def __call__(self, x: int) -> int:
        return x

    def __getstate__(self) -> dict[str, Any]:
        if self.how == "is not written":
            raise ValueError("not to be written")
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() == self.pid:
            return
        if self.how == "is not read":
            raise LookupError("not to be read")
        os._exit(1)


class Returns:
    """Returns something that cannot be sent, at an element."""

    def __init__(self, what: str, place: int) -> None:
        self.what, self.place = what, place

    def __call__(self, x: int) -> Any:
        if x != self.place:
            return x
        odd = {"a lambda": lambda: 0, "a lock": threading.Lock(), "a generator": (n for n in range(3))}
        return odd[self.what] if self.what in odd else open(os.devnull)


DTYPES = (
    *("?", "i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">i8", "<f2", ">f4", "<f8", ">f8", "<c8", "<c16"),
    *("S3", "<U5", ">U5", "<M8[s]", "<m8[ms]", "V4", "i4,f8", "O"),
)
SHAPES = ((), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4), (3000,))


def of_every_kind(x: int) -> Any:
    """Return an array of another dtype, shape and layout for each number below 4 * len(DTYPES) * len(SHAPES)."""
    rest, layout = divmod(x, 4)
    dtype, shape = np.dtype(DTYPES[rest % len(DTYPES)]), SHAPES[rest // len(DTYPES) % len(SHAPES)]
    size = int(np.prod(shape, dtype=int))
    if dtype.hasobject:
        array = np.array([f"{x} {n}" if n % 2 else (x, n) for n in range(size)] + [None], object)[:size].reshape(shape)
    elif dtype.kind in "SU":
        array = np.array([str(x * 31 + n) for n in range(size)], dtype).reshape(shape)
    else:
        data = np.random.default_rng(x).integers(0, 2 if dtype.kind == "b" else 100, size * dtype.itemsize, np.uint8)
        array = np.frombuffer(data.tobytes(), dtype)[:size].reshape(shape)
    if layout == 1:
        return np.asfortranarray(array)
    if layout == 2 and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    return array[::-1] if layout == 3 and array.ndim else array


class LimitsMemory:
    """Asks for more than a limit of the process allows, at an element."""

    def __init__(self, place: int, num_bytes: int) -> None:
        self.place, self.num_bytes = place, num_bytes

    def __call__(self, x: int) -> int:
        if x != self.place:
            return x
        before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
        try:
            return int(np.ones(self.num_bytes, np.uint8)[0])
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
