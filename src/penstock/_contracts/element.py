"""Elements: trees of dict, tuple and list over arrays, scalars, bytes and str; their structure and their spec.

Any other Mapping counts as the dict of its entries: a tokenizer's BatchEncoding, a FrozenDict, a TensorDict.

A list of numbers is an array wherever an element becomes part of a batch or of a spec: a leaf for `structure_of`, `flatten` and all that
follow them. `array_of` says which lists are, and makes the arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from penstock._system.failing import attempt

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


LEAF = None
"""The structure of a leaf."""

Structure = Any
"""None for a leaf, or what it is ("dict", list, tuple or the class of a named tuple), its keys or places, and its children."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of an array or field. A Python scalar has shape () and the dtype it becomes in a batch; a text has dtype object.

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

    Classes made of dict, list and tuple count as these; only a named tuple stays what it is. A list of numbers is a leaf.
    """
    kind = kind_of(tree)
    if kind is None:
        return LEAF
    if kind is dict:
        entries = entries_of(tree) or {}
        return ("dict", tuple(entries), tuple(structure_of(value) for value in entries.values()))
    return kind, range(len(tree)), tuple(structure_of(value) for value in tree)


def kind_of(tree: Any) -> Any:
    """Return what `unflatten` makes of a tree's top: dict, list, tuple or the class of a named tuple; None for a leaf."""
    kind = type(tree)
    if kind is dict or kind is tuple:
        return kind
    if kind in _LEAVES:
        return None
    if isinstance(tree, list):
        return list if _number_types(tree) is None else None
    if isinstance(tree, tuple):
        return kind if hasattr(kind, "_fields") else tuple
    return dict if isinstance(tree, Mapping) else None


def entries_of(tree: Any) -> dict[Any, Any] | None:
    """Return the dict that a tree's top is, or stands for as any Mapping does; None for anything else."""
    if isinstance(tree, dict):
        return tree
    return None if type(tree) in _LEAVES or not isinstance(tree, Mapping) else dict(tree.items())  # a TensorDict iterates over its rows


def flatten(tree: Any) -> list[Any]:
    """List the leaves of `tree`, depth first, dict entries in their own order; of a list of numbers what `array_of` makes of it."""
    if isinstance(tree, (tuple, list)):
        array = array_of(tree) if isinstance(tree, list) else None
        return [leaf for value in tree for leaf in flatten(value)] if array is None else [array]
    entries = entries_of(tree)
    return [tree] if entries is None else [leaf for value in entries.values() for leaf in flatten(value)]


def parts_of(tree: Any) -> list[tuple[Any, Any]] | None:
    """List each key or place at a tree's top with what is there, of a list of numbers too; None for anything without parts."""
    if isinstance(tree, (tuple, list)):
        return list(enumerate(tree))
    entries = entries_of(tree)
    return None if entries is None else list(entries.items())


def with_parts(tree: Any, parts: Iterable[Any]) -> Any:
    """Return a tuple or list like `tree` over other parts; of classes only a named tuple stays."""
    if isinstance(tree, list):
        return list(parts)
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def mapped(tree: Any, convert: Callable[[Any], Any], kinds: type | tuple[type, ...]) -> Any:
    """Return a tree with `convert` applied to what it holds of some types, and the rest as it is; a list of numbers is no leaf here."""
    if isinstance(tree, kinds):
        return convert(tree)
    if isinstance(tree, (tuple, list)):
        return with_parts(tree, [mapped(part, convert, kinds) for part in tree])
    entries = entries_of(tree)
    return tree if entries is None else {key: mapped(part, convert, kinds) for key, part in entries.items()}


def items_of(tree: Any) -> list[Any]:
    """List what `tree` holds as `flatten` does, but each number of a list by itself."""
    entries = entries_of(tree)
    if entries is None and not isinstance(tree, (tuple, list)):
        return [tree]
    return [item for value in (tree if entries is None else entries.values()) for item in items_of(value)]


class EmptyList(np.ndarray[Any, Any]):
    """The array of a list that holds no number, however nested: int64, unless a batch has an array of another dtype in its place."""


def array_of(items: list[Any]) -> NDArray[Any] | list[Any] | None:
    """Return the array of a list of numbers, of lists of them and so on; None for any other list.

    The dtype is that of `np.asarray`: int64, float64 or bool of Python's numbers, float64 where ints and floats are mixed. A list that no
    array holds as it is comes back unchanged: one whose inner lists differ in length, that holds an int beyond int64, or one that would be
    rounded among floats.
    """
    types = _number_types(items)
    if types is None:
        return None
    try:
        array = np.asarray(items)
    except ValueError:  # ragged, or nested deeper than NumPy allows
        return items
    if not types:
        return array.astype(np.int64).view(EmptyList)
    if len(types) == 1 and int not in types:
        return array
    return array if _holds_all(array, types, items) else items


