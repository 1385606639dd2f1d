from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from core import core
from formats.tables import everything, numbers, spoil, write

import penstock as ps
from penstock._contracts.source import ChunkedSource, ColumnSource
from penstock.errors import LengthMismatch, PlanError, RecordError
from penstock.sources.parquet import ParquetColumns, ParquetSource
from penstock.testing import check_source
from penstock.testing.runs import exact


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    write(tmp_path / "a.parquet", numbers(47))
    write(tmp_path / "b.parquet", numbers(36, start=47), group=8)
    return tmp_path


def source_of(dataset: ps.Dataset) -> Any:
    return dataset._root.source  # type: ignore[union-attr]


def test_rows_of_fixed_shapes_are_a_column_source_that_keeps_the_laws(folder: Path) -> None:
    def made() -> Any:
        return source_of(ps.read_parquet(folder / "*.parquet"))

    source = made()
    assert isinstance(source, ColumnSource)
    assert isinstance(source, ChunkedSource)
    rows = numbers(83).to_pylist()
    assert source.structure() == ps._contracts.element.structure_of(rows[0]) or source.structure()[1] == tuple(rows[0])
    check_source(source, expected=rows, again=made, most_elements=24)


def test_rows_of_every_kind_keep_the_laws(tmp_path: Path) -> None:
    table = everything(33).drop_columns(["time_utc", "lasting"])
    path = write(tmp_path / "a.parquet", table)

    def made() -> Any:
        return source_of(ps.read_parquet(path, cache_bytes=100_000))

    assert not isinstance(made(), ColumnSource)
    rows = table.to_pylist()
    for row in rows:
        row.update(day=np.datetime64(row["day"]), time=np.datetime64(row["time"]))
    check_source(made(), expected=rows, again=made, most_elements=24)


@pytest.mark.parametrize("window_groups", [1, 3, 99])
def test_a_shuffle_of_groups_decodes_each_row_group_once_per_epoch(folder: Path, window_groups: int) -> None:
    kept = 10 * 90 * min(window_groups, 10) * 2  # of two windows, for workers that are ahead
    ds = ps.read_parquet(folder / "*.parquet", cache_bytes=kept)
    source = source_of(ds)
    for epoch in (1, 2):
        with ds.shuffle(seed=5, window_groups=window_groups).batch(7).feed(executor="threads", num_workers=2) as feed:
            seen = np.concatenate([batch["number"] for batch in feed])
        assert sorted(seen.tolist()) == list(range(83))
        if window_groups != 99:
            assert source.chunks.num_loaded <= 10 * epoch + 1
    if window_groups == 99:
        assert source.chunks.num_loaded == 10


def test_blocks_of_any_rows_are_gathered_into_any_arrays(folder: Path) -> None:
    source = source_of(ps.read_parquet(folder / "*.parquet", columns=["number", "grid"], cache_bytes=0))
    for indices in ([], [5], [3, 4, 5], [82, 0, 41, 41, 7], list(range(83)), list(range(82, -1, -1))):
        places = np.array(indices, np.int64)
        found = source.gather_columns(places, None)
        assert found[0].tolist() == indices
        assert found[1].tolist() == (np.arange(6).reshape(2, 3) + 6 * places[:, None, None]).tolist()
        out = [np.empty(len(indices), np.float64), np.empty((len(indices), 2, 3), np.int16)]
        assert source.gather_columns(places, out)[0].tolist() == indices
    with pytest.raises(LengthMismatch, match="there are 83 rows"):
        source.gather_columns(np.array([83]), None)
    with pytest.raises(LengthMismatch):
        source.gather_columns(np.array([-1]), None)


def test_what_it_is_stands_in_print_and_explain(folder: Path) -> None:
    ds = ps.read_parquet(folder / "*.parquet", cache_bytes=2000)
    assert f"read_parquet({str(folder / 'a.parquet')!r} and 1 more, 83 elements in 10 row groups)" in str(ds)
    assert "groups are decoded again and again" in ds.shuffle(seed=1).explain()
    assert "again and again" not in ps.read_parquet(folder / "*.parquet").shuffle(seed=1).explain()
    assert source_of(ds).describe(49) == f"row 2 of row group 0 of {str(folder / 'b.parquet')!r}"


