"""Frames of pandas and polars in front of from_source: refused with a way that works."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PlanError
from penstock.testing.runs import plain

ROWS = [{"x": 1, "word": "a"}, {"x": 2, "word": "b"}, {"x": 3, "word": "c"}]


@pytest.fixture(params=["pandas", "polars"])
def frame(request: pytest.FixtureRequest) -> Any:
    package = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return package.DataFrame({"x": [1, 2, 3], "word": ["a", "b", "c"]})


def test_a_frame_is_refused_and_the_ways_that_the_words_name_read_its_rows(frame: Any) -> None:
    with pytest.raises(PlanError) as caught:
        ps.from_source(frame)
    assert caught.value.what == "a DataFrame has no elements numbered from 0"
    assert "from_arrays({name: df[name].to_numpy()" in caught.value.fix
    assert plain(list(ps.from_source(pa.table(frame)))) == ROWS
    assert plain(list(ps.from_arrays({name: frame[name].to_numpy() for name in frame.columns}))) == ROWS
