"""Ends of lines and of CSV records are those of Python's own csv module, however the file is cut into pieces."""

from __future__ import annotations

import csv
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import lines
from penstock.kernels.library import load_library

LIBRARY = load_library()
COMMA, QUOTE = ord(","), ord('"')


def array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def texts(alphabet: bytes, *, max_size: int = 300) -> st.SearchStrategy[bytes]:
    """Draw texts whose runs are long enough to cross blocks of 64 bytes."""
    run = st.tuples(st.sampled_from([bytes([letter]) for letter in alphabet]), st.sampled_from([1, 1, 1, 1, 2, 3, 61, 64, 130]))
    return st.lists(run, max_size=max_size // 4).map(lambda runs: b"".join(letter * count for letter, count in runs))


def in_pieces(data: bytes, sizes: list[int], capacity: int, *, csv_records: bool) -> tuple[list[int], int]:
    """Scan a text piece by piece, with room for `capacity` ends at a time."""
    ends, state = np.empty(capacity, np.int64), lines.BEFORE
    found_all, start, turn = [], 0, 0
    while start < len(data):
        piece = array(data[start : start + sizes[turn % len(sizes)]])
        turn += 1
        if csv_records:
            found, consumed, state = lines.find_records(piece, start, COMMA, QUOTE, state, ends)
        else:
            found, consumed = lines.find_lines(piece, start, ends)
        assert consumed == len(piece) or found == capacity
        found_all += ends[:found].tolist()
        start += consumed
    return found_all, state


@given(texts(b"\nab"), st.lists(st.integers(1, 200), min_size=1, max_size=4), st.integers(1, 40))
def test_lines_in_pieces_are_those_of_the_whole(data: bytes, sizes: list[int], capacity: int) -> None:
    assert in_pieces(data, sizes, capacity, csv_records=False)[0] == [place + 1 for place, byte in enumerate(data) if byte == 10]


@given(texts(b'\n,"a\r'), st.lists(st.integers(1, 200), min_size=1, max_size=4), st.integers(1, 40))
@example(b'"a""b\n",c\nd"e\n', [1], 1)
@example(b'a"b\n"' + b"x" * 70 + b'\n"\n', [64, 1], 2)
def test_records_in_pieces_are_those_of_the_whole(data: bytes, sizes: list[int], capacity: int) -> None:
    assert in_pieces(data, sizes, capacity, csv_records=True) == in_pieces(data, [len(data) + 1], len(data) + 1, csv_records=True)


@given(texts(b'\n,"a'))
def test_records_are_those_of_pythons_csv_module(data: bytes) -> None:
    ends = np.empty(len(data) + 1, np.int64)
    found, consumed, _ = lines.find_records(array(data), 0, COMMA, QUOTE, lines.BEFORE, ends)
    assert consumed == len(data)
    places = [0, *ends[:found].tolist()]
    if places[-1] < len(data):
        places.append(len(data))
    ours = [next(csv.reader(io.StringIO(data[start:end].decode(), newline="")), []) for start, end in pairwise(places)]
    assert ours == list(csv.reader(io.StringIO(data.decode(), newline="")))


def test_arguments_that_the_c_could_not_survive_are_refused() -> None:
    ends = np.empty(4, np.int64)
    with pytest.raises(SpecError, match="ends is 1-d int32"):
        lines.find_lines(array(b"a"), 0, np.empty(4, np.int32))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"state=4 is outside 0\.\.3"):
        lines.find_records(array(b"a"), 0, COMMA, QUOTE, 4, ends)


CHECKERS = {"numpy": (lines.widened_twin, lines.check_ends_twin), **({} if LIBRARY is None else {"c": (LIBRARY.widen, LIBRARY.check_ends)})}


@pytest.mark.parametrize("version", CHECKERS)
@given(text=texts(b"a\n\xbf", max_size=60), other=texts(b"a\n\xbf", max_size=60), data=st.data())
def test_both_ends_of_records_are_looked_at(version: str, text: bytes, other: bytes, data: st.DataObject) -> None:
    widen, check = CHECKERS[version]
    files = [text, other]
    spans = np.array(data.draw(st.lists(st.integers(0, 1).flatmap(lambda file: span_of(file, files[file])), min_size=1)), np.int64).T.copy()
    sizes, wide, out = np.array([len(text), len(other)]), np.empty((2, spans.shape[1]), np.int64), np.empty((2, spans.shape[1]), np.int64)
    widen(spans, sizes, wide)
    parts = [files[file][low : low + length] for file, low, length in zip(spans[0], *wide, strict=True)]
    begins = np.cumsum([0, *map(len, parts)])[:-1].astype(np.int64)
    row = check(array(b"".join(parts)), spans, sizes, begins, (10, 0xBF, 3), out)
    good = []
    for (file, offset, length), begin, end, part in zip(spans.T.tolist(), *out.tolist(), parts, strict=True):
        whole = files[file]
        assert b"".join(parts)[begin:end] == whole[offset : offset + length]
        assert part in whole
        before, behind = whole[max(0, offset - 1) : offset], whole[offset + length : offset + length + 1]
        good.append((before in (b"", b"\n") or (offset == 3 and before == b"\xbf")) and behind in (b"", b"\n"))
    assert row == (good.index(False) if False in good else -1)


def span_of(file: int, text: bytes) -> st.SearchStrategy[tuple[int, int, int]]:
    return st.integers(0, len(text)).flatmap(lambda low: st.tuples(st.just(file), st.just(low), st.integers(0, len(text) - low)))