def test_a_bad_row_group_fails_its_rows_alone_and_they_are_named(folder: Path) -> None:
    path = folder / "a.parquet"
    data = bytearray(path.read_bytes())
    ds = ps.read_parquet(folder / "*.parquet", columns=["number"])
    chunk = source_of(ds)._files._idle[0].footer.metadata.row_group(2).column(0)
    data[chunk.dictionary_page_offset + chunk.total_compressed_size - 2] ^= 0xFF
    spoil(path, bytes(data))
    good = [number for number in range(83) if not 20 <= number < 30]
    for batch_size in (1, 7):
        with pytest.raises(RecordError) as caught, ds.batch(batch_size).feed() as feed:
            list(feed)
        assert "row group 2 of" in caught.value.what
        with ds.batch(batch_size).feed(on_error=ps.Skip(10)) as feed:
            assert np.concatenate([batch["number"] for batch in feed]).tolist() == good
    with ds.shuffle(window_groups=3).batch(7).feed(on_error=ps.Skip(10)) as feed:
        assert sorted(np.concatenate([batch["number"] for batch in feed]).tolist()) == good


@pytest.mark.parametrize("kind", ["columns", "rows"])
def test_a_null_is_an_error_of_its_element_unless_a_value_stands_for_it(tmp_path: Path, kind: str) -> None:
    table = pa.table({"x": [1, 2, None, 4], **({"word": ["a", "b", "c", "d"]} if kind == "rows" else {})})
    path = write(tmp_path / "a.parquet", table, group=4)
    ds = ps.read_parquet(path)
    assert isinstance(source_of(ds), ParquetColumns if kind == "columns" else ParquetSource)
    with pytest.raises(RecordError) as caught, ds.batch(4).feed() as feed:
        list(feed)
    assert "the column 'x' is null in row 2 of row group 0 of" in caught.value.what
    assert caught.value.fix.startswith("give read_parquet nulls=\"none\" to have None, or nulls={'x': value}, or leave such elements out")
    with ds.batch(4).feed(on_error=ps.Skip()) as feed:
        assert [batch["x"].tolist() for batch in feed] == [[1, 2, 4]]
    for given in ({"null_values": {"x": -1}}, {"nulls": {"x": -1}}, {"nulls": -1}):
        assert [int(row["x"]) for row in ps.read_parquet(path, **given)] == [1, 2, -1, 4]
    for nulls in ("none", {"x": "none"}):
        with ps.read_parquet(path, nulls=nulls).feed(num_workers=2) as feed:
            assert [row["x"] for row in feed] == [1, 2, None, 4]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.int64(), 2)], ids=["ragged", "fixed"])
def test_for_a_null_in_place_of_a_list_no_value_is_offered_as_none_can_be_given(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"x": pa.array([[1, 2], None], kind), "y": [1, 2]})
    path = write(tmp_path / "a.parquet", table, group=2)
    with pytest.raises(RecordError, match="the column 'x' is null in row 1") as caught:
        ps.read_parquet(path)[1]
    assert caught.value.fix == 'give read_parquet nulls="none" to have None, or leave such elements out with feed(on_error=ps.Skip())'
    with pytest.raises(PlanError, match="no column of single values"):
        ps.read_parquet(path, null_values={"x": 0})
    assert int(ps.read_parquet(path, columns=["y"])[1]["y"]) == 2


