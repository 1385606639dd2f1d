from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from _storage.remotes import noise

from penstock._storage.cachefiles import CacheFolder, block_name

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
    ids=["bytes", "sums", "magic", "cut", "empty", "zeros"],
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


def test_every_bit_that_is_read_is_checked(tmp_path: Path):
    folder, block = CacheFolder(str(tmp_path), 10**6), BLOCK[:50]
    keep(folder, "name-0", block)
    [path] = tmp_path.rglob("name-0")
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        assert folder.load("name-0", 50, 0, memoryview(bytearray(50))) is None


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
    alive = folder.try_lock("name-alive")
    assert alive is not None
    (path.parent / "name-alive.tmp").write_bytes(b"x" * 10)
    for number in range(1, 12):
        keep(folder, f"name-{number}")
    names = set(files(tmp_path))
    alive.release()
    assert "gone-0.tmp" not in names
    assert "name-alive.tmp" in names


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = CacheFolder(str(tmp_path), 10**6)

    def full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        lock = folder.try_lock("name-0")
        assert lock is not None
        with pytest.raises(OSError) as caught:
            folder.store("name-0", BLOCK)
        lock.release()
    assert caught.value.errno == errno.ENOSPC
    assert files(tmp_path) == {}
