"""The matrix of faults: each cell is a fault, an executor and an order, and says itself what must come out.

A cell runs in `cell_program.py`. What it leaves behind is looked at from outside, in `test_matrix.py`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from faults.jobs_in_workers import number_of
from faults.ways import notes

import penstock as ps
from penstock.testing.runs import exact

__all__ = ["CELLS", "EXECUTORS", "Cell", "Way"]

Way = dict[str, Any]

EXECUTORS: dict[str, Way] = {
    "inline": {"executor": "inline"},
    "threads": {"executor": "threads", "num_workers": 2},
    "processes": {"executor": "processes", "num_workers": 2},
}
WORKERS, PROCESSES = ("threads", "processes"), ("processes",)
"""What goes wrong inline and in threads is in the other files of this folder; here are the cells that say more of them."""


class Cell(NamedTuple):
    """One line of the matrix.

    Attributes:
        rows: the numbers of the faults in the fault list.
        run: makes the fault happen and checks the outcome.
        executors: those that it is possible with.
        orders: values of `ordered`.
        deadline_s: within which it ends.
        slow: whether only the full matrix has it.
    """

    rows: tuple[str, ...]
    run: Callable[[Way, Path], None]
    executors: tuple[str, ...]
    orders: tuple[bool, ...]
    deadline_s: float
    slow: bool


CELLS: dict[str, Cell] = {}


def cell(
    *rows: str,
    executors: tuple[str, ...] = PROCESSES,
    orders: tuple[bool, ...] = (True, False),
    deadline_s: float = 30,
    slow: bool = False,
    **each: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a function into the matrix, once for each value of `each`, which is one further argument of it and its values."""

    def enter(run: Callable[..., None]) -> Callable[..., None]:
        name = run.__name__.replace("_", " ")
        for argument, values in each.items() or [("", [None])]:
            for value in values:
                given = {argument: value} if argument else {}

                def bound(way: Way, folder: Path, given: dict[str, Any] = given) -> None:
                    run(way, folder, **given)

                CELLS[f"{name}: {value}" if argument else name] = Cell(rows, bound, executors, orders, deadline_s, slow)
        return run

    return enter


# -- what came out -----------------------------------------------------------------------------------------------------------------


def taken(feed: ps.Feed, count: int | None = None) -> tuple[list[Any], BaseException | None]:
    """Take what a feed delivers, at most `count` items, and the error that ended it."""
    items: list[Any] = []
    try:
        for item in feed:
            items.append(item)
            if len(items) == count:
                break
    except BaseException as error:
        return items, error
    return items, None


def run(ds: ps.Dataset, way: Way, **options: Any) -> tuple[list[Any], BaseException | None]:
    """Run a dataset to its end or error."""
    with ds.feed(**{**way, **options}) as feed:
        return taken(feed)


def reference(ds: ps.Dataset, epoch: int = 0) -> list[Any]:
    """Return what a run in line delivers."""
    with ds.feed(executor="inline") as feed:
        feed.set_epoch(epoch)
        return list(feed)


def check_same(items: list[Any], whole: list[Any], way: Way) -> None:
    """Check that items are those of the whole run, byte for byte; in completion order, in any order."""
    if way.get("ordered", True):
        assert [exact(item) for item in items] == [exact(item) for item in whole]
    else:
        assert Counter(map(exact, items)) == Counter(map(exact, whole))


def check_beginning(items: list[Any], whole: list[Any], end: int, way: Way) -> None:
    """Check that items are the first ones, up to `end`; in completion order, that each is one of the run and comes once."""
    if way.get("ordered", True):
        assert [exact(item) for item in items] == [exact(item) for item in whole[:end]]
    else:
        assert not Counter(map(exact, items)) - Counter(map(exact, whole))


def check_note(error: BaseException | None, stage: str, place: int, way: Way) -> None:
    """Check that an error names stage, worker and element, once."""
    text = notes(error) if not isinstance(error, ps.errors.StopRaised) else error.where
    assert text.count(f"stage {stage!r}, worker ") == 1, text
    assert f"element epoch 0 index {place}" in text, text
    if way["executor"] == "processes":
        assert ", process " in notes(error) + str(error) + notes(error.__cause__ if error else None), notes(error)


# -- acting on workers -------------------------------------------------------------------------------------------------------------


@contextmanager
def when_waiting(folder: Path, act: Callable[[int], None]) -> Iterator[None]:
    """Call `act` with the process of a worker that `Waits`, and then let it go on."""
    os.mkfifo(folder / "go")

    def watch() -> None:
        with open(folder / "go", "wb"):  # opens when the worker reads
            act(int((folder / "pid").read_text()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        if watcher.is_alive() and not (folder / "pid").exists():  # the fault did not come to its place: let the watcher end
            (folder / "pid").write_text("0")
            os.close(os.open(folder / "go", os.O_RDONLY | os.O_NONBLOCK))
        watcher.join()


def pids(feed: ps.Feed) -> list[int]:
    """Return the worker processes of a feed: what is forked from them is a child of the engine process."""
    process = getattr(feed._run, "_process", None)
    return [] if process is None else [pid for nursery in _children_of(process.pid) for pid in _children_of(nursery)]


def begun(feed: ps.Feed) -> list[int]:
    """Return those that have begun, and have their threads: three in a row that die before are an error, as they should be."""
    found = []
    for pid in pids(feed):
        with suppress(OSError):
            found += [pid] if len(list(Path(f"/proc/{pid}/task").iterdir())) >= 3 else []
    return found


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def processes_in(items: list[Any]) -> set[int]:
    """Return the processes that `with_process` saw."""
    return {int(pid) for _, pid in items}


def places(items: list[Any]) -> list[int]:
    """Return the numbers of elements."""
    return [number_of(item) for item in items]


from faults import cells_of_loops, cells_of_workers  # noqa: E402, F401 - they enter their cells
