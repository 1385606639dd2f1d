"""What memory and CPUs this process may use, as Linux says: /proc/meminfo and cgroups of version 1 and 2. Elsewhere nothing is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cgroup_limits", "free_memory", "major_faults", "meminfo", "resident_memory"]

_UNLIMITED = 1 << 60
"""Above it a cgroup of version 1 means no limit."""


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still take before the system swaps or kills; None where that is not known.

    The least of what the machine has available and of what is left in each cgroup around the process. Cached files count as free.

    Args:
        root: where `proc` and `sys` lie.
    """
    sizes = [size for name, size in meminfo(root).items() if name == "MemAvailable"]
    for version, folder in _groups(root, "memory"):
        limit, used, cached = (
            ("memory.max", "memory.current", "inactive_file")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        for size in _sizes(folder / limit):
            statistics = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
            sizes.append(max(0, size - sum(_numbers(folder / used)) + int(statistics.get(cached, 0))))
    return min(sizes, default=None)


def cgroup_limits(root: Path = Path("/")) -> tuple[float | None, int | None]:
    """Return the CPUs and the bytes of memory that the cgroups of this process allow, of version 1 or 2; None for no limit.

    Args:
        root: where `proc` and `sys` lie.
    """
    cpus: list[float] = []
    for version, folder in _groups(root, "cpu"):
        if version == 2:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
            cpus += [int(quota) / int(period)] if quota.isdecimal() else []
        else:
            quotas, periods = _numbers(folder / "cpu.cfs_quota_us"), _numbers(folder / "cpu.cfs_period_us")
            cpus += [quota / period for quota, period in zip(quotas, periods, strict=False)]
    sizes = [
        size
        for version, folder in _groups(root, "memory")
        for size in _sizes(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
    ]
    return min(cpus, default=None), min(sizes, default=None)


def meminfo(root: Path = Path("/")) -> dict[str, int]:
    """Return the lines of /proc/meminfo in bytes; nothing where there is no such file."""
    words = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    return {one[0].rstrip(":"): int(one[1]) * 1024 for one in words if len(one) > 1 and one[1].isdecimal()}


def resident_memory() -> int:
    """Return the bytes of memory that this process has in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


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


def _sizes(path: Path) -> list[int]:
    return [size for size in _numbers(path) if size < _UNLIMITED]


def _numbers(path: Path) -> list[int]:
    """Return the number in a file, or nothing: "max" and -1 are no limit."""
    text = _text(path).strip()
    return [int(text)] if text.isdecimal() else []


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
