from __future__ import annotations

import pickle
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock._contracts.source import ColumnSource, IndexedSource
from penstock.errors import LengthMismatch, PlanError, SourceError
from penstock.sources.arrays import IndexableSource
from penstock.testing import check_source


class Squares:
    def __init__(self, declared: Any = 10, true: int = 10) -> None:
        self.declared, self.true = declared, true

    def __len__(self) -> Any:
        return self.declared

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        if not 0 <= index < self.true:
            raise IndexError(f"no {index} here")
        return index * index


class BlockSquares(Squares):
    def __init__(self, give: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.give, self.asked = give, []

    def __getitems__(self, indices: list[int]) -> Any:
        self.asked.append(indices)
        return [self[index] for index in indices] if self.give is None else self.give


def gathered(obj: Any, indices: list[int] | range) -> list[Any]:
    rows: list[Any] = []
    IndexableSource(obj).gather(indices, rows)
    return rows


@pytest.mark.parametrize(
    "obj", [[n * n for n in range(10)], tuple(n * n for n in range(10)), Squares(), np.arange(10) ** 2, BlockSquares()]
)
def test_every_kind_of_object_keeps_the_laws_of_a_source(obj: Any) -> None:
    source = IndexableSource(obj)
    assert isinstance(source, IndexedSource)
    assert not isinstance(source, ColumnSource)
    check_source(obj, expected=[n * n for n in range(10)])


def test_getitems_is_asked_once_per_block_with_a_list_of_ints() -> None:
    obj = BlockSquares()
    assert gathered(obj, range(4)) == [0, 1, 4, 9]
    assert obj.asked == [[0, 1, 2, 3]]


def test_a_length_that_is_too_large_is_an_error_that_names_the_index_and_tells_which_row_failed() -> None:
    rows: list[Any] = []
    with pytest.raises(LengthMismatch) as caught:
        IndexableSource(Squares(declared=10, true=7)).gather([5, 6, 7, 8], rows)
    assert rows == [25, 36]
    assert "declared 10 elements, but got no element 7" in caught.value.what
    assert "element 7 of Squares" in caught.value.where
    assert "true number" in caught.value.fix
    assert isinstance(caught.value.__cause__, IndexError)


def test_an_error_of_the_object_stays_as_it_is_and_tells_which_row_failed() -> None:
    class Faulty(Squares):
        def __getitem__(self, index: int) -> int:
            return 1 // (index - 3)

    rows: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        IndexableSource(Faulty()).gather([5, 4, 3], rows)
    assert rows == [0, 1]


def test_an_index_error_of_getitems_is_a_length_mismatch() -> None:
    rows: list[Any] = []
    with pytest.raises(LengthMismatch) as caught:
        IndexableSource(BlockSquares(declared=10, true=7)).gather([5, 9, 6], rows)
    assert rows == [25]
    assert "declared 10 elements, but got no element 9" in caught.value.what


@pytest.mark.parametrize(
    ("give", "got"), [([1], "1 elements"), ([1, 2, 3], "3 elements"), (None.__class__, "a type"), ({"x": [1, 2]}, "a dict")]
)
def test_getitems_that_gives_another_number_of_elements_is_an_error(give: Any, got: str) -> None:
    with pytest.raises(LengthMismatch) as caught:
        gathered(BlockSquares(give=give), [4, 5])
    assert f"asked for 2 elements and returned {got}" in caught.value.what
    assert "BlockSquares" in caught.value.where
    assert "one element per index" in caught.value.fix


def test_an_error_of_getitems_gets_a_note_with_the_block() -> None:
    class Faulty(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire") as caught:
        gathered(Faulty(), [1, 2])
    assert caught.value.__notes__ == ["raised by Faulty.__getitems__ with 1 indices from 1 to 1"]


@pytest.mark.parametrize("length", [-1, "ten", 2.5, 2**70])
def test_a_length_that_is_no_count_is_an_error(length: Any) -> None:
    with pytest.raises(SourceError) as caught:
        IndexableSource(Squares(declared=length))
    assert "len() of Squares failed" in caught.value.what
    assert "from_source(Squares)" in caught.value.where
    assert "int >= 0; map range(x.shape[0]) to x[[i]].toarray()[0] if x is sparse" in caught.value.fix
    assert caught.value.__cause__ is not None


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


class NoIndex:
    def __len__(self) -> int:
        return 3


class Frame(Squares):
    iloc = None


class OtherFrame(Squares):
    """As the frames of polars: its `__getitem__` takes names of columns too."""

    columns = ("a",)

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("obj", "fix"),
    [
        ({0: "a"}, "list(obj.items())"),
        ({1, 2}, "from_stream"),
        (iter([1]), "from_stream"),
        ("train.txt", "read_list"),
        (b"abc", "read_list"),
        (NoLength(), "__len__"),
        (NoIndex(), "__getitem__"),
        (Squares, "Squares(...)"),
        (Frame(), "to_dict('records')"),
        (OtherFrame(), "from_source(pyarrow.table(df))"),
        (7, "__getitem__"),
    ],
)
def test_what_has_no_numbered_elements_is_an_error_that_says_what_to_give(obj: Any, fix: str) -> None:
    with pytest.raises(PlanError, match="no elements numbered from 0") as caught:
        IndexableSource(obj)
    assert "from_source(" in caught.value.where
    assert fix in caught.value.fix


def test_the_fingerprint_of_a_list_changes_with_its_elements() -> None:
    prints = [IndexableSource(obj).fingerprint() for obj in ([1, 2, 3], [1, 2, 4], [1, 2], (1, 2, 3), ["1", "2", "3"], range(3))]
    assert all(one != other for place, one in enumerate(prints) for other in prints[:place])
    assert prints[0] == IndexableSource([1, 2, 3]).fingerprint()


def test_the_fingerprint_reads_no_element_of_an_unknown_object_and_takes_its_own_mark() -> None:
    class Silent(Squares):
        def __getitem__(self, index: int) -> int:
            raise AssertionError("read")

    silent = Silent()
    assert IndexableSource(silent).fingerprint()["count"] == 10
    silent._fingerprint = "one"  # type: ignore[attr-defined]
    one = IndexableSource(silent).fingerprint()
    silent._fingerprint = "two"  # type: ignore[attr-defined]
    assert IndexableSource(silent).fingerprint() != one


def test_label_and_describe_name_the_type() -> None:
    source = IndexableSource(Squares())
    assert source.label() == "from_source(Squares, 10 elements)"
    assert source.describe(4) == "element 4 of Squares"


class Named(NamedTuple):
    path: str
    label: int


LISTS: dict[str, list[Any]] = {
    "texts": [f"image_{i}.jpg" for i in range(3000)],
    "lone surrogates": ["\udcff.jpg"] * 10,
    "bytes": [bytes(i % 300) for i in range(3000)],
    "numbers": [*range(-5, 2000), 1.5, True, None, 2**80],
    "tuples": [(f"image_{i}.jpg", i % 10) for i in range(1024)],
    "rows": [{"path": f"image_{i}.jpg", "labels": [i, {i}], "weight": 0.5} for i in range(1025)],
    "objects": [Named(f"image_{i}.jpg", i) for i in range(20)],
    "texts, and one object": [*map(str, range(1500)), Named("", 1), *map(str, range(1500))],
    "nothing": [],
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("protocol", [4, 5])
def test_a_list_in_another_process_has_the_same_elements(kind: str, protocol: int) -> None:
    elements = LISTS[kind]
    for source in (IndexableSource(elements), IndexableSource(tuple(elements))):
        arrived = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(source, protocol)), protocol))
        indices = list(range(len(elements)))[::-7]
        rows: list[Any] = []
        arrived.gather(indices, rows)
        assert rows == [elements[index] for index in indices]
        assert list(map(type, rows)) == [type(elements[index]) for index in indices]
        assert (len(arrived), arrived.fingerprint(), arrived.label()) == (len(source), source.fingerprint(), source.label())


