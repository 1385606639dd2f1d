"""What the elements of a plan are, taken from the declarations of its maps as far as they reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock._contracts.element import ArraySpec
from penstock._plan.base import Node, OnlyByComputing, batch_leaf, walk
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
    return batch_leaf(ArraySpec(tuple(None if size is None else int(size) for size in sizes), dtype))


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
    if all(node.output_spec is None for node in walk(root)):
        return run(root)
    try:
        return root.spec(lambda child: spec_of_plan(child, run))
    except OnlyByComputing:
        pass  # an error of `run` has no context then
    return run(root)


def known_spec(root: Node) -> Any | None:
    """Return the tree of specs of the plan's elements as far as sources of arrays and maps declare it, None elsewhere; reads nothing."""
    try:
        return _known(root)
    except OnlyByComputing:
        return None


def _known(node: Node) -> Any:
    return node.spec(_known)


def free_dimensions(root: Node) -> Callable[[int], bool]:
    """Return what tells whether dimension d of an array may differ between the elements of a plan."""
    nodes = walk(root)
    if any(node.any_shape for node in nodes):
        return lambda place: True
    short = [node.may_be_short for node in nodes if node.may_be_short is not None]
    may_be_short = bool(short and short[-1])
    return lambda place: place == 0 and may_be_short
