"""What a program holds, as others see it: everything of its session, from /proc. FAULTS 5.2, points 2 and 3."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from penstock.testing.leaks import HARMLESS_FILES

__all__ = ["Holding", "descriptors_of", "gone", "kilobytes_of", "processes_of", "still_held"]

_LOOK_AGAIN_S = 0.01
_STATE, _PARENT, _SESSION, _STARTED = 0, 1, 3, 19  # places in /proc/PID/stat, behind the name
_MEMORY_FILE = re.compile(r" (/memfd:penstock.*)")


class Process(NamedTuple):
    """One process: a zombie too."""

    pid: int
    started: str
    words: str


class Holding(NamedTuple):
    """What a session holds at one moment, each thing in words; processes that were there before by what they hold."""

    things: frozenset[str]

    @classmethod
    def of(cls, session: int, folder: Path) -> Holding:
        """Look at the processes of a session, at names in /dev/shm that are this library's, and at a folder of temporary files."""
        things = set()
        for process in processes_of(session):
            things.add(process.words)
            things |= {f"{process.words}: thread {task}" for task in _list(f"/proc/{process.pid}/task")}
            things |= {f"{process.words}: descriptor {words}" for words in descriptors_of(process.pid)}
            things |= {f"{process.words}: mapping of {name}" for name in _MEMORY_FILE.findall(_read(f"/proc/{process.pid}/maps"))}
        things |= {f"/dev/shm/{name}" for name in _list("/dev/shm") if name.startswith("penstock")}
        things |= {f"temporary file {path}" for path in folder.rglob("*")}
        return cls(frozenset(things))


def processes_of(session: int) -> list[Process]:
    """List the processes of a session, whoever their parent is; but no zombies that the system's first process has yet to reap."""
    found, parents = [], {}
    for pid in _list("/proc"):
        if pid.isdecimal():
            stat = _read(f"/proc/{pid}/stat").rpartition(") ")[2].split()
            if stat and int(stat[_SESSION]) == session:
                command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
                kind = "zombie" if stat[_STATE] in "ZX" else "process"
                found.append(Process(int(pid), stat[_STARTED], f"{kind} {pid} {command[:60]}".rstrip()))
                parents[int(pid)] = int(stat[_PARENT])
    return [process for process in found if process.words.startswith("process") or parents[process.pid] in parents]


def still_held(before: Holding, session: int, folder: Path, grace_s: float) -> list[str]:
    """List what a session holds now and did not hold before, once what is ending had `grace_s` to end."""
    deadline = time.monotonic() + grace_s
    while True:
        left = Holding.of(session, folder).things - before.things
        if not left or time.monotonic() > deadline:
            return sorted(left)
        time.sleep(_LOOK_AGAIN_S)  # nothing rings when a process of others is reaped


def gone(session: int, grace_s: float) -> list[str]:
    """Return the processes of a session that are left after `grace_s`: of a program that has ended there must be none."""
    deadline = time.monotonic() + grace_s
    while True:
        left = [process.words for process in processes_of(session)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_LOOK_AGAIN_S)


def descriptors_of(pid: int) -> set[str]:
    """Return the descriptors of a process, each with what it is of."""
    found = set()
    for number in _list(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if not target.startswith(HARMLESS_FILES):
            found.add(f"{number} -> {target}")
    return found


def kilobytes_of(pid: int, kind: str) -> int:
    """Return the memory of a kind that a process has: "Pss", "Anonymous" for what lies in no file and no shared memory, "Pss_Shmem"."""
    found = re.search(rf"^{kind}:\s+(\d+) kB", _read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
    return int(found[1]) if found else 0


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
