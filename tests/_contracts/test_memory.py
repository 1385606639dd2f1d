"""Memory and CPUs that a process may use: cgroups of both versions, read from trees of files; and this process itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock._contracts.memory import cgroup_limits, free_memory, major_faults, meminfo, resident_memory


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


def test_no_limits(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/memory.max": "max\n",
        },
    )
    assert cgroup_limits(tmp_path) == (None, None)
    assert cgroup_limits(tmp_path / "none") == (None, None)


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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
def test_this_process_has_memory() -> None:
    before = resident_memory()
    assert before > 1_000_000
    held = bytes(range(256)) * 400_000
    assert resident_memory() > before + 50_000_000
    del held
    assert major_faults() >= 0
    free = free_memory()
    assert free is not None
    assert 0 < free <= meminfo()["MemTotal"]
