"""Elements and sources that are not what they should be: FAULTS B28, B29, C14 to C17, C22 to C25, C34."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from core import core
from faults.ways import WAYS, drained, engine_threads, every_way, every_way_and_order, notes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from laws.plans import plain

import penstock as ps
from penstock.image import random_flip

# -- what a function returns --------------------------------------------------------------------------------------------------------


class Custom:
    """Something that is no array."""


NOT_FOR_BATCHES: dict[str, Callable[[], Any]] = {
    "function": lambda: lambda: 1,
    "TextIOWrapper": lambda: open(__file__),  # noqa: SIM115
    "NoneType": lambda: None,
    "Custom": Custom,
    "generator": lambda: (n for n in range(2)),
    "set": lambda: {1, 2},
    "MaskedArray": lambda: np.ma.masked_array(3, True),
}


@every_way
@pytest.mark.parametrize("kind", NOT_FOR_BATCHES)
def test_what_cannot_stand_in_a_batch_is_an_error_that_names_field_type_and_element(kind: str, way: dict[str, Any]) -> None:
    made: list[Any] = []

    def sometimes(x: int) -> dict[str, Any]:
        if x == 10:
            made.append(NOT_FOR_BATCHES[kind]())
        return {"a": x, "b": made[0] if x == 10 else x}

    try:
        items, error = drained(ps.from_source(range(40)).map(sometimes).batch(4).feed(**way))
    finally:
        for thing in made:
            getattr(thing, "close", int)()
    assert items == [{"a": list(range(s, s + 4)), "b": list(range(s, s + 4))} for s in (0, 4)]
    assert type(error) is ps.errors.SpecError
    assert error.what == f"['b'] is a {kind}, which cannot stand in a batch"
    assert "stage 'batch', element epoch 0 index 10 (element 10 of range)" in error.where
    assert "return arrays, numbers, str or bytes" in error.fix
    assert "np.datetime64(date)" in error.fix
    assert "stage 'batch', worker " in notes(error)


@every_way
@pytest.mark.parametrize("place", [8, 10])
def test_a_number_beyond_64_bits_is_an_error_of_its_element_alone(place: int, way: dict[str, Any]) -> None:
    ds = ps.from_source(range(40)).map(lambda x: {"a": x, "b": 1 << 63 if x == place else x}).batch(4)
    items, error = drained(ds.feed(**way))
    assert items == [{"a": list(range(s, s + 4)), "b": list(range(s, s + 4))} for s in (0, 4)]
    assert type(error) is ps.errors.SpecError
    assert error.what == f"['b'] = {1 << 63} does not fit int64"
    assert error.where == f"stage 'batch', element epoch 0 index {place} (element {place} of range)"
    assert "np.uint64 or np.float64" in error.fix


@every_way
def test_without_a_batch_any_object_goes_through_as_itself(way: dict[str, Any]) -> None:
    things = [lambda: 1, Custom(), None, object(), {1}, (n for n in range(3))] * 20
    with ps.from_source(things).map(lambda x: x).feed(**way) as feed:
        assert all(got is thing for got, thing in zip(feed, things, strict=True))
        assert feed.step == len(things)


DTYPES = st.one_of(
    arrays.scalar_dtypes(),
    arrays.unicode_string_dtypes(max_len=5),
    arrays.byte_string_dtypes(max_len=5),
    st.just(np.dtype([("id", ">i4"), ("box", "f4", (2,)), ("name", "S3")])),
)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


def layouts(array: Any, choice: int) -> Any:
    """Return the same values in another memory layout."""
    if array.ndim == 0 or choice == 0:
        return array
    if choice == 1:
        return np.asfortranarray(array)
    if choice == 2:
        return array[::-1].copy()[::-1]
    padded = np.repeat(array, 2, axis=-1)
    return padded[..., ::2]


def wide(dtype: Any) -> Any:
    """Return the dtype in a batch: strings are never cut to the width of the first, so they become objects."""
    return np.dtype(object) if dtype.kind in "US" else dtype


@settings(max_examples=2 * settings.default.max_examples)
@given(data=st.data(), dtype=DTYPES, shape=SHAPES, way=st.sampled_from(WAYS), choice=st.integers(0, 3))
def test_arrays_of_every_dtype_shape_and_layout_stand_in_the_batch_with_the_same_bytes(
    data: st.DataObject, dtype: Any, shape: tuple[int, ...], way: dict[str, Any], choice: int
) -> None:
    rows = [layouts(data.draw(arrays.arrays(dtype, shape)), choice) for _ in range(7)]
    with ps.from_source(rows).map(lambda x: x).batch(3).feed(**way) as feed:
        batches = list(feed)
    assert [len(batch) for batch in batches] == [3, 3, 1]
    for batch, start in zip(batches, (0, 3, 6), strict=True):
        assert batch.dtype == wide(np.dtype(dtype))
        assert batch.shape == (len(batch), *shape)
        for place, row in enumerate(rows[start : start + len(batch)]):
            if batch.dtype == object:
                assert np.array_equal(np.asarray(batch[place], object), np.asarray(row, object))
            else:
                assert batch[place : place + 1].tobytes() == row.tobytes()  # a slice: a scalar would be in native byte order


@every_way
def test_strings_of_growing_length_are_never_cut(way: dict[str, Any]) -> None:
    texts = ["x" * length + "é🚀" for length in range(50)]
    names = np.array(texts)
    items, error = drained(ps.from_source(texts).map(lambda x: {"s": x, "b": x.encode(), "n": np.str_(x)}).batch(5).feed(**way))
    assert error is None
    assert [s for item in items for s in item["s"]] == texts
    assert [b for item in items for b in item["b"]] == [text.encode() for text in texts]
    assert [n for item in items for n in item["n"]] == texts
    assert [n for item in drained(ps.from_arrays(names).batch(5).feed(**way))[0] for n in item] == texts


@every_way
def test_empty_rows_and_a_batch_of_zero_bytes_are_batches(way: dict[str, Any]) -> None:
    with ps.from_source(range(10)).map(lambda x: np.empty((0, 3), np.float32)).batch(4).feed(**way) as feed:
        assert [(batch.shape, batch.dtype) for batch in feed] == [((n, 0, 3), np.dtype(np.float32)) for n in (4, 4, 2)]


@every_way
def test_object_arrays_keep_their_objects(way: dict[str, Any]) -> None:
    rows = [np.array([f"word {x}", {"x": x}], object) for x in range(9)]
    with ps.from_source(rows).batch(4).feed(**way) as feed:
        got = [cell for batch in feed for row in batch for cell in row]
    assert all(cell is wanted for cell, wanted in zip(got, (cell for row in rows for cell in row), strict=True))


@every_way
@pytest.mark.parametrize("labels", [["a", None, "b"], [None, "a", "b"], ["a", "b", 3]], ids=str)
@pytest.mark.parametrize("flipped", [False, True], ids=["as it is", "flipped"])
def test_an_odd_object_in_a_column_is_refused_as_it_is_among_elements(flipped: bool, labels: list[Any], way: dict[str, Any]) -> None:
    ds = ps.from_arrays({"image": np.zeros((3, 4, 4, 3), np.uint8), "label": np.array(labels, object)})
    ds = ds.map(random_flip("image")) if flipped else ds
    wanted = drained(ds.map(lambda x: x, name="same").batch(3).feed(executor="inline"))[1]
    items, error = drained(ds.batch(3).feed(**way))
    assert items == []
    assert type(error) is type(wanted) is ps.errors.SpecError
    assert error.what == wanted.what
    with pytest.raises(ps.errors.SpecError):
        ds.batch(3)[0]


@every_way
def test_one_huge_element_among_small_ones_does_not_stop_the_others(way: dict[str, Any]) -> None:
    def sized(x: int) -> Any:
        return np.full(24 << 20 if x == 30 else 100, x % 251, np.uint8)

    with ps.from_source(range(60)).map(sized).feed(memory_bytes=1 << 20, **way) as feed:
        assert [(len(item), int(item[0]), int(item[-1])) for item in feed] == [(len(sized(x)), x, x) for x in range(60)]
    with ps.from_source(range(60)).map(sized).padded_batch(1).feed(memory_bytes=1 << 20, **way) as feed:
        assert [(batch.shape[1], int(batch[0, -1])) for batch in feed] == [(len(sized(x)), x) for x in range(60)]
    items, error = drained(ps.from_source(range(60)).map(sized).batch(4).feed(memory_bytes=1 << 20, **way))
    assert len(items) == 7
    assert type(error) is ps.errors.SpecError
    assert f"uint8[100] in one and uint8[{24 << 20}] in the other" in error.what


# -- elements of one batch that differ ------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    image: Any
    label: Any


DIFFERENT = {
    "another shape": (
        np.zeros((3, 8, 8), np.uint8),
        np.zeros((1, 8, 8), np.uint8),
        "uint8[3, 8, 8] in one and uint8[1, 8, 8]",
    ),
    "one more dimension": (np.zeros(3), np.zeros((3, 1)), "the element is float64[3] in one and float64[3, 1]"),
    "float64 for float32": (np.zeros(4, np.float32), np.zeros(4, np.float64), "float32[4] in one and float64[4]"),
    "int for float": ({"x": 1.5}, {"x": 1}, "['x'] is float64[] in one and int64[]"),
    "bool for int": (1, True, "the element is int64[] in one and bool[]"),
    "str for int": (1, "1", "the element is int64[] in one and object[]"),
    "int32 for int64": (np.int64(1), np.int32(1), "the element is int64[] in one and int32[]"),
    "another byte order": (np.zeros(2, "<i4"), np.zeros(2, ">i4"), "the element is int32[2] in one and >i4[2]"),
    "nanoseconds for seconds": (np.datetime64(1, "s"), np.datetime64(1, "ns"), "datetime64[s][] in one and datetime64[ns][]"),
    "a field more": ({"x": 1}, {"x": 1, "y": 2}, "the structure is {'x': array} in one and {'x': array, 'y': array}"),
    "a field less": ({"x": 1, "y": 2}, {"x": 1}, "the structure is {'x': array, 'y': array} in one and {'x': array}"),
    "a tuple for a dict": ({"x": 1}, (1,), "the structure is {'x': array} in one and (array)"),
    "a longer tuple": ((1, 2), (1, 2, 3), "the structure is (array, array) in one and (array, array, array)"),
    "a named field": (Pair(np.zeros(2), 1), Pair(np.zeros(3), 1), "[0] is float64[2] in one and float64[3]"),
}


@every_way
@pytest.mark.parametrize("place", core([5, 7, 301], [7]))
@pytest.mark.parametrize("case", DIFFERENT)
def test_an_element_that_differs_from_its_batch_is_an_error_with_both_elements_and_what_differs(
    case: str, place: int, way: dict[str, Any]
) -> None:
    usual, other, words = DIFFERENT[case]
    ds = ps.from_source(range(400)).map(lambda x: other if x == place else usual).batch(4)
    items, error = drained(ds.feed(**way))
    first = place // 4 * 4
    assert len(items) == first // 4
    assert type(error) is ps.errors.SpecError
    assert error.what.startswith("two elements of one batch differ: ")
    assert words in error.what
    assert error.where == (
        f"stage 'batch', element epoch 0 index {first} (element {first} of range) and "
        f"element epoch 0 index {place} (element {place} of range)"
    )
    assert "make them equal before batch" in error.fix
    assert ("padded_batch" in error.fix) != ("cast to one dtype" in error.fix)  # which padded_batch would not do either


@every_way
def test_a_dtype_that_changes_between_batches_changes_that_batch_and_no_other(way: dict[str, Any]) -> None:
    ds = ps.from_source(range(1200)).map(lambda x: np.float32(x) if x < 600 else np.float64(x)).batch(4)
    with ds.feed(**way) as feed:
        batches = list(feed)
    assert [batch.dtype for batch in batches] == [np.dtype(np.float32)] * 150 + [np.dtype(np.float64)] * 150
    assert [x for batch in batches for x in batch.tolist()] == list(range(1200))


@every_way
def test_a_locked_spec_refuses_the_first_batch_that_changes(way: dict[str, Any]) -> None:
    ds = ps.from_source(range(1200)).map(lambda x: np.float32(x) if x < 600 else np.float64(x)).batch(4)
    feed = ds.feed(**way)
    feed.finalize()
    items, error = drained(feed)
    assert items == [list(range(start, start + 4)) for start in range(0, 600, 4)]
    assert type(error) is ps.errors.SpecError
    assert "locked by finalize()" in error.what
    assert "float32[4] in one and float64[4] in the other" in error.what
    assert "element 150 of this feed (epoch 0)" in error.where
    assert "drop_remainder=True" in error.fix
    assert engine_threads() == []


# -- values ---------------------------------------------------------------------------------------------------------------------------


@every_way
def test_nan_infinity_and_minus_zero_come_through_bit_by_bit(way: dict[str, Any]) -> None:
    odd = np.array([0x7FC00001, 0xFFC00000, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32).view(np.float32)
    with ps.from_source(range(70)).map(lambda x: odd[x % 7 : x % 7 + 1]).batch(7).feed(**way) as feed:
        assert all(batch.tobytes() == odd.tobytes() for batch in feed)
        assert feed.step == 10


@every_way
@pytest.mark.parametrize("label", [-1, 10, 255])
def test_a_check_in_a_map_names_the_element_with_the_bad_value(label: int, way: dict[str, Any]) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if not 0 <= row["label"] < 10 or not np.isfinite(row["x"]).all():
            raise ValueError(f"label {row['label']}, mean {row['x'].mean()}")
        return row

    labels, x = np.arange(200) % 10, np.zeros((200, 3), np.float32)
    labels[123] = label
    items, error = drained(ps.from_arrays({"x": x, "label": labels}).shuffle(seed=2).map(check, name="check").batch(1).feed(**way))
    order = [int(i) for i in ps.from_source(range(200)).shuffle(seed=2).feed(executor="inline")]
    assert [item["label"][0] for item in items] == labels[order[: order.index(123)]].tolist()
    assert str(error) == f"label {label}, mean 0.0"
    assert "stage 'check', worker " in notes(error)
    assert "element epoch 0 index 123" in notes(error)


# -- empty, small -----------------------------------------------------------------------------------------------------------------------

EMPTY = {
    "no elements": lambda: ps.from_source([]),
    "empty arrays": lambda: ps.from_arrays(np.zeros((0, 3))),
    "an empty generator": lambda: ps.from_generator(lambda: iter(())),
    "all filtered out": lambda: ps.from_source(range(50)).filter(lambda x: False),
    "nothing taken": lambda: ps.from_source(range(50)).take(0),
    "all skipped": lambda: ps.from_source(range(50)).skip(50),
    "a batch larger than the data": lambda: ps.from_source(range(50)).batch(51, drop_remainder=True),
    "a shard without elements": lambda: ps.from_source(range(2)).shard(3, 2),
    "flat_map to nothing": lambda: ps.from_source(range(50)).flat_map(lambda x: []),
    "empty three times": lambda: ps.from_source([]).repeat(3),
}


@every_way
@pytest.mark.parametrize("case", EMPTY)
def test_a_dataset_that_gives_nothing_ends_at_once_with_a_warning(case: str, way: dict[str, Any]) -> None:
    for ds in (EMPTY[case](), EMPTY[case]().map(lambda x: x).shuffle(seed=1) if case == "no elements" else EMPTY[case]()):
        feed = ds.feed(**way)
        with pytest.warns(UserWarning, match="this dataset gave no elements: the source, a filter or a take left nothing"):
            assert list(feed) == []
        assert engine_threads() == []
        assert list(feed) == []  # and it is said once


ENDLESSLY_EMPTY = {
    "no elements": lambda: ps.from_source([]).repeat(),
    "all filtered out": lambda: ps.from_source(range(50)).filter(lambda x: False).repeat(),
    "an empty generator": lambda: ps.from_generator(lambda: iter(())).repeat(),
    "nothing taken": lambda: ps.from_source(range(50)).filter(lambda x: True).take(0).repeat(),
    "batches too small": lambda: ps.from_source(range(50)).filter(lambda x: x < 3).batch(5, drop_remainder=True).repeat(),
}


@every_way
@pytest.mark.parametrize("case", ENDLESSLY_EMPTY)
def test_repeating_nothing_for_ever_ends(case: str, way: dict[str, Any]) -> None:
    feed = ENDLESSLY_EMPTY[case]().feed(**way)
    if case == "no elements":
        with pytest.warns(UserWarning, match="this dataset gave no elements"):
            assert list(feed) == []
        return
    items, error = drained(feed)
    assert items == []
    assert type(error) is ps.errors.SourceError
    assert error.what == "a whole pass of an endless repeat() gave no element"
    assert "repeat() after a filter, take or generator" in error.where
    assert "check the filter and the source" in error.fix


@every_way_and_order
@pytest.mark.parametrize("size", [1, 2, 3])
def test_fewer_elements_than_workers_come_exactly_once(size: int, way: dict[str, Any]) -> None:
    calls: list[int] = []

    def count(x: int) -> int:
        calls.append(x)
        return x

    ds = ps.from_source(range(size)).map(count).prefetch(64)
    items, error = drained(ds.feed(**way))
    assert (sorted(items), error) == (list(range(size)), None)
    assert sorted(calls) == list(range(size))
    assert drained(ds.batch(100).repeat(2).feed(**way)) == ([list(range(size))] * 2, None)
    shards = [drained(ps.from_source(range(size)).shard(8, k).batch(4).feed(**way))[0] for k in range(size)]
    assert shards == [[[k]] for k in range(size)]


# -- sources that lie ---------------------------------------------------------------------------------------------------------------------


class Short:
    """Declares more than it has."""

    def __init__(self, declared: int, real: int) -> None:
        self.declared, self.rows = declared, list(range(real))

    def __len__(self) -> int:
        return self.declared

    def __getitem__(self, index: int) -> int:
        return self.rows[index]


@every_way
def test_a_source_with_fewer_elements_than_its_length_is_an_error_behind_those_it_has(way: dict[str, Any]) -> None:
    items, error = drained(ps.from_source(Short(500, 320)).map(lambda x: x).feed(**way))
    assert items == list(range(320))
    assert type(error) is ps.errors.LengthMismatch
    assert error.what.startswith("Short declared 500 elements, but got no element 320: IndexError")
    assert error.where == "element 320 of Short, index 320"
    assert "let __len__ return the true number of elements" in error.fix
    assert "stage 'read', worker " in notes(error)


class Ending:
    """Raises StopIteration at one element, as `next()` of something that has run out inside `__getitem__` does."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> int:
        if index == 120:
            raise StopIteration
        return index


