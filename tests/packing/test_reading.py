"""What was packed comes back as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import dataset

import penstock as ps
from penstock.errors import PackError, RecordError, SpecError
from penstock.packing import features_of, read_manifest

WAYS = [("tfrecord", None), ("tfrecord", "GZIP"), ("tar", None), ("parquet", None), ("parquet", "zstd"), ("decoded", None)]


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of each way to pack."""
    fmt, compression = request.param
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return {"executor": "threads", "format": fmt, "compression": compression}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (bytes, str)):
        return bool(one == other)
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other)


def ragged(number: int) -> dict[str, Any]:
    return {
        "x": np.full((number % 3, 2, number % 4), number, np.int16),
        "n": {"deep": np.float16(number)},
        "c": complex(number),
        "u": np.uint64(2**64 - 1),
        "f": float("-inf"),
    }


@pytest.mark.parametrize("make", [lambda: dataset(30), lambda: ps.from_source(range(1, 20)).map(ragged)], ids=["plain", "ragged"])
def test_all_elements_come_back_with_their_types(tmp_path: Path, way: dict[str, Any], make: Any) -> None:
    ds = make()
    ps.pack(ds, tmp_path, num_shards=3, shuffle=4, **way)
    back = list(ps.read_packed(tmp_path))
    wanted = list(ds.shuffle(seed=4))
    assert len(back) == len(wanted)
    for one, other in zip(back, wanted, strict=True):
        flat = {"x": other["x"], "n/deep": other["n"]["deep"], "c": other["c"], "u": other["u"], "f": other["f"]} if "n" in other else other
        assert same(one, flat)


def other_length(number: int) -> dict[str, Any]:
    size = 6 if number == 101 else 4  # outside the sample of 64
    return {"v": np.arange(size, dtype=np.uint8), "d": np.arange(size, dtype=np.float64), "f": np.arange(size, dtype=np.float32)}


def test_a_vector_may_have_another_length_than_all_of_the_sample(tmp_path: Path, way: dict[str, Any]) -> None:
    ps.pack(ps.from_source(range(500)).map(other_length), tmp_path, **way)
    back = list(ps.read_packed(tmp_path))
    assert [number for number, one in enumerate(back) if same(one, other_length(101))] == [101]
    assert sum(same(one, other_length(0)) for one in back) == 499


def test_a_single_value_and_a_dict_of_one_come_back_as_they_were(tmp_path: Path, way: dict[str, Any]) -> None:
    for name, elements in (("single", [1, 2]), ("dict", [{"value": 1}, {"value": 2}])):
        ps.pack(ps.from_source(elements), tmp_path / name, **way)
        assert list(ps.read_packed(tmp_path / name)) == elements


def other_size(number: int) -> dict[str, Any]:
    return {"x": np.full((2, 6 if number == 101 else 4, 3), number % 256, np.uint8)}


def test_sizes_outside_the_sample_are_read_back_where_they_were_declared(tmp_path: Path, way: dict[str, Any]) -> None:
    numbers = ps.from_source(range(500))
    with pytest.raises(SpecError) as caught:
        ps.pack(numbers.map(other_size), tmp_path / "a", **way)
    assert "output_spec=" in caught.value.fix
    declared = numbers.map(other_size, output_spec={"x": ps.ArraySpec((2, None, 3), "uint8")})
    ps.pack(declared.filter(bool), tmp_path / "b", **way)
    back = list(ps.read_packed(tmp_path / "b"))
    assert len(back) == 500
    assert all(same(one, other_size(number)) for number, one in enumerate(back))


def test_it_has_positions_and_is_shuffled_without_a_buffer(tmp_path: Path) -> None:
    ps.pack(dataset(30), tmp_path, executor="threads", num_shards=3)
    back = ps.read_packed(tmp_path)
    assert len(back) == 30
    assert int(back[17]["number"]) == 17
    assert sorted(int(one["number"]) for one in back.shuffle(seed=1)) == list(range(30))


def test_the_features_are_those_for_read_tfrecord(tmp_path: Path) -> None:
    manifest = ps.pack(dataset(10), tmp_path, executor="threads", num_shards=2)
    found = list(ps.read_tfrecord(str(tmp_path / "*.tfrecord"), features=features_of(manifest)))
    assert [int(one["number"]) for one in found] == list(range(10))
    ps.pack(dataset(10), tmp_path / "tar", executor="threads", format="tar")
    with pytest.raises(SpecError, match="tar files have no features"):
        features_of(read_manifest(tmp_path / "tar"))


