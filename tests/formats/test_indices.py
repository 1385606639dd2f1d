from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.errors import RecordError
from penstock.formats.index import Index, Indices, catalogue_parts, decode, joined, parts, read_catalogue

NAMES = ["dir/a", "dir/b", "dir/c"]
VERSIONS = np.array([5, -1, 7])


def index_of(offsets: list[int], size: int = 100, **own: Any) -> Index:
    columns = {"offsets": np.array(offsets, np.int64), "lengths": np.ones(len(offsets), np.uint32)}
    columns |= {key: np.array(value) for key, value in own.items() if key.startswith("file_")}
    return Index(kind="k", options={"x": 1}, size=size, crc32c=size + 1, samples=size + 2, meta=own.get("meta", {}), columns=columns)


def given() -> list[Index]:
    first = index_of([0, 10], file_notes=[7], meta={"end": "blocks"})
    return [first, index_of([], 0, meta={"end": "none"}), index_of([5], 60, file_notes=[8, 9], meta={"end": "blocks"})]


def written(indices: Indices) -> bytes:
    return b"".join(catalogue_parts(indices, VERSIONS, "k", {"x": 1}))


def check(indices: Indices) -> None:
    assert len(indices) == 3
    assert indices.starts.tolist() == [0, 2, 2, 3]
    assert {name: values.tolist() for name, values in indices.columns.items()} == {"offsets": [0, 10, 5], "lengths": [1, 1, 1]}
    assert [{name: values.tolist() for name, values in indices.columns_of_file(file).items()} for file in range(3)] == [
        {"file_notes": [7]},
        {},
        {"file_notes": [8, 9]},
    ]
    assert [indices.meta(file) for file in range(3)] == [{"end": "blocks"}, {"end": "none"}, {"end": "blocks"}]
    assert (indices.sizes.tolist(), indices.crcs.tolist(), indices.samples.tolist()) == ([100, 0, 60], [101, 1, 61], [102, 2, 62])
    assert len(indices.metas) == 2
    assert indices.etags is None


def test_columns_are_joined_and_those_of_a_file_stay_with_it() -> None:
    check(joined(given(), NAMES))


def test_a_catalogue_is_read_as_it_was_written() -> None:
    indices, versions = read_catalogue(written(joined(given(), NAMES)), "c", "k", {"x": 1})
    check(indices)
    assert versions.tolist() == VERSIONS.tolist()


def test_etags_of_remote_files_are_kept() -> None:
    indices = [replace(index_of([1]), identity={"etag": "e1", "modified": "m"}), replace(index_of([2]), identity={})]
    assert joined(indices, NAMES[:2]).etags == ["e1", ""]


def test_indices_with_other_columns_cannot_be_joined() -> None:
    odd = index_of([1])
    odd = replace(odd, columns={**odd.columns, "own": np.zeros(1)})
    with pytest.raises(RecordError, match="'b' has no column 'own'"):
        joined([odd, index_of([1])], ["a", "b"])


def changed(columns: dict[str, Any], **facts: Any) -> bytes:
    whole = decode(written(joined(given(), NAMES)), "c")
    new = {name: values for name, values in {**whole.columns, **columns}.items() if values is not None}
    return b"".join(parts(replace(whole, columns=new, **facts)))


WRONG: dict[str, Callable[[], bytes]] = {
    "another kind": lambda: changed({}, kind="k"),
    "other options": lambda: changed({}, options={"kind": "k", "options": {"x": 2}}),
    "no sizes": lambda: changed({"file_sizes": None}),
    "no notes": lambda: changed({}, meta={}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_catalogue_that_does_not_fit_together_is_refused(wrong: str) -> None:
    with pytest.raises(RecordError, match="the catalogue "):
        read_catalogue(WRONG[wrong](), "c", "k", {"x": 1})
