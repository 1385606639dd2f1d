"""Faults of workers and programs under Penstock, DataLoader and Grain: what the loop sees, how soon, and what is left.

Every cell is a program of its own (`reliability_programs.py`), seen from outside, one at a time. The result is `results/reliability.json`;
`--table` prints the table of docs/reliability.md from it, and `--details` what each loop saw.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import machine
from reliability_programs import CELLS, NUM_ELEMENTS, PLACE
from rounds import RESULTS

NAME = "reliability"
PROGRAMS = Path(__file__).with_name("reliability_programs.py")
LIBRARIES = {
    "penstock": "Penstock",
    "dataloader": "DataLoader",
    "mp_prefetch": "Grain `mp_prefetch`",
    "grain_dataloader": "Grain `DataLoader`",
}
PACKAGES = {"penstock": "penstock", "dataloader": "torch", "mp_prefetch": "grain", "grain_dataloader": "grain"}

DEADLINE_S, START_S = 75.0, 120.0
"""So long after the fault a program is ended; so long it may take to reach the fault."""

MARK = "PENSTOCK_RELIABILITY"
"""A variable of the environment by which all processes of a program are found, also those that left its session."""

Batches = list[Any]


@dataclass(slots=True)
class Row:
    """A cell under one library.

    Attributes:
        setting: a documented option beside the defaults, or "".
        seen: in a word what came of it, for the table of the page.
        text: what the loop saw, for the details.
        error: the first line of the error.
        seconds: from the fault to the end of the loop, or of the program where the loop never ended; None: none before the deadline.
        processes: names of the processes that were there one second after the program.
        shm: names of its files in /dev/shm at that time.
        was_killed: the program was ended at the deadline, so that what is left says nothing.
    """

    cell: str
    library: str
    setting: str
    seen: str = ""
    text: str = ""
    error: str = ""
    seconds: float | None = None
    processes: list[str] = field(default_factory=list)
    shm: list[str] = field(default_factory=list)
    was_killed: bool = False
    version: str = ""


# -- one program, from outside -----------------------------------------------------------------------------------------------------


def run(cell: str, library: str, setting: str = "", expected: Batches | None = None, deadline_s: float = DEADLINE_S) -> tuple[Row, Batches]:
    """Run the program of a cell and look at it from outside; return what came of it, and its batches.

    Args:
        cell: a name of CELLS.
        library: a name of LIBRARIES.
        setting: a documented option beside the defaults.
        expected: the batches of a run without a fault; None: those of this run.
        deadline_s: so long after the fault the program is ended.
    """
    row = Row(cell, library, setting)
    shm = set(_shm())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, str(PROGRAMS), library, cell, setting, name]
        with open(folder / "stderr", "wb") as stderr:
            program = subprocess.Popen(
                command, env={**os.environ, MARK: name, "TMPDIR": name}, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
            )
        try:
            fault_s = _until_fault(program, folder, CELLS[cell].outside)
            row.was_killed = not _wait(lambda: program.poll() is not None, deadline_s)
            ended_s = time.monotonic()
            if row.was_killed:
                program.kill()
                program.wait()
            time.sleep(1.0)
            row.processes = [process for pid in _marked(name) if (process := _name_of(pid))]
            row.shm = sorted(set(_shm()) - shm)
        finally:
            for pid in _marked(name):
                os.kill(pid, signal.SIGKILL)
            program.wait()
        outcome = _read(folder / "outcome")
        _judge(row, outcome, expected, fault_s, ended_s, (folder / "stderr").read_text(errors="replace"))
    return row, outcome["items"] if outcome else []


def _until_fault(program: subprocess.Popen[bytes], folder: Path, outside: str) -> float:
    """Wait for the fault, send the program the signal of the cell, and return when the clock starts."""
    _wait(lambda: (folder / "fault").exists() or program.poll() is not None, START_S)
    fault_s = _read(folder / "fault")
    if not outside:
        return float(fault_s or time.monotonic())
    time.sleep(0.5)
    fault_s = time.monotonic()
    if outside == "SIGINT":  # a terminal sends it to all processes of the group
        os.killpg(program.pid, signal.SIGINT)
    else:
        program.send_signal(signal.Signals[outside])
    return fault_s


def _wait(is_so: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.02)
    return is_so()


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def _shm() -> Iterable[str]:
    return os.listdir("/dev/shm")


def _marked(mark: str) -> list[int]:
    """Return the live processes of one program: a fork has the environment of its parent."""
    word, found = f"{MARK}={mark}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                environment = Path("/proc", entry, "environ").read_bytes()
            except OSError:  # it ended, or belongs to somebody else
                continue
            if word in environment.split(b"\0"):
                found.append(int(entry))
    return found


def _name_of(pid: int) -> str:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join([Path(words[0]).name, *words[1:3]])[:60]


# -- what it means -----------------------------------------------------------------------------------------------------------------


def _judge(row: Row, outcome: Mapping[str, Any] | None, expected: Batches | None, fault_s: float, ended_s: float, stderr: str) -> None:
    """Fill in the row from what the program has written."""
    if outcome is not None:
        row.version = outcome["version"]
        row.error = plain(outcome["error"])
        row.seconds = max(0.0, outcome["at"] - fault_s)
        row.seen, row.text = _of_the_loop(row, outcome, outcome["items"] if expected is None else expected)
        if row.was_killed:
            row.seen, row.text, row.seconds = f"{row.seen}, **the program does not end**", f"{row.text}; the program does not end", None
    elif row.was_killed:
        row.seen, row.text = "**hangs**", f"nothing in {DEADLINE_S:.0f} s"
    elif CELLS[row.cell].outside:
        row.seen, row.text, row.seconds = "ends", "-", ended_s - fault_s
    else:
        row.seen, row.seconds = "**the program dies**", ended_s - fault_s
        row.text = f"the program ends without an error of Python: `{plain(stderr.strip().splitlines()[-1] if stderr.strip() else '')}`"
    if not row.was_killed and (row.processes or row.shm):
        row.seen += f", **leaves {left(row)}**"


def _of_the_loop(row: Row, outcome: Mapping[str, Any], expected: Batches) -> tuple[str, str]:
    items, error = outcome["items"], row.error
    is_beginning = items == expected[: len(items)]
    if error:
        names = ", names the element" if outcome["names"] else ""
        wrong = "" if is_beginning else ", **wrong batches before it**"
        return f"error{names}{wrong}", f"`{error}`, after {len(items)} right batches{names}{wrong}"
    if items == expected:
        return "goes on", "all batches, as without the fault"
    elements = [x for item in items for x in (item if item != "torn" else [])]
    missing = sorted(set(range(NUM_ELEMENTS)) - set(elements))
    if missing == [PLACE] and elements == [x for x in range(NUM_ELEMENTS) if x != PLACE]:
        return "goes on without the element", "all elements but the one of the fault"
    return "**loses elements, no error**", f"no error; {len(missing)} of {NUM_ELEMENTS} elements never come"


def plain(text: str) -> str:
    """Shorten an error, and take numbers of processes and the name of the code block out of it."""
    text = re.sub(r"(process|pid\(s\)|pid) \d+(, \d+)*", r"\1 N", text).replace("`", "'").replace("|", "/")
    return text if len(text) <= 120 else f"{text[:117]}..."


def time_class(row: Row) -> str:
    """Return how soon, as a class."""
    if row.seconds is None:
        return f"none in {DEADLINE_S:.0f} s"
    return next(f"< {limit:.0f} s" for limit in (1, 10, DEADLINE_S, math.inf) if row.seconds < limit)


def left(row: Row) -> str:
    """Return what is left, for the tables."""
    counts = ((len(row.processes), "process", "processes"), (len(row.shm), "file", "files"))
    return " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)


# -- the tables --------------------------------------------------------------------------------------------------------------------


def tables(result: Mapping[str, Any]) -> str:
    """Return the table of the page as Markdown, with versions and date."""
    rows = [Row(**row) for row in result["cells"]]
    libraries = [name for name in LIBRARIES if any(row.library == name for row in rows)]
    versions = {PACKAGES[row.library]: row.version for row in rows if row.version}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    head = f"{packages}; Python {result['machine']['python']}, Linux; {result['time'][:10]}."
    lines = [head, "", f"| Fault | {' | '.join(LIBRARIES[name] for name in libraries)} |", "|---" * (1 + len(libraries)) + "|"]
    lines += [_line(cell, libraries, rows) for cell in dict.fromkeys(row.cell for row in rows)]
    return "\n".join(lines)


def details(result: Mapping[str, Any]) -> str:
    """Return what each loop saw, how soon, and what was left, as a table in Markdown."""
    lines = ["| Fault | Library | What the loop sees | Time | Left after 1 s |", "|---|---|---|---|---|"]
    for row in (Row(**row) for row in result["cells"]):
        option = f", `{row.setting}`" if row.setting else ""
        leaves = "-" if row.was_killed else left(row) or "nothing"
        lines.append(f"| {CELLS[row.cell].title} | {LIBRARIES[row.library]}{option} | {row.text} | {time_class(row)} | {leaves} |")
    return "\n".join(lines)


def _line(cell: str, libraries: Sequence[str], rows: Sequence[Row]) -> str:
    columns = []
    for library in libraries:
        of_it = [row for row in rows if (row.cell, row.library) == (cell, library)]
        columns.append("; ".join(f"with `{row.setting}`: {row.seen}" if row.setting else row.seen for row in of_it) or "-")
    return f"| {CELLS[cell].title} | {' | '.join(columns)} |"


def main() -> None:
    """Run the cells and write the results, or print the tables of a result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--libraries", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument("--table", action="store_true", help="run nothing; print the table of the page from the result file")
    parser.add_argument("--details", action="store_true", help="run nothing; print what each loop saw from the result file")
    args = parser.parse_args()
    path = args.out / f"{NAME}.json"
    if args.table or args.details:
        print((tables if args.table else details)(json.loads(path.read_text())))
        return
    machine.adopt_orphans()
    old = json.loads(path.read_text())["cells"] if path.exists() else []
    rows = [row for row in old if row["cell"] not in args.cells or row["library"] not in args.libraries]
    for library in args.libraries:
        if importlib.util.find_spec(PACKAGES[library]) is None:
            print(f"{library}: {PACKAGES[library]} is not installed")
            continue
        _, expected = run("healthy", library)
        for cell in args.cells:
            for setting in ("", *CELLS[cell].settings.get(library, ())):
                row, _ = run(cell, library, setting, expected)
                rows.append(asdict(row))
                print(f"{library}, {cell}, {setting or 'defaults'}: {row.seen} ({time_class(row)}) {row.text}", flush=True)
    order = [(cell, library) for cell in CELLS for library in LIBRARIES]
    rows.sort(key=lambda row: order.index((row["cell"], row["library"])))
    time_text = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    result = {"claim": NAME, "time": time_text, "machine": machine.facts(), "cells": rows}
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
