from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from formats.tables import everything, numbers, opened, write
from programs import output_of

from penstock.errors import IndexStale, PlanError, RecordError
from penstock.formats import arrow, parquet
from penstock.formats.arrow import ColumnForm, columns_of, common_form
from penstock.formats.parquet import common_columns, read_footer


def refused(path: Path, fragment: str) -> RecordError:
    with pytest.raises(RecordError) as caught:
        read_footer(opened(path), 0)
    assert fragment in caught.value.what
    assert repr(str(path)) in caught.value.what
    assert repr(str(path)) in caught.value.where
    return caught.value


def test_a_footer_says_groups_and_where_the_data_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbers(25))
    footer = read_footer(opened(path), 0)
    assert footer.metadata.num_row_groups == 3
    assert path.read_bytes()[footer.offset - 20 :].endswith(b"PAR1")


def test_what_is_no_parquet_file_is_told_with_the_reason(tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", numbers(25)).read_bytes()
    bad = tmp_path / "bad.parquet"
    for data, fragment in [
        (b"", "it has 0 bytes"),
        (b"PAR1PAR1", "it has 8 bytes"),
        (good[:-1], "where b'PAR1' marks a footer: another format, or a file that was cut"),
        (good[: len(good) // 2], "marks a footer"),
        (good[:-8] + good[-8:-4] + b"PARE", "its footer is encrypted"),
        (b"RIFF" + good[4:], "it begins with b'RIFF'"),
        (good[:-8] + (2**31).to_bytes(4, "little") + b"PAR1", "its footer would have 2147483648 bytes"),
        (good[:-8] + (9).to_bytes(4, "little") + b"PAR1", "its footer cannot be read"),
        (good[:-40] + b"\xff" * 32 + good[-8:], "its footer cannot be read"),
    ]:
        bad.write_bytes(data)
        refused(bad, fragment)


def test_any_byte_of_a_footer_that_is_changed_is_an_error_or_a_file_with_another_check_sum(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbers(3).select(["number"]))
    good = path.read_bytes()
    footer = read_footer(opened(path), 0)
    for place in range(footer.offset, len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        with pytest.raises((IndexStale, RecordError)):
            read_footer(opened(path), 0, footer.crc32)


def test_a_footer_larger_than_the_bound_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_FOOTER_BYTES", 100)
    error = refused(write(tmp_path / "a.parquet", numbers(25)), "more than 100")
    assert error.fix == "write fewer columns or larger row groups"


def test_each_kind_of_column_has_its_form() -> None:
    found = {column.name: column.words for column in columns_of(everything(3).schema, None, "a")}
    assert found == {
        "number": "int64[]",
        "half": "float32[]",
        "odd": "bool[]",
        "pair": "uint8[2]",
        "grid": "int16[2, 3]",
        "small": "int8[]",
        "f16": "float16[]",
        "word": "str",
        "each": "str",
        "long": "str",
        "raw": "bytes",
        "four": "bytes",
        "coded": "str",
        "coded_number": "int64[]",
        "list": "int64[None]",
        "flags": "bool[None]",
        "day": "datetime64[D][]",
        "time": "datetime64[ms][]",
        "time_utc": "datetime64[us][]",
        "lasting": "timedelta64[s][]",
    }
    assert [column.name for column in columns_of(everything(3).schema, ["word", "half"], "a")] == ["word", "half"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.string_view(), "str"),
        (pa.binary_view(), "bytes"),
        (pa.list_view(pa.int16()), "int16[None]"),
        (pa.large_list_view(pa.bool_()), "bool[None]"),
        (pa.struct([("a", pa.int32()), ("b", pa.string())]), "{a: int32[], b: str}"),
        (pa.list_(pa.list_(pa.int32())), "list[int32[None]]"),
        (pa.list_(pa.list_(pa.float32(), 4)), "float32[None, 4]"),
        (pa.list_(pa.string()), "list[str]"),
        (pa.list_(pa.string(), 2), "list[str]"),
        (pa.decimal128(10, 2), "decimal"),
        (pa.time32("s"), "timedelta64[s][]"),
        (pa.map_(pa.string(), pa.int32()), "map[str, int32[]]"),
        (pa.null(), "null"),
    ],
)
def test_what_is_nested_or_a_view_has_the_forms_of_its_parts(kind: Any, words: str) -> None:
    (column,) = columns_of(pa.schema([("a", kind)]), None, "a")
    assert column.words == words


@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.list_(pa.month_day_nano_interval()),
        pa.struct([("a", pa.month_day_nano_interval())]),
        pa.struct([("a", pa.int8()), ("a", pa.int8())]),
        pa.dense_union([pa.field("a", pa.int8())]),
    ],
)
def test_a_type_without_a_conversion_is_an_error_that_names_the_column(kind: Any) -> None:
    schema = pa.schema([("fine", pa.int32()), ("odd one", kind)])
    with pytest.raises(PlanError, match="the column 'odd one' is of the type ") as caught:
        columns_of(schema, None, "a.parquet")
    assert "columns=[...]" in caught.value.fix
    assert columns_of(schema, ["fine"], "a.parquet") == (ColumnForm("fine", "array", (), "<i4"),)


