"""Memory and CPUs that a process may use: cgroups of both versions, read from trees of files; and this process itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock._system.memory import (
    available_cpus,
    cgroup_limits,
    free_memory,
    freed_memory,
    memory_groups,
    proportional_memory,
    release_freed_memory,
    resident_memory,
    swapped_memory,
)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "ascii")


def test_the_tightest_limit_of_all_groups_of_version_2_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/job/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user/job/memory.max": "4000000000\n",
            "sys/fs/cgroup/user/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/user/memory.max": "2000000000\n",
        },
    )
    assert cgroup_limits(tmp_path) == (1.5, 2_000_000_000)


def test_limits_of_version_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n1:name=systemd:/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000000\n",  # in a container only the top of the tree is there
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup_limits(tmp_path) == (0.5, 1_000_000_000)


CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("50000 100000", 1), ("150000 100000", min(2, CPUS)), ("100000 100000", 1), ("max 100000", CPUS), ("6400000 100000", CPUS)],
)
def test_workers_are_as_many_as_the_cpus_of_the_quota_a_part_of_one_as_one(tmp_path: Path, quota: str, cpus: int) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": f"{quota}\n"})
    assert available_cpus(tmp_path, {}) == cpus
    number, period = quota.split()
    (tmp_path / "proc/self/cgroup").write_text("3:cpu,cpuacct:/\n", "ascii")
    write(tmp_path, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": number.replace("max", "-1"), "sys/fs/cgroup/cpu/cpu.cfs_period_us": period})
    assert available_cpus(tmp_path, {}) == cpus


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "2"}, 2),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"MPI_LOCALNRANKS": "3"}, 3),
        ({"MV2_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"PMI_LOCAL_SIZE": "2"}, 2),
        ({"SLURM_NTASKS_PER_NODE": "4"}, 4),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NODEID": "0"}, 4),
        ({"SLURM_TASKS_PER_NODE": "4,3"}, 4),  # of the first node
        ({"SLURM_PROCID": "0", "SLURM_NTASKS_PER_NODE": "8"}, 1),  # the one process of a batch script
        ({"SLURM_PROCID": "0", "SLURM_NTASKS_PER_NODE": "8", "LOCAL_WORLD_SIZE": "2"}, 2),  # torchrun in a batch script
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
        ({"LOCAL_WORLD_SIZE": "1000"}, 1000),  # and one worker for each all the same
    ],
)
def test_ranks_on_one_machine_share_its_cpus(tmp_path: Path, environment: dict[str, str], ranks: int) -> None:
    assert available_cpus(tmp_path, environment) == max(1, CPUS // ranks)


def test_a_feed_of_a_process_with_a_quota_starts_as_many_workers(cpu_group: Path) -> None:
    program = (
        "import numpy as np, penstock as ps\n"
        "with ps.from_arrays(np.arange(64)).batch(4).feed() as feed:\n"
        "    list(feed); print(feed.stats().num_cpus)"
    )
    join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    out = subprocess.run(["sh", "-c", join, str(cpu_group), sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == "1\n"


@pytest.fixture
def cpu_group() -> Iterator[Path]:
    """A cgroup of version 1 or 2 that allows 0.8 CPUs."""
    group, quota = Path(), ""
    for line in Path("/proc/self/cgroup").read_text().splitlines() if Path("/proc/self/cgroup").exists() else ():
        number, names, path = line.split(":", 2)
        if number == "0" or "cpu" in names.split(","):
            group = Path("/sys/fs/cgroup", "" if number == "0" else "cpu", path.lstrip("/"), f"penstock-test-{os.getpid()}")
            quota = "cpu.max" if number == "0" else "cpu.cfs_quota_us"
            if (group.parent / "cgroup.procs").exists():
                break
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            (group / quota).write_text("80000", "ascii")
        except OSError as error:
            pytest.skip(f"no cgroup here limits CPUs: {error}")
        yield group
    finally:
        group.rmdir()


def test_what_is_free_is_the_least_of_the_machine_and_of_each_group(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 5000000 kB\n", "proc/self/cgroup": "0::/job\n"})
    assert free_memory(tmp_path) == 5_000_000 * 1024
    write(
        tmp_path,
        {
            "sys/fs/cgroup/job/memory.max": "512000000\n",
            "sys/fs/cgroup/job/memory.current": "400000000\n",
            "sys/fs/cgroup/job/memory.stat": "anon 300000000\ninactive_file 50000000\n",
        },
    )
    assert free_memory(tmp_path) == 162_000_000  # cached files can be dropped
    write(tmp_path, {"sys/fs/cgroup/job/memory.current": "600000000\n"})
    assert free_memory(tmp_path) == 0


def test_what_is_free_in_a_group_of_version_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "900\n",
            "sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 300\n",
        },
    )
    assert free_memory(tmp_path) == 400
    assert free_memory(tmp_path / "none") is None


def test_the_use_of_a_limit_leaves_out_cached_files_which_can_be_dropped(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n0::/job\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "700\n",
            "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n",
            "sys/fs/cgroup/job/memory.max": "2000\n",
            "sys/fs/cgroup/job/memory.current": "1900\n",
            "sys/fs/cgroup/job/memory.stat": "inactive_file 300\nactive_file 200\n",
            "sys/fs/cgroup/memory.max": "max\n",
        },
    )
    first, second = memory_groups(tmp_path)
    assert first.read() == (1000, 550)
    assert first.read(near=0.8) == (1000, 700)  # far below the limit they are not looked up
    assert second.read(near=0.8) == (2000, 1400)
    write(tmp_path, {"sys/fs/cgroup/job/memory.max": "max\n"})
    assert second.read() is None
    assert memory_groups(tmp_path) == [first]
    assert memory_groups(tmp_path / "none") == []


def test_what_a_process_shares_counts_in_part_and_what_is_swapped_out_is_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/smaps_rollup": "5576e4269000-7ffe3001d000 ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nPss: 300 kB\nPss_Anon: 7 kB\n",
            "proc/self/status": "Name: python\nVmRSS: 900 kB\nVmSwap: 40 kB\n",
        },
    )
    assert proportional_memory(tmp_path) == 300 * 1024
    assert swapped_memory(tmp_path) == 40 * 1024
    assert swapped_memory(tmp_path / "none") == 0
    resident = resident_memory()
    assert 0.8 * resident <= proportional_memory(tmp_path / "none") <= 1.2 * resident  # of this process, where nothing better is known


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 33), reason="no mallinfo2"
)
def test_memory_that_is_freed_and_kept_by_the_allocator_is_known() -> None:
    pieces = [bytes(100_000) for _ in range(400)]  # too small for the system to be asked for each of them
    before = freed_memory()
    del pieces[::2]
    assert freed_memory() - before > 15_000_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_memory_that_is_freed_between_pieces_in_use_goes_back_to_the_system() -> None:
    pieces = [bytes([number % 256]) * 100_000 for number in range(400)]  # written: memory that was never touched is not resident
    del pieces[::2]
    before = resident_memory()
    release_freed_memory()
    assert before - resident_memory() > 15_000_000
