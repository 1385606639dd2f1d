"""What attention takes beside packed rows, against a plain loop over the tokens and against what was packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import penstock as ps
from penstock.errors import SpecError

SHAPES = arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=9)


@given(arrays.arrays(np.int32, SHAPES, elements=st.integers(0, 3)))
def test_segments_lie_behind_each_other_in_the_flat_batch_and_predict_their_own_tokens(ids: Any) -> None:
    found = ps.text.attention_fields({"segment_ids": ids, "x": 3})
    begins, places, masks = [], [], []
    for row in np.atleast_2d(ids).tolist():
        for number, segment in enumerate(row):
            goes_on = number > 0 and row[number - 1] == segment
            begins += [] if goes_on else [len(places)]
            masks.append(goes_on and segment > 0)
            places.append(places[-1] + 1 if goes_on else 0)
    assert found["cu_seqlens"].tolist() == [*begins, ids.size]
    assert found["max_seqlen"] == max(np.diff([*begins, ids.size]), default=0)
    assert (found["position_ids"].ravel().tolist(), found["loss_mask"].ravel().tolist()) == (places, masks)
    assert found["position_ids"].dtype == found["cu_seqlens"].dtype == np.int32
    assert found["position_ids"].shape == found["loss_mask"].shape == ids.shape


def test_of_packed_rows_the_parts_of_documents_are_segments_with_their_positions() -> None:
    documents = ps.from_source([np.arange(length) for length in (3, 9, 2, 4, 11)])
    rows = documents.pack_sequences(8, split=True, positions="document")
    *_, last = rows.batch(2).map(ps.text.attention_fields)
    assert last["position_ids"].tolist() == [[2, 3, 0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 0, 1, 2]]
    assert last["cu_seqlens"].tolist() == [0, 2, 8, 13, 16]
    assert last["max_seqlen"] == 6
    (one,) = rows.map(ps.text.attention_fields).skip(3)
    assert one["loss_mask"].tolist() == [False] + [True] * 4 + [False] * 3


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (np.zeros(3), "the batch is a ndarray, and has no 'segment_ids'"),
        ({"tokens": 3}, "the batch is a dict of 'tokens', and has no 'segment_ids'"),
        ({"segment_ids": np.zeros(3)}, "'segment_ids' is float64, not integers"),
        ({"segment_ids": np.zeros((1, 2, 3), int)}, r"'segment_ids' has shape \[1, 2, 3\], not"),
        (
            {"segment_ids": np.zeros(3, int), "positions": np.zeros((1, 3), int)},
            r"'positions' has shape \[1, 3\], and 'segment_ids' has \[3\]",
        ),
    ],
)
def test_what_is_no_packed_row_is_refused(batch: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        ps.text.attention_fields(batch)
    assert "pack_sequences()" in caught.value.fix