@pytest.mark.parametrize(
    ("names", "fragment"), [(["nine"], "no column 'nine'"), ([], "no column to read"), (["a", "a"], "the column 'a' stands twice")]
)
def test_columns_that_cannot_be_chosen_are_an_error(names: list[str], fragment: str) -> None:
    with pytest.raises(PlanError) as caught:
        columns_of(pa.schema([("a", pa.int32())]), names, "a.parquet")
    assert fragment in caught.value.what


def test_two_columns_of_one_name_are_an_error() -> None:
    with pytest.raises(PlanError, match="the column 'a' stands twice"):
        columns_of(pa.schema([("a", pa.int32()), ("b", pa.int32()), ("a", pa.int64())]), ["b"], "a.parquet")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), "int64[]"),
        (pa.int8(), pa.uint8(), "int16[]"),
        (pa.float32(), pa.float16(), "float32[]"),
        (pa.string(), pa.dictionary(pa.int8(), pa.large_string()), "str"),
        (pa.null(), pa.list_(pa.string()), "list[str]"),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), "int64[None]"),
        (pa.list_(pa.int32(), 2), pa.list_(pa.int64(), 2), "int64[2]"),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), "{a: int64[]}"),
        (pa.int64(), pa.uint64(), None),
        (pa.int32(), pa.float64(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.timestamp("us"), pa.timestamp("ns"), None),
        (pa.string(), pa.binary(), None),
        (pa.list_(pa.int32(), 2), pa.list_(pa.int32(), 3), None),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())]), None),
    ],
    ids=str,
)
def test_columns_of_two_files_are_the_wider_one_if_it_holds_both(one: Any, other: Any, both: str | None) -> None:
    (first,), (second,) = (columns_of(pa.schema([("x", kind)]), None, "a") for kind in (one, other))
    for found in (common_form(first, second), common_form(second, first)):
        assert (None if found is None else found.words) == both


def test_the_first_difference_of_two_schemas_is_named() -> None:
    a, b, c = ColumnForm("a", "array", (), "<i4"), ColumnForm("b", "str"), ColumnForm("c", "array", (3,), "<f4")
    assert common_columns([a, b], [b, a], "one", "two") == (a, b)
    for other, fragment in [
        ([a], "it has no column 'b', which is str there"),
        ([a, ColumnForm("b", "bytes")], "the column 'b' is bytes, and str there"),
        ([ColumnForm("a", "array", (), "<f8"), b], "the column 'a' is float64[], and int32[] there"),
        ([a, b, c], "it has a column 'c' (float32[3]) that is not there"),
    ]:
        with pytest.raises(RecordError) as caught:
            common_columns([a, b], other, "one", "two")
        assert caught.value.what == f"'two' has another schema than 'one': {fragment}"


def test_extension_types_are_what_they_are_stored_as_and_their_metadata_are_never_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    field = pa.field(
        "x",
        pa.int64(),
        metadata={
            b"ARROW:extension:name": b"arrow.py_extension_type",
            b"ARROW:extension:metadata": b"cos\nsystem\n(S'touch " + os.fsencode(trap) + b"'\ntR.",
        },
    )
    path = write(tmp_path / "a.parquet", pa.table([pa.array(np.arange(30))], pa.schema([field])))
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); seen = []; "
        "sys.addaudithook(lambda event, _: seen.append(event) if event == 'pickle.find_class' else None); "
        "import penstock as ps; ds = ps.read_parquet(sys.argv[1]); "
        "assert [int(row['x']) for row in ds] == list(range(30)); assert not seen, seen"
    )
    assert output_of("-c", code, path) == ""
    assert not trap.exists()


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.errors import MissingExtra

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra) as caught:
        arrow.pyarrow()
    assert caught.value.fix == 'pip install "penstock[parquet]"'
