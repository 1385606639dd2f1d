from __future__ import annotations

import json
from typing import Any

import pytest

import penstock as ps
from penstock._engine.chunk import FoldState, Token
from penstock._engine.folding import PASS_END
from penstock._engine.resume import PlanPart, restored, saved
from penstock._plan.saved import histories, sealed
from penstock.errors import StateDamaged, StateMismatch, StateUnavailable


def numbers(count: int = 60) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def state_of(ds: ps.Dataset, token: Token, step: int = 3) -> dict[str, Any]:
    state = saved(ds._root, PlanPart(ds._root), token, step, [], "0")
    loaded: dict[str, Any] = json.loads(json.dumps(state))
    return loaded


def test_a_state_of_a_filter_above_shards_does_not_move_to_another_number() -> None:
    state = state_of(numbers().shard(2, 0).filter(bool), Token((0, 3), (FoldState(0, 0, ()),)))
    with pytest.raises(StateMismatch) as refusal:
        restored(numbers().shard(3, 0).filter(bool)._root, state, [], strict=True)
    assert "saved with shard(2, 0) and this plan has shard(3, 0)" in refusal.value.what
    assert "nothing but map, batch, repeat and prefetch" in refusal.value.what
    assert refusal.value.where == "load_state_dict()"
    assert "same shards" in refusal.value.fix


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": -1}, "step is -1"),
        ({"step": "3"}, "step is '3'"),
        ({"position": None}, "position is None, not one of position and global"),
        ({"position": {"source": [0, 61], "folds": []}}, "position is 61, outside 0..60"),
        ({"position": {"source": [-1, 0], "folds": []}}, "position.source[0] is -1, not a whole number of 0.."),
        ({"position": {"source": [0, 0], "folds": None}}, "position.folds is None, not a list"),
        ({"position": {"source": [0, 0], "folds": [[0, 0, [1], 0, 0], [0, 0, [1], 0, 0]]}}, "not one record for each of 1 places"),
        (
            {"position": {"source": [0, 0], "folds": [[0, 7, [1], 0, 0]]}},
            "position.folds[0][1] is 7, not a whole number of 0..2",
        ),
        ({"position": {"source": [0, 0], "folds": [[0, 0, [1]]]}}, "position.folds[0] is [0, 0, [1]], not a list of 5"),
        ({"position": {"source": [0, 0], "folds": [[0, 0, [1], 0, 1.5]]}}, "position.folds[0][4] is 1.5"),
        ({"position": {"source": [0, 0], "folds": [[0, 0, ["x"], 0, 0]]}}, "fold state is 'x'"),
        ({"position": {"source": [0, 0], "folds": [[0, 0, [1, 2], 0, 0]]}}, "fold state is [1, 2], not 1 states"),
    ],
)
def test_what_is_out_of_bounds_is_refused_even_with_a_right_checksum(change: dict[str, Any], words: str) -> None:
    ds = numbers().filter(bool).take(5)
    state = state_of(ds, Token((0, 3), (FoldState(0, 0, (2,)),)))
    body = {key: value for key, value in {**state, **change}.items() if key != "crc32"}
    if body["position"] is not None:
        body["position"] = {**state["position"], **body["position"]}
    with pytest.raises(StateDamaged) as refusal:
        restored(ds._root, sealed(body), [], strict=True)
    assert words in refusal.value.what
    assert refusal.value.where == "load_state_dict()"
    assert refusal.value.fix


def test_a_generator_that_may_not_be_read_again_has_no_state() -> None:
    with pytest.raises(StateUnavailable, match="fast_forward=True"):
        state_of(ps.from_generator(lambda: iter([1])), Token((0, 0)))


def by_class(ds: ps.Dataset) -> ps.Dataset:
    return ds.rejection_resample(abs, [1, 2])


DAMAGED_FOLDS = [
    (lambda ds: ds.bucket_by_length(abs, [3], [2, 4]), [[0], [1], [2]], 3, "fold state has 3 buckets instead of 2"),
    (lambda ds: ds.bucket_by_length(abs, [3], [2, 4]), [[0], ["1"]], 3, "fold state has '1' for a number"),
    (lambda ds: ds.bucket_by_length(abs, [3], [2, 4]), [[0], [3]], 3, "which holds more than the 3 elements that are read again"),
    (lambda ds: ds.pack_sequences(8), [[0], 1], 3, "fold state is [[0], 1]"),
    (lambda ds: ds.pack_sequences(8), [[0, -2]], 3, "fold state has -2 for a number"),
    (lambda ds: ds.pack_sequences(8), [[True]], 3, "fold state has True for a number"),
    (lambda ds: ds.filter(bool).window(2, 1), {"gap": "1", "held": []}, 3, "fold state has '1' for a number"),
    (lambda ds: ds.pack_sequences(8, split=True), [[0]], 3, "fold state is [[0]] ("),
    (lambda ds: ds.pack_sequences(8, split=True), [[1, 0]], 1, "which holds more than the 1 elements"),
    (lambda ds: ds.filter(bool).shuffle(4), {"pass": 0, "held": []}, 0, "('draws')"),
    (lambda ds: ds.filter(bool).shuffle(4), {"pass": 0, "draws": 0, "held": [0, 5]}, 5, "which holds more than the 5 elements"),
    (by_class, {"pass": 0, "seen": 0, "counts": [1]}, 0, "fold state is [1]"),
    (by_class, {"pass": 0, "seen": -3, "counts": [1, 1]}, 0, "fold state is -3"),
]


