from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import RecordError
from penstock.sources import TextLines, text_source
from penstock.testing import check_source


def lines_of(source: Any) -> list[str]:
    rows: list[Any] = []
    source.gather(range(len(source)), rows)
    return [row["text"] for row in rows]


def written(folder: Path, **contents: bytes) -> Any:
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return text_source([folder / name for name in contents])


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
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        ("é😀\n\u2028x".encode(), ["é😀", "\u2028x"]),
        (b"\x00\n", ["\x00"]),
    ],
)
def test_lines_end_at_lf_or_crlf(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    assert lines_of(written(tmp_path, a=data)) == lines


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\xef", b"n")), st.lists(st.integers(1, 20), max_size=12))
def test_pieces_of_any_size_give_the_same_lines(data: bytes, sizes: list[int]) -> None:
    array = np.frombuffer(data, np.uint8)
    cuts = np.cumsum(sizes)
    pieces = [piece for piece in np.split(array, cuts[cuts < len(array)]) if len(piece)]
    found = TextLines().scan(iter(pieces), len(data), "x")
    spans = [data[begin : begin + length] for begin, length in zip(found["offsets"], found["lengths"], strict=True)]
    assert spans == (data.split(b"\n") if not data.endswith(b"\n") else data.split(b"\n")[:-1]) or (data == b"" and spans == [])


def test_files_follow_each_other_and_the_laws_hold(tmp_path: Path) -> None:
    names = {"a": b"one\ntwo\n", "b": b"", "c": b"three"}
    source = written(tmp_path, **names)
    again = lambda: text_source([tmp_path / name for name in names])  # noqa: E731
    check_source(source, expected=[{"text": text} for text in ("one", "two", "three")], again=again)
    assert source.describe(2) == f"line 0 of {str(tmp_path / 'c')!r}, offset 0"
    assert source.label() == f"read_text({str(tmp_path / 'a')!r} and 2 more, 3 elements)"


def test_a_line_that_is_no_utf_8_is_an_error_that_names_it_and_the_others_are_read(tmp_path: Path) -> None:
    source = written(tmp_path, a=b"one\n\xff\xfe\nthree\n")
    rows: list[Any] = []
    with pytest.raises(UnicodeDecodeError) as caught:
        source.gather([0, 2, 1], rows)
    assert [row["text"] for row in rows] == ["one", "three"]
    assert f"line 1 of {str(tmp_path / 'a')!r}, offset 4" in caught.value.__notes__[0]
    check_source(source, failing=[1])


@pytest.mark.parametrize("piece", [3, 100])
def test_a_line_beyond_the_limit_is_refused_when_it_is_indexed(piece: int) -> None:
    data = np.frombuffer(b"short\n" + b"x" * 50 + b"\nend", np.uint8)
    pieces = (data[begin : begin + piece] for begin in range(0, len(data), piece))
    with pytest.raises(RecordError) as caught:
        TextLines(max_line_bytes=20).scan(pieces, len(data), "big.txt")
    assert "line 1 is longer than 20 bytes" in caught.value.what
    assert "'big.txt', offset 6" in caught.value.where


def test_read_text_shuffles_without_a_buffer_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(50)))
    dataset = ps.read_text(tmp_path / "*.txt").shuffle(seed=3)
    assert len(dataset) == 50
    everything = [element["text"] for element in dataset]
    assert sorted(everything, key=lambda text: int(text[5:])) == [f"line {number}" for number in range(50)]
    with dataset.feed() as feed:
        first = [next(feed)["text"] for _ in range(20)]
        state = feed.state_dict()
    with ps.read_text(tmp_path / "*.txt").shuffle(seed=3).feed() as feed:
        feed.load_state_dict(state)
        assert first + [element["text"] for element in feed] == everything
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "a.txt.psidx"]


@pytest.mark.slow
def test_ten_million_lines_take_twelve_bytes_each(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as file:
        for begin in range(0, 10_000_000, 1_000_000):
            file.write(b"".join(b"%d\n" % number for number in range(begin, begin + 1_000_000)))
    source = text_source(tmp_path / "a")
    assert len(source) == 10_000_000
    assert (tmp_path / "a.psidx").stat().st_size < 12 * 10_000_000 + 1000
    rows: list[Any] = []
    source.gather([9_999_999, 0, 5_000_000], rows)
    assert [row["text"] for row in rows] == ["9999999", "0", "5000000"]
