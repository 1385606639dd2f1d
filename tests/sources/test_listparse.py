from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ListFileError
from penstock.sources import files
from penstock.sources.files import parse_list
from penstock.sources.paths import PADDING

ROOT = os.path.join(os.sep, "data", "")


def parsed(text: bytes, has_label: bool = True, root: str | None = None) -> list[tuple[bytes, int]]:
    columns = parse_list(text + PADDING, name="l.txt", has_label=has_label, root=root)
    return [(text[start:end], label) for start, end, label in zip(*map(np.ndarray.tolist, columns), strict=True)]


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        (b"a.jpg 1\nb.jpg 2\n", [(b"a.jpg", 1), (b"b.jpg", 2)]),
        (b"a.jpg 1", [(b"a.jpg", 1)]),
        (b"\xef\xbb\xbfa.jpg 1\r\nb.jpg 2\r\n", [(b"a.jpg", 1), (b"b.jpg", 2)]),
        (b"\n \n\t\n# a comment 5\n  # another\na 1\n\n\r\n", [(b"a", 1)]),
        (b"my cat.jpg 1\n  \ttwo  words \t 2  \t\r\n", [(b"my cat.jpg", 1), (b"two  words", 2)]),
        (b"a b\t1\na\t\t 2\nx 3\t4\n", [(b"a b", 1), (b"a", 2), (b"x 3", 4)]),
        ("ключ/é e\u0301 😀.jpg 3\n".encode(), [("ключ/é e\u0301 😀.jpg".encode(), 3)]),
        (b"\xff\xfe.jpg 0\n", [(b"\xff\xfe.jpg", 0)]),
        (b"a -1\nb +7\nc 007\nd-5 1\n", [(b"a", -1), (b"b", 7), (b"c", 7), (b"d-5", 1)]),
        (b"a 9223372036854775807\nb -9223372036854775808\n", [(b"a", 2**63 - 1), (b"b", -(2**63))]),
        (b"a 0000000000000000000000012\n", [(b"a", 12)]),
        (b"./#1 2\na#b 3\n", [(b"./#1", 2), (b"a#b", 3)]),
        (b"a" + b" " * 1000 + b"3" + b" " * 1000 + b"\n" + b" " * 1000 + b"b 4\n", [(b"a", 3), (b"b", 4)]),
        (b"a 1\n\xef\xbb\xbfb 2\n", [(b"a", 1), (b"\xef\xbb\xbfb", 2)]),
        (b"a\t3\t\n", [(b"a", 3)]),
    ],
)
def test_lines_are_path_and_label(text: bytes, elements: list[tuple[bytes, int]]) -> None:
    assert parsed(text) == elements


