"""Lines of text files: what they are, where errors say they are, and what becomes of files that change."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from sources.gathering import gathered
from sources.memory import growth, needs_proc

import penstock as ps
from penstock.errors import PlanError, RecordError
from penstock.sources.text import LineSource, text_source
from penstock.testing import check_source

TEXT = "one\n\ntwo\r\n  \nthrée ☃\nlast"


def lines_of(path: Path, data: bytes | str, **options: Any) -> LineSource:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return text_source(path, **options)


@pytest.mark.parametrize("head", ["", "\ufeff"])
def test_lines_come_without_their_ends_and_blank_ones_are_kept_or_left_out(tmp_path: Path, head: str) -> None:
    source = lines_of(tmp_path / "a.txt", head + TEXT)
    assert [row["text"] for row in gathered(source)] == ["one", "", "two", "  ", "thrée ☃", "last"]
    assert [source.describe(index) for index in (0, 5)] == [f"line {n} of {str(tmp_path / 'a.txt')!r}" for n in (1, 6)]
    source = lines_of(tmp_path / "a.txt", head + TEXT, skip_blank=True)
    assert [row["text"] for row in gathered(source)] == ["one", "two", "thrée ☃", "last"]
    assert [source.describe(index).split()[1] for index in range(4)] == ["1", "3", "5", "6"]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\nb\r", ["a\r", "b"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        ("é😀\n\u2028x".encode(), ["é😀", "\u2028x"]),
    ],
)
def test_lines_end_at_lf_or_crlf(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    assert [row["text"] for row in gathered(lines_of(tmp_path / "a", data))] == lines


def test_the_laws_of_a_source_hold_over_several_files(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"file {number}\n" * (5 * number))
    source = text_source(tmp_path / "*.txt")
    check_source(source, again=lambda: text_source(tmp_path / "*.txt"))
    assert gathered(pickle.loads(pickle.dumps(source)), [5]) == [{"text": "file 2"}]
    assert source.describe(5).endswith("2.txt'")
    assert source.label() == f"read_text({str(tmp_path / '0.txt')!r} and 2 more, 15 elements)"


def test_bytes_that_are_no_utf_8_are_an_error_of_their_line_alone(tmp_path: Path) -> None:
    data = b"good\n\nna\xefve\nfine\n\xe2\x98\n"
    source = lines_of(tmp_path / "a.txt", data)
    rows: list[Any] = []
    with pytest.raises(RecordError, match="byte 2 of the line is 0xef, which is no UTF-8 \\(invalid continuation byte\\)") as caught:
        source.gather(range(5), rows)
    assert rows == [{"text": "good"}, {"text": ""}]
    assert caught.value.where == f"line 3 of {str(tmp_path / 'a.txt')!r}, offset 6"
    with ps.read_text(tmp_path / "a.txt").feed(on_error=ps.Skip(limit=2)) as feed:
        assert [row["text"] for row in feed] == ["good", "", "fine"]


def test_a_line_beyond_the_limit_is_an_error_also_where_an_index_is_there(tmp_path: Path) -> None:
    data = b"x\n" * 5 + b"y" * 100 + b"\nz\n"
    with pytest.raises(RecordError, match="line 6 is longer than 99 bytes"):
        lines_of(tmp_path / "a.txt", data, max_line_bytes=99)
    assert not (tmp_path / ".penstock" / "a.txt.psidx").exists()
    assert len(lines_of(tmp_path / "a.txt", data, max_line_bytes=100)) == 7
    with pytest.raises(RecordError, match="the line has 100 bytes, more than 99") as caught:
        text_source(tmp_path / "a.txt", max_line_bytes=99)
    assert caught.value.where.startswith("line 6 of ")


@needs_proc
def test_a_sparse_file_of_one_gigabyte_without_a_newline_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_text("x" * 4096)
    os.truncate(path, 1 << 30)
    opening = """
        try:
            read_text(arguments[0], max_line_bytes=1 << 20)
        except errors.RecordError as error:
            print(error.what)
    """
    (tmp_path / "small.txt").write_text("one\n")
    lines, grown, _ = growth("from penstock import errors, read_text; read_text(arguments[1])", opening, path, tmp_path / "small.txt")
    assert len(lines) == 1
    assert "line 1 is longer than 1048576 bytes" in lines[0]
    assert grown < 32 << 20


ASCII_CODECS = ["utf-8", "utf-8-sig", "latin-1", "cp1252", "cp1251", "koi8-r", "gb18030", "euc-jp", "shift_jis", "big5", "mac-roman"]


@pytest.mark.parametrize("encoding", ASCII_CODECS)
def test_lines_of_any_encoding_with_ascii_in_it_are_those_that_python_reads(tmp_path: Path, encoding: str) -> None:
    known = [letter for letter in "éßжЯ表ソ日本°€" if letter.encode(encoding, "ignore").decode(encoding) == letter]
    lines = ["plain", "".join(known), *(f"{letter}|{letter}" for letter in known), ""]
    source = lines_of(tmp_path / "a.txt", "\r\n".join(lines).encode(encoding), encoding=encoding)
    assert [row["text"] for row in gathered(source)] == lines[:-1]
    assert text_source(tmp_path / "a.txt", encoding="cp437").fingerprint() != source.fingerprint()
    with pytest.raises(RecordError, match=r"byte 0 of the line is 0x.., which is no ascii") as caught:
        gathered(text_source(tmp_path / "a.txt", encoding="ascii"))
    assert "give encoding='latin-1' or the like" in caught.value.fix


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-7", "iso2022_jp", "hz", "cp037", "rot13", "none", 5, None])
def test_an_encoding_whose_lines_end_with_other_bytes_is_refused(tmp_path: Path, encoding: Any) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    for read in (ps.read_text, ps.read_csv):
        with pytest.raises(PlanError, match=f"encoding={encoding!r} is none in which lines and fields end with bytes of ASCII"):
            read(tmp_path / "a.txt", encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["a\nb\n", "a", "жж\nж", "\na"])
def test_utf_16_without_a_mark_is_no_text(tmp_path: Path, encoding: str, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    for read in (ps.read_text, ps.read_jsonl, ps.read_csv):
        with pytest.raises(RecordError, match="the file looks like UTF-16 without a mark, or like no text") as caught:
            read(tmp_path / "a.txt")
        assert "iconv -f UTF-16 -t UTF-8" in caught.value.fix


def test_a_line_with_a_nul_byte_is_an_error_of_that_line_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\nt\0o\nfour\n")
    with pytest.raises(RecordError, match="character 1 is a NUL byte, which is in no text") as caught:
        list(ps.read_text(tmp_path / "a.txt"))
    assert caught.value.where == f"line 2 of {str(tmp_path / 'a.txt')!r}, offset 4"
    with ps.read_csv(tmp_path / "a.txt").feed(on_error=ps.Skip(limit=1)) as feed:
        assert list(feed) == [{"one": "four"}]


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("num_files", [1, 2])
def test_ten_million_lines_take_twelve_bytes_each(tmp_path: Path, num_files: int) -> None:
    for begin in range(0, 10_000_000, 1_000_000):
        with open(tmp_path / f"a{begin * num_files // 10_000_000}", "ab") as file:
            file.write(b"".join(b"%d\n" % number for number in range(begin, begin + 1_000_000)))
    for path in tmp_path.glob("a*"):
        os.utime(path, (1e9, 1e9))  # a catalogue is trusted at once for files that are not of this moment
    first = "from penstock import read_text; read_text(arguments[1])[0]"
    read = """
        lines = read_text(arguments[0])
        print(len(lines), *(lines[number]["text"] for number in (9_999_999, 0, 5_000_000)))
    """
    (tmp_path / "small").write_text("one\n")
    for most in (100, 30):  # bytes a line while the index is built, and while it is read
        lines, peak, held = growth(first, read, tmp_path / "a[01]", tmp_path / "small")
        assert lines == ["10000000 9999999 0 5000000"]
        assert peak < most * 10_000_000
    assert held < 13 * 10_000_000
    assert sum(path.stat().st_size for path in tmp_path.glob(".penstock/a*.psidx")) < 12 * 10_000_000 + 1000 * num_files
