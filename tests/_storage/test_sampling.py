from __future__ import annotations

from pathlib import Path

import pytest

from penstock._storage.local import LocalStorage
from penstock._storage.sameness import sample, sampled_spans
from penstock.kernels.framing import crc32c


def test_a_small_file_is_sampled_whole_and_a_large_one_at_both_ends_and_between() -> None:
    assert [sampled_spans(size)[0].tolist() for size in (0, 1, 262_144)] == [[0]] * 3
    places, length = sampled_spans(1 << 40)
    assert length == 4096
    assert len(places) == 64
    assert (places[0], places[-1]) == (0, (1 << 40) - 4096)


@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 600_000])
def test_the_check_sum_is_that_of_the_blocks(tmp_path: Path, size: int) -> None:
    data = bytes(place * 31 % 256 for place in range(size))
    (tmp_path / "a").write_bytes(data)
    places, length = sampled_spans(size)
    expected = crc32c(b"".join(data[place : place + length] for place in places.tolist()))
    assert sample(LocalStorage([str(tmp_path / "a")], "x"), 0) == expected


def test_a_change_at_either_end_shows(tmp_path: Path) -> None:
    data = bytearray(1 << 20)
    (tmp_path / "a").write_bytes(data)
    before = sample(LocalStorage([str(tmp_path / "a")], "x"), 0)
    for place in (0, len(data) - 1):
        changed = bytearray(data)
        changed[place] = 1
        (tmp_path / "a").write_bytes(changed)
        assert sample(LocalStorage([str(tmp_path / "a")], "x"), 0) != before
