"""A finalized step without a framework: what it says of new shapes, how often, and that it is otherwise the step itself."""

from __future__ import annotations

import copy
import sys
import warnings
from collections import namedtuple
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError, SpecError

if {"jax", "torch._dynamo", "tensorflow"} & set(sys.modules):
    pytest.skip("a framework that counts compilations is loaded here; tests/interop has these cases", allow_module_level=True)


def train(batch: Any, scale: float = 1.0) -> float:
    """Add up a batch."""
    return float(np.sum(batch["x"])) * scale


def batch_of(size: int, dtype: Any = np.float32) -> dict[str, Any]:
    return {"x": np.ones((size, 4), dtype), "y": np.zeros(size, np.int64)}


def reported(step: Any, *args: Any, **kwargs: Any) -> list[str]:
    """Call a step, and return the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(*args, **kwargs)
    assert all(one.category is RuntimeWarning and one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def test_a_smaller_last_batch_is_reported_in_its_step_with_batch_and_epoch_and_both_shapes() -> None:
    dataset = ps.from_arrays({"x": np.ones((10, 2), np.float32)}).batch(4)
    step = ps.finalize_step(train)
    found = {}
    with dataset.feed(executor="threads", num_workers=1) as feed:
        for epoch in range(2):
            for number, batch in enumerate(feed):
                found[epoch, number] = reported(step, batch)
    ((place, (text,)),) = [(place, texts) for place, texts in found.items() if texts]
    assert place == (0, 2)
    what, where, fix = text.splitlines()
    assert what == "the training step got arguments of a new form in its call 3: batch['x'] float32[4, 2] -> float32[2, 2]"
    assert where == "  where: batch 2 of the feed (epoch 0)"
    assert fix.startswith("  fix:   use drop_remainder=True for batches of one size, ")
    assert fix.endswith("with warmup= above 2")
    assert step.num_recompilations == 1


def test_another_dtype_field_or_number_of_arguments_is_reported_once_each() -> None:
    step = ps.finalize_step(train)
    assert reported(step, batch_of(4)) == reported(step, batch_of(4)) == reported(step, batch_of(4)) == []
    (text,) = reported(step, batch_of(4, np.float64))
    assert "call 4: batch['x'] float32[4, 4] -> float64[4, 4]\n" in text
    (text,) = reported(step, {"x": np.ones((4, 4), np.float32)})
    assert "batch['y'] int64[4] -> nothing\n" in text
    (text,) = reported(step, batch_of(4), scale=2.0)
    assert "scale nothing -> 2.0\n" in text
    for again in (batch_of(4, np.float64), batch_of(4), {"x": np.ones((4, 4), np.float32)}):
        assert reported(step, again) == []
    assert step.num_recompilations == 3


def test_nothing_is_reported_in_10_000_steps_of_one_shape_with_other_values() -> None:
    step = ps.finalize_step(train, on_recompile="raise")
    for number in range(10_000):
        step(batch_of(4), float(number))
    assert step.num_recompilations == 0


def test_shapes_of_the_warm_up_are_expected_and_the_most_similar_one_is_named() -> None:
    step = ps.finalize_step(train, warmup=3)
    assert [reported(step, batch_of(size)) for size in (2, 4, 8, 4, 2)] == [[]] * 5
    (text,) = reported(step, {"x": np.ones((8, 3), np.float32), "y": np.zeros(8, np.int64)})
    assert "batch['x'] float32[8, 4] -> float32[8, 3]\n" in text


def test_raise_is_a_spec_error_after_the_step_has_run() -> None:
    calls = []
    step = ps.finalize_step(calls.append, warmup=1, on_recompile="raise")
    step(np.zeros(3))
    with pytest.raises(SpecError, match=r"float64\[3\] -> float64\[2\]"):
        step(np.zeros(2))
    assert [len(call) for call in calls] == [3, 2]
    step(np.zeros(2))


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Batch:
    image: Any
    pair: Any


def test_fields_are_named_in_lists_tuples_and_data_classes_and_many_are_cut() -> None:
    step = ps.finalize_step(lambda batch, *rest: None, warmup=1)
    step(Batch(np.zeros(2), Pair(np.zeros(3), [np.zeros(4)])))
    (text,) = reported(step, Batch(np.zeros(2), (np.zeros(3), [np.zeros(5)])), np.zeros(1))
    assert "batch.pair[1][0] float64[4] -> float64[5]; rest[0] nothing -> float64[1]\n" in text
    step = ps.finalize_step(lambda batch: None, warmup=1)
    step([np.zeros(4) for _ in range(8)])
    (text,) = reported(step, [np.zeros(5) for _ in range(8)])
    assert "batch[4] float64[4] -> float64[5]; and 3 more\n" in text


def test_the_wrapper_has_the_attributes_result_and_errors_of_the_step() -> None:
    train.mark = "of the step"  # type: ignore[attr-defined]
    step = ps.finalize_step(train)
    assert step(batch_of(2), scale=3.0) == 24.0
    assert (step.__name__, step.__doc__, step.__wrapped__, step.mark) == ("train", "Add up a batch.", train, "of the step")
    with pytest.raises(KeyError):
        step({})
    with pytest.raises(AttributeError, match="'function' object has no attribute 'lower'"):
        _ = step.lower
    assert copy.copy(step)(batch_of(2), scale=1.0) == 8.0
    assert repr(step).startswith("finalize_step(<function train")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": 3}, "step is 3, which cannot be called"),
        ({"warmup": 0}, "warmup is 0"),
        ({"warmup": True}, "warmup is True"),
        ({"on_recompile": "stop"}, "on_recompile is 'stop'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        ps.finalize_step(**{"step": train, **arguments})


def test_a_warm_up_that_raises_and_arguments_of_any_kind_do_no_harm() -> None:
    calls: list[int] = []

    def step(value: Any) -> int:
        calls.append(1)
        if len(calls) < 3:
            raise MemoryError
        return len(calls)

    watched = ps.finalize_step(step)
    for _ in range(2):
        with pytest.raises(MemoryError):
            watched(np.zeros(3))
    assert [watched(np.zeros(3)) for _ in range(4)] == [3, 4, 5, 6]

    class Odd:
        shape: ClassVar = [1, 2]
        dtype = "int8"

    assert ps.finalize_step(lambda value: 1)(Odd()) == 1
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    watched = ps.finalize_step(lambda value: 1)
    with pytest.warns(RuntimeWarning, match=r"finalize_step\(\) reports nothing any more: RecursionError"):
        assert watched(cyclic) == 1
    assert watched(cyclic) == 1
