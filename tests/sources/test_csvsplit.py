"""Fields of CSV records: what Python's csv module reads, of any length."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.sources.csvrecords import Unsplittable, split_quoted

WORDS = {"new-line": "CR stands outside quotes", "unexpected end": "a quote is not closed", "expected after": "expected after"}
"""What the csv module's words begin or end with, and ours."""

Split = Callable[[str, str, str], list[str]]


@pytest.fixture(autouse=True, scope="module")
def _a_limit_that_no_text_reaches() -> Iterator[None]:
    before = csv.field_size_limit(1 << 30)
    yield
    csv.field_size_limit(before)


def outcome(split: Split, text: str, delimiter: str, quote: str) -> list[str] | str:
    """Return the fields, or the error."""
    try:
        return split(text, delimiter, quote)
    except Unsplittable as error:
        return str(error)
    except csv.Error as error:
        return next(ours for theirs, ours in WORDS.items() if theirs in str(error))


def by_csv(text: str, delimiter: str, quote: str) -> list[str]:
    (row,) = csv.reader([text], delimiter=delimiter, quotechar=quote, strict=True)
    return row


SIGNS = st.sampled_from([(",", '"'), (";", "'"), ("\t", '"'), ("^", "]"), ("-", "\\"), (" ", "."), ('"', ",")])


@given(SIGNS, st.lists(st.sampled_from(["d", "q", "q", "a", "é\0", "\r", "\n", " ", "qq", "dq", "qd"]), max_size=12))
@example((",", '"'), [])
@example((",", '"'), ["\r"])
@example((",", '"'), ["\n", "a"])
@example((",", '"'), ["q", "q", "q", "q", "q", "q", "d"])
def test_any_text_is_split_or_refused_as_the_csv_module_does(signs: tuple[str, str], parts: list[str]) -> None:
    delimiter, quote = signs
    text = "".join(part.replace("d", "D").replace("q", quote).replace("D", delimiter) for part in parts)
    expected = outcome(by_csv, text, delimiter, quote)
    found = outcome(split_quoted, text, delimiter, quote)
    assert found == expected or (isinstance(expected, str) and isinstance(found, str) and expected in found)
