"""What a piece of code leaves behind: threads, processes, descriptors, shared memory, temporary files."""

from __future__ import annotations

import gc
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock._system.process import current_frames
from penstock.errors import LawBroken

HARMLESS_FILES = ("/dev/urandom", "/dev/dri/", "/dev/nvidia", "/sys/", "/proc/")
"""What native libraries open once and keep."""

_SHARED_MAPPING = re.compile(rb" (/(?:memfd:|dev/shm/).*)")
_LOOK_AGAIN_S = 0.01
_STARTED = 19  # the place of the start time in /proc/PID/stat, behind the name


@contextmanager
def check_no_leaks(*, grace_s: float = 2.0, folder: str | None = None) -> Iterator[None]:
    """Fail when the `with` block leaves a thread, child process, descriptor, shared memory or temporary file behind.

    A block that raises is not looked at: its traceback keeps its locals alive. Costs 2 ms when nothing is left.

    Args:
        grace_s: how long what is ending may take to end. Feeds end within two seconds.
        folder: that nothing else writes to; all that is new in it counts. By default the system's temporary folder, and there only names
            that begin with "penstock", because other programs use it too.

    Raises:
        LawBroken: naming each thing that is left.
    """
    before = held(folder)
    yield
    left = left_behind(before, grace_s, folder)
    if left:
        raise LawBroken(
            "left behind:\n    " + "\n    ".join(left),
            where="the block under check_no_leaks()",
            fix="close feeds and files (`with` does it also when an error comes), join threads, wait for child processes",
        )


def held(folder: str | None = None) -> dict[str, str]:
    """Return the words that name each thing that the process holds, by what it stays the same thing by. `folder` as in `check_no_leaks`.

    Costs about 0.8 ms, most of it the kernel's list of mappings.
    """
    words = _threads() | _descriptors() | _shared_memory() | _temporary_files(folder)
    return {**_processes(), **{one: one for one in words}}


def left_behind(before: dict[str, str], grace_s: float, folder: str | None = None) -> list[str]:
    """List what is held now and was not before, once garbage is collected and what is ending had `grace_s` to end."""
    deadline = time.monotonic() + grace_s
    while True:
        now = held(folder)
        left = sorted(now[thing] for thing in now.keys() - before.keys())
        if not left or time.monotonic() >= deadline:
            return left
        gc.collect()
        # Looks again every 10 ms, and only when something is left: nothing rings when the kernel drops a descriptor or a zombie.
        time.sleep(_LOOK_AGAIN_S)


def _threads() -> set[str]:
    # Not only threading.enumerate(): a thread of _thread.start_new_thread is known to the interpreter alone. The native id
    # tells a new thread from an ended one whose address, and so ident, it got.
    known = {thread.ident: f"{thread.name!r} (native id {thread.native_id})" for thread in threading.enumerate()}
    return {f"thread {known.get(ident, f'without a name (ident {ident})')}" for ident in current_frames()}


def _processes() -> dict[str, str]:
    # The children of every thread, zombies included. Missing on macOS and on kernels without CONFIG_PROC_CHILDREN.
    # By pid and start time: one that ends or executes another program is still the same.
    found = {}
    for task in _list("/proc/self/task"):
        for pid in _read(f"/proc/self/task/{task}/children").decode().split():
            stat = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
            if not stat:  # reaped meanwhile
                continue
            command = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
            words = f"{'zombie' if stat[0] == b'Z' else 'process'} {pid} {command[:80]}".rstrip()
            found[f"{pid} started at {stat[_STARTED].decode()}"] = words
    return found


def _descriptors() -> set[str]:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found = set()
    for number in _list(folder):
        try:
            target = os.readlink(f"{folder}/{number}")
        except OSError:  # the descriptor of the listing itself; on macOS, not a link
            continue
        if not target.startswith(HARMLESS_FILES):
            found.add(f"descriptor {number} -> {target}")
    return found


def _shared_memory() -> set[str]:
    maps = _read("/proc/self/maps")
    mapped = {name.decode(errors="replace") for name in _SHARED_MAPPING.findall(maps)}
    # By name only what is made by us or by Python's SharedMemory: other programs of the machine use the folder too.
    named = {name for name in _list("/dev/shm") if name.startswith(("penstock", "psm_"))}
    return {f"mapping of {name}" for name in mapped} | {f"shared memory /dev/shm/{name}" for name in named}


def _temporary_files(folder: str | None) -> set[str]:
    place = tempfile.gettempdir() if folder is None else folder
    names = [name for name in _list(place) if folder is not None or name.startswith("penstock")]
    return {f"temporary file {os.path.join(place, name)}" for name in names}


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):  # it ended between listing and reading, or there is no /proc
        return b""
