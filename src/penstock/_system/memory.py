"""What memory and CPUs this process uses and may use, as Linux says: /proc and cgroups of version 1 and 2. Elsewhere nothing is known."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_UNLIMITED = 1 << 60
"""Above it a cgroup of version 1 means no limit."""


class FeedMemory(NamedTuple):
    """Where the memory of a feed is at a moment, in bytes.

    Attributes:
        slots_bytes: batch buffers: in work, ready, kept by the training loop, and free ones.
        held: (stage, bytes) of elements outside of batch buffers, by the stage that made them; batches outside of them that the training
            loop refers to are those of "training loop".
        num_kept: how many batches the training loop refers to, beside the last one.
        kept_bytes: what they keep in memory.
        kept: the oldest of them, in words; empty where there is none.
        filled_by: the stage that writes into the batch buffers.
        budget_bytes: the feed's `memory_bytes`; 0 while nothing runs.
    """

    slots_bytes: int = 0
    held: tuple[tuple[str, int], ...] = ()
    num_kept: int = 0
    kept_bytes: int = 0
    kept: str = ""
    filled_by: str = ""
    budget_bytes: int = 0


class MemoryGroup(NamedTuple):
    """A cgroup around this process that limits its memory."""

    version: int
    folder: Path

    def read(self, near: float = 0.0) -> tuple[int, int] | None:
        """Return (limit, bytes in use without cached files, which can be dropped); None when it has no limit any more.

        Args:
            near: below this share of the limit cached files are not looked up, and count as in use: that saves half of 20 us.
        """
        names = ("memory.max", "memory.current", "") if self.version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        limits = _sizes(self.folder / names[0])
        if not limits:
            return None
        used = sum(_numbers(self.folder / names[1]))
        if used >= near * limits[0]:
            figures = dict(line.split(" ", 1) for line in _text(self.folder / "memory.stat").splitlines() if " " in line)
            used -= sum(int(figures.get(f"{names[2]}{kind}_file", 0)) for kind in ("inactive", "active"))
        return limits[0], max(0, used)


_STATM = Path("/proc/self/statm")


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still take before the system swaps or kills; None where that is not known.

    The least of what the machine has available and of what is left in each cgroup around the process. Cached files count as free.

    Args:
        root: where `proc` and `sys` lie.
    """
    sizes = [size for name, size in meminfo(root).items() if name == "MemAvailable"]
    sizes += [max(0, limit - used) for limit, used in filter(None, (group.read() for group in memory_groups(root)))]
    return min(sizes, default=None)


def memory_groups(root: Path = Path("/")) -> list[MemoryGroup]:
    """Return the cgroups around this process that limit its memory now.

    Args:
        root: where `proc` and `sys` lie.
    """
    groups = [MemoryGroup(version, folder) for version, folder in _groups(root, "memory")]
    return [group for group in groups if _sizes(group.folder / ("memory.max" if group.version == 2 else "memory.limit_in_bytes"))]


def cgroup_limits(root: Path = Path("/")) -> tuple[float | None, int | None]:
    """Return the CPUs and the bytes of memory that the cgroups of this process allow, of version 1 or 2; None for no limit.

    Args:
        root: where `proc` and `sys` lie.
    """
    read = [group.read() for group in memory_groups(root)]
    return _cpu_limit(root), min((found[0] for found in read if found is not None), default=None)


def _cpu_limit(root: Path) -> float | None:
    cpus: list[float] = []
    for version, folder in _groups(root, "cpu"):
        if version == 2:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
            cpus += [int(quota) / int(period)] if quota.isdecimal() else []
        else:
            quotas, periods = _numbers(folder / "cpu.cfs_quota_us"), _numbers(folder / "cpu.cfs_period_us")
            cpus += [quota / period for quota, period in zip(quotas, periods, strict=False)]
    return min(cpus, default=None)


