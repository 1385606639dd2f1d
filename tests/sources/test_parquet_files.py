from __future__ import annotations

import datetime
import decimal
import math
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _storage.forks import forked, held_by_another_thread
from core import core
from formats.tables import numbers, opened, spoil, write

import penstock as ps
from penstock._storage.local import LocalStorage
from penstock.errors import IndexStale, PlanError, RecordError, SourceError
from penstock.formats import parquet
from penstock.formats.arrow import Stored
from penstock.sources.parquet import ParquetFiles

MOST = 4 << 30


def files_of(*paths: Path, columns: list[str] | None = None, null_values: Any = None, most: int = MOST) -> ParquetFiles:
    return ParquetFiles(opened(*paths), columns, null_values or {}, most)


def test_row_groups_of_all_files_are_numbered_and_empty_ones_left_out(tmp_path: Path) -> None:
    one, two, none = tmp_path / "1.parquet", tmp_path / "2.parquet", tmp_path / "0.parquet"
    write(one, numbers(25))
    write(two, numbers(7, start=25), group=5)
    write(none, numbers(0))
    files = files_of(one, two, none)
    assert files.group_starts.tolist() == [0, 10, 20, 25, 30, 32]
    assert len(files) == 5
    assert files.describe(3) == f"row group 0 of {str(two)!r}"
    assert [int(files.load(number).values[0].take(np.array([0]))[0]) for number in range(5)] == [0, 10, 20, 25, 30]
    assert files_of(none).group_starts.tolist() == [0]


def test_the_check_sum_of_the_footers_tells_other_contents_of_the_same_size(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{start}.parquet", numbers(25, start=start).select(["number"]), compression="none") for start in (0, 100, 0)]
    assert len({path.stat().st_size for path in paths}) == 1
    crcs = [files_of(path).crc32 for path in paths]
    assert crcs[0] == crcs[2] != crcs[1]


def test_a_file_with_another_schema_is_an_error_that_names_both(tmp_path: Path) -> None:
    one = write(tmp_path / "1.parquet", numbers(3))
    two = write(tmp_path / "2.parquet", numbers(3).drop_columns(["odd"]))
    with pytest.raises(RecordError) as caught:
        files_of(one, two)
    assert str(one) in caught.value.what
    assert "it has no column 'odd', which is bool[] there" in caught.value.what
    assert files_of(one, two, columns=["number", "half"]).group_starts.tolist() == [0, 3, 6]
    with pytest.raises(PlanError, match="there is no column 'odd'"):
        files_of(two, one, columns=["odd"])


def test_a_row_group_that_would_be_too_large_decoded_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "bomb.parquet", pa.table({"x": np.zeros(3_000_000)}), group=3_000_000)
    assert path.stat().st_size < 20_000
    with pytest.raises(RecordError, match="row group 0 of") as caught:
        files_of(path, most=10_000_000).load(0)
    assert "more than max_group_bytes=10000000" in caught.value.what
    assert files_of(path, most=40_000_000).load(0).nbytes == 24_000_000


def test_a_dictionary_of_a_huge_word_stays_one_word(tmp_path: Path) -> None:
    word = "x" * 5_000_000
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(200_000, np.int32)), pa.array([word]))
    path = write(tmp_path / "bomb.parquet", pa.table({"x": coded}), group=200_000, dictionary_pagesize_limit=10_000_000)
    assert path.stat().st_size < 1_000_000  # and 1 TB as strings
    group = files_of(path).load(0)
    assert group.nbytes < 50_000_000
    assert group.values[0].take(np.array([199_999])) == [word]


def test_every_bit_that_is_changed_in_a_page_with_a_check_sum_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbers(25).select(["number"]))
    good = path.read_bytes()
    files = files_of(path)
    chunk = files._idle[0].footer.metadata.row_group(1).column(0)
    expected = [files.load(number).values[0].take(np.arange(5)) for number in range(3)]
    begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    found = 0
    for place in range(begin, begin + chunk.total_compressed_size):
        spoil(path, good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        assert files.load(0).values[0].take(np.arange(5)) == expected[0]
        outcome = _outcome(files)
        found += isinstance(outcome, str)
        if isinstance(outcome, str):
            assert outcome.startswith(f"row group 1 of {str(path)!r} cannot be decoded: ")
        else:
            assert outcome == expected[1]  # a field of a page's header that nothing depends on
    assert found > chunk.total_compressed_size // 2


def _outcome(files: ParquetFiles) -> Any:
    try:
        return files.load(1).values[0].take(np.arange(5))
    except RecordError as error:
        return error.what


def test_bad_bytes_without_a_check_sum_that_cannot_be_decoded_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"word": [f"word {number % 7}" for number in range(100)]}), write_page_checksum=False)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(bytes(data))
    with pytest.raises(RecordError, match=r"row group 0 of .* cannot be decoded"):
        files_of(path).load(0)


