from __future__ import annotations

import io
import os
import pickle
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.server import FaultServer
from sources.marks import Marked, marked
from sources.memory import growth, needs_proc

import penstock as ps
from penstock._contracts.source import DistantSource, GroupedSource, IndexedSource
from penstock._contracts.transform import Scratch
from penstock._storage import open_storage
from penstock.errors import IndexStale, LengthMismatch, RecordError
from penstock.formats.example import encode_example
from penstock.formats.tar import TarWriter
from penstock.formats.tfrecord import frame
from penstock.sources.records import RecordFormat, RecordSource
from penstock.testing import check_source


def opened(folder: Path, format: Any = None, **contents: bytes) -> RecordSource:
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return RecordSource(open_storage([folder / name for name in contents], "read_x"), format or Marked(), "read_x")


def gathered(source: RecordSource, *indices: int) -> list[Any]:
    rows: list[Any] = []
    source.gather(indices, rows)
    return rows


FILES = {"a": marked(b"one", b"", b"two"), "b": b"", "c": marked(b"x" * 200), "d": marked(b"four", b"five")}
RECORDS = [b"one", b"", b"two", b"x" * 200, b"four", b"five"]


def test_records_of_all_files_are_one_sequence(tmp_path: Path) -> None:
    source = opened(tmp_path, **FILES)
    assert isinstance(source, IndexedSource)
    assert isinstance(Marked(), RecordFormat)
    assert len(source) == 6
    assert [row[0] for row in gathered(source, *range(6))] == RECORDS
    assert gathered(source, 5, 0, 5) == [(b"five", ord("f")), (b"one", ord("o")), (b"five", ord("f"))]
    assert gathered(source) == []
    again = lambda: RecordSource(open_storage([tmp_path / name for name in FILES], "read_x"), Marked(), "read_x")  # noqa: E731
    check_source(source, expected=[(data, data[0] if data else 0) for data in RECORDS], again=again)


def test_the_table_says_where_each_record_is(tmp_path: Path) -> None:
    table = opened(tmp_path, **FILES).table
    assert [table.place(index) for index in range(6)] == [(0, 0), (0, 1), (0, 2), (2, 0), (3, 0), (3, 1)]
    assert table.starts.tolist() == [0, 3, 3, 4, 6]
    assert table.columns["lengths"].dtype == np.uint32
    assert [table.indices.columns_of_file(file)["file_name"].tobytes() for file in range(4)] == [b"a", b"b", b"c", b"d"]
    assert [table.indices.meta(file) for file in range(4)] == [{"records": count} for count in (3, 0, 1, 2)]
    assert "file_name" not in table.columns


def test_a_block_is_read_with_one_call_and_a_scratch_is_used(tmp_path: Path) -> None:
    source = opened(tmp_path, **FILES)
    scratch = Scratch()
    data, begins, ends = source.read(np.array([5, 0, 3]), scratch)
    assert [data[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)] == [b"five", b"one", b"x" * 200]
    assert np.shares_memory(data, source.read(np.array([1]), scratch)[0].base)


def test_a_record_that_cannot_be_decoded_is_named_and_those_before_it_are_there(tmp_path: Path) -> None:
    source = opened(tmp_path, a=marked(b"one", b"bad", b"two"))
    rows: list[Any] = ["before"]
    with pytest.raises(RecordError) as caught:
        source.gather([2, 0, 1, 2], rows)
    assert rows == ["before", (b"two", ord("t")), (b"one", ord("o"))]
    assert caught.value.__notes__ == [f"decoding record 1 of {str(tmp_path / 'a')!r}, offset 5"]
    check_source(source, failing=[1])


def test_a_file_that_cannot_be_read_fails_its_own_records_only(tmp_path: Path) -> None:
    source = opened(tmp_path, **FILES)
    os.truncate(tmp_path / "c", 100)
    rows: list[Any] = []
    with pytest.raises(IndexStale) as caught:
        source.gather([5, 0, 3, 1], rows)
    assert [row[0] for row in rows] == [b"five", b"one"]
    assert caught.value.__notes__[-1] == f"reading record 0 of {str(tmp_path / 'c')!r}, offset 1"


