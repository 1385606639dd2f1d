"""Packing what can only be read once, while the packer is killed or its file may not grow: FAULTS D2, D4."""

from __future__ import annotations

import errno
import resource
import signal
from pathlib import Path

import pytest
from core import core
from packing import small
from packing.small import Stream, pack_stream

pytestmark = pytest.mark.usefixtures("fork_server")


def killed(dest: Path, read_dies_at: int, map_dies_at: int) -> int | None:
    return small.exit_code_of(small.life_of_stream, str(dest), read_dies_at, map_dies_at)


@pytest.mark.parametrize(("read_dies_at", "map_dies_at"), core([(0, -1), (200, -1), (-1, 4), (-1, 250)], [(200, -1), (-1, 250)]))
def test_a_packer_of_a_stream_that_is_killed_begins_the_stream_again_and_writes_the_same(
    tmp_path: Path, read_dies_at: int, map_dies_at: int
) -> None:
    pack_stream(tmp_path / "reference", Stream())
    expected = small.hashes(tmp_path / "reference")
    dest = tmp_path / "dest"
    assert killed(dest, read_dies_at, map_dies_at) == -signal.SIGKILL
    assert not list(dest.glob("*.tfrecord")), "shards have their names when all are complete"
    stream = Stream()
    pack_stream(dest, stream, num_workers=3)
    assert stream.num_passes == 1
    assert small.hashes(dest) == expected


@pytest.mark.parametrize("after", core([False, True]))
def test_a_packer_of_a_stream_that_is_killed_while_it_gives_names_leaves_what_a_rerun_takes_for_its_own(
    tmp_path: Path, after: bool
) -> None:
    pack_stream(tmp_path / "reference", Stream())
    dest = tmp_path / "dest"
    assert small.exit_code_of(small.life_of_names, str(dest), after) == -signal.SIGKILL
    assert len(list(dest.glob("*.tfrecord"))) == 2 + after
    pack_stream(dest, Stream())
    assert small.hashes(dest) == small.hashes(tmp_path / "reference")


def test_a_file_that_may_not_grow_while_a_stream_is_read_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
        with pytest.raises(OSError) as caught:
            pack_stream(tmp_path / "dest", Stream())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert list((tmp_path / "dest").iterdir()) == []
    pack_stream(tmp_path / "dest", Stream())
