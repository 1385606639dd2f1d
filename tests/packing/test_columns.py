"""How fields are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.errors import SpecError
from penstock.packing.schema import Field, columns_of, extension_of, from_raw, npy, schema_of, shaped

VALUES: dict[str, Any] = {
    "i": 1, "u": np.uint64(1), "t": True, "f": np.float32(1), "d": 1.5, "h": np.float16(1), "c": 1j,
    "il": np.zeros(2, np.int32), "dl": np.zeros(2), "px": np.zeros((2, 2), np.uint8), "fx": np.zeros((2, 2), np.float32),
    "s": "a", "b": b"\xff\xd8\xff\xe0", "n": {"x": 1},
}  # fmt: skip


def stored(fmt: str) -> dict[str, str]:
    schema = schema_of([VALUES])
    return {one.name: f"{one.column} {one.stored}" for one in columns_of(schema, fmt, schema.values(VALUES)).fields}


def test_an_example_has_numbers_where_nothing_is_lost_and_raw_bytes_else() -> None:
    assert stored("tfrecord") == {
        "i": "i int", "u": "u raw", "t": "t int", "f": "f float", "d": "d raw", "h": "h float", "c": "c raw", "il": "il list",
        "dl": "dl raw", "px": "px raw", "fx": "fx list", "s": "s str", "b": "b bytes", "n/x": "n/x int",
    }  # fmt: skip


def test_parquet_has_all_numbers_and_vectors() -> None:
    assert stored("parquet") == {
        "i": "i int", "u": "u int", "t": "t int", "f": "f float", "d": "d float", "h": "h float", "c": "c raw", "il": "il list",
        "dl": "dl list", "px": "px raw", "fx": "fx raw", "s": "s str", "b": "b bytes", "n/x": "n/x int",
    }  # fmt: skip


def test_members_of_a_tar_have_the_extensions_that_readers_know() -> None:
    assert stored("tar") == {
        "i": "i.cls text", "u": "u.cls text", "t": "t.json text", "f": "f.json text", "d": "d.json text", "h": "h.json text",
        "c": "c.npy npy", "il": "il.npy npy", "dl": "dl.npy npy", "px": "px.npy npy", "fx": "fx.npy npy", "s": "s.txt str",
        "b": "b.jpg bytes", "n/x": "n.x.cls text",
    }  # fmt: skip


def test_ragged_fields_have_a_column_of_shapes() -> None:
    elements = [{"x": np.zeros((2, size), np.uint8), "v": np.zeros(size)} for size in (1, 2)]
    schema = schema_of(elements)
    columns = columns_of(schema, "parquet", schema.values(elements[0])).fields
    assert [one.shapes for one in columns] == ["x/shape", ""]
    assert columns[0].as_json()["shapes"] == "x/shape"
    assert columns[0].words() == "x: uint8[2, None] as raw bytes"


def test_two_fields_of_one_name_are_an_error() -> None:
    schema = schema_of([{"A": b"", "a": b""}])
    with pytest.raises(SpecError, match=r"two fields would be named 'a\.bin' in the file"):
        columns_of(schema, "tar", [b"", b""])


def test_raw_bytes_come_back_as_the_array_or_are_an_error() -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    schema = schema_of([{"x": array}])
    (column,) = columns_of(schema, "tfrecord", [array]).fields
    assert np.array_equal(from_raw(column, array.tobytes(), None), array)
    assert from_raw(column, array.tobytes(), (3, 2)).shape == (3, 2)
    with pytest.raises(SpecError, match=r"47 bytes are no float64\[2, 3\]"):
        from_raw(column, array.tobytes()[:-1], None)


def test_extensions_are_told_by_content_and_npy_files_have_no_time() -> None:
    heads = {b"\x89PNG\r\n\x1a\n": "png", b"RIFF1234WEBP": "webp", b"GIF89a": "gif", b"II*\x00": "tiff", b"": "bin", b"<html>": "bin"}
    assert [extension_of(head) for head in heads] == list(heads.values())
    assert npy(np.zeros(2)) == npy(np.zeros(2))


@pytest.mark.parametrize(
    ("shape", "stored", "wanted"), [((None,), None, (6,)), ((4,), None, (6,)), ((2, 3), None, (2, 3)), ((None, 2), (3, 2), (3, 2))]
)
def test_numbers_get_the_shape_of_their_field_or_the_one_stored_beside_them(shape: Any, stored: Any, wanted: Any) -> None:
    assert shaped(Field(name="v", kind="array", dtype="<f4", shape=shape), np.zeros(6, np.float32), stored).shape == wanted


@pytest.mark.skipif(np.dtype(np.longdouble) == np.float64, reason="a long double is a float64 on this platform")
@pytest.mark.parametrize("kind", [np.longdouble, np.clongdouble])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_long_double_is_refused_and_its_field_named(kind: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=r"field 'exact' is a .*, which no packed format holds"):
        schema_of([{"good": 1, "exact": np.ones(shape, kind)[()]}])


@pytest.mark.parametrize("fmt", ["tfrecord", "tar", "parquet", "decoded"])
def test_all_other_kinds_of_numbers_have_a_place_in_every_format(fmt: str) -> None:
    elements = [
        {f"{np.dtype(code).name}{len(shape)}": np.ones(shape, code)[()] for code in "?bBhHiIqQefdFD" for shape in ((), (2,), (2, 2))}
    ]
    schema = schema_of(elements)
    assert len(columns_of(schema, fmt, schema.values(elements[0])).fields) == 14 * 3
