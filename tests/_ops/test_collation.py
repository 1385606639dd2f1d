from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock._ops.collation import Collation, Pad, Ragged, Stack
from penstock.errors import SpecError


def name(row: int) -> str:
    return f"number {row}"


def refused(collation: Collation, rows: list[Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        collation.collate(list(rows), name)
    assert caught.value.fix
    return caught.value


# -- padding --------------------------------------------------------------------------------------------------------------------------


def padded(rows: list[Any], shapes: Any = None, values: Any = None) -> Any:
    return Pad(shapes, values).collate(list(rows), name)


@given(
    st.lists(hnp.arrays(np.int32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)), min_size=1, max_size=5),
    st.integers(-3, 3),
)
def test_every_array_stands_in_a_corner_and_the_rest_is_padding(rows: list[np.ndarray], value: int) -> None:
    batch = padded(list(rows), None, value)
    assert batch.shape == (len(rows), max(row.shape[0] for row in rows), max(row.shape[1] for row in rows))
    for found, row in zip(batch, rows, strict=True):
        assert np.array_equal(found[: row.shape[0], : row.shape[1]], row)
        rest = found.copy()
        rest[: row.shape[0], : row.shape[1]] = value
        assert (rest == value).all()


def test_shapes_and_values_may_be_given_for_each_field() -> None:
    rows = [{"tokens": np.arange(n), "label": n} for n in (2, 3)]
    batch = padded(rows, {"tokens": (5,), "label": ()}, {"tokens": -1, "label": 0})
    assert batch["tokens"].tolist() == [[0, 1, -1, -1, -1], [0, 1, 2, -1, -1]]
    assert batch["label"].tolist() == [2, 3]
    batch = padded(rows, None, {"label": 0, "tokens": -1})  # in another order
    assert batch["tokens"].tolist() == [[0, 1, -1], [0, 1, 2]]
    batch = padded(rows, None, {"tokens": -1})  # the other field has the default
    assert batch["tokens"].tolist() == [[0, 1, -1], [0, 1, 2]]
    assert padded([np.zeros((1, 2)), np.zeros((3, 2))], (None, 4)).shape == (2, 3, 4)
    assert padded([np.zeros((1, 2)), np.zeros((3, 2))], (-1, -1)).shape == (2, 3, 2)


def test_an_array_longer_than_its_padded_shape_is_refused_with_both() -> None:
    with pytest.raises(SpecError) as caught:
        padded([{"tokens": np.arange(2)}, {"tokens": np.arange(9)}], {"tokens": (5,)})
    assert caught.value.what == "['tokens'] has shape [9], longer than the padded shape [5]"
    assert caught.value.where == "stage 'padded_batch', element number 1"
    assert "larger padded_shapes" in caught.value.fix


def test_a_padded_shape_of_another_number_of_dimensions_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        padded([np.zeros((2, 2))], (4,))
    assert caught.value.what == "padded_shapes gives the element 1 dimensions, but it has 2"
    assert "one size per dimension" in caught.value.fix


INT, BYTE, FLAG = np.ones(2, np.int64), np.ones(2, np.uint8), np.ones(2, bool)


@pytest.mark.parametrize(("row", "value"), [(INT, 2.7), (INT, "7"), (INT, float("nan")), (BYTE, np.int64(-1)), (BYTE, 300), (FLAG, 7)])
def test_a_padding_value_that_a_dtype_does_not_hold_is_refused_and_never_changed(row: Any, value: Any) -> None:
    error = refused(Pad(None, {"x": {"y": value}}), [{"x": {"y": row}}])
    assert error.what == f"padding_values gives ['x']['y'] {value!r}, which {row.dtype} does not hold as it is"
    assert error.where == "padded_batch()"
    assert "cast the field in a map before" in error.fix


@pytest.mark.parametrize("kind", [Pad(), Ragged()], ids=["padded", "ragged"])
def test_the_leaf_that_differs_is_named_and_not_one_that_may(kind: Collation) -> None:
    error = refused(kind, [{"tokens": np.zeros(2), "x": np.float32(1)}, {"x": 1.0, "tokens": np.zeros(3)}])
    assert error.what == "two elements of one batch differ: ['x'] is float32[] in one and float64[] in the other"
    assert error.where == "stage 'batch', element number 0 and element number 1"
    assert "cast to one dtype" in error.fix


# -- ragged ---------------------------------------------------------------------------------------------------------------------------


def joined(rows: list[Any], fields: tuple[str | int, ...] | None = None) -> Any:
    return Ragged(fields).collate(list(rows), name)


@given(
    st.lists(hnp.arrays(np.int16, st.tuples(st.integers(0, 4), st.just(2))), min_size=1, max_size=6),
)
def test_row_i_of_a_ragged_batch_is_element_i(rows: list[np.ndarray]) -> None:
    batch = joined(list(rows))
    values, splits = batch["values"], batch["row_splits"]
    assert (values.dtype, splits.dtype) == (np.int16, np.int64)
    assert splits.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert len(values) == splits[-1]
    for number, row in enumerate(rows):
        assert np.array_equal(values[splits[number] : splits[number + 1]], row)


def test_only_the_named_fields_are_joined_and_the_others_stacked() -> None:
    rows = [{"tokens": np.arange(n), "box": np.ones(4), "name": "x" * n, "label": n} for n in (2, 0, 3)]
    batch = joined(rows, ("tokens",))
    assert batch["tokens"]["values"].tolist() == [0, 1, 0, 1, 2]
    assert batch["tokens"]["row_splits"].tolist() == [0, 2, 2, 5]
    assert batch["box"].shape == (3, 4)
    assert batch["name"].tolist() == ["xx", "", "xxx"]
    assert batch["label"].tolist() == [2, 0, 3]


@pytest.mark.parametrize(
    ("other", "found", "fix"),
    [
        (
            np.zeros((3, 5), "f4"),
            "float32[3, 5]",
            "but for the first dimension of its ragged fields; images of several sizes are for padded_batch",
        ),
        (np.zeros((3, 4)), "float64[3, 4]", "cast to one dtype in a map, such as np.asarray(value, np.float64)"),
        (np.zeros(3, "f4"), "float32[3]", "but for the first dimension of its ragged fields; images of several sizes are for padded_batch"),
    ],
)
def test_only_the_first_dimension_may_differ_in_a_ragged_batch(other: Any, found: str, fix: str) -> None:
    error = refused(Ragged(), [{"tokens": np.zeros((2, 4), "f4")}, {"tokens": np.zeros((9, 4), "f4")}, {"tokens": other}])
    assert error.what == f"two elements of one batch differ: ['tokens'] is float32[2, 4] in one and {found} in the other"
    assert error.where == "stage 'batch', element number 0 and element number 2"
    assert fix in error.fix


@pytest.mark.parametrize("kind", [Stack(), Ragged()], ids=["stacked", "ragged"])
@pytest.mark.parametrize(("one", "other"), [(np.zeros((2, 3, 3)), np.zeros((2, 4, 3))), ([{"x": 1}], [{"x": 1}, {"x": 2}])])
def test_what_no_batch_holds_may_stay_a_list_of_elements(kind: Collation, one: Any, other: Any) -> None:
    assert "batch(n, collate_fn=list)" in refused(kind, [{"boxes": one}, {"boxes": other}]).fix


class Tensor:
    """As a tensor of bfloat16, or one that needs a gradient."""

    shape = (2,)

    def __array__(self, *arguments: Any, **more: Any) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16\nsecond line")


@pytest.mark.parametrize("kind", [Stack(), Pad(), Ragged()], ids=["stacked", "padded", "ragged"])
@pytest.mark.parametrize("rows", [[Tensor(), Tensor()], [np.zeros(2), Tensor()]])
def test_a_tensor_that_gives_no_array_is_refused_with_its_field_and_the_reason(kind: Collation, rows: list[Any]) -> None:
    error = refused(kind, [{"image": row} for row in rows])
    assert error.what == "['image'] is a Tensor that gives no array: Got unsupported ScalarType BFloat16"
    assert error.where.startswith("stage 'batch', element number ")
    assert error.fix == "return a NumPy array from a map before batch; of a tensor, for example, value.detach().cpu().float().numpy()"


def test_a_field_that_is_not_there_is_refused() -> None:
    error = refused(Ragged(("token",)), [{"tokens": np.zeros(1), "label": 1}])
    assert error.what == "ragged names the field 'token', but the element is {'tokens': array, 'label': array}"
    assert error.where == "stage 'ragged_batch', element number 0"
    assert "leave ragged out to join every array" in error.fix
    assert "but the element is array" in refused(Ragged((0,)), [np.zeros(1)]).what


def test_a_number_cannot_be_joined() -> None:
    error = refused(Ragged(("label",)), [{"tokens": np.zeros(1), "label": 1}])
    assert error.what == "['label'] is int64[], which has no first dimension to join along"
    assert error.where == "stage 'ragged_batch', element number 0"
    assert "numbers and texts are stacked" in error.fix
