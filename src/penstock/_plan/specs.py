"""What the elements of a plan are, taken from the declarations of its maps as far as they reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock._contracts.element import ArraySpec, map_leaves, unflatten
from penstock._contracts.source import ColumnSource
from penstock._plan.length import INFINITE, length_of, walk
from penstock._plan.node import (
    AnyBatch,
    Batch,
    BucketByLength,
    Cache,
    Concatenate,
    Enumerate,
    Filter,
    Interleave,
    Map,
    Mix,
    Node,
    PaddedBatch,
    Pick,
    Prefetch,
    RaggedBatch,
    Read,
    RejectionResample,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    Take,
    Window,
    Zip,
)
from penstock.errors import PlanError

__all__ = ["declared", "free_dimensions", "known_spec", "spec_of_plan"]


def declared(tree: Any) -> Any:
    """Return a declaration with its dtypes as they stand in a batch: those of str and bytes are object.

    Raises:
        PlanError: it is no tree of dict, tuple and list over `ArraySpec`, or a size is no size.
    """
    return _declared(tree, "")


def _declared(tree: Any, path: str) -> Any:
    if isinstance(tree, ArraySpec):
        return _checked_leaf(tree, path)
    if isinstance(tree, dict):
        return {key: _declared(child, f"{path}[{key!r}]") for key, child in tree.items()}
    if isinstance(tree, (tuple, list)):
        children = [_declared(child, f"{path}[{place}]") for place, child in enumerate(tree)]
        plain = type(tree) in (tuple, list)
        return type(tree)(children) if plain else type(tree)(*children)
    raise _refusal(f"output_spec{path} is {tree!r}, which is no ArraySpec")


def _checked_leaf(spec: ArraySpec, path: str) -> ArraySpec:
    sizes = spec.shape
    if not isinstance(sizes, (tuple, list)):
        raise _refusal(f"output_spec{path} has the shape {sizes!r}, which is no tuple of sizes")
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError as error:
        raise _refusal(f"output_spec{path} has the dtype {spec.dtype!r}, which NumPy does not know") from error
    for size in sizes:
        if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0):
            raise _refusal(f"output_spec{path} has the size {size!r}, which is neither a whole number >= 0 nor None")
    return _leaf(ArraySpec(tuple(None if size is None else int(size) for size in sizes), dtype))


def _leaf(spec: ArraySpec) -> ArraySpec:
    """Return a spec with the dtype that stands in a batch."""
    return ArraySpec(spec.shape, np.dtype(object)) if spec.dtype.kind in "US" else spec


def _refusal(what: str) -> PlanError:
    return PlanError(
        what,
        where="map(output_spec=...)",
        fix="give a tree as ds.spec() shows: dict, tuple or list over ps.ArraySpec(shape, dtype), such as "
        "{'image': ps.ArraySpec((None, None, 3), np.uint8), 'label': ps.ArraySpec((), np.int64)}",
    )


def spec_of_plan(root: Node, run: Callable[[Node], Any]) -> Any:
    """Return the tree of specs of the plan's elements.

    What is declared is not computed; `run(node)` finds the spec of a part for which nothing is declared by computing an element of it.
    Sizes that a declaration leaves open are None; so is the number of rows of a batch that only reading can tell.
    """
    if not any(isinstance(node, Map) and node.output_spec is not None for node in walk(root)):
        return run(root)
    try:
        return _derived(root, lambda child: spec_of_plan(child, run))
    except _OnlyByComputing:
        pass  # an error of `run` has no context then
    return run(root)


def known_spec(root: Node) -> Any | None:
    """Return the tree of specs of the plan's elements as far as sources of arrays and maps declare it, None elsewhere; reads nothing."""
    try:
        return _known(root)
    except _OnlyByComputing:
        return None


class _OnlyByComputing(Exception):
    """Nothing is declared: the spec is that of an element."""


def _known(node: Node) -> Any:
    if isinstance(node, Read) and isinstance(node.source, ColumnSource):
        return unflatten(node.source.structure(), (_leaf(ArraySpec(shape, dtype)) for shape, dtype in node.source.leaves()))
    return _derived(node, _known)


def _derived(root: Node, of: Callable[[Node], Any]) -> Any:
    """Return what a node makes of the specs `of` the nodes below it.

    Raises:
        _OnlyByComputing: they do not say.
    """
    match root:
        case Map() if root.output_spec is not None:
            return root.output_spec
        case Filter() | RejectionResample() | Shuffle() | Shard() | Take() | Skip() | Repeat() | Pick() | Prefetch() | Cache():
            return of(root.child)
        case Enumerate():
            return ArraySpec((), np.dtype(np.int64)), of(root.child)
        case Zip():
            return tuple(of(child) for child in root.children)
        case Concatenate() | Mix() | Interleave():
            return of(next((child for child in root.children if length_of(child) != 0), root.children[0]))
        case Batch(collate_fn=None) | Window():
            return _stacked(of(root.child), _rows(root))
        case PaddedBatch() if root.padded_shapes is None:
            return _stacked(of(root.child), _rows(root))
    raise _OnlyByComputing


def free_dimensions(root: Node) -> Callable[[int], bool]:
    """Return what tells whether dimension d of an array may differ between the elements of a plan."""
    batches = [node for node in walk(root) if isinstance(node, AnyBatch | BucketByLength | Window)]
    if any(isinstance(node, PaddedBatch | RaggedBatch | BucketByLength) or getattr(node, "collate_fn", None) for node in batches):
        return lambda place: True
    may_be_short = bool(batches) and not batches[-1].drop_remainder
    return lambda place: place == 0 and may_be_short


def _stacked(tree: Any, rows: int | None) -> Any:
    return map_leaves(lambda leaf: ArraySpec((rows, *leaf.shape), leaf.dtype), tree)


def _rows(node: Batch | PaddedBatch | Window) -> int | None:
    """Return how many elements the first batch or window has."""
    size, stride = (node.size, node.stride) if isinstance(node, Window) else (node.batch_size, 1)
    length = length_of(node.child)
    if node.drop_remainder or length == INFINITE:
        return size
    return None if length is None else min(size, -(-int(length) // stride))
