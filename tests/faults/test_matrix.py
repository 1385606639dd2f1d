"""The matrix of faults: fault x executor x order. Each cell ends within its deadline with the outcome of the table, and leaves nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.cells import CELLS
from faults.outside import Holding, gone, processes_of, still_held

import penstock as ps

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a program holds is read from /proc")

GRACE_S = 2.0
WARM_UP = "a loop is left: 1"


class CellProgram:
    """A program that runs cells: a session of its own, looked at from outside between two of them."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._temporary = self._folder / "tmp"
        self._temporary.mkdir()
        self._start()

    def _start(self) -> None:
        paths = [str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])]
        self._errors = open(self._folder / "stderr", "w+b")  # noqa: SIM115 - it is closed with the program
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.cell_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(self._temporary)},
            start_new_session=True,
        )
        said = self._answer(WARM_UP, "processes", True, 60)  # it starts the fork server
        self._before = Holding.of(self._process.pid, self._temporary)
        if said:
            self.end()
            raise AssertionError(said)

    def run(self, cell: str, executor: str, ordered: bool, deadline_s: float) -> str:
        """Run a cell; return what it says, and what is left behind: nothing when all is as it must be."""
        said = self._answer(cell, executor, ordered, deadline_s)
        left = still_held(self._before, self._process.pid, self._temporary, GRACE_S)
        errors = self._errors_said()
        found = "\n".join([said, *(f"left behind: {thing}" for thing in left), errors]).strip()
        if found:  # another one for the next cell
            self.end()
            self._start()
        return found

    def _answer(self, cell: str, executor: str, ordered: bool, deadline_s: float) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"cell": cell, "executor": executor, "ordered": ordered}).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], deadline_s)[0]:
            self._process.send_signal(signal.SIGUSR2)  # its stack, to stderr
            select.select([self._process.stdout], [], [], 1.0)
            return f"no end within {deadline_s} s"
        line = self._process.stdout.readline()
        return str(json.loads(line)) if line else f"the program ended with status {self._process.wait()}"

    def _errors_said(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        self._errors.truncate(0)
        return text

    def end(self) -> None:
        """End all processes of the session."""
        for process in processes_of(self._process.pid):
            os.kill(process.pid, signal.SIGKILL)
        self._process.communicate()
        self._errors.close()
        assert gone(self._process.pid, GRACE_S) == []


@pytest.fixture(scope="module")
def program() -> Iterator[CellProgram]:
    """Run one program for the cells of this module."""
    program = CellProgram()
    yield program
    program.end()


FAST_IN_ANY_ORDER = ("a worker dies once: SIGKILL", "an element that kills is named: SIGKILL", "a function raises: ValueError")
"""The cells that the core suite has in completion order too, with processes. The full matrix has all."""

CORE_WITH_PROCESSES = {name.partition(": ")[0]: name for name in reversed(CELLS)} | {
    name.partition(": ")[0]: name
    for name in (
        "a feed is dropped: by a traceback",
        "a function returns what cannot be sent: a lock",
        "a loop is left: 1",
        "a worker dies once: SIGKILL",
        "a worker that hangs is killed and its element skipped: a FIFO",
        "a worker that hangs is named and killed: a call of C",
        "an element that kills is named: SIGKILL",
    )
}
"""One cell of each kind: the first, or a cheaper or more telling one."""

WITH_KIN = (
    "a consumer takes its time",
    "a feed in a daemonic process",
    "a filter raises what would pass for an end: StopIteration",
    "a hundred thousand tiny elements",
    "an ended iterator is asked again",
    "eight workers on few cpus give no false alarm",
    "everything happens outside the main thread",
    "forty workers are killed",
    "four threads share a feed",
    "one worker is far slower",
    "the consumer keeps everything",
    "two elements fail at once",
)
"""In the full matrix only: the core suite has them with threads, in the files beside, or another kind that does nearly the same."""


def _is_slow(name: str, executor: str, ordered: bool) -> bool:
    if CELLS[name].slow or (executor == "processes" and (name in WITH_KIN or name not in CORE_WITH_PROCESSES.values())):
        return True
    return not (ordered or (executor == "processes" and name in FAST_IN_ANY_ORDER))


TABLE = [
    pytest.param(
        name,
        executor,
        ordered,
        id=f"{name}, {executor}{'' if ordered else ', unordered'}",
        marks=[pytest.mark.slow] * _is_slow(name, executor, ordered),
    )
    for name, one in CELLS.items()
    for executor in one.executors
    for ordered in one.orders
]


@pytest.mark.parametrize(("name", "executor", "ordered"), TABLE)
def test_a_cell_of_the_matrix_ends_as_the_table_says_and_leaves_nothing(
    name: str, executor: str, ordered: bool, program: CellProgram
) -> None:
    if said := program.run(name, executor, ordered, CELLS[name].deadline_s):
        pytest.fail(said, pytrace=False)
