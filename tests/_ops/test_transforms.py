from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch
from penstock._ops.block import Block, ElementFailed
from penstock._ops.collation import Stack
from penstock._ops.map import Step, TransformsOp
from penstock._ops.rows import Rows
from penstock._ops.stack import BatchSpec
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError
from penstock.sources.arrays import ArraySource

NUM_ELEMENTS = 6
IMAGES = np.random.default_rng(0).integers(0, 256, (NUM_ELEMENTS, 8, 8, 3), np.uint8)
LABELS = np.arange(NUM_ELEMENTS)


@dataclass(frozen=True)
class Brighten:
    """Add a random number; the result lies in scratch whenever scratch is lent."""

    field: str = "image"
    out_field: str = "image"
    num_draws: int = 1

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        return self._added(value, draws[0], scratch, out)

    def _added(self, values: Any, number: Any, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        target = out if out is not None and out.shape == values.shape and out.dtype == np.float64 else np.empty(values.shape)
        if scratch is not None and out is None:
            target = scratch.take("brighten", values.shape, np.float64)
        target[...] = values + number
        return target


@dataclass(frozen=True)
class BrightenBlocks(Brighten):
    def apply_block(self, values: Any, draws: Any, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any] | None:
        return self._added(values, draws.reshape(-1, *[1] * (values.ndim - 1)), scratch, out)


@dataclass(frozen=True)
class Refusing(BrightenBlocks):
    def apply_block(self, values: Any, draws: Any, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any] | None:
        return None


@dataclass(frozen=True)
class PutOff(Brighten):
    """Write nothing before the end of the block."""

    def writer(self) -> PutOffWriter:
        return PutOffWriter(self)


class PutOffWriter:
    def __init__(self, of: PutOff) -> None:
        self.of, self.left = of, list[tuple[Any, NDArray[Any]]]()

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch, out: NDArray[Any]) -> NDArray[Any]:
        if out.shape != value.shape or out.dtype != np.float64:
            return self.of.apply(value, draws, None, None)
        self.left.append((value + draws[0], out))
        return out

    def finish(self) -> None:
        for value, out in self.left:
            out[...] = value


@dataclass(frozen=True)
class View(Brighten):
    """Hand back a view of its input, as a crop does."""

    num_draws: int = 0

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        result: NDArray[Any] = value[1:]
        if out is not None and out.shape == result.shape and out.dtype == result.dtype:
            out[...] = result
            return out
        return result.copy() if out is not None else result


def steps(*transforms: Any) -> tuple[Step, ...]:
    return tuple(
        Step(transform, f"step{place}", 7, place + 1, not any(later.out_field == transform.out_field for later in transforms[place + 1 :]))
        for place, transform in enumerate(transforms)
    )


def one_by_one(*transforms: Any) -> list[TransformsOp]:
    return [
        TransformsOp((Step(transform, f"step{place}", 7, place + 1, True),), place, False) for place, transform in enumerate(transforms)
    ]


def fused(*transforms: Any, blockwise: bool = False) -> TransformsOp:
    return TransformsOp(steps(*transforms), 9, blockwise)


def block(kind: str) -> Block:
    epochs, indices, lanes = np.arange(NUM_ELEMENTS) % 2, np.arange(NUM_ELEMENTS), np.zeros(NUM_ELEMENTS, np.uint64)
    if kind == "columns":
        source = ArraySource({"image": IMAGES, "label": LABELS})
        return Block(epochs, indices, lanes, source=source, column_source=source)
    rows = [{"image": image, "label": label} for image, label in zip(IMAGES, LABELS, strict=True)]
    return Block(epochs, indices, lanes, rows=rows)


def up(operators: Sequence[TransformsOp]) -> list[Any]:
    found, worker = block("rows"), WorkerContext(0)
    for operator in operators:
        found = operator.apply(found, found.epochs, found.indices, worker)
    return found.rows()


def into(operator: TransformsOp, kind: str, guess: Any) -> Any:
    spec = None if guess is None else BatchSpec(guess, lambda: "guess")
    rows = Rows([NUM_ELEMENTS], spec, lambda wanted: [np.full(s, 9, d) for s, d in wanted], str, Stack())
    worker = WorkerContext(0)
    whole = block(kind)
    rows_of = whole.rows() if kind == "rows" else None
    for part in (slice(3, 6), slice(0, 3)):
        if rows_of is not None:
            given = whole.select(part)
        else:
            source = ArraySource({"image": IMAGES, "label": LABELS})
            given = Block(whole.epochs[part], whole.indices[part], whole.lanes[part], source=source, column_source=source)
        operator.apply_into(given, worker, rows, part.start)
    return rows.finish(1)[0]


