"""What packing bought."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli.gain import Gain, measured


def test_both_are_read_and_counted(tmp_path: Path) -> None:
    dataset = ps.from_source(range(100))
    manifest = ps.pack(dataset, tmp_path, executor="threads")
    gain = measured(dataset, manifest, 1, ps.Raise())
    assert gain.raw_per_s > 0
    assert gain.packed_per_s > 0
    assert gain.times == gain.packed_per_s / gain.raw_per_s
    assert gain.num_workers == 1


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_small_set_is_read_again_and_again(tmp_path: Path, compression: str | None) -> None:
    taken: list[int] = []

    def noted(element: int) -> int:
        taken.append(element)
        return element

    dataset = ps.from_source(range(10)).map(noted)
    manifest = ps.pack(ps.from_source(range(10)), tmp_path, executor="threads", compression=compression)
    gain = measured(dataset, manifest, 1, ps.Raise())
    assert len(taken) > 100  # half a second of what takes microseconds
    assert gain.packed_per_s > 0


def test_of_images_pixels_are_taken_and_nothing_is_encoded(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    from penstock.packing.reencode import EncodeJpeg, reencoded

    element = EncodeJpeg("data")({"data": np.zeros((40, 60, 3), np.uint8)})
    source = ps.from_source([element] * 20)
    dataset = reencoded(source, "data", size=20, quality=90)
    manifest = ps.pack(dataset, tmp_path, executor="threads")
    gain = measured(dataset, manifest, 1, ps.Raise(), (source, 20))
    assert (gain.raw_words, gain.packed_words) == ("decoded and resized", "read and decoded")
    assert measured(dataset, manifest, 1, ps.Raise(), (source, None)).raw_words == "decoded"


def test_it_pays_only_when_it_is_faster() -> None:
    assert Gain(raw_per_s=10, packed_per_s=20, num_workers=1).pays_after_epochs == pytest.approx(2)
    assert Gain(raw_per_s=10, packed_per_s=10, num_workers=1).pays_after_epochs is None
