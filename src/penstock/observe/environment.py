"""The environment for a bug report: versions, CPUs, memory and limits. Nothing private: no names, no variables of the environment."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import kernels
from penstock._contracts.version import VERSION
from penstock._system.failing import attempt
from penstock._system.memory import available_cpus, cgroup_limits, meminfo
from penstock.kernels.library import LIBRARY, why_numpy

_LIBRARIES = (
    "numpy", "cloudpickle", "simplejpeg", "opencv-python-headless", "opencv-python", "opencv-contrib-python-headless",
    "opencv-contrib-python", "pillow", "pyarrow", "obstore", "zstandard", "rich", "torch", "jax", "tensorflow", "keras", "ray",
    "datasets", "grain", "matplotlib", "scikit-learn",
)  # fmt: skip
"""What Penstock works with: looked up in the metadata of what is installed, and not imported."""

_FEATURES = ("sse4_2", "pclmulqdq", "bmi1", "popcnt", "avx2", "avx512f", "avx512vl", "avx512dq", "vpclmulqdq", "crc32")
"""What the kernels ask of the CPU, as Linux names it; the last is of ARM."""
_COMPILER = re.compile(rb"GCC: \([^\0]*?\) [0-9.]+|clang version [0-9.]+")


def lines_of(facts: dict[str, Any]) -> Iterator[str]:
    """Give one line for each subject of what `environment` has found."""
    limit = "no limit" if facts["cpu_limit"] is None else f"at most {facts['cpu_limit']:g}"
    memory = "no limit" if facts["memory_limit"] is None else f"at most {_size(facts['memory_limit'])}"
    files = "not known" if facts["open_files"] is None else "{:,} (at most {:,})".format(*facts["open_files"])
    lines = {
        "penstock": f"{facts['penstock']}, wheel: {facts['wheel']}",
        "kernels": facts["kernels"],
        "python": f"{facts['python']}, GIL {'on' if facts['gil'] else 'off'}",
        "platform": facts["platform"],
        "CPUs": f"{facts['cpus_usable']} usable of {facts['cpus_total'] or 'an unknown number'}; cgroup: {limit}",
        "memory": f"{_size(facts['memory_total'])}, {_size(facts['memory_available'])} available; cgroup: {memory}",
        "libraries": ", ".join(f"{name} {version}" for name, version in facts["libraries"].items()),
        "open files": files,
        "/dev/shm": _size(facts["shared_memory"]),
        "streams": ", ".join(f"{name}: {kind}" for name, kind in facts["streams"].items()),
    }
    yield from (f"{name + ':':<12}{text}" for name, text in lines.items())


def environment() -> dict[str, Any]:
    """Describe where this process runs, as JSON takes it. Sizes are bytes; None is "no limit", or "not known on this system".

    Returns:
        - `penstock`: the version.
        - `wheel`: the tags of the wheel that was installed, or that Penstock runs from its sources.
        - `kernels`: "c", the compiler of the C library, and the features of the CPU that it looks for; or "numpy", and why.
        - `python`: version, implementation and compiler, and whether it is free-threaded; `gil`: whether it has a GIL that is on.
        - `platform`: the system and its C library.
        - `cpus_usable`, `cpus_total`: by affinity, and all of the machine; `cpu_limit`: CPUs that the cgroup allows.
        - `memory_total`, `memory_available`: of the machine; `memory_limit`: of the cgroup.
        - `libraries`: installed ones, with their versions.
        - `open_files`: the limit of file descriptors, soft and hard.
        - `shared_memory`: the size of /dev/shm.
        - `streams`: what standard input, output and error are: "terminal", "other" or "closed".
    """
    memory = meminfo()
    cpu_limit, memory_limit = cgroup_limits()
    free = ", free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    libc = " ".join(platform.libc_ver()).strip() or sysconfig.get_config_var("SOABI")  # that names musl, which libc_ver() learns in 3.14
    return {
        "penstock": VERSION,
        "wheel": _wheel(),
        "kernels": _kernels(),
        "python": f"{platform.python_version()} ({platform.python_implementation()}{free}, {platform.python_compiler()})",
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "platform": platform.platform() + (f" ({libc})" if libc else ""),
        "cpus_usable": available_cpus(),
        "cpus_total": os.cpu_count(),
        "cpu_limit": cpu_limit,
        "memory_total": memory.get("MemTotal"),
        "memory_available": memory.get("MemAvailable"),
        "memory_limit": memory_limit,
        "libraries": {name: version for name in _LIBRARIES if (version := attempt(importlib.metadata.version, name)) is not None},
        "open_files": _open_files(),
        "shared_memory": _shared_memory(),
        "streams": {name: _stream(getattr(sys, name)) for name in ("stdin", "stdout", "stderr")},
    }


def _kernels() -> str:
    if kernels.backend() != "c":
        return f"numpy ({why_numpy()})"
    found = _COMPILER.search(Path(LIBRARY).read_bytes())
    return f"c ({'compiler not known' if found is None else found[0].decode('ascii', 'replace')}; CPU: {_cpu_features()})"


def _cpu_features() -> str:
    told = Path("/proc/cpuinfo").read_text("utf-8") if os.path.exists("/proc/cpuinfo") else ""
    found = re.search(r"^(?:flags|Features)\s*: (.*)", told, re.MULTILINE)
    return "features not known" if found is None else " ".join(name for name in _FEATURES if name in found[1].split()) or "no features"


def _wheel() -> str:
    """Return the tags of the wheel that this Penstock was installed from; an editable installation has none."""
    found, here = next(iter(importlib.metadata.distributions(name="penstock")), None), Path(kernels.__file__).resolve().parents[1]
    installed = found is not None and Path(str(found.locate_file("penstock"))).resolve() == here
    tags = re.findall(r"^Tag: (\S+)", (found.read_text("WHEEL") or "") if found is not None and installed else "", re.MULTILINE)
    return ", ".join(tags) or "none, run from source"


def _open_files() -> tuple[int, int] | None:
    try:
        import resource
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _shared_memory() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except (AttributeError, OSError):
        return None
    return found.f_blocks * found.f_frsize


def _stream(stream: Any) -> str:
    return "closed" if stream is None or stream.closed else "terminal" if stream.isatty() else "other"


def _size(num_bytes: int | None) -> str:
    return "not known" if num_bytes is None else f"{num_bytes / 1e9:,.1f} GB"