def same(one: Any, other: Any) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in one)


CHAINS = {
    "one": (BrightenBlocks(),),
    "two": (BrightenBlocks(), BrightenBlocks()),
    "refused in the middle": (BrightenBlocks(), Refusing(), BrightenBlocks()),
    "rows only": (Brighten(), View(), Brighten()),
    "view last": (Brighten(), View()),
    "views only": (View(), View()),
    "another field": (Brighten(out_field="bright"), View(), Brighten()),
    "two results of one": (Brighten(), View(out_field="cut"), Brighten()),
    "put off": (View(), PutOff()),
    "put off, and read": (PutOff(), View(out_field="cut")),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("guess", [None, "right", {"image": np.zeros(2), "label": 1}, {"z": 3}], ids=["none", "right", "wrong", "other"])
def test_writing_into_the_batch_gives_what_stacking_the_results_gives(chain: Any, kind: str, guess: Any) -> None:
    expected = up(one_by_one(*chain))
    blockwise = all(hasattr(transform, "apply_block") for transform in chain)
    batch = into(fused(*chain, blockwise=blockwise), kind, expected[0] if guess == "right" else guess)
    assert set(batch) == set(expected[0])
    for key in batch:
        assert np.array_equal(batch[key], np.stack([row[key] for row in expected]))


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_fused_chain_gives_what_one_operator_at_a_time_gives_in_memory_of_each_element(chain: Any, kind: str, whole: bool) -> None:
    blockwise = whole and all(hasattr(transform, "apply_block") for transform in chain)
    operator, worker, found = fused(*chain, blockwise=blockwise), WorkerContext(0), block(kind)
    first = operator.apply(found, found.epochs, found.indices, worker).rows()
    assert all(map(same, first, up(one_by_one(*chain))))
    before = [{key: np.array(value) for key, value in row.items()} for row in first]
    again = block(kind)
    operator.apply(again, again.epochs, again.indices, worker).rows()
    assert all(map(same, before, first))
    arrays = [value for row in first for key, value in row.items() if isinstance(value, np.ndarray) and key != "label"]
    for place, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[place + 1 :])


class Full:
    """Rows of which each takes ten bytes of room, though all of them go into one array."""

    small = False

    def __init__(self) -> None:
        self.images = np.full((NUM_ELEMENTS, 8, 8, 3), 9.0)

    def array_of(self, field: str) -> Any:
        return self.images if field == "image" else None

    def put(self, row: int, element: Any, done: str | None = None) -> int:
        assert done == "image"
        return 10


def test_a_block_that_ends_early_has_written_what_it_has_taken() -> None:
    written = []
    for operator in (fused(PutOff()), fused(Brighten())):
        given, sink = block("rows"), Full()
        given.room = 25
        assert operator.apply_into(given, WorkerContext(0), sink, 1) == (3, 30)  # type: ignore[arg-type]
        written.append(sink.images)
    assert np.array_equal(*written)
    assert (written[0][4:] == 9).all()


def test_what_stands_behind_a_failure_and_is_not_written_is_written_by_no_later_block() -> None:
    operator, worker, sink = fused(Failing(), PutOff()), WorkerContext(0), Full()
    with pytest.raises(ElementFailed) as caught:
        operator.apply_into(block("rows"), worker, sink, 0)  # type: ignore[arg-type]
    assert caught.value.offset == 3
    assert (sink.images == 9).all()
    operator.apply_into(block("rows").select(slice(0, 2)), worker, Full(), 0)  # type: ignore[arg-type]
    assert (sink.images == 9).all()


# -- failures -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failing(View):
    def apply(self, value: Any, draws: Any, scratch: Any, out: Any) -> NDArray[Any]:
        if value[0, 0, 0] == IMAGES[3, 0, 0, 0]:
            raise OverflowError("too bright")
        return np.asarray(value)


def failure(operator: TransformsOp, given: Block) -> ElementFailed:
    with pytest.raises(ElementFailed) as caught:
        operator.apply(given, given.epochs, given.indices, WorkerContext(0)).rows()
    return caught.value


def test_a_missing_field_is_named_with_those_that_there_are() -> None:
    error = failure(fused(Brighten(), View(field="mask")), block("rows")).error
    assert isinstance(error, SpecError)
    assert error.what == "step1 reads the field 'mask', but the element has ['image', 'label']"
    assert "name one of the fields that the element has" in error.fix


def test_an_element_that_is_no_dict_is_named_with_its_type() -> None:
    error = failure(fused(Brighten()), block("rows").with_rows([IMAGES[0]] * NUM_ELEMENTS)).error
    assert "step0 reads the field 'image' of a dict, but the element is a ndarray" in str(error)