def available_cpus(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> int:
    """Return how many CPUs this process may use: those that it may run on and its cgroups allow, shared with the ranks on this machine.

    A part of a CPU counts as one: a quota of 1.5 is 2.

    Args:
        root: where `proc` and `sys` lie.
        environment: in which launchers say how many ranks they started here.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _cpu_limit(root)
    return max(1, (cpus if quota is None else min(cpus, math.ceil(quota))) // _local_ranks(environment))


_LOCAL_RANKS = (
    "LOCAL_WORLD_SIZE",  # torchrun
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",  # MPICH and Intel MPI
    "MV2_COMM_WORLD_LOCAL_SIZE",  # MVAPICH
    "PMI_LOCAL_SIZE",  # Cray
)


def _local_ranks(environment: Mapping[str, str]) -> int:
    """Return how many ranks share the CPUs of this process, as the first launcher says whose variable is there; 1 where there is none."""
    # The one process of a batch script has the variables of SLURM too.
    in_batch = "SLURM_PROCID" in environment and "SLURM_STEP_NUM_TASKS" not in environment
    for name in _LOCAL_RANKS:
        count = re.match(r"[1-9]\d*", environment.get(name, ""))  # SLURM lists all nodes, 4(x2),3: the first stands for them
        if count and not (in_batch and name.startswith("SLURM")):
            return int(count[0])
    return 1


def meminfo(root: Path = Path("/")) -> dict[str, int]:
    """Return the lines of /proc/meminfo in bytes; nothing where there is no such file."""
    words = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    return {one[0].rstrip(":"): int(one[1]) * 1024 for one in words if len(one) > 1 and one[1].isdecimal()}


def resident_memory() -> int:
    """Return the bytes of memory that this process has in use; 0 where the system does not say."""
    words = _text(_STATM).split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def proportional_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory of this process, of pages that others share its part (PSS); `resident_memory` where that is not known.

    The kernel walks all pages: 0.2 to 1 ms for each GB.

    Args:
        root: where `proc` lies.
    """
    return _kilobytes(root / "proc/self/smaps_rollup", "Pss:") or resident_memory()


def private_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory of this process that it shares with no other; 0 where that is not known.

    Args:
        root: where `proc` lies.
    """
    return sum(_kilobytes(root / "proc/self/smaps_rollup", name) for name in ("Private_Clean:", "Private_Dirty:"))


def swapped_memory(root: Path = Path("/")) -> int:
    """Return the bytes of this process that are swapped out; 0 where the system does not say.

    Args:
        root: where `proc` lies.
    """
    return _kilobytes(root / "proc/self/status", "VmSwap:")


def freed_memory() -> int:
    """Return the bytes that were freed in this process and that the allocator keeps for later; 0 where it does not say (it is not glibc).

    Costs 0.1 ms, or more where memory is in many pieces.
    """
    ask = _mallinfo()
    return 0 if ask is None else int(ask().fordblks)


def release_freed_memory() -> None:
    """Give memory that was freed back to the system. glibc keeps many small pieces for good when a later one lies behind them."""
    with suppress(OSError, TypeError, AttributeError):  # another allocator
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def _mallinfo() -> Callable[[], Any] | None:
    """Return glibc's `mallinfo2`, None where there is none."""
    if sys.platform == "win32":
        return None
    ask: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is not None:
        ask.restype = _Mallinfo
    return ask  # type: ignore[no-any-return]


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    )


def major_faults() -> int:
    """Return how many page faults of this process had to be read from a disk so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Give (version, folder) of this process's group and of all around it: each may have a limit. A container may only have the top."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, names, group = line.split(":", 2)
        version = 2 if number == "0" else 1
        if version == 2 or controller in names.split(","):
            top = root / "sys/fs/cgroup" / ("" if version == 2 else controller)
            parts = [part for part in group.split("/") if part not in ("", "..")]
            for count in range(len(parts), -1, -1):
                yield version, top.joinpath(*parts[:count])


def _kilobytes(path: Path, name: str) -> int:
    """Return the bytes of the line of a file in /proc that begins with a name; 0 where there is none."""
    lines = (line.split() for line in _text(path).splitlines() if line.startswith(name))
    return sum(int(words[1]) * 1024 for words in lines)


def _sizes(path: Path) -> list[int]:
    return [size for size in _numbers(path) if size < _UNLIMITED]


def _numbers(path: Path) -> list[int]:
    """Return the number in a file, or nothing: "max" and -1 are no limit."""
    text = _text(path).strip()
    return [int(text)] if text.isdecimal() else []


def _text(path: Path) -> str:
    """Read a file of the system. By its descriptor: a file object that Ctrl-C leaves open says so in a warning."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    parts: list[bytes] = []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("ascii", "replace")