def test_a_list_without_labels_takes_the_whole_line() -> None:
    assert parsed(b"a b 7\n#c\n  d \r\n", has_label=False) == [(b"a b 7", 0), (b"d", 0)]


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        (b"cat.jpg", "no label", "label=False"),
        (b"7", "no label", "label=False"),
        (b"photo 2\t", "no label", "label=False"),
        (b" 7", "the path is empty", "`path label`"),
        (b"\t7", "the path is empty", "`path label`"),
        (b"cat.jpg dog", "label 'dog' is not an integer", "number the classes"),
        (b"cat.jpg 1.5", "label '1.5' is not an integer", "number the classes"),
        (b"cat.jpg --1", "label '--1' is not an integer", "number the classes"),
        (b"cat.jpg -", "label '-' is not an integer", "number the classes"),
        (b"cat.jpg 1_0", "label '1_0' is not an integer", "number the classes"),
        ("cat.jpg ٣".encode(), "label '٣' is not an integer", "number the classes"),
        (b"a\t3 4", "label '3 4' is not an integer", "number the classes"),
        (b"a 9223372036854775808", "does not fit into int64", "number the classes"),
        (b"a " + b"9" * 5000, "does not fit into int64", "number the classes"),
        (b"a\t3\t4", "3 columns between tabs", "keep 2"),
        (b"a\0b 3", "a NUL byte", "UTF-8"),
        ("a 3".encode("utf-16"), "a NUL byte", "UTF-8"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number_its_text_and_the_fix(line: bytes, what: str, fix: str) -> None:
    with pytest.raises(ListFileError) as caught:
        parsed(b"# head\r\nx 1\r\n\r\n" + line + b"\r\ny 2\r\n")
    assert caught.value.what.startswith("line 4: ")
    assert what in caught.value.what
    assert caught.value.where.startswith("line 4 of 'l.txt': ")
    assert "; 1 bad lines in all" in caught.value.where
    assert fix in caught.value.fix


def test_the_first_bad_line_is_named_and_all_are_counted() -> None:
    with pytest.raises(ListFileError, match="line 1: no label") as caught:
        parsed(b"\xef\xbb\xbfbad\nworse\na 1\nlast\n")
    assert caught.value.where == "line 1 of 'l.txt': 'bad'; 3 bad lines in all"


def test_a_file_of_bad_lines_is_given_up_early() -> None:
    with pytest.raises(ListFileError) as caught:
        parsed(b"bad\n" * 20_000)
    assert "at least 10000 bad lines" in caught.value.where


def test_a_columns_error_of_a_list_without_labels_says_so() -> None:
    with pytest.raises(ListFileError, match="2 columns between tabs") as caught:
        parsed(b"a.jpg\t3\n", has_label=False)
    assert "keep 1" in caught.value.fix


@pytest.mark.parametrize("text", [b"", b"\xef\xbb\xbf", b"\n\n", b"# only\n  # comments"])
def test_a_list_without_a_path_is_an_error(text: bytes) -> None:
    with pytest.raises(ListFileError) as caught:
        parsed(text)
    assert "the list 'l.txt' holds no line with a path" in caught.value.what
    assert f"{len(text)} bytes, nothing but blank lines and comments" in caught.value.where
    assert "`path label`" in caught.value.fix


@pytest.mark.parametrize("path", [b"../a", b"a/../../b", b"/etc/passwd", b"/data", b"/database/a", b"/data/../x", b"a/../..", b".."])
def test_a_path_outside_root_is_an_error(path: bytes) -> None:
    with pytest.raises(ListFileError) as caught:
        parsed(b"ok 1\n" + path + b" 2\n", root=ROOT)
    assert f"line 2: path {path.decode()!r} is outside root {ROOT!r}" in caught.value.what
    assert "another root" in caught.value.fix


@pytest.mark.parametrize("path", [b"a/../b", b"/data/x", b"/data/a/../x", b"..a/b..", b"a..b"])
def test_a_path_that_stays_inside_root_is_kept_as_it_is(path: bytes) -> None:
    assert parsed(path + b" 2\n", root=ROOT) == [(path, 2)]


def test_without_a_root_a_path_may_lead_anywhere() -> None:
    assert parsed(b"../a 1\n/etc/x 2\n") == [(b"../a", 1), (b"/etc/x", 2)]


plain = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\t#"), min_size=1, max_size=20).map(
    lambda text: text.strip(" ").encode()
)
lines = st.lists(st.tuples(plain.filter(bool), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30)


@given(
    rows=lines,
    separator=st.sampled_from([b" ", b"\t", b"  ", b" \t "]),
    end=st.sampled_from([b"\n", b"\r\n", b"\n\n# note\n"]),
    chunk=st.integers(1, 200),
)
def test_what_was_written_is_read_back_whatever_the_chunks(rows: list[tuple[bytes, int]], separator: bytes, end: bytes, chunk: int) -> None:
    text = b"".join(path + separator + str(label).encode() + end for path, label in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK_BYTES", chunk)
        assert parsed(text) == rows
        assert parsed(text, root=ROOT) == rows or any(b".." in path or path.startswith(b"/") for path, _ in rows)


def test_labels_and_offsets_are_int64() -> None:
    result = parse_list(b"a 1\n" + PADDING, name="l", has_label=True, root=None)
    assert {column.dtype for column in result} == {np.dtype(np.int64)}
