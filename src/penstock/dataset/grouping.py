"""Builder methods that make one element of several."""

from __future__ import annotations

from typing import Any, Self

from penstock._plan import check
from penstock._plan import node as plan
from penstock.dataset.chaining import Chaining

__all__ = ["GroupMethods"]


class GroupMethods(Chaining):
    """Batches and their kin."""

    __slots__ = ()

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Self:
        """Stack `batch_size` elements along a new first dimension.

        Each leaf becomes an array (batch_size, *shape); Python numbers become int64, float64 or bool; str and bytes become object arrays.
        The arrays lie over recycled memory: they stay valid and unchanged as long as you, or any view or tensor over them, hold them.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to leave out the last batch of a pass when it is not full.
        """
        size = check.count_argument(batch_size, "batch_size", "batch", least=1)
        return self._with(plan.Batch(child=self._root, batch_size=size, drop_remainder=bool(drop_remainder)))

    def padded_batch(self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False) -> Self:
        """Like `batch`, for elements whose arrays differ in length: each dimension is padded to the longest of the batch.

        Args:
            batch_size: elements per batch.
            padded_shapes: a shape, or a tree of shapes like the element, to pad to; None or -1 in a shape stands for the longest.
            padding_values: a number, or a tree like the element; 0 by default.
            drop_remainder: as in `batch`.
        """
        size = check.count_argument(batch_size, "batch_size", "padded_batch", least=1)
        node = plan.PaddedBatch(
            child=self._root,
            batch_size=size,
            drop_remainder=bool(drop_remainder),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )
        return self._with(node)
