"""The programs of reliability.py: a training loop over one loader, with one fault. `reliability_programs.py SYSTEM CELL SETTING FOLDER`.

The program writes `fault` into its folder when the fault happens, and `outcome` when the loop has ended. The rest is seen from outside.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NUM_ELEMENTS, BATCH, ROW, PLACE = 240, 4, 2048, 101
"""So many elements in batches of 64 kB; the fault is at one element."""

STEP, STEP_S = 10, 0.002

FOREVER = 1e6
ALWAYS = 99


class Cell(NamedTuple):
    """One fault.

    Attributes:
        title: the row of it.
        worker: what happens in a worker, at the element PLACE.
        times: how many times.
        loop: what the training loop does.
        outside: the signal that the program gets when the fault has happened.
        settings: documented settings of a system, tried beside its defaults.
    """

    title: str
    worker: str = ""
    times: int = 1
    loop: str = ""
    outside: str = ""
    settings: Mapping[str, tuple[str, ...]] = {}


_SKIP = {"penstock": ("on_error=ps.Skip()",)}
_LIMIT = {
    "penstock": ("stall_timeout_s=5", 'stall_timeout_s=5, on_stall="skip", on_error=ps.Skip()'),
    "dataloader": ("timeout=5",),
}
CELLS = {
    "healthy": Cell("nothing"),
    "SIGKILL": Cell("a worker is killed by SIGKILL, once", "SIGKILL"),
    "SIGSEGV": Cell("SIGSEGV in the function, once", "SIGSEGV"),
    "exit 0": Cell("`os._exit(0)` in the function, once", "exit 0"),
    "kills always": Cell("an element kills each worker that computes it", "SIGKILL", ALWAYS, settings=_SKIP),
    "sleep": Cell("a worker hangs in Python (`time.sleep`)", "sleep", settings=_LIMIT),
    "C": Cell("a worker hangs in C and holds the GIL", "C", settings=_LIMIT),
    "raises": Cell("the function raises `ValueError`", "raises", ALWAYS, settings=_SKIP),
    "two arguments": Cell("an exception whose pickle cannot be read", "two arguments", ALWAYS),
    "lambda": Cell("an exception that cannot be pickled", "lambda", ALWAYS),
    "StopIteration": Cell("the function raises `StopIteration`", "StopIteration", ALWAYS),
    "Ctrl-C": Cell("Ctrl-C while the loop waits for a worker", "sleeps 2 s", outside="SIGINT"),
    "SIGKILL of the program": Cell("the program is killed by SIGKILL while its workers wait", loop="waits", outside="SIGKILL"),
    "SIGKILL, busy": Cell("the program is killed by SIGKILL while a worker is in a long call", "sleep", outside="SIGKILL"),
    "loop raises": Cell("the training loop raises", loop="raises"),
    "break": Cell("the loop leaves early by `break`, then does an epoch", loop="break", settings={"mp_prefetch": ("close()",)}),
}


# -- in the workers ----------------------------------------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, place: int, what: str) -> None:
        super().__init__(what)


class HoldsALambda(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.undo = lambda: text


class Function:
    """Makes a row of an element, and a fault at one of them."""

    def __init__(self, folder: str, kind: str, times: int) -> None:
        self.folder, self.kind, self.times = folder, kind, times

    def __call__(self, x: int) -> Any:
        time.sleep(0.001)
        if self.kind and x == PLACE and claimed(self.folder, self.times):
            mark(self.folder)
            strike(self.kind)
        return np.full(ROW, x, np.int64)

    map = __call__  # as Grain calls it
    __getitem__ = __call__  # as DataLoader does

    def __len__(self) -> int:
        return NUM_ELEMENTS


def claimed(folder: str, times: int) -> bool:
    """Tell whether this is one of the first `times` calls, in whatever process."""
    for number in range(times):
        try:
            os.close(os.open(f"{folder}/claimed-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def mark(folder: str) -> None:
    """Note the time of the first fault."""
    if not (Path(folder) / "fault").exists():
        write(folder, "fault", time.monotonic())


def write(folder: str, name: str, value: Any) -> None:
    """Write a whole file at once."""
    Path(folder, f"{name}.new").write_text(json.dumps(value))
    os.replace(f"{folder}/{name}.new", f"{folder}/{name}")


def strike(kind: str) -> None:
    """Do what the cell says, in the process of the worker."""
    if kind.startswith("SIG"):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.Signals[kind])
    elif kind.startswith("exit "):
        os._exit(int(kind[5:]))
    elif kind.startswith("sleep"):
        time.sleep(2 if kind == "sleeps 2 s" else FOREVER)
    elif kind == "C":
        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
    else:
        raise {
            "raises": ValueError("a bad element"),
            "two arguments": TwoArguments(PLACE, "a bad element"),
            "lambda": HoldsALambda("a bad element"),
            "StopIteration": StopIteration("a bad element"),
        }[kind]


# -- the loaders -------------------------------------------------------------------------------------------------------------------


def penstock(function: Function, setting: str) -> tuple[Iterable[Any], str]:
    import penstock as ps

    options = eval(f"dict({setting})", {"ps": ps})
    dataset = ps.from_source(range(NUM_ELEMENTS)).map(function).batch(BATCH)
    return dataset.feed(executor="processes", num_workers=2, **options), ps.__version__


def dataloader(function: Function, setting: str) -> tuple[Iterable[Any], str]:
    import torch.utils.data

    options = eval(f"dict({setting})")
    return torch.utils.data.DataLoader(function, BATCH, num_workers=2, **options), torch.__version__


def mp_prefetch(function: Function, setting: str) -> tuple[Iterable[Any], str]:
    import grain

    dataset = grain.MapDataset.range(NUM_ELEMENTS).map(function).batch(BATCH).to_iter_dataset()
    return dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=2)), grain.__version__


def grain_dataloader(function: Function, setting: str) -> tuple[Iterable[Any], str]:
    import grain

    class Map(grain.transforms.Map):  # type: ignore[misc]
        def map(self, element: Any) -> Any:
            return function(element)

    sampler = grain.samplers.IndexSampler(NUM_ELEMENTS, shard_options=grain.sharding.NoSharding(), shuffle=False, num_epochs=1, seed=0)
    operations = [Map(), grain.transforms.Batch(BATCH)]
    source = grain.sources.RangeDataSource(0, NUM_ELEMENTS, 1)
    return grain.DataLoader(data_source=source, sampler=sampler, operations=operations, worker_count=2), grain.__version__


SYSTEMS: dict[str, Callable[[Function, str], tuple[Iterable[Any], str]]] = {
    "penstock": penstock,
    "dataloader": dataloader,
    "mp_prefetch": mp_prefetch,
    "grain_dataloader": grain_dataloader,
}


# -- the training loop -------------------------------------------------------------------------------------------------------------


class Program:
    """A loop over batches, and what it got.

    Attributes:
        items: of each batch the elements in it, or "torn" where a row is not that of one element.
        error: the first line of the error that the loop saw.
        names: whether its text names the element of the fault.
    """

    def __init__(self, system: str, cell: Cell, setting: str, folder: str) -> None:
        self.system, self.cell, self.setting, self.folder = system, cell, setting, folder
        self.items: list[Any] = []
        self.error, self.names = "", False
        self.version = ""

    def run(self) -> None:
        """Run the loop to its end or its first error, as a program does that handles none."""
        try:
            self._train()
        except BaseException as error:
            self._note(error)
            raise
        finally:
            outcome = {"items": self.items, "error": self.error, "names": self.names, "at": time.monotonic(), "version": self.version}
            write(self.folder, "outcome", outcome)

    def _train(self) -> None:
        loader = self._open()
        loop = self.cell.loop
        if loop == "break":
            self._leave(loader)
            self.items.clear()
        self._epoch(loader)

    def _open(self) -> Iterable[Any]:
        loader, self.version = SYSTEMS[self.system](Function(self.folder, self.cell.worker, self.cell.times), self.setting)
        return loader

    def _leave(self, loader: Iterable[Any]) -> None:
        iterator: Any = iter(loader)
        for batch in iterator:
            self._take(batch)
            if len(self.items) == STEP:
                break
        if self.setting == "close()":
            iterator.close()

    def _epoch(self, loader: Iterable[Any]) -> None:
        for batch in loader:
            self._take(batch)
            if len(self.items) == STEP:
                self._act()

    def _take(self, batch: Any) -> None:
        self.items.append(elements_of(batch))
        time.sleep(STEP_S)

    def _act(self) -> None:
        """Do what the loop of this cell does at one step, when all queues are full."""
        if self.cell.loop not in ("waits", "raises"):
            return
        time.sleep(1.0)
        mark(self.folder)
        if self.cell.loop == "waits":
            time.sleep(FOREVER)
        raise ZeroDivisionError("an error of the loop")

    def _note(self, error: BaseException) -> None:
        self.error = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        self.names = re.search(rf"(?<!line )\b{PLACE}\b", "".join(traceback.format_exception(error))) is not None


def elements_of(batch: Any) -> list[int] | str:
    """Return the elements of a batch, or "torn"."""
    rows = np.asarray(batch)
    return [int(x) for x in rows[:, 0]] if (rows == rows[:, :1]).all() else "torn"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    Program(sys.argv[1], CELLS[sys.argv[2]], sys.argv[3], sys.argv[4]).run()