def test_a_file_that_was_replaced_or_cut_is_never_read_silently(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbers(25).select(["number"]), compression="none")
    good = path.read_bytes()
    files = files_of(path)
    files.load(0)
    # Its time is another; its size is; it is cut; it is another file; it is gone.
    other = write(tmp_path / "b.parquet", numbers(25, start=100).select(["number"]), compression="none")
    spoil(path, other.read_bytes())
    with pytest.raises(IndexStale, match="has another footer than when the dataset was made: it was replaced"):
        parquet.read_footer(files._storage, 0, files._footer_crcs[0])
    os.utime(path, ns=(0, 0))
    with pytest.raises(IndexStale, match="was written to, or replaced, since it was opened"):
        files.load(1)
    write(path, numbers(90, start=100).select(["number"]), compression="none")
    with pytest.raises(IndexStale, match=f"has {path.stat().st_size} bytes and had {len(good)}"):
        files.load(1)
    path.write_bytes(good[: len(good) // 3])
    with pytest.raises(IndexStale, match=f"has {len(good) // 3} bytes and had {len(good)}"):
        files.load(1)
    os.replace(other, path)
    with pytest.raises(IndexStale, match="was written to, or replaced, since it was opened"):
        files.load(1)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        files.load(1)
    path.write_bytes(good)
    assert files_of(path).load(1).values[0].take(np.array([0])) == [10]


def test_more_files_than_readers_are_read_and_readers_stay_few(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number:02d}.parquet", numbers(4, start=4 * number)) for number in range(40)]
    files = files_of(*paths, columns=["number"])
    for number in (*range(40), 0, 39, 5):
        assert files.load(number).values[0].take(np.arange(4)) == list(range(4 * number, 4 * number + 4))
    assert len(files._idle) == 16


class Counting(LocalStorage):
    """Counts the bytes that are read."""

    num_bytes = 0

    def read_spans(self, files: Any, offsets: Any, lengths: Any, scratch: Any) -> Any:
        self.num_bytes += int(np.sum(lengths))
        return super().read_spans(files, offsets, lengths, scratch)


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_columns_cost_only_those_that_are_read(tmp_path: Path, count: int) -> None:
    schema = pa.schema([(f"column {number}", pa.int8()) for number in range(count)])
    table = pa.Table.from_arrays([pa.array([number % 100, 1], pa.int8()) for number in range(count)], schema=schema)
    path = write(tmp_path / "wide.parquet", table, use_dictionary=False, store_schema=False)
    storage = Counting([str(path)], "read_parquet")
    files = ParquetFiles(storage, [f"column {count - 1}", "column 0"], {}, MOST)
    storage.num_bytes = 0  # the footer tells of all columns
    assert [values.take(np.array([0])) for values in files.load(0).values] == [[99], [0]]
    assert 0 < storage.num_bytes < 40_000 < path.stat().st_size, "the end of the file is looked at again, and two pages"
    with pytest.raises(PlanError) as caught:
        files_of(path, columns=["no such"])
    assert caught.value.fix.startswith("choose from 'column 0', ")
    assert caught.value.fix.endswith(", ...")
    assert len(caught.value.fix) < 200


DAY = datetime.datetime(2000, 1, 1)
HOUR = datetime.timedelta(hours=1)
EAST = datetime.timezone(HOUR)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 1.9),
        (pa.int8(), -0.5),
        (pa.int8(), np.float64(2.7)),
        (pa.int8(), decimal.Decimal("1.5")),
        (pa.int8(), np.True_),
        (pa.int8(), None),
        (pa.uint64(), -1),
        (pa.float32(), 1e300),
        (pa.float32(), -np.float64(1e300)),
        (pa.float32(), 1e-300),
        (pa.float32(), True),
        (pa.float32(), 2**24 + 1),
        (pa.float16(), np.float32(70_000)),
        (pa.bool_(), 1),
        (pa.string(), b"x"),
        (pa.binary(), "x"),
        (pa.dictionary(pa.int32(), pa.string()), b"x"),
        (pa.timestamp("ms"), DAY + datetime.timedelta(microseconds=1)),
        (pa.timestamp("ms"), DAY.replace(tzinfo=EAST)),
        (pa.timestamp("ms"), 5),
        (pa.date32(), DAY + HOUR),
        (pa.duration("s"), HOUR / 7),
    ],
    ids=repr,
)
def test_a_value_for_null_that_the_type_would_change_is_an_error(tmp_path: Path, kind: Any, value: Any) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": pa.array([None], kind)}))
    with pytest.raises(PlanError, match=re.escape(f"{value!r} is no value of the column, which is ")) as caught:
        files_of(path, null_values={"x": value})
    assert caught.value.fix == "give one that it holds as it is"


