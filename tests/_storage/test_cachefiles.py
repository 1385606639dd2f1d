from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from _storage.remotes import noise

import penstock
from penstock._storage.cache import CacheFolder, block_name

SIZE = 100_000
BLOCK = np.frombuffer(noise(SIZE), np.uint8)


def keep(folder: CacheFolder, name: str, block: np.ndarray = BLOCK) -> None:
    """Keep a block as who fetched it does."""
    lock = folder.try_lock(name)
    assert lock is not None
    try:
        folder.store(name, block)
    finally:
        lock.release()


def files(path: Path) -> dict[str, int]:
    """Return the sizes of all files but the noted number."""
    return {entry.name: entry.stat().st_size for entry in path.rglob("*") if entry.is_file() and entry.name != "usage"}


def load(folder: CacheFolder, name: str, begin: int = 0, count: int = SIZE) -> bytes | bool | None:
    """Return the bytes, or why not."""
    out = bytearray(count)
    got = folder.load(name, SIZE, begin, memoryview(out))
    return bytes(out) if got else got


def test_what_was_kept_is_read_in_parts_and_as_a_whole(tmp_path: Path):
    folder = CacheFolder(str(tmp_path / "cache"), 10**6)
    assert load(folder, "name-0") is False
    keep(folder, "name-0")
    assert load(folder, "name-0") == BLOCK.tobytes()
    for begin, count in ((0, 1), (99_999, 1), (32_767, 2), (32_768, 32_768), (50, 0), (31_000, 60_000)):
        assert load(folder, "name-0", begin, count) == BLOCK.tobytes()[begin : begin + count]
    assert list(files(tmp_path)) == ["name-0"]


def test_names_tell_objects_versions_blocks_and_their_width_apart():
    names = {block_name(key, block, width) for key in ("a", "b") for block in (0, 1) for width in (10, 20)}
    assert len(names) == 8
    assert block_name("a", 1, 10) == block_name("a", 1, 10)


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: _flip(path, 40_000),
        lambda path: _flip(path, SIZE + 5),
        lambda path: _flip(path, -1),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
    ],
    ids=["bytes", "sums", "last sum", "cut", "empty", "zeros"],
)
def test_a_damaged_file_is_found(tmp_path: Path, damage: Callable[[Path], None]):
    folder = CacheFolder(str(tmp_path), 10**6)
    keep(folder, "name-0")
    [path] = tmp_path.rglob("name-0")
    damage(path)
    assert load(folder, "name-0") is None
    folder.remove("name-0")
    assert load(folder, "name-0") is False
    folder.remove("name-0")


def test_the_bound_holds_at_all_times_and_what_was_used_last_stays(tmp_path: Path):
    limit = 10 * SIZE
    folder = CacheFolder(str(tmp_path), limit)
    for number in range(40):
        keep(folder, f"name-{number}")
        assert sum(files(tmp_path).values()) <= limit
        for path in tmp_path.rglob("name-*"):  # file times of a second: the order of use is made plain
            os.utime(path, (number, number)) if path.name in ("name-0", f"name-{number}") else None
    left = files(tmp_path)
    assert {"name-0", "name-39", "name-38"} <= set(left)
    assert len(left) >= 7


def test_a_block_in_use_may_be_dropped(tmp_path: Path):
    folder = CacheFolder(str(tmp_path), 5 * SIZE)
    keep(folder, "name-0")
    [path] = tmp_path.rglob("name-0")
    with path.open("rb") as reader:
        first = reader.read(1000)
        for number in range(1, 20):
            keep(folder, f"name-{number}")
        assert not path.exists()
        assert first + reader.read(SIZE - 1000) == BLOCK.tobytes()


