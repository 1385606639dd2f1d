"""Packing what can only be read once, while the packer is killed or its file may not grow: FAULTS D2, D4."""

from __future__ import annotations

import errno
import resource
import signal
from pathlib import Path

import pytest
from packing import small
from packing.small import Stream, pack_stream

pytestmark = pytest.mark.usefixtures("fork_server")


def killed(dest: Path, read_dies_at: int, map_dies_at: int) -> int | None:
    return small.exit_code_of(small.life_of_stream, str(dest), read_dies_at, map_dies_at)


@pytest.mark.parametrize(("read_dies_at", "map_dies_at", "num_finished"), [(0, -1, 0), (200, -1, 0), (-1, 4, 0), (-1, 250, 3)])
def test_a_packer_of_a_stream_that_is_killed_begins_the_stream_anew_and_keeps_finished_shards(
    tmp_path: Path, read_dies_at: int, map_dies_at: int, num_finished: int
) -> None:
    pack_stream(tmp_path / "reference", Stream())
    expected = small.hashes(tmp_path / "reference")
    dest = tmp_path / "dest"
    assert killed(dest, read_dies_at, map_dies_at) == -signal.SIGKILL
    assert len(list(dest.glob(".penstock-*.kept"))) == 1
    shards = {path: path.stat().st_mtime_ns for path in dest.glob("*.tfrecord")}
    assert len(shards) == num_finished
    assert {path.name for path in shards} <= expected.keys()
    stream = Stream()
    pack_stream(dest, stream, num_workers=3)
    assert stream.num_passes == 1
    assert small.hashes(dest) == expected
    assert {path: path.stat().st_mtime_ns for path in shards} == shards


def test_a_file_that_may_not_grow_while_a_stream_is_read_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(OSError) as caught:
            pack_stream(tmp_path / "dest", Stream())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.rglob("*")) == []
    pack_stream(tmp_path / "dest", Stream())