@pytest.mark.parametrize(
    ("kind", "value", "element"),
    [
        (pa.int8(), 1.0, np.int8(1)),
        (pa.int8(), np.int64(-7), np.int8(-7)),
        (pa.uint64(), 2**64 - 1, np.uint64(2**64 - 1)),
        (pa.float32(), 0.1, np.float32(0.1)),
        (pa.float32(), math.nan, np.float32(math.nan)),
        (pa.float32(), -math.inf, np.float32(-math.inf)),
        (pa.float32(), 2**24, np.float32(2**24)),
        (pa.float16(), np.float16(0.1), np.float16(0.1)),
        (pa.bool_(), np.False_, np.False_),
        (pa.string(), np.str_("x"), "x"),
        (pa.binary(), b"x", b"x"),
        (pa.string_view(), "x", "x"),
        (pa.binary_view(), b"x", b"x"),
        (pa.dictionary(pa.int32(), pa.string()), "x", "x"),
        (pa.timestamp("ms"), DAY, np.datetime64(DAY, "ms")),
        (pa.timestamp("ns"), np.datetime64(1, "ns"), np.datetime64(1, "ns")),
        (pa.timestamp("us", "Europe/Berlin"), DAY, np.datetime64(DAY, "us")),
        (pa.timestamp("us", "Europe/Berlin"), DAY.replace(tzinfo=EAST), np.datetime64(DAY - HOUR, "us")),
        (pa.date32(), DAY, np.datetime64(DAY, "D")),
        (pa.date32(), DAY.date(), np.datetime64(DAY, "D")),
        (pa.duration("s"), HOUR, np.timedelta64(HOUR, "s")),
    ],
    ids=repr,
)
def test_a_value_for_null_comes_back_as_it_was_given(tmp_path: Path, kind: Any, value: Any, element: Any) -> None:
    files = files_of(write(tmp_path / "a.parquet", pa.table({"x": pa.array([None], kind)})), null_values={"x": value})
    (found,) = files.load(0).values[0].take(np.array([0]))
    assert type(found) is type(element)
    np.testing.assert_array_equal(found, element, strict=True)


def test_a_column_whose_name_a_field_of_a_struct_seems_to_have_is_read_by_its_place(tmp_path: Path) -> None:
    inner = pa.array([{"b": "of a struct", "c": 7}] * 3)
    table = pa.table({"a": inner, "a.b": ["x", "y", "x"], "a.c": [1, 2, 3], "z": [4, 5, 6]})
    files = files_of(write(tmp_path / "a.parquet", table), columns=["z", "a.c", "a.b"])
    assert [values.take(np.arange(3)) for values in files.load(0).values] == [[4, 5, 6], [1, 2, 3], ["x", "y", "x"]]
    table = table.select(["z", "a.c", "a.b", "a"])
    files = files_of(write(tmp_path / "b.parquet", table), columns=["a.b", "a.c"])
    assert isinstance(files.load(0).values[0], Stored)
    assert [values.take(np.arange(3)) for values in files.load(0).values] == [["x", "y", "x"], [1, 2, 3]]


def test_pickled_files_are_read_on_the_other_side(tmp_path: Path) -> None:
    files = files_of(write(tmp_path / "a.parquet", numbers(25)))
    copy = pickle.loads(pickle.dumps(files))
    assert copy.load(2).values[0].take(np.array([4])) == [24]


def test_behind_a_fork_row_groups_are_read_whatever_threads_of_the_parent_were_at(tmp_path: Path) -> None:
    files = files_of(write(tmp_path / "a.parquet", numbers(25)))

    def child() -> None:
        assert [int(files.load(number).values[0].take(np.array([0]))[0]) for number in range(3)] == [0, 10, 20]

    with held_by_another_thread(files._locks.own()):
        forked(child)


