"""What every test gets: a leak audit around it, a temporary folder of the run's own, and the Hypothesis profiles."""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

# The default gives the same examples in every run, so that a red run can be repeated by typing the same again;
# `pytest --hypothesis-profile=thorough` looks further and differs each time.
settings.register_profile("default", deadline=None, derandomize=True, database=None, max_examples=60)
settings.register_profile("thorough", deadline=None, print_blob=True, database=None, max_examples=1000)
settings.load_profile("default")

GRACE_S = 2.0
"""DESIGN section 5, point 7: close() returns within two seconds, so nothing may be left two seconds after a test."""

HARMLESS_FILES = ("/dev/urandom", "/dev/dri/", "/dev/nvidia", "/sys/", "/proc/")
"""What native libraries open once and keep."""

_SHARED_MAPPING = re.compile(rb" (/(?:memfd:|dev/shm/).*)")
_FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Point the temporary files of this run, child processes included, to a folder that nobody else writes to."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest's own tmp_path stays where it was
    folder = tempfile.mkdtemp(prefix="penstock-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Remember whether a test failed: its traceback then keeps its locals alive, so an audit would say nothing."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def leak_audit(request: pytest.FixtureRequest) -> Any:
    """Fail a test that leaves a thread, process, descriptor, shared memory or temporary file behind."""
    before = Held.now()
    yield
    if request.node.stash.get(_FAILED, False):
        return
    leaks = Held.now().beyond(before)
    deadline = time.monotonic() + GRACE_S
    while leaks and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
        leaks = Held.now().beyond(before)
    if leaks:
        pytest.fail("left behind by this test:\n  " + "\n  ".join(leaks), pytrace=False)


class Held(NamedTuple):
    """What the process holds at one moment, each thing as the words that name it."""

    threads: frozenset[str]
    processes: frozenset[str]
    descriptors: frozenset[str]
    shared_memory: frozenset[str]
    temporary_files: frozenset[str]

    @classmethod
    def now(cls) -> Held:
        """Look. Costs about 0.8 ms, most of it the kernel's list of mappings."""
        return cls(_threads(), _processes(), _descriptors(), _shared_memory(), _names(tempfile.gettempdir(), "temporary file"))

    def beyond(self, before: Held) -> list[str]:
        """List what is held now and was not before."""
        return sorted(thing for now, then in zip(self, before, strict=True) for thing in now - then)


def _threads() -> frozenset[str]:
    # Not only threading.enumerate(): a thread of _thread.start_new_thread is known to the interpreter alone. The native id
    # tells a new thread from an ended one whose address, and so ident, it got.
    known = {thread.ident: f"{thread.name!r} (native id {thread.native_id})" for thread in threading.enumerate()}
    return frozenset(f"thread {known.get(ident, f'without a name (ident {ident})')}" for ident in sys._current_frames())


def _processes() -> frozenset[str]:
    # The children of every thread, zombies included. Missing on macOS and on kernels without CONFIG_PROC_CHILDREN.
    found = set()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in _read(children).split():
            state = "zombie" if b") Z " in _read(Path(f"/proc/{pid.decode()}/stat")) else "process"
            command = _read(Path(f"/proc/{pid.decode()}/cmdline")).replace(b"\0", b" ").decode(errors="replace").strip()
            found.add(f"{state} {pid.decode()} {command[:80]}".rstrip())
    return frozenset(found)


def _descriptors() -> frozenset[str]:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found = set()
    for number in _list(folder):
        try:
            target = os.readlink(f"{folder}/{number}")
        except OSError:  # the descriptor of the listing itself; on macOS, not a link
            continue
        if not target.startswith(HARMLESS_FILES):
            found.add(f"descriptor {number} -> {target}")
    return frozenset(found)


def _shared_memory() -> frozenset[str]:
    maps = _read(Path("/proc/self/maps"))
    mapped = {name.decode(errors="replace") for name in _SHARED_MAPPING.findall(maps)}
    # By name only what is made by us or by Python's SharedMemory: other programs of the machine use the folder too.
    named = {name for name in _list("/dev/shm") if name.startswith(("penstock", "psm_"))}
    return frozenset({f"mapping of {name}" for name in mapped} | {f"shared memory /dev/shm/{name}" for name in named})


def _names(folder: str, kind: str) -> frozenset[str]:
    return frozenset(f"{kind} {os.path.join(folder, name)}" for name in _list(folder))


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it ended between listing and reading, or there is no /proc
        return b""
