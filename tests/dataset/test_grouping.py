from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dataset.small import numbers

import penstock as ps
from penstock.errors import SpecError


def test_places_of_fields_and_flags_may_be_of_numpy() -> None:
    rows = ps.from_source([(np.arange(2), 5), (np.arange(3), 6)]).ragged_batch(2, np.False_, [np.int64(0)])  # type: ignore[arg-type]
    assert rows[0][0]["row_splits"].tolist() == [0, 2, 5]
    assert rows[0][1].tolist() == [5, 6]


def ragged(*lengths: int) -> ps.Dataset:
    return ps.from_source([np.arange(length, dtype=np.uint16) for length in lengths])


@pytest.mark.parametrize("length", [-1, 1.5, "long", None])
def test_a_length_that_is_none_is_an_error_at_its_element(length: Any) -> None:
    with pytest.raises(SpecError) as caught:
        list(numbers(5).bucket_by_length(lambda x: length if x == 3 else x, [2], [1, 1], name="size"))
    assert caught.value.what == f"{length!r} is not a length"
    assert caught.value.where == "bucket_by_length(size)"
    assert caught.value.fix == "return a whole number >= 0"
    assert any("stage 'size'" in note and "index 3" in note for note in caught.value.__notes__)


def test_an_error_of_a_length_function_is_the_users_own() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(numbers(5).bucket_by_length(lambda x: 1 // (3 - x), [2], [1, 1], name="size"))
    assert any("stage 'size'" in note and "index 3" in note for note in caught.value.__notes__)


def test_a_sequence_that_fits_no_row_is_an_error_at_its_element() -> None:
    with pytest.raises(SpecError) as caught:
        list(ragged(3, 9, 2).pack_sequences(8))
    assert caught.value.what == "a sequence of 9 tokens does not fit a row of 8"
    assert any("stage 'pack_sequences'" in note and "index 1" in note for note in caught.value.__notes__)


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
def test_sequences_of_no_tokens_are_left_out_and_make_no_row_alone() -> None:
    for split in (False, True):
        assert list(ragged(0, 0).filter(lambda x: True).repeat(2).pack_sequences(8, split=split).enumerate()) == []
        (row,) = ragged(0, 3, 0, 2, 0).pack_sequences(8, split=split)
        assert row["segment_ids"].tolist() == [1, 1, 1, 2, 2, 0, 0, 0]


def test_the_share_of_padding_is_in_the_figures_and_in_the_report() -> None:
    for options in ({"executor": "inline"}, {"num_workers": 2}):
        with ragged(6, 6, 3).pack_sequences(10, num_bins=1).batch(2).feed(**options) as feed:
            assert feed.stats().padding_share is None
            list(feed)
        assert (feed.stats().packed_tokens, feed.stats().packed_places) == (15, 20)
        assert feed.stats().padding_share == 0.25
        assert "packed: 15 tokens in 20 places, 25 % padding" in feed.report()
    with ragged(6).batch(1).feed() as feed:
        list(feed)
    assert "packed" not in feed.report()


def test_what_is_packed_or_bucketed_has_a_spec_and_is_explained() -> None:
    packed = ragged(6, 6, 3).pack_sequences(10).batch(1)
    assert packed.spec()["tokens"] == ps.ArraySpec((1, 10), np.dtype(np.uint16))
    assert packed.spec()["segment_ids"] == ps.ArraySpec((1, 10), np.dtype(np.int32))
    assert "then in order, at one place: pack" in packed.explain()
    with packed.feed() as feed:
        feed.finalize()
        assert len(list(feed)) == 2
    assert "then in order, at one place: concatenate" in ragged(6).pack_sequences(10, split=True).explain()
    bucketed = ragged(6, 6, 3).bucket_by_length(len, [4], [1, 2])
    assert bucketed.spec() == ps.ArraySpec((2, 6), np.dtype(np.uint16))
    assert "then in order, at one place: bucket" in bucketed.explain()
    assert "batches of 2: padded batches" in bucketed.explain()
    with bucketed.feed() as feed:
        feed.finalize()
        with pytest.raises(SpecError, match="the spec was locked by finalize"):
            list(feed)


def test_buckets_are_padded_as_padded_batch_pads() -> None:
    batches = list(ragged(3, 1, 2).bucket_by_length(len, [3], [2, 1], padded_shapes=(5,), padding_values=7))
    assert [batch.tolist() for batch in batches] == [[[0, 1, 2, 7, 7]], [[0, 7, 7, 7, 7], [0, 1, 7, 7, 7]]]
    assert [batch.tolist() for batch in ragged(3, 1).bucket_by_length(len, [3], [2, 1], drop_remainder=True)] == [[[0, 1, 2]]]