def test_every_changed_bit_of_a_small_file_is_found(tmp_path: Path) -> None:
    ps.pack(ps.from_source([1, 2]), tmp_path, executor="threads", num_shards=1)
    (path,) = tmp_path.glob("*.tfrecord")
    data = path.read_bytes()
    for bit in range(0, len(data) * 8, 29):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        for index in tmp_path.glob(".penstock/*.psidx"):
            index.unlink()
        with pytest.raises(RecordError):
            list(ps.read_packed(tmp_path))


def changed(elements: list[Any]) -> int:
    """Write to every array and return how many there were."""
    arrays = [value for one in elements for value in one.values() if isinstance(value, np.ndarray)]
    for array in arrays:
        array[...] = 0
    return len(arrays)


def test_arrays_may_be_written_to_and_nobody_else_sees_it(tmp_path: Path, way: dict[str, Any]) -> None:
    kinds = [f"{size}{code}" for size in "123" for code in ("u1", "i4", "i8", "f2", "f4", "f8", "c8")]

    def many(number: int) -> dict[str, Any]:
        return {kind: np.full((2,) * int(kind[0]), number + 1, kind[1:]) for kind in kinds} | {"ragged": np.ones((number, 2), np.uint8)}

    ps.pack(ps.from_source(range(6)).map(many), tmp_path, num_shards=1, **way)
    packed = ps.read_packed(tmp_path)
    elements = list(packed)
    if way["format"] == "decoded":
        with pytest.raises(ValueError, match="read-only"):
            changed(elements)
        return
    assert changed(elements[2:3]) == len(kinds) + 1
    for number in (0, 1, 3, 4, 5):
        assert same(elements[number], many(number))
    assert all(same(one, many(number)) for number, one in enumerate(packed))


def test_images_of_two_kinds_in_a_tar_are_named_after_the_first_and_all_come_back(tmp_path: Path) -> None:
    images = [b"\x89PNG\r\n\x1a\n...", b"\xff\xd8\xff..."]
    manifest = ps.pack(ps.from_source([{"img": data} for data in images]), tmp_path, executor="threads", format="tar")
    assert [column.column for column in manifest.columns] == ["img.png"]
    assert [one["img"] for one in ps.read_packed(tmp_path)] == images


def document(number: int) -> dict[str, Any]:
    return {"tokens": np.full(1 + number % 5, number)}


def size(element: dict[str, Any]) -> int:
    if element["tokens"][0] == 80:  # outside the sample of 64
        raise ValueError("a bad document")
    return len(element["tokens"])


def is_even(element: dict[str, Any]) -> bool:
    return bool(element["tokens"][0] % 2 == 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fmt", "compression"), WAYS)
def test_numbers_that_pack_has_measured_are_known(tmp_path: Path, fmt: str, compression: str | None, stream: bool) -> None:
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    ds = (ps.from_generator(lambda: iter(range(100)), length=100) if stream else ps.from_source(range(100))).map(document)
    functions, how = {"size": size, "is_even": is_even}, {"num_shards": None if stream else 3, "shard_bytes": 2000 if stream else None}
    manifest = ps.pack(ds, tmp_path, executor="threads", format=fmt, compression=compression, measure=functions, on_error=ps.Skip(), **how)
    assert [lost["error"] for lost in manifest.skipped] == ["ValueError"]
    manifest.check_files(hashes=True)
    packed = ps.read_packed(tmp_path)
    if compression == "GZIP":  # a stream, which has no positions
        assert len(list(packed)) == 99
        return
    found = packed.filter(by="is_even").pack_sequences(20, by="size")
    tokens = [int(token) for row in found for token in row["tokens"][row["segment_ids"] > 0]]
    assert sorted(tokens) == [number for number in range(0, 100, 2) if number != 80 for _ in range(1 + number % 5)]
    with pytest.raises(PackError, match="another: measure was"):
        ps.pack(ds, tmp_path, executor="threads", format=fmt, compression=compression, on_error=ps.Skip(), **how)