@pytest.mark.parametrize(("build", "fold", "recall", "words"), DAMAGED_FOLDS, ids=[words for _, _, _, words in DAMAGED_FOLDS])
def test_a_state_of_a_fold_that_it_never_saved_is_refused(build: Any, fold: Any, recall: int, words: str) -> None:
    ds = build(numbers())
    state = state_of(ds, Token((0, 3), (FoldState(0, 0, (fold,), recall),)))
    with pytest.raises(StateDamaged) as refusal:
        restored(ds._root, state, [], strict=True)
    assert words in refusal.value.what
    assert refusal.value.where == "load_state_dict()"
    assert "older checkpoint" in refusal.value.fix


def test_a_state_behind_a_filter_keeps_the_weights_of_its_mix() -> None:
    def of(weight: float) -> ps.Dataset:
        return numbers().mix(numbers(), weights=[1, weight]).filter(bool)

    state = state_of(of(1), Token((0, 3), (FoldState(0, 0, ()),)))
    assert state["mix"] == [[[0, [1.0, 1.0]]]]
    assert restored(of(1)._root, state, [], strict=True)[1] == 3
    (part, _), *_ = restored(of(2)._root, state, [], strict=True).parts
    assert histories(part.root) == [[[0, [1.0, 1.0]], [3, [1.0, 2.0]]]]
    ended = state_of(of(1), Token((0, 100), (FoldState(0, PASS_END, ()),)))
    with pytest.raises(StateMismatch, match=r"the weights of mix were \(1, 1\) and are now \(1, 2\)"):
        restored(of(2)._root, ended, [], strict=True)


# -- completion order -------------------------------------------------------------------------------------------------------------


def completed() -> ps.Dataset:
    return numbers().as_completed().filter(bool).repeat(2)


def with_place(ds: ps.Dataset, source: list[int], done: Any, again: Any) -> dict[str, Any]:
    state = state_of(ds, Token((0, 3), (FoldState(0, 0, (0,)),)))
    body = {key: value for key, value in state.items() if key != "crc32"}
    return sealed({**body, "position": {**body["position"], "source": source, "done": done, "again": again}})


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (None, "position.done is None, not a list"),
        ([[5]], "position.done[0] is [5], not a list of 2"),
        ([[5, "x"]], "position.done[0][1] is 'x', not a whole number"),
        ([[5, 61]], "run is 61, outside 0..60"),
        ([[2, 6]], "list of runs is [2, 2, 6]"),
        ([[5, 9], [7, 11]], "list of runs is [2, 5, 9, 7, 11]"),
    ],
)
def test_runs_that_no_run_can_have_delivered_are_refused(done: Any, words: str) -> None:
    assert words in damaged(with_place(completed(), [0, 3], done, []))


@pytest.mark.parametrize(
    ("again", "words"),
    [
        (None, "position.again is None, not a list"),
        ([[0, 5]], "position.again[0] is [0, 5], not a list of 3"),
        ([[0, 5, "x"]], "position.again[0][2] is 'x', not a whole number"),
        ([[1, 9, 61]], "run is 61, outside 0..60"),
        ([[1, 2, 5]], "run of what comes first is [1, 2, 5]"),
        ([[1, 19, 25]], "run of what comes first is [1, 19, 25]"),
        ([[1, 9, 12], [1, 11, 13]], "run of what comes first is [1, 11, 13]"),
        ([[2, 0, 3], [2, 2, 5]], "run of what comes first is [2, 2, 5]"),
    ],
)
def test_what_no_run_can_have_to_take_again_is_refused(again: Any, words: str) -> None:
    assert words in damaged(with_place(completed(), [1, 3], [[20, 30]], again), epoch=1)


def damaged(state: dict[str, Any], epoch: int = 0) -> str:
    body = {key: value for key, value in state.items() if key != "crc32"}
    if epoch:  # the repeat has ended a pass
        body["position"] = {**body["position"], "folds": [[0, 0, [1], 0, 0]]}
    with pytest.raises(StateDamaged) as refusal:
        restored(completed()._root, sealed(body), [], strict=True)
    assert refusal.value.where == "load_state_dict()"
    assert refusal.value.fix
    return str(refusal.value.what)