def test_a_file_that_changes_while_the_dataset_lives_is_stale(tmp_path: Path) -> None:
    source = opened(tmp_path, **FILES)
    assert gathered(source, 0)[0][0] == b"one"
    (tmp_path / "a").write_bytes(marked(b"other", b"ones"))
    (tmp_path / "d").write_bytes(marked(b"FOUR", b"FIVE"))
    os.utime(tmp_path / "d", ns=(0, 5))
    for index, words in ((0, "has 11 bytes and had 9"), (5, "has other contents")):
        with pytest.raises(IndexStale) as caught:
            gathered(source, index)
        assert words in caught.value.what
    fresh = RecordSource(open_storage([tmp_path / name for name in FILES], "read_x"), Marked(), "read_x")
    assert [row[0] for row in gathered(fresh, 0, 4)] == [b"other", b"FIVE"]


@pytest.mark.parametrize("checks_records", [False, True])
def test_a_large_file_of_another_time_is_read_on_only_if_its_records_have_check_sums(tmp_path: Path, checks_records: bool) -> None:
    (tmp_path / "a").write_bytes(marked(*[b"abc"] * 70_000))
    (tmp_path / "b").write_bytes(marked(b"small"))
    storage = open_storage([tmp_path / name for name in "ab"], "read_x")
    source = RecordSource(storage, Marked(checks_records=checks_records), "read_x")
    for name in "ab":
        os.utime(tmp_path / name, ns=(0, 5))
    assert gathered(source, 70_000)[0][0] == b"small", "samples of a small file are all of it"
    if checks_records:
        assert gathered(source, 5)[0][0] == b"abc"
        return
    with pytest.raises(IndexStale, match="was written to, or replaced, since it was opened"):
        gathered(source, 5)


@pytest.mark.parametrize("contents", [{"a": b""}, {"a": b"", "b": b""}, FILES])
def test_an_index_that_is_not_there_is_refused_with_the_numbers_and_names_no_record(tmp_path: Path, contents: dict[str, bytes]) -> None:
    source = opened(tmp_path, **contents)
    size = len(source)
    for index in (-1, size, 2**63 - 1, -(2**63)):
        for ask in (lambda asked: source.gather(asked, []), lambda asked: source.read(np.array(asked), None)):
            with pytest.raises(
                LengthMismatch, match=f"there are {size} records, and indices from {index} to {index} were asked for"
            ) as refused:
                ask([index])
            assert source.label() in str(refused.value)
            assert not getattr(refused.value, "__notes__", [])


def test_a_file_that_is_deleted_while_it_is_open_is_read_on(tmp_path: Path) -> None:
    source = opened(tmp_path, **FILES)
    gathered(source, 3)
    os.unlink(tmp_path / "c")
    assert gathered(source, 3)[0][0] == b"x" * 200
    source._storage.descriptors.forget()  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError) as caught:
        gathered(source, 3)
    assert caught.value.__notes__[-1] == f"reading record 0 of {str(tmp_path / 'c')!r}, offset 1"


