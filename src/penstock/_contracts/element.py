"""Elements: trees of dict, tuple and list over arrays, scalars, bytes and str; their structure and their spec."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "LEAF",
    "ArraySpec",
    "Structure",
    "bytes_of",
    "flatten",
    "is_masked",
    "kind_of",
    "leaf_paths",
    "map_leaves",
    "sizes_of",
    "spec_of",
    "structure_of",
    "unflatten",
]

LEAF = None
"""The structure of a leaf."""

Structure = Any
"""None for a leaf, ('dict', keys, children), ('tuple', type, children) or ('list', children)."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one leaf. A Python scalar has shape () and the dtype it becomes in a batch; str and bytes have dtype object.

    In a declaration, as in `map(fn, output_spec=...)`, a size of None stands for any, and `dtype` may be whatever `numpy.dtype` takes.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    if TYPE_CHECKING:

        def __init__(self, shape: Sequence[int | None], dtype: DTypeLike) -> None: ...

    def __repr__(self) -> str:
        dtype = np.dtype(self.dtype)  # a declaration may name it otherwise
        plain = dtype.isnative and dtype.names is None  # else two that differ could read the same
        return f"{dtype.name if plain else dtype}{list(self.shape)}"


def sizes_of(spec: ArraySpec) -> tuple[int, ...]:
    """Return the shape in the spec of an array, which has no size that is None."""
    return cast("tuple[int, ...]", spec.shape)


def structure_of(tree: Any) -> Structure:
    """Return the nesting of `tree` without its leaves; two elements fit one batch when these are equal.

    Classes made of dict, list and tuple count as these; only a named tuple stays what it is.
    """
    if not isinstance(tree, _NESTS):
        return LEAF
    kind = kind_of(tree)
    if kind is dict:
        return ("dict", tuple(tree), tuple(structure_of(value) for value in tree.values()))
    children = tuple(structure_of(value) for value in tree)
    return ("list", children) if kind is list else ("tuple", kind, children)


def kind_of(tree: Any) -> Any:
    """Return what `unflatten` makes of a tree's top: dict, list, tuple or the class of a named tuple; None for a leaf."""
    kind = type(tree)
    if kind in _NESTS:
        return kind
    if isinstance(tree, tuple):
        return kind if hasattr(kind, "_fields") else tuple
    return dict if isinstance(tree, dict) else list if isinstance(tree, list) else None


def flatten(tree: Any) -> list[Any]:
    """List the leaves of `tree`, depth first, dict entries in their own order."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in flatten(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in flatten(value)]
    return [tree]


def unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Build the tree of `structure` from an iterator over its leaves."""
    if structure is LEAF:
        return next(leaves)
    if structure[0] == "dict":
        # Nearly all children are leaves: a call for each would be most of what a batch of many columns costs.
        pairs = zip(structure[1], structure[2], strict=True)
        return {key: next(leaves) if child is LEAF else unflatten(child, leaves) for key, child in pairs}
    if structure[0] == "list":
        return [unflatten(child, leaves) for child in structure[1]]
    kind, children = structure[1], [unflatten(child, leaves) for child in structure[2]]
    return tuple(children) if kind is tuple else kind(*children)


def bytes_of(tree: Any) -> int:
    """Estimate the memory of an element: its arrays, bytes and texts, 8 bytes for any other leaf."""
    total = 0
    for leaf in flatten(tree):
        size = getattr(leaf, "nbytes", None)
        total += size if isinstance(size, int) else len(leaf) if isinstance(leaf, (bytes, str)) else 8
    return total


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return `tree` with `function` applied to every leaf."""
    return unflatten(structure_of(tree), iter([function(leaf) for leaf in flatten(tree)]))


def leaf_paths(structure: Structure, prefix: str = "") -> list[str]:
    """Name every leaf, such as "['image']" or "[0]['label']"; the empty string for a bare leaf."""
    if structure is LEAF:
        return [prefix]
    if structure[0] == "dict":
        return [path for key, child in zip(structure[1], structure[2], strict=True) for path in leaf_paths(child, f"{prefix}[{key!r}]")]
    children = structure[1] if structure[0] == "list" else structure[2]
    return [path for index, child in enumerate(children) for path in leaf_paths(child, f"{prefix}[{index}]")]


def spec_of(leaf: Any) -> ArraySpec:
    """Return the spec of one leaf as it will stand in a batch.

    str, bytes, arrays of them and what NumPy does not know have dtype object: nothing is ever cut to a common width. Tensors that offer
    `__array__` count as the array they become.
    """
    if isinstance(leaf, (np.ndarray, np.generic)):
        return ArraySpec(leaf.shape, _OBJECT if leaf.dtype.kind in "US" else leaf.dtype)
    kind = _SCALARS.get(type(leaf))
    if kind is not None:
        return ArraySpec((), kind)
    if hasattr(leaf, "__array__"):
        return spec_of(np.asarray(leaf))
    return ArraySpec((), _OBJECT)


def is_masked(value: Any) -> bool:
    """Tell whether a value is a masked array, whose mask a plain copy would lose. Does not import `numpy.ma` (12 ms) for it."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


_NESTS: Any = (dict, list, tuple)
_OBJECT = np.dtype(object)
_SCALARS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
