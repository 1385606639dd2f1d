"""Folds: small deterministic machines that number what is left after `filter` or `flat_map`, in position order, at one place.

A fold sees one item at a time and the ends of passes. Its state is a JSON value and holds counts, never elements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from penstock import kernels
from penstock._system.lazy import dataclass
from penstock.errors import PlanError

__all__ = [
    "BatchFold",
    "EnumerateFold",
    "Even",
    "Fold",
    "RankFold",
    "RepeatFold",
    "ResampleFold",
    "ShardFold",
    "SkipFold",
    "TakeFold",
    "acceptance",
    "marked",
    "uneven",
]


Item = Any
Even: TypeAlias = Literal["drop", "pad", "mask", "error"]


class Fold:
    """(state, item) -> (state, what comes out). If it says no more, its state is a count that begins at 0 in each pass."""

    __slots__ = ()

    def initial(self, pass_number: int = 0) -> Any:
        """Return the state before the first item of a pass."""
        return 0

    @abstractmethod
    def push(self, state: Any, item: Item) -> tuple[Any, Sequence[Item]]:
        """Take one item."""

    def restart(self, state: Any) -> Any:
        """Return the state of the next pass when this one is cut off."""
        return self.initial()

    def end(self, state: Any) -> tuple[Any, Sequence[Item], bool]:
        """Take the end of a pass: return (state of the next pass, what comes out before it, whether the end goes on upwards)."""
        return self.restart(state), (), True

    def closed(self, state: Any) -> bool:
        """Tell whether nothing more can come out of this pass."""
        return False


@dataclass(frozen=True, slots=True)
class TakeFold(Fold):
    """The first `count` items of each pass. State: how many were seen. `repeated` tells that a repeat stands somewhere above."""

    count: int
    repeated: bool = False

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return (state + 1, (item,)) if state < self.count else (state, ())

    def closed(self, state: int) -> bool:
        return state >= self.count


@dataclass(frozen=True, slots=True)
class SkipFold(Fold):
    """All but the first `count` items of each pass. State: how many were skipped."""

    count: int

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return (state, (item,)) if state >= self.count else (state + 1, ())


@dataclass(frozen=True, slots=True)
class ShardFold(Fold):
    """Every `num_shards`-th item, beginning with item `index`. State: the number of the next item, modulo num_shards."""

    num_shards: int
    index: int

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return (state + 1) % self.num_shards, ((item,) if state == self.index else ())


@dataclass(frozen=True, slots=True)
class RankFold(Fold):
    """The item number `rank` of each round of `num_ranks` items, when the round is complete: all ranks give as many.

    Of a last round that is not complete "drop" gives nothing, and "pad" gives the first items again to the ranks that have none. So does
    "mask", which makes a `pair` of each item and whether it is none of these. State: the items of the round, none whenever something comes
    out. So a saved state is a place between rounds, and any number of ranks can go on.
    """

    num_ranks: int
    rank: int
    even: Even
    pair: Callable[[bool, Item], Item] = lambda valid, item: (valid, item)

    def initial(self, pass_number: int = 0) -> list[Item]:
        return []

    def push(self, state: list[Item], item: Item) -> tuple[list[Item], Sequence[Item]]:
        state.append(item)
        return ([], self._own(state)) if len(state) == self.num_ranks else (state, ())

    def end(self, state: list[Item]) -> tuple[list[Item], Sequence[Item], bool]:
        """Raise a PlanError for a last round that is not complete, where `even` says so."""
        if state and self.even == "error":
            raise uneven(self.num_ranks, len(state))
        return [], (self._own(state) if state and self.even != "drop" else ()), True

    def _own(self, state: list[Item]) -> tuple[Item]:
        item = state[self.rank % len(state)]
        return (self.pair(self.rank < len(state), item) if self.even == "mask" else item,)

    def padding(self, state: list[Item]) -> str:
        """Say how many ranks are given an element again at the end of a pass; "" for none."""
        num_left = len(state)
        if not num_left or self.even not in ("pad", "mask"):
            return ""
        return f"the last round of a pass had {num_left} elements, and repeated some of them for {self.num_ranks - num_left} of the ranks"


def uneven(num_ranks: int, num_left: int) -> PlanError:
    """Return the error of elements that cannot be shared out evenly."""
    return PlanError(
        f"the elements are no multiple of {num_ranks} ranks: {num_left} are left behind the last whole round",
        where="shard_by_rank(even='error')",
        fix="give even='drop' to leave them out, or even='pad' to repeat some of them",
    )


def marked(element: Any, valid: Any) -> dict[Any, Any]:
    """Return an element with the field that tells that it is no padding.

    Raises:
        PlanError: it has no fields, or has this one.
    """
    if isinstance(element, Mapping) and "valid" not in element:
        return {**element, "valid": valid}
    what = "has this field already" if isinstance(element, Mapping) else "is no dict"
    raise PlanError(
        f"even='mask' adds the field 'valid' to each element, but an element {what}",
        where="shard_by_rank(even='mask')",
        fix="call map() with a function that returns a dict without 'valid' before shard_by_rank()",
    )


@dataclass(frozen=True, slots=True)
class EnumerateFold(Fold):
    """Pairs (number, item), as `pair` makes them. State: the next number."""

    start: int
    pair: Callable[[int, Item], Item] = lambda number, item: (number, item)

    def initial(self, pass_number: int = 0) -> int:
        return self.start

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return state + 1, (self.pair(state, item),)


@dataclass(frozen=True, slots=True)
class BatchFold(Fold):
    """Lists of `batch_size` items. State: the items of the unfinished batch, which is empty whenever something comes out.

    So a saved state is [], and a resume never needs the elements of an unfinished batch. Behind a change of the batch size the state may
    be a number of items to leave out first: they stood in batches of the other size.
    """

    batch_size: int
    drop_remainder: bool

    def initial(self, pass_number: int = 0) -> list[Item]:
        return []

    def push(self, state: list[Item] | int, item: Item) -> tuple[list[Item] | int, Sequence[Item]]:
        if isinstance(state, int):
            return state - 1 or [], ()
        state.append(item)
        return ([], (state,)) if len(state) == self.batch_size else (state, ())

    def end(self, state: list[Item] | int) -> tuple[list[Item], Sequence[Item], bool]:
        return [], ((state,) if isinstance(state, list) and state and not self.drop_remainder else ()), True


@dataclass(frozen=True, slots=True)
class RepeatFold(Fold):
    """The point where `repeat(count)` stands: ends of passes stop here until the last one. State: the number of the current pass."""

    count: int | None

    def push(self, state: int, item: Item) -> tuple[int, Sequence[Item]]:
        return state, (item,)

    def end(self, state: int) -> tuple[int, Sequence[Item], bool]:
        last = self.count is not None and state + 1 >= self.count
        return (0 if last else state + 1), (), last


State = dict[str, Any]


def acceptance(target: Sequence[float], initial: Sequence[float]) -> list[float]:
    """Return for each class the share of its items to keep: as many as possible such that the shares of what is kept become `target`.

    With r[c] = target[c] / initial[c] that is r[c] / max(r), as in tf.data's rejection_resample. A class that does not occur counts for
    nothing.
    """
    ratios = [wanted / found if found > 0 else 0.0 for wanted, found in zip(target, initial, strict=True)]
    most = max(ratios)
    return [ratio / most if most > 0 else 0.0 for ratio in ratios]


@dataclass(frozen=True, slots=True)
class ResampleFold(Fold):
    """Each item with the probability that its class needs; the draw depends on seed, pass and number of the item alone.

    Without `initial` the shares below are those of the items of the pass so far, this one included, one of each class added at the start:
    how many items of an earlier pass came this far, where a `take` above has cut it short, depends on how far it was read ahead.
    State: the numbers of the pass and of the items in it, and the counts of classes in it.
    """

    target: tuple[float, ...]
    initial_dist: tuple[float, ...] | None
    seed: int
    weight: Callable[[Item], int]
    bare: Callable[[Item], Item]

    def restart(self, state: State) -> State:
        return self.initial(state["pass"] + 1)

    def initial(self, pass_number: int = 0) -> State:
        return {"pass": pass_number, "seen": 0, "counts": [1] * len(self.target) if self.initial_dist is None else []}

    def push(self, state: State, item: Item) -> tuple[State, Sequence[Item]]:
        number = self.weight(item)
        counts = state["counts"]
        if self.initial_dist is None:
            counts = [count + (place == number) for place, count in enumerate(counts)]
        keep = acceptance(self.target, self.initial_dist or counts)[number]
        draw = kernels.mix(self.seed, state["pass"], state["seen"]) / 2**64
        return {"pass": state["pass"], "seen": state["seen"] + 1, "counts": counts}, ((self.bare(item),) if draw < keep else ())