def test_the_fingerprint_is_of_names_below_the_folder_sizes_counts_and_contents(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    one, two = (opened(tmp_path / folder, **FILES).fingerprint() for folder in ("one", "two"))
    assert one == two
    assert one["count"] == 6
    assert one["num_files"] == 4
    changed = opened(tmp_path / "two", **{**FILES, "d": marked(b"four", b"fivE")}).fingerprint()
    assert changed != one
    assert changed["count"] == 6
    assert opened(tmp_path / "two", Marked(kind="other"), **FILES).fingerprint()["kind"] != one["kind"]


def test_a_source_travels_to_other_processes(tmp_path: Path) -> None:
    source = opened(tmp_path, **FILES)
    gathered(source, 0)
    assert [row[0] for row in gathered(pickle.loads(pickle.dumps(source)), *range(6))] == RECORDS


READ_ALL = """
source = text_source(arguments[0], max_line_bytes=1 << 25)
order = numpy.random.default_rng(1).permutation(len(source))
num_bytes = 0
for begin in range(0, len(order), 1000):
    rows = []
    source.gather(order[begin : begin + 1000].tolist(), rows)
    for row, number in zip(rows, order[begin : begin + 1000].tolist(), strict=True):
        assert row["text"].startswith(f"{number:07d}:")
        num_bytes += len(row["text"]) + 1
print(len(source), num_bytes)
"""


@needs_proc
@pytest.mark.slow
def test_a_million_records_most_tiny_and_some_huge_are_scanned_and_all_read_in_bounded_memory(tmp_path: Path) -> None:
    lengths = np.full(1_000_000, 2)
    lengths[::10_000] = (np.random.default_rng(1).pareto(1.0, 100) * 10_000).clip(0, 10_000_000)  # heavy-tailed
    lengths[[7, 500_003]] = 10_000_000
    with open(tmp_path / "a", "wb") as file:
        for begin in range(0, len(lengths), 10_000):
            given = enumerate(lengths[begin : begin + 10_000].tolist(), begin)
            file.write(b"".join(b"%07d:%s\n" % (number, b"x" * length) for number, length in given))
    (tmp_path / "small").write_text("one\n")
    first = "import numpy; from penstock.sources.text import text_source; text_source(arguments[1]).gather([0], [])"
    lines, peak, _ = growth(first, READ_ALL, tmp_path / "a", tmp_path / "small")
    assert lines == [f"1000000 {(tmp_path / 'a').stat().st_size}"]
    assert peak < 200 << 20


def _lines(kind: str, begin: int, end: int) -> bytes:
    form = {"text": "line {}\n", "jsonl": '{{"x": {}}}\n', "csv": "{}\n", "csv of text": "{}\n"}[kind]
    return ("x\n" if "csv" in kind else "").encode() + b"".join(form.format(number).encode() for number in range(begin, end))


def _frames(kind: str, begin: int, end: int) -> bytes:
    values = (np.int64(number) for number in range(begin, end))
    return b"".join(frame(b"%d" % value if kind == "tfrecord" else encode_example({"x": value})) for value in values)


def _tar(begin: int, end: int) -> bytes:
    out = io.BytesIO()
    writer = TarWriter(out)
    for number in range(begin, end):
        writer.write_sample(f"{number:03d}", {"cls": str(number).encode()})
    writer.close()
    return out.getvalue()


def _tokens(begin: int, end: int) -> bytes:
    return np.repeat(np.arange(begin, end, dtype=np.uint16), 4).tobytes()


# How the records of a file from one number to another are made, read, and told apart.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "text": (lambda *ends: _lines("text", *ends), ps.read_text, lambda row: int(row["text"].split()[1])),
    "jsonl": (lambda *ends: _lines("jsonl", *ends), ps.read_jsonl, lambda row: row["x"]),
    "csv": (lambda *ends: _lines("csv", *ends), lambda given: ps.read_csv(given, columns={"x": np.int64}), lambda row: int(row["x"])),
    "csv of text": (lambda *ends: _lines("csv of text", *ends), ps.read_csv, lambda row: int(row["x"])),
    "tokens": (_tokens, lambda given: ps.read_tokens(given, 3, dtype=np.uint16, stride=4), lambda row: int(row["tokens"][0])),
    "tfrecord": (lambda *ends: _frames("tfrecord", *ends), ps.read_tfrecord, lambda row: int(row["record"])),
    "examples of numbers": (
        lambda *ends: _frames("examples", *ends),
        lambda given: ps.read_tfrecord(given, features={"x": ps.FixedLenFeature((), "int64")}),
        lambda row: int(row["x"]),
    ),
    "examples of lists": (
        lambda *ends: _frames("examples", *ends),
        lambda given: ps.read_tfrecord(given, features={"x": ps.VarLenFeature("int64")}),
        lambda row: int(row["x"][0]),
    ),
    "tar": (_tar, lambda given: ps.read_tar(given, decode="basic"), lambda row: row["cls"]),
}
BORDERS = [0, 3, 10, 14]


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_every_kind_of_records_are_groups_and_far_ones_are_asked_for_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make, read, number_of = KINDS[kind]
    monkeypatch.setenv("HOME", str(tmp_path))  # where indices of far files go
    contents = {f"bucket/{number}.bin": make(begin, end) for number, (begin, end) in enumerate(pairwise(BORDERS))}
    for key, data in contents.items():
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(data)
    with FaultServer(contents) as server:
        near, far = read(str(tmp_path / "bucket" / "*.bin")), read(ps.RemoteFiles(f"{server.url}/bucket/{{0..2}}.bin"))
        for ds, is_far in ((near, False), (far, True)):
            source = ds._root.source
            assert isinstance(source, GroupedSource)
            assert isinstance(source, DistantSource)
            assert source.group_starts().tolist() == BORDERS
            assert (source.rows_at_once > 1) == is_far
            with ds.shuffle(seed=3, window_groups=1).feed(executor="threads", num_workers=2) as feed:
                order = [number_of(row) for row in feed]
            files = [int(np.searchsorted(BORDERS, number, "right")) for number in order]
            assert sorted(order) == list(range(14))
            assert order != sorted(order)
            assert len(list(groupby(files))) == 3