@pytest.mark.parametrize(("compression", "coded"), core([("snappy", True), ("none", False), ("snappy", False), ("none", True)], 2))
def test_nothing_that_is_decoded_lies_in_memory_that_is_used_again(tmp_path: Path, compression: str, coded: bool) -> None:
    generator = np.random.default_rng(3)
    count = 6000

    def texts(size: int) -> list[str]:
        return [f"{number:0{size}d}" for number in generator.integers(0, 50 if coded else 10**8, count).tolist()]

    table = pa.table(
        {
            "float": generator.standard_normal(count, np.float32),
            "int": generator.integers(0, 2**60, count),
            "bool": generator.integers(0, 2, count).astype(bool),
            "time": generator.integers(0, 2**60, count).view("M8[ns]"),
            "half": pa.array(generator.standard_normal(count).astype(np.float16)),
            "text": texts(12),
            "bytes": [text.encode() for text in texts(9)],
            "list": [generator.integers(0, 99, 3).tolist() for _ in range(count)],
            "grid": pa.FixedSizeListArray.from_arrays(pa.array(generator.standard_normal(4 * count)), 4),
            "null": pa.array(generator.integers(0, 9, count), mask=np.arange(count) % 7 == 0),
        }
    )
    path = write(tmp_path / "a.parquet", table, group=1000, compression=compression, use_dictionary=coded)
    kept = files_of(path)
    groups = [kept.load(number) for number in range(6)]
    for number, group in enumerate(groups):
        alone = files_of(path).load(number)
        for column, values, wanted in zip(group.columns, group.values, alone.values, strict=True):
            found, other = values.take(np.arange(1000)), wanted.take(np.arange(1000))
            assert all(np.array_equal(one, two) for one, two in zip(found, other, strict=True)), (number, column.name)


# -- timestamps, fields of structs, folders, names, files of several widths -----------------------------------------------------------

FAR = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1), DAY]


def test_dates_of_int96_are_those_that_were_written(tmp_path: Path) -> None:
    kind, moments = pa.timestamp("us"), [*FAR, None]
    rows = [[{"at": moment, "x": 1}, None] for moment in moments]
    table = pa.table({"t": pa.array(moments, kind), "in": pa.array(rows, pa.list_(pa.struct([("at", kind), ("x", pa.int8())])))})
    path = write(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)
    found = list(ps.read_parquet(path, nulls="none"))
    assert [row["t"] for row in found] == [row["in"][0]["at"] for row in found] == moments
    assert all(row["t"].dtype == "M8[us]" for row in found[:-1])


def test_fields_of_structs_are_read_alone(tmp_path: Path) -> None:
    images = [{"bytes": b"\0", "path": "p", "size": {"h": 1, "w": 2}}, None, {"bytes": b"a\0", "path": None, "size": None}]
    path = write(tmp_path / "a.parquet", pa.table({"n": [0, 1, 2], "image": images, "image.path": ["x", "y", "z"]}))
    names = ["image.size.w", "image.bytes", "n", "image.path"]
    rows = list(ps.read_parquet(path, columns=names, nulls="none"))
    assert [list(row.values()) for row in rows] == [[2, b"\0", 0, "x"], [None, None, 1, "y"], [None, b"a\0", 2, "z"]]
    assert list(rows[0]) == names
    assert [row["image"] for row in ps.read_parquet(path, columns=["image"], nulls="none")] == images
    assert [row["image.bytes"] for row in ps.read_parquet(path, columns=["image.bytes"], nulls=b"-")] == [b"\0", b"-", b"a\0"]
    with pytest.raises(RecordError, match=r"the column 'image.path' is null in row 2") as caught:
        ps.read_parquet(path, columns=["image"])[2]
    assert caught.value.fix.startswith('give read_parquet nulls="none" to have None, or leave such elements out')


def test_folders_with_an_equals_sign_are_columns(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2, 3], "year": [2020, None, 2021], "name": ["a b/c", "_d", "é=1"], "id": [10**12, 2, 3]})
    keys = ["year", "name", "id"]
    pq.write_to_dataset(table, tmp_path / "hive", partition_cols=keys)
    (tmp_path / "hive" / "_SUCCESS").touch()
    rows = sorted(ps.read_parquet(tmp_path / "hive" / "**" / "*", nulls="none"), key=lambda row: row["x"])
    assert rows == table.to_pylist()
    assert [type(rows[0][key]) for key in keys] == [np.int32, str, np.int64]
    with ps.read_parquet(tmp_path / "hive" / "**" / "*.parquet", columns=["x", "year"], nulls={"year": -1}).batch(3).feed() as feed:
        assert [sorted(batch["year"].tolist()) for batch in feed] == [[-1, 2020, 2021]]
    assert sorted(row["id"] for row in ps.read_parquet(tmp_path / "hive" / "**" / "*.parquet", columns=["id"])) == [2, 3, 10**12]
    write(tmp_path / "hive" / "a.parquet", table.select(["x"]))
    with pytest.raises(RecordError, match=r"has a column 'year' \(int32\[\]\) that is not there"):
        ps.read_parquet(tmp_path / "hive" / "**" / "*.parquet")
    own = tmp_path / "year=7"
    own.mkdir()
    assert ps.read_parquet(write(own / "a.parquet", pa.table({"year": ["own"]})))[0] == {"year": "own"}


