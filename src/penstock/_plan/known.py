"""The kinds of nodes that known numbers decide: what is measured, what is chosen of it, and what becomes one row or batch.

Their positions are arithmetic, as those of a source are. What stands below must be the same in every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np

from penstock._contracts.source import ColumnSource
from penstock._order.arithmetic import Length
from penstock._order.mixing import History
from penstock._order.planned import PlannedOrder, SampledOrder
from penstock._plan.base import GroupNode, Ints, Node, SelectingNode, UnaryNode, function_name

__all__ = ["BatchByCost", "Chosen", "Measure", "PackSequences", "PackedRows", "PlannedBatches", "PlannedNode"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure(SelectingNode):
    """The same elements, of which some numbers are known: a column for each name."""

    aligned: ClassVar[bool] = True
    is_hint: ClassVar[bool] = True
    moves_as: ClassVar[str] = "same"

    columns: Mapping[str, ColumnSource] = field()

    @property
    def known_numbers(self) -> Mapping[str, ColumnSource]:
        return self.columns

    def given_below(self, position: int) -> Sequence[int | None]:
        return [None]  # its columns are of one order

    def line(self, *, saved: bool = False) -> str:
        return f"measure({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedNode(UnaryNode):
    """A node of an order that numbers decide: `words` say how, and `mark` is a check sum of the numbers."""

    order: PlannedOrder | SampledOrder
    words: str
    mark: str
    again: Callable[[Node], Node] | None = None
    """Makes the node for a child whose mixes have other weights from some place on; None where it cannot go on with these."""

    def with_history(self, history: History | None, children: Sequence[Node]) -> Self:
        if self.again is None or children[0] is self.child:
            return self.with_children(children)
        return cast(Self, self.again(children[0]))

    def given_below(self, position: int) -> Sequence[int | None]:
        return [self.order.given(position) if self.again is not None and isinstance(self.order, PlannedOrder) else None]

    def line(self, *, saved: bool = False) -> str:
        return f"{self.words}{f' of {self.mark}' if saved else ''}"

    def identity(self) -> str:
        return self.line(saved=True)

    def values(self) -> tuple[Any, ...]:
        return type(self).__name__, 1, self.line(saved=True)

    def num_elements(self, below: Sequence[Length]) -> Length:
        return len(self.order)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen(PlannedNode):
    """Some elements, in their order or in another."""

    selects: ClassVar[bool] = True

    @property
    def changes_order(self) -> bool:
        return self.order.varies or isinstance(self.order, SampledOrder)

    @property
    def varies(self) -> bool:
        return self.order.varies


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedRows(PlannedNode):
    """Rows of `length` tokens of several sequences."""

    groups_elements: ClassVar[bool] = True
    starts_chain: ClassVar[bool] = True

    order: PlannedOrder
    length: int
    padding_value: Any
    positions: str

    def group_starts(self) -> Ints | None:
        return np.unique(self.order.starts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedBatches(PlannedNode):
    """Padded batches of elements of like numbers."""

    groups_elements: ClassVar[bool] = True
    makes_batches: ClassVar[bool] = True
    starts_chain: ClassVar[bool] = True
    may_be_short: ClassVar[bool] = True
    any_shape: ClassVar[bool] = True

    order: PlannedOrder
    padded_shapes: Any
    padding_values: Any
    multiple: int

    def group_starts(self) -> Ints | None:
        return np.unique(self.order.starts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchByCost(GroupNode):
    """Padded batches of a stream's elements by a budget: `fn(element)` says what one costs."""

    streams: ClassVar[bool] = True

    fn: Callable[[Any], Any]
    name: str
    most: int
    pool: int
    multiple: int
    padded_shapes: Any
    padding_values: Any

    def line(self, *, saved: bool = False) -> str:
        fn = self.name if saved else function_name(self.fn)
        padding = self._padding_words(self.padded_shapes, self.padding_values)
        return f"batch_by_cost({fn}, {self.most}, pool={self.pool}, pad_to_multiple_of={self.multiple}{padding})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackSequences(UnaryNode):
    """Rows of `length` tokens of several sequences: whole ones in up to `num_bins` open rows; with None, cut where a row is full."""

    streams: ClassVar[bool] = True
    groups_elements: ClassVar[bool] = True

    length: int
    num_bins: int | None
    padding_value: Any
    positions: str = "segment"

    def line(self, *, saved: bool = False) -> str:
        return self.words("split=True" if self.num_bins is None else f"num_bins={self.num_bins}")

    def words(self, how: str) -> str:
        """Return the call with the arguments that say which sequences share a row as `how` has them."""
        positions = "" if self.positions == "segment" else f", positions={self.positions!r}"
        return f"pack_sequences({self.length}, {how}, padding_value={self.padding_value!r}{positions})"