def test_a_number_of_bytes_that_is_wrong_is_mended(tmp_path: Path):
    folder = CacheFolder(str(tmp_path), 5 * SIZE)
    keep(folder, "name-0")
    [usage] = tmp_path.rglob("usage")
    for wrong in (b"", b"xyz", (10**15).to_bytes(8, "little"), b"x" * 9):
        usage.write_bytes(wrong)
        keep(folder, "name-1")
        assert int.from_bytes(usage.read_bytes(), "little") <= 5 * SIZE
        assert {"name-0", "name-1"} <= set(files(tmp_path))
        folder.remove("name-1")


def test_what_a_dead_process_left_half_written_is_removed(tmp_path: Path):
    folder = CacheFolder(str(tmp_path), 5 * SIZE)
    keep(folder, "name-0")
    [path] = tmp_path.rglob("name-0")
    (path.parent / "gone-0.tmp").write_bytes(b"x" * 2 * SIZE)
    (path.parent / "gone-0.lock").write_bytes(b"")
    for number in range(1, 12):
        keep(folder, f"name-{number}")
    assert "gone-0.tmp" not in set(files(tmp_path))


@pytest.mark.parametrize("limit", [0, 4, SIZE], ids=["nothing", "less than the number", "less than the block"])
def test_files_that_may_not_be_so_long_are_an_error_and_nothing_is_left(tmp_path: Path, limit: int):
    folder = CacheFolder(str(tmp_path), 10**6)
    lock = folder.try_lock("name-0")
    assert lock is not None
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # Python asks for EFBIG in place of the signal
    try:
        with pytest.raises(OSError) as caught:
            folder.store("name-0", BLOCK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        lock.release()
    assert caught.value.errno == errno.EFBIG
    assert files(tmp_path) == {}
    keep(folder, "name-0")
    assert load(folder, "name-0") == BLOCK.tobytes()


FULL = """
import sys
from pathlib import Path
import numpy as np
from penstock._storage.cache import CacheFolder
folder = CacheFolder(sys.argv[1], 10**7)
for number in range(9):
    lock = folder.try_lock(f"name-{number}")
    try:
        folder.store(f"name-{number}", np.full(100_000, number, np.uint8))
    except OSError as error:
        print(error.errno, number)
        break
    finally:
        lock.release()
print(*sorted(path.name for path in Path(sys.argv[1]).rglob("*") if path.is_file() and path.name != "usage"))
out = bytearray(100_000)
print(folder.load("name-0", 100_000, 0, memoryview(out)), set(out))
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path):
    mount = 'mount -t tmpfs -o size=400k none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-Urm", "--", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, f"{mount.split('&&')[0]}", "sh", str(tmp_path)], check=False).returncode
    ):
        pytest.skip("a process may mount nothing here")
    source = str(Path(penstock.__file__).parents[1])
    done = subprocess.run(
        [*command, f'{mount} && exec "$2" -c "$3" "$1"', "sh", str(tmp_path), sys.executable, FULL],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{errno.ENOSPC} 3", "name-0 name-1 name-2", "True {0}"]


WRITER = """
import sys
from pathlib import Path
import numpy as np
from penstock._storage.cache import CacheFolder, held
path, mine, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
folder, block = CacheFolder(path, limit), np.zeros(100_000, np.uint8)
print("ready", flush=True)
sys.stdin.readline()
most = 0
for number in range(60):
    lock = folder.try_lock(f"{mine}-{number}")
    folder.store(f"{mine}-{number}", block)
    lock.release()
    with held(next(Path(path).rglob("usage"))):  # nobody makes a file now, and nobody drops one
        sizes = {entry.name: entry.stat().st_size for entry in Path(path).rglob("*-*[0-9]")}
        most = max(most, sum(sizes.values()))
print(most)
"""


def test_the_bound_holds_while_two_processes_write(tmp_path: Path):
    limit, source = 10 * SIZE, str(Path(penstock.__file__).parents[1])
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name, str(limit)],
            env={**os.environ, "PYTHONPATH": source},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        most = int(writer.communicate(timeout=100)[0])
        assert writer.returncode == 0
        assert 8 * SIZE < most <= limit
    assert sum(files(tmp_path).values()) <= limit