def test_other_folders_are_other_data(tmp_path: Path) -> None:
    prints = []
    for year in ("2020", "2021"):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        prints.append(files_of(write(folder / "a.parquet", numbers(3))).crc32)
    assert prints[0] != prints[1]


def test_what_other_programs_put_beside_data_is_left_out(tmp_path: Path) -> None:
    for name in [
        "part-0.parquet",
        "_x.parquet",
        ".part-0.parquet.crc",
        "_SUCCESS",
        "_temporary/0/part-1.parquet",
        "_key=1/b.parquet",
        ".x[1]/c",
    ]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, pa.table({"x": [name]}))

    def found(pattern: str) -> list[str]:
        return [row["x"] for row in ps.read_parquet(tmp_path / pattern, columns=["x"])]

    assert found("*") == ["part-0.parquet"]
    assert found("**/*") == ["_key=1/b.parquet", "part-0.parquet"]
    assert found("_x.parquet") == found("_*.parquet") == found("_{x,x}.parquet") == ["_x.parquet"]
    assert found("_temporary/**/*.parquet") == ["_temporary/0/part-1.parquet"]
    assert found(".x[1]/c") == [".x[1]/c"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_SUCCESS").touch()
    with pytest.raises(
        SourceError, match=r"of 1 files such as '.*_SUCCESS' each has a name, or is in a folder, that begins with _ or \."
    ) as caught:
        ps.read_parquet(tmp_path / "empty" / "*")
    assert caught.value.fix == "look whether the job that writes them has ended; to read such files name them with that character"


def test_files_of_several_widths_are_read_as_the_widest(tmp_path: Path) -> None:
    kinds = [pa.null(), pa.int32(), pa.int64(), pa.int8()]
    paths = [write(tmp_path / f"{place}.parquet", pa.table({"x": pa.array([None, None], kind)})) for place, kind in enumerate(kinds)]
    write(paths[2], pa.table({"x": [2**53 + 1, None]}))
    ds = ps.read_parquet(tmp_path / "*.parquet", nulls=2**40)
    rows = list(ds)
    assert [row["x"] for row in rows] == [2**40] * 4 + [2**53 + 1] + [2**40] * 3
    assert {type(row["x"]) for row in rows} == {np.int64}
    with ds.batch(8).feed() as feed:
        assert next(feed)["x"].tolist() == [row["x"] for row in rows]
    assert [row["x"] for row in ps.read_parquet(tmp_path / "*.parquet", nulls="none")][4:] == [2**53 + 1, None, None, None]


@pytest.mark.parametrize("wrapped", [lambda part: part, lambda part: {"inner": part}, lambda part: [part]], ids=["bytes", "struct", "list"])
def test_a_column_too_large_for_one_array_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: Any) -> None:
    monkeypatch.setattr(parquet, "_LARGE_BYTES", 1000)  # for 2 GiB, of which a test should not make files
    monkeypatch.setattr(parquet, "_PART_BYTES", 250)
    data = [bytes([number]) * 90 for number in range(40)]
    path = write(tmp_path / "a.parquet", pa.table({"x": [wrapped(part) for part in data], "n": range(40)}), group=100)
    files = files_of(path)
    assert files._idle[0].layout(0).num_parts > 10
    group = files.load(0)
    rows = np.array([39, 0, 7, 7])
    assert [values.take(rows) for values in group.values] == [[wrapped(data[row]) for row in rows], rows.tolist()]
    true = files._idle[0].layout(0)
    monkeypatch.setattr(parquet.ParquetReader, "layout", lambda *_: true._replace(num_bytes=0))  # as of a footer that lies
    with pytest.raises(RecordError, match=r"row group 0 of .* cannot be decoded: more than 2000 bytes"):
        files_of(path, most=2000).load(0)