@every_way
@pytest.mark.parametrize("mixed", [False, True])
def test_a_stop_iteration_of_a_source_is_an_error_behind_the_elements_before_it(way: dict[str, Any], mixed: bool) -> None:
    ds = ps.from_source(Ending())
    before = list(range(120))
    if mixed:
        ds, before = ds.mix(ps.from_source(range(300))), [value for pair in zip(before, before, strict=True) for value in pair]
    for stacked in (ds, ds.map(lambda x: x)):
        items, error = drained(stacked.feed(**way))
        assert (items, type(error)) == (before, ps.errors.StopRaised)
    items, error = drained(ds.batch(50).feed(**way))
    assert (np.concatenate(items).tolist(), type(error)) == (before[: len(before) // 50 * 50], ps.errors.StopRaised)


def test_an_index_out_of_range_is_an_index_error_and_a_negative_one_counts_from_the_end() -> None:
    ds = ps.from_source(range(10)).shuffle(seed=1).map(lambda x: x)
    assert ds[-1] == ds[9]
    assert ds[-10] == ds[0]
    for index in (10, -11, 1 << 70):
        with pytest.raises(IndexError) as caught:
            ds[index]
        assert f"index {index} of 10 elements" in str(caught.value)
        assert "use 0..len(ds)-1" in str(caught.value)


@pytest.mark.parametrize("num_workers", [2, 8])
def test_a_source_that_is_not_thread_safe_is_read_whole_behind_a_lock_of_its_own(num_workers: int) -> None:
    class Locked:
        def __init__(self) -> None:
            self.mutex, self.inside, self.most = threading.Lock(), 0, 0

        def __len__(self) -> int:
            return 500

        def __getitem__(self, index: int) -> int:
            with self.mutex:
                self.inside += 1
                self.most = max(self.most, self.inside)
                self.inside -= 1
                return index

    source = Locked()
    items, error = drained(ps.from_source(source).batch(5).feed(executor="threads", num_workers=num_workers))
    assert (items, error) == ([list(range(s, s + 5)) for s in range(0, 500, 5)], None)
    assert source.most == 1


@every_way
@pytest.mark.parametrize(("declared", "real"), [(30, 20), (20, 30), (1, 0)])
def test_a_generator_that_gives_another_number_than_declared_is_an_error(declared: int, real: int, way: dict[str, Any]) -> None:
    def rows() -> Iterator[int]:
        yield from range(real)

    feed = ps.from_generator(rows, length=declared).feed(**way)
    items, error = drained(feed)
    assert items == list(range(min(declared, real)))
    assert type(error) is ps.errors.LengthMismatch
    found = f"more than {declared}" if real > declared else str(real)
    assert error.what == f"the generator declared {declared} elements and gave {found}"
    assert "from_generator(" in error.where
    assert "correct length=" in error.fix


@every_way
def test_a_generator_that_never_ends_is_stopped_by_take_and_by_close(way: dict[str, Any]) -> None:
    closed: list[int] = []

    def rows() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.append(1)

    assert drained(ps.from_generator(rows).map(lambda x: x).take(77).feed(**way)) == (list(range(77)), None)
    assert closed == [1]
    with ps.from_generator(rows).batch(3).feed(**way) as feed:
        assert plain(next(feed)) == [0, 1, 2]
    assert closed == [1, 1]
    assert engine_threads() == []


@every_way
def test_the_second_epoch_of_a_one_shot_generator_is_an_error_and_not_an_empty_epoch(way: dict[str, Any]) -> None:
    once = iter(range(20))
    items, error = drained(ps.from_generator(lambda: once).repeat(2).feed(**way))
    assert items == list(range(20))
    assert type(error) is ps.errors.SourceError
    assert "can be read only once" in error.what
    assert "pass 2" in error.where
    assert "makes a new iterator on every call" in error.fix


@every_way
def test_a_generator_that_yields_none_delivers_none_and_a_batch_of_it_is_an_error(way: dict[str, Any]) -> None:
    assert drained(ps.from_generator(lambda: iter([1, None, 3])).feed(**way)) == ([1, None, 3], None)
    items, error = drained(ps.from_generator(lambda: iter([1, None, 3])).batch(3).feed(**way))
    assert items == []
    assert type(error) is ps.errors.SpecError
    assert error.what == "the element is a NoneType, which cannot stand in a batch"
    assert "element epoch 0 index 1" in error.where


@pytest.mark.slow
def test_a_batch_beyond_two_gibibytes_keeps_its_bytes() -> None:
    row_bytes, rows = 600 << 20, 4
    with (
        ps.from_source(range(rows))
        .map(lambda x: np.full(row_bytes, x + 1, np.uint8))
        .batch(rows)
        .feed(executor="threads", num_workers=1) as feed
    ):
        batch = next(feed)
        assert batch.nbytes == rows * row_bytes > 2 << 30
        assert [(int(row[0]), int(row[-1]), int(row[:: 1 << 20].min())) for row in batch] == [(x + 1,) * 3 for x in range(rows)]
        with pytest.raises(StopIteration):
            next(feed)
