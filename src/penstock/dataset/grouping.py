"""Builder methods that make one element of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock._contracts.arguments import listed, whole_number
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.functions import function_name
from penstock.dataset.chaining import Chaining
from penstock.dataset.padding import check_padding, check_padding_value
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.dataset.builder import Dataset

__all__ = ["GroupMethods"]


class GroupMethods(Chaining):
    """Batches and their kin."""

    __slots__ = ()

    def batch(self, batch_size: int, drop_remainder: bool = False, collate_fn: Callable[[list[Any]], Any] | None = None) -> Dataset:
        """Stack `batch_size` elements along a new first dimension.

        Each field becomes an array (batch_size, *shape); Python numbers become int64, float64 or bool; str and bytes become object arrays.
        A list of numbers is an array.
        The arrays lie over recycled memory: they stay valid and unchanged as long as you, or any view or tensor over them, hold them.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to leave out the last batch of a pass when it is not full.
            collate_fn: makes a batch of a list of elements, in a worker, instead of stacking them, as DataLoader's does. Where it only
                pads or joins, `padded_batch` and `ragged_batch` cost less.
        """
        size = check.count_argument(batch_size, "batch_size", "batch", least=1)
        if collate_fn is not None:
            check.callable_argument(collate_fn, "batch")
        drops = _drops(drop_remainder, "batch")
        return self._with(plan.Batch(child=self._root, batch_size=size, drop_remainder=drops, collate_fn=collate_fn))

    def padded_batch(self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False) -> Dataset:
        """Like `batch`, for elements whose arrays differ in length: each dimension is padded to the longest of the batch.

        Args:
            batch_size: elements per batch.
            padded_shapes: a shape, or a tree of shapes like the element, to pad to; None or -1 in a shape stands for the longest, and so
                does a field that is left out.
            padding_values: a number, or a tree like the element with a value for each field; 0 by default. A value that a field's dtype
                does not hold as it is is an error at the first batch; only a float may be rounded.
            drop_remainder: as in `batch`.

        Raises:
            PlanError: when a shape is no tuple of whole numbers, or a padding value no single value.
        """
        size = check.count_argument(batch_size, "batch_size", "padded_batch", least=1)
        check_padding("padded_batch", padded_shapes, padding_values)
        node = plan.PaddedBatch(
            child=self._root,
            batch_size=size,
            drop_remainder=_drops(drop_remainder, "padded_batch"),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )
        return self._with(node)

    def bucket_by_length(
        self,
        length_fn: Callable[[Any], int],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        *,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Make padded batches of elements of like lengths: less padding than in a `padded_batch` of whatever comes.

        A batch comes as soon as its bucket is full; at the end of a pass what is left comes bucket by bucket. A saved state holds the
        numbers of the waiting elements, and a resume reads them again. tf.data calls it bucket_by_sequence_length.

        Args:
            length_fn: returns an element's length.
            bucket_boundaries: ascending; bucket b takes lengths from boundary b-1 up to, not including, boundary b.
            bucket_batch_sizes: batch size of each bucket, one more than boundaries.
            padded_shapes: as in `padded_batch`.
            padding_values: as in `padded_batch`.
            drop_remainder: whether to leave out the batches of a pass that are not full.
            name: of the stage in errors and figures; the function's name by default.
        """
        check.callable_argument(length_fn, "bucket_by_length")
        check.no_rng(length_fn, "bucket_by_length")
        boundaries = check.counts_argument(bucket_boundaries, "bucket_boundaries", "bucket_by_length", least=1)
        sizes = check.counts_argument(bucket_batch_sizes, "bucket_batch_sizes", "bucket_by_length", least=1)
        check_padding("bucket_by_length", padded_shapes, padding_values)
        if list(boundaries) != sorted(set(boundaries)) or len(sizes) != len(boundaries) + 1:
            raise PlanError(
                f"bucket_boundaries={list(boundaries)} with bucket_batch_sizes={list(sizes)}",
                where="bucket_by_length()",
                fix="give ascending boundaries, and one batch size more than boundaries",
            )
        node = plan.BucketByLength(
            child=self._root,
            fn=length_fn,
            name=name or function_name(length_fn),
            boundaries=boundaries,
            batch_sizes=sizes,
            drop_remainder=_drops(drop_remainder, "bucket_by_length"),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )
        return self._with(node)

    def pack_sequences(self, length: int, *, num_bins: int = 64, split: bool = False, padding_value: Any = 0) -> Dataset:
        """Put several sequences side by side in rows of `length` tokens, so that little padding is trained on.

        A sequence is an array of one dimension, or a dict of such arrays of equal lengths (tokens, labels, masks). A row is a dict of the
        same fields ("tokens" for a bare array), each [length], with `segment_ids` int32 [length] (1, 2, ... for each sequence, 0 for
        padding) and `positions` int32 [length] (counted from 0 in each sequence). `feed.stats()` says what share is padding.

        Args:
            length: tokens per row.
            num_bins: open rows: a sequence goes whole into the first that has room; when none has, the fullest one is delivered (first
                fit). A longer sequence than `length` is an error, one of no tokens is left out.
            split: put the sequences one after the other instead, and cut them where a row is full: no padding but in the last row of
                a pass. The parts of a cut sequence are segments of their own.
            padding_value: of the fields behind the last token; each field's dtype must hold it as it is, and 0 is the empty value of texts.
        """
        check_padding_value("pack_sequences", padding_value)
        bins = check.count_argument(num_bins, "num_bins", "pack_sequences", least=1)
        node = plan.PackSequences(
            child=self._root,
            length=check.count_argument(length, "length", "pack_sequences", least=1),
            num_bins=None if check.flag_argument(split, "split", "pack_sequences") else bins,
            padding_value=padding_value,
        )
        return self._with(node)

    def ragged_batch(self, batch_size: int, drop_remainder: bool = False, ragged: Sequence[str | int] | None = None) -> Dataset:
        """Like `batch`, for elements whose arrays differ in length: they are joined one after the other, with nothing between them.

        A joined field becomes {"values": array, "row_splits": int64 array of batch_size + 1 borders}: row i is
        values[row_splits[i]:row_splits[i + 1]], as in tf.RaggedTensor, Arrow lists and torch nested tensors. Only the first dimension may
        differ. Which fields are joined does not depend on the elements of a batch, so all batches have one structure.

        Args:
            batch_size: elements per batch.
            drop_remainder: as in `batch`.
            ragged: the fields to join: keys of the elements' dict or places in their tuple, with all that is below them; the others are
                stacked, and must be equal in shape. By default every array that has a dimension is joined.

        Raises:
            PlanError: when `ragged` is no list of names and places.
        """
        size = check.count_argument(batch_size, "batch_size", "ragged_batch", least=1)
        fields = None if ragged is None else _fields(ragged)
        drops = _drops(drop_remainder, "ragged_batch")
        return self._with(plan.RaggedBatch(child=self._root, batch_size=size, drop_remainder=drops, ragged=fields))

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False) -> Dataset:
        """Make each element a window over neighbours: elements i * shift + stride * j for j below `size`, stacked as `batch` stacks them.

        tf.data makes a small dataset of each window; here a window is one element with a new first dimension. Where positions are known,
        window i is arithmetic: `ds[i]`, `len`, `shuffle` and `shard` above it work, it has no state, and an element that stands in several
        windows is computed for each of them. Behind a filter, flat_map or generator each element is computed once, and a saved state holds
        the numbers of those in the open window.

        Args:
            size: elements per window.
            shift: how far each window lies behind the one before; `size` by default, so that windows do not overlap.
            stride: the distance of neighbours inside a window.
            drop_remainder: whether to leave out windows that are not full. Otherwise one begins at every `shift` as long as there is an
                element, and those at the end of a pass are short.
        """
        size = check.count_argument(size, "size", "window", least=1)
        node = plan.Window(
            child=self._root,
            size=size,
            shift=size if shift is None else check.count_argument(shift, "shift", "window", least=1),
            stride=check.count_argument(stride, "stride", "window", least=1),
            drop_remainder=_drops(drop_remainder, "window"),
        )
        return self._with(node)


def _drops(drop_remainder: Any, operator: str) -> bool:
    return check.flag_argument(drop_remainder, "drop_remainder", operator)


def _fields(ragged: Any) -> tuple[str | int, ...]:
    """Return the keys and places of fields."""
    items = listed(ragged)
    fields = [field if isinstance(field, str) else whole_number(field) for field in items or ()]
    if items is None or None in fields:
        raise PlanError(
            f"ragged={ragged!r} is no list of fields",
            where="ragged_batch()",
            fix='give the keys of the fields to join, such as ragged=("tokens",), or leave it out to join every array',
        )
    return tuple(field for field in fields if field is not None)
