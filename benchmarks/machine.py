"""What a measurement has to know about the machine: its facts, who used the CPUs, and how much memory a session of processes holds."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import signal
from pathlib import Path
from typing import Any

_TICKS_PER_S = float(os.sysconf("SC_CLK_TCK"))
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PACKAGES = ("numpy", "simplejpeg", "opencv-python-headless", "torch", "penstock")


def facts() -> dict[str, Any]:
    """Return CPU model, cores, memory, kernel, and the versions of Python and of the packages that matter."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def die_with_parent() -> None:
    """Have this process killed when its parent ends in whatever way, so that a stopped benchmark leaves nothing running."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def adopt_orphans() -> None:
    """Have processes whose parents end become children of this one: it may wait for them, and their CPU time counts as its children's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def busy_s() -> float:
    """Return the CPU seconds that all processes of the machine have used since it started."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def children(pid: int | str | None = None) -> set[str]:
    """Return the processes whose parent is the main thread of a process, by default of this one."""
    pid = pid or os.getpid()
    return set(_read(f"/proc/{pid}/task/{pid}/children").split())


def session_pids(session: int) -> list[int]:
    """List the live processes of one session: a contestant and whatever it started."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _session_of(int(entry)) == session]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:  # it ended between the listing and the question
        return -1


def session_cpu_s(session: int) -> float:
    """Return the CPU seconds of the live processes of a session and of the children that they have waited for."""
    ticks = 0
    for pid in session_pids(session):
        text = _read(f"/proc/{pid}/stat")
        if text:
            ticks += sum(int(word) for word in text.rsplit(")", 1)[1].split()[11:15])
    return ticks / _TICKS_PER_S


def session_pss_mb(session: int) -> float:
    """Return the proportional set size of a session in MB (10^6 bytes): shared pages count once over all its processes."""
    kib = 0
    for pid in session_pids(session):
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                kib += int(line.split()[1])
    return kib * 1024 / 1e6


def peak_rss_mb() -> float:
    """Return the highest resident set size of this process so far (VmHWM) in MB (10^6 bytes), without its children."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("/proc/self/status has no VmHWM line: these benchmarks need Linux")


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):  # the process ended meanwhile: it holds nothing any more
        return ""