def _holds_all(array: NDArray[Any], types: set[type], items: list[Any]) -> bool:
    """Tell whether `array` holds all numbers of a list as they are: NumPy makes uint64 or floats of large ints, and rounds them."""
    kind = array.dtype.kind
    if kind == "O" or types <= {int, bool}:
        return kind in "ib"
    if kind not in "fc" or bool((np.abs(array) < _EXACT).all()):
        return True
    return all(int(array.dtype.type(item).real) == item for item in items_of(items) if isinstance(item, (int, np.integer)))


def _number_types(items: list[Any]) -> set[type] | None:
    """Return the types of the numbers in a list and the lists in it; None when it holds anything else."""
    types = set(map(type, items))
    if types <= _NUMBERS:
        return types
    if not all(issubclass(kind, list) for kind in types - _NUMBERS):
        return None
    found = types & _NUMBERS
    for item in items:
        if isinstance(item, list):
            inner = _number_types(item)
            if inner is None:
                return None
            found |= inner
    return found


def unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Build the tree of `structure` from an iterator over its leaves."""
    if structure is LEAF:
        return next(leaves)
    kind, keys, children = structure
    if kind == "dict":
        # Nearly all children are leaves: a call for each would be most of what a batch of many columns costs.
        return {key: next(leaves) if child is LEAF else unflatten(child, leaves) for key, child in zip(keys, children, strict=True)}
    parts = [unflatten(child, leaves) for child in children]
    return parts if kind is list else tuple(parts) if kind is tuple else kind(*parts)


def bytes_of(tree: Any) -> int:
    """Estimate the memory of an element: its arrays, bytes and texts, 8 bytes for any other leaf."""
    kind, total = type(tree), 0
    if kind is np.ndarray:
        return int(tree.nbytes)
    if kind is dict or isinstance(tree, tuple):
        for value in tree.values() if kind is dict else tree:
            total += _SIZES.get(type(value), bytes_of)(value)
        return total
    for leaf in items_of(tree):  # makes no arrays of lists
        try:
            size = getattr(leaf, "nbytes", None)
        except RuntimeError:  # of a sparse tensor
            size = None
        total += size if isinstance(size, int) else len(leaf) if isinstance(leaf, (bytes, bytearray, str)) else 8
    return total


WEIGHTLESS = frozenset({bool, int, float, complex, np.bool_, np.int32, np.int64, np.float32, np.float64})
"""Types whose values need not be measured one by one, which costs 0.1 us."""
_SIZES: dict[type, Callable[[Any], int]] = {
    **dict.fromkeys(WEIGHTLESS, lambda value: 8),
    np.ndarray: attrgetter("nbytes"),
    str: len,
    bytes: len,
}
"""What tells the bytes of common types."""


def bytes_of_all(rows: Sequence[Any]) -> int:
    """Estimate the memory of several elements: of alike ones 25 ns each."""
    kinds = set(map(type, rows))
    if kinds <= WEIGHTLESS:
        return 8 * len(rows)
    if kinds == {np.ndarray}:
        return sum(map(attrgetter("nbytes"), rows))
    return sum(map(bytes_of, rows))


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return `tree` with `function` applied to every leaf."""
    return unflatten(structure_of(tree), iter([function(leaf) for leaf in flatten(tree)]))


def leaf_paths(structure: Structure, prefix: str = "") -> list[str]:
    """Name every leaf, such as "['image']" or "[0]['label']"; the empty string for a bare leaf."""
    if structure is LEAF:
        return [prefix]
    return [path for key, child in zip(structure[1], structure[2], strict=True) for path in leaf_paths(child, f"{prefix}[{key!r}]")]


def spec_of(leaf: Any) -> ArraySpec:
    """Return the spec of one leaf as it will stand in a batch.

    str, bytes, arrays of them and what NumPy does not know have dtype object: nothing is ever cut to a common width. Tensors that offer
    `__array__` and lists of numbers count as the array they become.
    """
    if isinstance(leaf, (np.ndarray, np.generic)):
        return ArraySpec(leaf.shape, _OBJECT if leaf.dtype.kind in "US" else leaf.dtype)
    kind = _SCALARS.get(type(leaf))
    if kind is not None:
        return ArraySpec((), kind)
    if hasattr(leaf, "__array__"):
        made = attempt(np.asarray, leaf)  # PyTorch gives none of bfloat16, of what needs a gradient, of another device's memory
        return ArraySpec((), _OBJECT) if made is None else spec_of(made)
    array = array_of(leaf) if isinstance(leaf, list) else None
    return spec_of(array) if isinstance(array, np.ndarray) else ArraySpec((), _OBJECT)


def is_masked(value: Any) -> bool:
    """Tell whether a value is a masked array, whose mask a plain copy would lose. Does not import `numpy.ma` (12 ms) for it."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # another thread may be in the middle of the import
    return masked is not None and isinstance(value, masked)


_OBJECT = np.dtype(object)
_SCALARS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
_NUMBERS = frozenset({*_SCALARS, *(np.dtype(code).type for code in "?bhilqBHILQefdgFDG")})
_LEAVES = WEIGHTLESS | {np.ndarray, str, bytes, type(None)}
"""Types that need no look for a Mapping, which takes 0.12 us."""

_EXACT = 2.0**53
"""From here on a float64 does not hold every int."""