def test_strings_that_are_not_utf8_are_an_error_of_their_file(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"]).buffers())
    path = write(tmp_path / "a.parquet", pa.table({"word": bad}), use_dictionary=False)
    with pytest.raises(RecordError, match="row group 0 of") as caught:
        ps.read_parquet(path)[1]
    assert "the column 'word' has a value that is no str" in caught.value.what


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"columns": "number"}, "columns='number' is a str"),
        ({"cache_bytes": -1}, "cache_bytes=-1"),
        ({"max_group_bytes": 0}, "max_group_bytes=0"),
        ({"nulls": -1, "null_values": {"number": 0}}, "nulls= and null_values= are both given"),
        ({"nulls": {"number": "a"}}, "'a' is no value of the column, which is int64"),
        ({"nulls": "a"}, "'a' is no value of the column, which is int64"),
        ({"nulls": {"nine": "none"}}, "'nine' is no column of single values"),
        ({"columns": ["pair.a"]}, "there is no column 'pair.a'"),
    ],
)
def test_wrong_arguments_are_an_error(folder: Path, arguments: dict[str, Any], fragment: str) -> None:
    with pytest.raises(PlanError, match=fragment):
        ps.read_parquet(folder / "*.parquet", **arguments)


# -- Arrow tables ---------------------------------------------------------------------------------------------------------------------


def in_pieces(table: Any) -> Any:
    """Return the same rows in chunks of other sizes, one without rows, and one that begins within its buffers."""
    return pa.concat_tables([table.slice(0, 10), table.slice(10, 0), table.slice(10, 1), table.slice(11)])


@pytest.mark.parametrize("made", core([in_pieces, pa.Table.slice, lambda table: table.to_batches()[0]]), ids=["pieces", "table", "batch"])
@pytest.mark.parametrize("table", [numbers(33), everything(33)], ids=["numbers", "everything"])
def test_an_arrow_table_is_read_by_rows_as_its_parquet_file_is(table: Any, made: Any, tmp_path: Path) -> None:
    source = source_of(ps.from_source(made(table)))
    other = source_of(ps.read_parquet(write(tmp_path / "a.parquet", table)))
    assert isinstance(source, ColumnSource) == isinstance(other, ColumnSource)
    rows: list[Any] = []
    other.gather(range(33), rows)
    check_source(source, expected=rows, again=lambda: source_of(ps.from_source(made(table))), most_elements=24)
    got: list[Any] = []
    source.gather([32, 0, 10, 11, 10], got)
    assert [exact(row) for row in got] == [exact(rows[place]) for place in (32, 0, 10, 11, 10)]
    with ps.from_source(made(table)).shuffle(seed=3).padded_batch(5).feed(executor="threads", num_workers=2) as feed:
        assert sorted(number for batch in feed for number in batch["number"].tolist()) == list(range(33))


def test_a_null_in_a_table_is_an_error_of_its_row_alone() -> None:
    table = pa.table({"x": [1, None, 3], "word": ["a", "b", None]})
    ds = ps.from_source(table)
    with pytest.raises(RecordError) as caught:
        ds[1]
    assert caught.value.what == "the column 'x' is null in row 1 of batch 0 of the table"
    assert caught.value.where == "row 1 of the table"
    assert "fill_null(table['x'], ...)" in caught.value.fix
    with ds.batch(2).feed(on_error=ps.Skip()) as feed:
        assert [batch["x"].tolist() for batch in feed] == [[1]]


def test_the_fingerprint_of_a_table_changes_with_its_rows_and_columns() -> None:
    tables = [{"x": [1, 2]}, {"x": [1, 3]}, {"x": [1, None]}, {"y": [1, 2]}, {"x": [1.0, 2.0]}, {"x": [1, 2, 2]}]
    prints = [ps.from_source(pa.table(table))._root.source.fingerprint() for table in tables]  # type: ignore[union-attr]
    assert all(one != other for place, one in enumerate(prints) for other in prints[:place])
    assert prints[0] == source_of(ps.from_source(pa.table(tables[0]).to_batches()[0])).fingerprint()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"x": pa.nulls(1, pa.month_day_nano_interval())}), "the column 'x' is of the type month_day_nano_interval"),
        (pa.table({}), "there is no column to read"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), "the column 'x' stands twice"),
    ],
)
def test_a_table_with_a_column_that_has_no_conversion_is_refused_where_it_is_given(table: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        ps.from_source(table)
    assert words in caught.value.what
    assert caught.value.where == "from_source(Table)"
