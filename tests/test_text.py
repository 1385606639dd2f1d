"""What attention takes beside packed rows, against a plain loop over the tokens and against what was packed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import penstock as ps
from penstock.errors import MissingExtra, PlanError, SpecError

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


# -- tokenize and chat: the tokenizers of packages are in tests/interop/test_tokenizers.py ------------------------------------------


def lengths(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def turns(messages: Any) -> Any:
    for message in messages:
        yield message["role"], False
        yield message["content"], message["role"] == "assistant"


TEXTS = [{"id": number, "text": "so it goes on " * number} for number in range(40)]


def test_ids_take_the_place_of_the_text_and_go_into_rows_by_measured_lengths(tmp_path: Any) -> None:
    ds = ps.from_source(TEXTS).map(ps.text.tokenize("text", lengths, eos=9))
    assert list(ds[1]) == ["id", "tokens"]
    assert ds[2]["tokens"].dtype == np.int32
    rows = ds.measure(tmp_path, size=lambda element: len(element["tokens"]), version="1", num_workers=0).pack_sequences(256, by="size")
    tokens = np.concatenate([row["tokens"] for row in rows])
    assert [int((tokens == token).sum()) for token in (2, 4, 9)] == [2340, 780, 40]


def test_what_the_assistant_says_is_trained_also_in_packed_rows() -> None:
    messages = [{"role": "user", "content": "how is it"}, {"role": "assistant", "content": "it goes"}]
    ds = ps.from_source([{"m": messages}] * 2).map(ps.text.chat("m", lengths, turns))
    assert ds[0]["tokens"].tolist() == [4, 3, 2, 2, 9, 2, 4]
    assert ds[0]["loss_mask"].tolist() == [False] * 5 + [True] * 2
    (row,) = ds.pack_sequences(16).map(ps.text.attention_fields)
    assert np.flatnonzero(row["loss_mask"]).tolist() == [5, 6, 12, 13]


def test_the_name_of_a_function_says_which_it_is_and_that_of_a_lambda_does_not(tmp_path: Any) -> None:
    ps.from_source(TEXTS).map(ps.text.tokenize("text", lengths)).measure(tmp_path, size=len, num_workers=0)
    with pytest.raises(PlanError, match="says too little"):
        ps.from_source(TEXTS).map(ps.text.tokenize("text", lambda text: [1])).measure(tmp_path, size=len)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ps.text.tokenize("text", 7), "a int is no tokenizer"),
        (lambda: ps.text.tokenize("text", lengths, eos="end"), "eos='end' is no id of a token"),
        (lambda: ps.text.chat("text", lengths), "function has no chat template"),
        (lambda: ps.text.tokenize("words", lengths)(TEXTS[0]), "the element is a dict of 'id', 'text', and has no 'words'"),
        (lambda: ps.text.tokenize("text", str)(TEXTS[1]), "gave 'so it goes on ', a str, and no ids"),
        (lambda: ps.text.tokenize("id", lengths)(TEXTS[0]), "the field is a int, and no text"),
    ],
)
def test_what_cannot_be_tokenized_is_refused(make: Any, words: str) -> None:
    with pytest.raises((PlanError, SpecError), match=words):
        make()


@pytest.mark.skipif(importlib.util.find_spec("tokenizers") is not None, reason="tokenizers is installed")
def test_without_the_package_a_path_says_which_extra_is_missing() -> None:
    with pytest.raises(MissingExtra, match=r"which reads 'tokenizer\.json', cannot be imported") as caught:
        ps.text.tokenize("text", "tokenizer.json")
    assert caught.value.fix == 'pip install "penstock[text]"'


def words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def letters(text: str) -> list[int]:
    return list(text.encode())


def whole(messages: Any) -> list[tuple[str, bool]]:
    return [(message, True) for message in messages]


class Coded:
    def __init__(self, code: int) -> None:
        self.code = code

    def encode(self, text: str) -> list[int]:
        return [self.code for _ in text]


def num_tokens(element: Any) -> int:
    return len(element["tokens"])


def test_numbers_of_another_tokenizer_or_other_arguments_are_refused(tmp_path: Path) -> None:
    ds = ps.from_source([{"text": "some words"}] * 5)
    ds.map(ps.text.tokenize("text", words)).measure(tmp_path / "n", length=num_tokens, num_workers=0)
    for other in (ps.text.tokenize("text", letters), ps.text.tokenize("text", words, eos=1)):
        with pytest.raises(PlanError, match="other plan"):
            ds.map(other).measure(tmp_path / "n", length=num_tokens, num_workers=0)
    with pytest.raises(PlanError, match="says too little"):
        ds.map(ps.text.chat("text", Coded(1).encode, whole)).measure(tmp_path / "m", length=num_tokens, num_workers=0)


@pytest.mark.parametrize("ids", [[2**31], [-(2**40)], np.array([2**63 + 1], np.uint64)], ids=str)
def test_ids_that_int32_does_not_hold_are_an_error(ids: Any) -> None:
    with pytest.raises(SpecError, match="and no ids"):
        ps.text.tokenize("text", lambda text: ids)({"text": "a"})
    with pytest.raises(PlanError, match="is no id of a token"):
        ps.text.tokenize("text", words, eos=2**31)


def test_a_template_gives_pairs_and_an_empty_conversation_no_tokens() -> None:
    empty = ps.text.chat("text", words, whole)({"text": []})
    assert (empty["tokens"].shape, empty["tokens"].dtype, empty["loss_mask"].shape) == ((0,), np.int32, (0,))
    with pytest.raises(SpecError, match="the template gave 'ab'"):
        ps.text.chat("text", words, lambda messages: ["ab"])({"text": []})  # type: ignore[arg-type, return-value, list-item]
    with pytest.raises(PlanError, match="is no function"):
        ps.text.chat("text", words, "chatml")  # type: ignore[arg-type]


def test_a_loss_mask_of_whole_numbers_counts_as_one_of_bools_and_has_the_shape_of_the_rows() -> None:
    rows = {"segment_ids": np.array([[1, 1, 1, 0]])}
    found = ps.text.attention_fields({**rows, "loss_mask": np.array([[1, 0, 2, 1]])})["loss_mask"]
    assert (found.tolist(), found.dtype) == ([[False, False, True, False]], np.bool_)
    for mask in (np.ones(4, bool), np.ones((1, 4))):
        with pytest.raises(SpecError, match="'loss_mask' is"):
            ps.text.attention_fields({**rows, "loss_mask": mask})
