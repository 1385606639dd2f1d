"""Compressed files of text, JSON lines, CSV and tar: streams of the elements that the same files have when they are unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sys
import tarfile
from collections.abc import Callable
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from core import core
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._contracts.source import StatefulStream
from penstock._storage import open_storage
from penstock.errors import MissingExtra, PlanError, RecordError
from penstock.formats.linescan import BY, FROM, line_number
from penstock.sources.compressed import pieces_of
from penstock.sources.csvrecords import CsvRecords, csv_source
from penstock.sources.tar import TarFormat
from penstock.sources.text import JsonLines, TextLines, text_source
from penstock.testing import check_source

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def archive(count: int, *, end: bool = True, link: bool = False) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(count):
            for name, data in (("txt", b"x" * (number * 97 % 2000)), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"dir/{number:04}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        if link:
            member = tarfile.TarInfo("dir/9999.txt")
            member.type, member.linkname = tarfile.SYMTYPE, "elsewhere"
            tar.addfile(member)
        size = tar.offset
    return file.getvalue() if end else file.getvalue()[:size]


LINES = "".join(json.dumps({"number": number, "text": "é☃" * (number % 40)}) + ("\r\n\n" if number % 7 else "\n") for number in range(700))
TABLE = "number,text\n" + "".join(f'{number},"a ""{number}"",\r\n{"b" * (number % 50)}"\n' for number in range(500))
FILES: dict[str, tuple[bytes, Callable[..., ps.Dataset], dict[str, Any]]] = {
    "lines.txt": (LINES.encode(), ps.read_text, {}),
    "latin.txt": ("é\nß\n".encode("latin-1") * 50, ps.read_text, {"encoding": "latin-1", "skip_blank": True}),
    "lines.jsonl": (LINES.encode(), ps.read_jsonl, {"fields": ["number"]}),
    "table.csv": (b"\xef\xbb\xbf" + TABLE.encode(), ps.read_csv, {}),
    "numbers.csv": (TABLE.encode(), ps.read_csv, {"columns": {"number": np.int32}}),
    "samples.tar": (archive(60), ps.read_tar, {"decode": "basic"}),
}


def packed(path: Path, kind: str, data: bytes, *, members: int = 1) -> str:
    cuts = [len(data) * number // members for number in range(members + 1)]
    place = path.with_name(f"{path.name}.{kind}")
    place.write_bytes(b"".join(PACK[kind](data[begin:end]) for begin, end in pairwise(cuts)))
    return str(place)


@pytest.mark.parametrize(
    ("name", "kind"), core([(name, kind) for name in FILES for kind in PACK], [*zip(FILES, cycle(PACK), strict=False)])
)
def test_a_compressed_file_has_the_elements_of_the_plain_one(tmp_path: Path, name: str, kind: str) -> None:
    data, read, options = FILES[name]
    (tmp_path / name).write_bytes(data)
    expected = list(read(tmp_path / name, **options))
    assert len(expected) > 50
    for members in (1, 5):
        assert list(read(packed(tmp_path / name, kind, data, members=members), **options)) == expected
    (tmp_path / "0_plain").write_bytes(data)
    assert list(read([tmp_path / "0_plain", tmp_path / f"{name}.{kind}"], **options)) == expected * 2


@pytest.mark.parametrize("name", core(FILES, ["lines.jsonl", "samples.tar"]))
def test_the_laws_of_a_stream_hold(tmp_path: Path, name: str) -> None:
    data, read, options = FILES[name]
    packed(tmp_path / f"0-{name}", "gz", data)
    packed(tmp_path / f"1-{name}", "xz", data, members=2)
    root = read(tmp_path / "*", **options)._root
    source = root.children[0].source  # type: ignore[attr-defined]
    assert isinstance(source, StatefulStream)
    records = list(source.open(0))
    states = [source.state() for _ in source.open(0)]
    for place in range(0, len(records), 37):
        assert list(source.open_at(0, states[place])) == records[place + 1 :]
    again = read(tmp_path / "*", **options)._root.children[0].source  # type: ignore[attr-defined]
    check_source(source, again=lambda: again, most_elements=100)
    assert source.label().endswith("and 1 more, compressed)")


FORMATS: dict[str, tuple[Any, Any]] = {
    "text": (TextLines(), st.lists(st.sampled_from(["a", "bc", "\n", "\r\n", "", "é", " ", ","]), max_size=30)),
    "blank": (TextLines(skip_blank=True), st.lists(st.sampled_from(["a", "\n", " \n", "\r\n", "\t"]), max_size=30)),
    "jsonl": (JsonLines(), st.lists(st.sampled_from(["1\n", "\n", "  \r\n", "[2]\n", "3"]), max_size=20)),
    "csv": (CsvRecords(header=False), st.lists(st.sampled_from(["a", ",", '"\n"', '"x""y"', "\n", "\r\n"]), max_size=30)),
}


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_records_found_in_pieces_of_any_size_are_those_of_the_whole_file(name: str, data: st.DataObject) -> None:
    format, texts = FORMATS[name]
    content = data.draw(st.sampled_from(["", "\ufeff"])).encode() + "".join(data.draw(texts)).encode()
    check_pieces(format, content, data.draw(st.lists(st.integers(0, len(content)), max_size=8)))


@given(st.lists(st.integers(0, 40_000), max_size=12), st.integers(0, 20))
def test_samples_found_in_pieces_of_any_size_are_those_of_the_whole_file(cuts: list[int], count: int) -> None:
    check_pieces(TarFormat(verify=False), archive(count), cuts)


def check_pieces(format: Any, content: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(content), *(cut for cut in cuts if 3 <= cut < len(content))})  # a first piece has the mark of UTF-8
    pieces = [np.frombuffer(content[begin:end], np.uint8) for begin, end in pairwise(places)]
    whole = [np.frombuffer(content, np.uint8)] if content else []
    try:
        found = format.scan(iter(whole), len(content), "f")
    except RecordError:
        with pytest.raises(RecordError):
            list(format.stream(iter(pieces), "f"))
        return
    parts = list(format.stream(iter(pieces), "f"))
    spans = [(begin, end) for part in parts for begin, end in zip(part.begins.tolist(), part.ends.tolist(), strict=True)]
    assert spans == [(at, at + int(length)) for at, length in zip(found["offsets"].tolist(), found["lengths"], strict=True)]
    for part in parts:
        assert part.data == content[part.base : part.base + len(part.data)]
        assert part.base <= part.begins[0]
        assert part.ends[-1] <= part.base + len(part.data)
    if FROM in found:
        columns = {FROM: found[FROM], BY: found[BY]} if len(found[FROM]) else {}
        assert [number for part in parts for number in part.numbers.tolist()] == [line_number(columns, k) for k in range(len(spans))]


@pytest.mark.parametrize("kind", PACK)
def test_a_file_that_is_cut_is_an_error_with_its_place_and_never_the_end(tmp_path: Path, kind: str) -> None:
    path = Path(packed(tmp_path / "a.txt", kind, b"".join(b"%d\n" % (number * 7919) for number in range(3000)), members=2))
    data = path.read_bytes()
    for size in (*range(40), *range(40, len(data), len(data) // 20), len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(RecordError, match=r"the file is cut|the file has 0 bytes|does not look like") as caught:
            list(ps.read_text(path))
        assert repr(str(path)) in caught.value.where
    path.write_bytes(data + b"garbage")
    with pytest.raises(RecordError, match=r"it is complete, and 67 61 72 62 61 67 65 ... stands behind it"):
        list(ps.read_text(path))
    harmed = bytearray(data)
    harmed[len(data) // 2] ^= 0xFF
    path.write_bytes(harmed)
    with pytest.raises(RecordError, match="is damaged behind"):
        list(ps.read_text(path))


def test_the_first_bytes_tell_the_compression_and_else_the_name(tmp_path: Path) -> None:
    for suffix in ("gz", "ZST", "bz2", "xz"):
        (tmp_path / f"a.txt.{suffix}").write_bytes(PACK["zst"](b"one\n"))
        assert list(ps.read_text(tmp_path / f"a.txt.{suffix}")) == [{"text": "one"}]
    (tmp_path / "a.tgz").write_bytes(gzip.compress(archive(2)))
    assert len(list(ps.read_tar(tmp_path / "a.tgz"))) == 2
    frame = b"\x5a\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"
    (tmp_path / "a.txt.zst").write_bytes(frame + PACK["zst"](b"one\n") + frame)
    assert list(ps.read_text(tmp_path / "a.txt.zst")) == [{"text": "one"}]
    (tmp_path / "a.txt.gz").write_text("plain\n")
    with pytest.raises(RecordError, match="begins with 70 6c 61 69: this does not look like GZIP") as caught:
        list(ps.read_text(tmp_path / "a.txt.gz"))
    assert caught.value.fix == "get another copy of the file; if it is not compressed, take the suffix off its name"
    for kind, pack in PACK.items():
        (tmp_path / "a.txt").write_bytes(pack(b"one\n"))
        with pytest.raises(RecordError, match="the file looks like") as caught:
            ps.read_text(tmp_path / "a.txt")
        assert f".{kind}" in caught.value.fix
        with pytest.raises(RecordError, match="is compressed with") as caught:
            ps.read_tar(tmp_path / "a.txt")
        assert "then it is read as a stream" in caught.value.fix


def test_files_of_no_records_and_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("one\n")
    packed(tmp_path / "a.txt", "gz", b"")
    assert list(ps.read_text(tmp_path / "*.txt*")) == [{"text": "one"}]
    with pytest.raises(RecordError, match="the file has no header"):
        ps.read_csv(packed(tmp_path / "a.csv", "gz", b""))
    packed(tmp_path / "a.csv", "gz", b"x,y\n")
    packed(tmp_path / "b.csv", "gz", b"\n\r\nx,y\n1,2")
    assert list(ps.read_csv(tmp_path / "*.csv.gz")) == [{"x": "1", "y": "2"}]
    with pytest.raises(RecordError, match="the file is empty, which a tar file never is"):
        list(ps.read_tar(packed(tmp_path / "a.tar", "gz", b"")))


def test_a_file_of_many_small_members_is_read_in_large_pieces(tmp_path: Path) -> None:
    text = "\ufeff" + "".join(f"{number}\n" for number in range(2000))
    path = packed(tmp_path / "a.txt", "gz", text.encode(), members=3000)
    assert [row["text"] for row in ps.read_text(path)] == [str(number) for number in range(2000)]
    assert len(list(pieces_of(open_storage(path, "read_text"), 0))) == 1


def test_a_bad_record_is_named_by_line_and_can_be_left_out_alone(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.jsonl", "gz", b'{"n": 1}\n\n{"n": }\n{"n": 3}\n')
    with pytest.raises(RecordError, match="the line is no JSON: Expecting value at character 6") as caught:
        list(ps.read_jsonl(path))
    assert caught.value.where == f"line 3 of {path!r}, offset 10"
    assert f"decoding record 3 of {path!r}, offset 10 when decompressed" in caught.value.__notes__
    with ps.read_jsonl(path).feed(on_error=ps.Skip(limit=1)) as feed:
        assert list(feed) == [{"n": 1}, {"n": 3}]
    with pytest.raises(RecordError, match="line 1 is longer than 5 bytes"):
        list(ps.read_text(path, max_line_bytes=5))
    path = packed(tmp_path / "b.txt", "gz", "a\nb\n".encode("utf-16-le"))
    with pytest.raises(RecordError, match="the file looks like UTF-16 without a mark"):
        list(ps.read_text(path))


def test_csv_files_need_one_header_and_columns_are_checked_at_once(tmp_path: Path) -> None:
    packed(tmp_path / "a.csv", "gz", b"x,y\n1,2\n")
    packed(tmp_path / "b.csv", "zst", b"x,z\n1,2\n")
    with pytest.raises(PlanError, match="there is no column 'z'"):
        ps.read_csv(tmp_path / "*.csv.*", columns=["z"])
    with pytest.raises(RecordError, match=r"the header of .*b.csv.zst' is 'x,z', and that of .*a.csv.gz' is 'x,y'"):
        list(ps.read_csv(tmp_path / "*.csv.*"))
    rows = list(ps.read_csv(tmp_path / "*.csv.*", names=["p", "q"], columns=["q"]))
    assert rows == [{"q": "y"}, {"q": "2"}, {"q": "z"}, {"q": "2"}]
    assert csv_source(tmp_path / "*.csv.*", delimiter=";").fingerprint() != csv_source(tmp_path / "*.csv.*").fingerprint()


def test_a_tar_stream_refuses_links_cuts_and_a_missing_end(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.tar", "gz", archive(3, link=True))
    with pytest.raises(RecordError, match="there are 1 links and 0 devices"):
        list(ps.read_tar(path))
    assert len(list(ps.read_tar(path, links="skip"))) == 3
    path = packed(tmp_path / "a.tar", "gz", archive(3, end=False))
    with pytest.warns(UserWarning, match="there are no two blocks of zeros at the end"):
        assert len(list(ps.read_tar(path))) == 3
    with pytest.raises(RecordError, match="there are no two blocks of zeros at the end"):
        list(ps.read_tar(path, missing_end="error"))
    assert len(list(ps.read_tar(path, missing_end="accept", fields=["cls"]))) == 3
    whole = archive(3, end=False)
    for size in (1, 511, 513, len(whole) - 513, len(whole) - 1):
        path = packed(tmp_path / "a.tar", "gz", whole[:size])
        with pytest.raises(RecordError, match="unexpected end: "):
            list(ps.read_tar(path))
    with pytest.raises(PlanError, match="links='none' is not known"):
        ps.read_tar(path, links="none")


def test_what_a_stream_cannot_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = ps.read_text(packed(tmp_path / "a.txt", "zst", b"one\ntwo\n"))
    assert pickle.loads(pickle.dumps(text_source(tmp_path / "a.txt.zst"))).describe(1).startswith("record 1 of all, of ")
    with pytest.raises(PlanError):
        ds.shuffle(seed=1)
    assert len(list(ds.shuffle(buffer_size=2, seed=1))) == 2
    assert list(ds.shard(2, 1)) == [{"text": "two"}]
    monkeypatch.setitem(sys.modules, "zstandard", None)
    if sys.version_info < (3, 14):
        with pytest.raises(MissingExtra, match=r"files of Zstandard need Python 3.14, or the package zstandard") as caught:
            list(ds)
        assert caught.value.fix == 'pip install "penstock[zstd]"'


def test_a_stream_of_zeros_takes_little_memory(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.txt", "zst", b"x" * 4096 + bytes(1 << 25))
    sizes = [len(piece) for piece in pieces_of(open_storage(path, "read_text"), 0)]
    assert (sum(sizes), max(sizes)) == (4096 + (1 << 25), 1 << 20)