@pytest.mark.parametrize("kind", ["texts", "bytes", "numbers", "tuples", "rows"])
def test_elements_of_a_list_travel_in_arrays_which_processes_share(kind: str) -> None:
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(IndexableSource(LISTS[kind]), protocol=5, buffer_callback=buffers.append)
    assert len(stream) < 2000
    assert sum(buffer.raw().nbytes for buffer in buffers) > len(LISTS[kind])


def test_arrays_in_a_list_stay_arrays_that_processes_share() -> None:
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(IndexableSource([np.arange(1000)] * 3), protocol=5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [8000]


def test_a_large_object_that_elements_share_travels_once() -> None:
    document = "a" * 100_000
    assert len(pickle.dumps(IndexableSource([(document, start) for start in range(3000)]), protocol=5)) < 200_000


def test_an_element_that_is_changed_is_read_unchanged_again() -> None:
    source = pickle.loads(pickle.dumps(IndexableSource([{"path": "a"}, {"path": "b"}])))
    for _ in range(2):
        rows: list[Any] = []
        source.gather([1], rows)
        assert rows == [{"path": "b"}]
        rows[0]["path"] = "changed"


def test_a_pickler_that_takes_only_so_much_stops_long_before_the_end_of_a_list() -> None:
    class Full(Exception):
        pass

    def refuse(buffer: pickle.PickleBuffer) -> None:
        raise Full

    source = IndexableSource([f"{i:1000}" for i in range(30_000)])
    tracemalloc.start()
    try:
        with pytest.raises(Full):
            pickle.dumps(source, protocol=5, buffer_callback=refuse)
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
