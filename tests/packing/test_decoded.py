"""Decoded elements: views of mapped files, what is in them, and what is found of files that are damaged."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import IndexStale, RecordError
from penstock.packing.inspect import inspect
from penstock.sources.decoded import DecodedSource


def picture(number: int, rng: np.random.Generator) -> dict[str, Any]:
    """Make an image of a size of its own, and fields of other kinds."""
    return {
        "image": rng.integers(0, 256, (20 + number % 9, 30 + number % 5, 3), np.uint8),
        "label": number,
        "depth": rng.random((4, number % 3), np.float32),
        "name": f"é {number}",
        "raw": bytes(number % 4),
        "box": np.arange(4, dtype=">i2") + number,
        "share": np.complex64(number / 3),
    }


PICTURES = ps.from_source(range(90)).map(picture, seed=5)


def packed(dest: Path, ds: ps.Dataset = PICTURES, **options: Any) -> Any:
    return ps.pack(ds, dest, **{"format": "decoded", "executor": "threads", "num_shards": 3, **options})


def test_arrays_are_aligned_views_of_one_map_that_may_not_be_written_to(tmp_path: Path) -> None:
    packed(tmp_path)
    back = ps.read_packed(tmp_path)
    one, other = back[3], pickle.loads(pickle.dumps(back))[4]
    for array in (one["image"], one["depth"], one["box"], other["image"]):
        assert not array.flags.writeable
        assert not array.flags.owndata
        assert array.ctypes.data % 64 == 0
    kept = back[3]["image"]
    wanted = kept.copy()
    del back, one
    assert np.array_equal(kept, wanted)


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"num_workers": 2}, {"executor": "processes", "num_workers": 2}], ids=str)
def test_a_crop_of_decoded_pictures_is_that_of_the_pictures(tmp_path: Path, way: dict[str, Any]) -> None:
    packed(tmp_path, num_workers=2)
    batches = []
    for ds in (ps.from_source(list(PICTURES)), ps.read_packed(tmp_path)):
        ds = ds.map(ps.image.random_resized_crop("image", 16), seed=1).map(ps.image.random_flip("image"), seed=2)
        ds = ds.map(ps.image.normalize("image", (0.5,) * 3, (0.2,) * 3)).map(image_and_label).shuffle(seed=3).batch(10)
        with ds.feed(**way) as feed:
            batches.append(list(feed))
    for wanted, found in zip(*batches, strict=True):
        assert np.array_equal(wanted["label"], found["label"])
        assert np.array_equal(wanted["image"], found["image"])


def image_and_label(element: dict[str, Any]) -> dict[str, Any]:
    return {name: element[name] for name in ("image", "label")}


def test_more_shards_than_may_be_open_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path, num_shards=30)
    monkeypatch.setattr("penstock._storage.local.most_open", lambda: 4)
    back = ps.read_packed(tmp_path).shuffle(seed=2)
    found = {int(one["label"]): one["image"] for one in back.feed(num_workers=3, executor="threads")}
    assert all(np.array_equal(found[number], one["image"]) for number, one in enumerate(PICTURES))


def test_a_damaged_or_cut_file_is_an_error_with_file_and_place(tmp_path: Path) -> None:
    first, second, _ = map(Path, packed(tmp_path).files())
    index, whole = second.with_suffix(".idx").read_bytes(), second.read_bytes()
    offset = DecodedSource([str(second)]).table.columns["offsets"][4]
    for place, value in ((0, 99), (7, 128), (8, 3)):  # too many rows, less than none, fewer columns
        hurt = bytearray(whole)
        hurt[offset + place] = value
        second.write_bytes(hurt)
        back = ps.read_packed(tmp_path)
        assert int(back[33]["label"]) == 33
        with pytest.raises(RecordError, match="an element is damaged") as caught:
            back[34]
        assert caught.value.where == f"element 4 of {str(second)!r}, offset {offset}"
    second.write_bytes(whole[:-64])
    with pytest.raises(RecordError, match=f"the file has {len(whole) - 64} bytes, and its index is of 'decoded', {len(whole)} bytes"):
        DecodedSource([str(first), str(second)])
    second.write_bytes(whole)
    for place in range(0, len(index), 7):
        second.with_suffix(".idx").write_bytes(index[:place] + bytes([index[place] ^ 4]) + index[place + 1 :])
        with pytest.raises(RecordError) as caught:
            ps.read_packed(tmp_path)
        assert second.with_suffix(".idx").name in caught.value.where


def test_a_file_that_is_cut_while_it_is_read_is_found_before_its_pixels_are_touched(tmp_path: Path) -> None:
    path = Path(packed(tmp_path).files()[0])
    back = ps.read_packed(tmp_path)
    os.utime(path)
    assert int(back[29]["label"]) == 29
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(IndexStale, match="had"):
        back[0]
    (report,) = inspect(path, verify=True)
    assert report.problems == [f"it has {path.stat().st_size} bytes and had {path.stat().st_size + 64} when it was packed"]
