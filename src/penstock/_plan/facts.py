"""What is known of a plan before it runs: its length, its words, the specs of its elements."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock._contracts.element import ArraySpec
from penstock._contracts.source import FileSource
from penstock._order.arithmetic import INFINITE
from penstock._plan.base import Node, OnlyByComputing, batch_leaf, length_of, never_ends, sources, walk
from penstock._storage.sameness import stamps
from penstock.errors import LengthUnknown, PlanError

__all__ = [
    "INFINITE",
    "MOST",
    "components",
    "declared",
    "free_dimensions",
    "identity",
    "identity_with_files",
    "input_files",
    "is_indexable",
    "known_length",
    "known_spec",
    "length_of",
    "lines",
    "never_ends",
    "passes_of",
    "spec_of_plan",
    "unnamed",
    "walk",
]


# -- length -----------------------------------------------------------------------------------------------------------------------

MOST = 2**48
"""No run gets to such a position, pass or epoch: at a million elements a second it takes nine years."""


def is_indexable(node: Node) -> bool:
    """Tell whether element i of the plan is arithmetic: nothing in it streams."""
    return not node.streams and all(map(is_indexable, node.children))


def known_length(root: Node, where: str) -> int:
    """Return the number of elements.

    Raises:
        LengthUnknown: when it is endless, or only known after reading.
    """
    length = length_of(root)
    if length is None or length == INFINITE:
        what = "endless" if length == INFINITE else "only known after reading (a filter, flat_map, unbatch, generator or compressed file)"
        raise LengthUnknown(f"the length of this dataset is {what}", where=where, fix="count while you iterate, or use take(n)")
    return int(length)


def passes_of(node: Node) -> int:
    """Return how many passes of its source one pass of the plan holds: by so much its epochs count up. Endless repeats count as one."""
    return max(map(passes_of, node.children), default=1) * (node.num_passes or 1)


# -- words ------------------------------------------------------------------------------------------------------------------------

_FORM = 1
"""Raised when the form of a record, or what an operator computes, changes: older caches are then not looked at."""


def lines(node: Node, *, saved: bool = False, depth: int = 0) -> list[str]:
    """List a plan from its sources up, branches indented; with `saved`, as a state has it: without prefetch."""
    inner = depth + 1 if len(node.children) > 1 else depth
    out = [line for child in node.children for line in lines(child, saved=saved, depth=inner)]
    if saved and node.is_hint:
        return out
    return [*out, "  " * depth + node.line(saved=saved)]


def known_names(root: Node) -> str:
    """List the numbers that are known of elements of a plan without computing them."""
    return ", ".join(sorted({name for node in walk(root) for name in node.known_numbers}))


def components(node: Node, inside: str = "") -> tuple[list[str], list[str]]:
    """Say for each line of a saved plan, and for each of its sources, which component of a mix it belongs to; empty for none."""
    of_lines: list[str] = []
    of_sources: list[str] = [] if node.children else [inside]
    for number, child in enumerate(node.children):
        below = components(child, node.component(number) or inside)
        of_lines += below[0]
        of_sources += below[1]
    return of_lines if node.is_hint else [*of_lines, inside], of_sources


def identity(root: Node, version: str) -> dict[str, Any]:
    """Return a JSON-able record that differs for plans with other elements: their lines, the fingerprints of the data, the user's version.

    Functions count by name and module. Reads the fingerprints, which may take a bounded sample of the data.
    """
    return {
        "form": _FORM,
        "version": version,
        "plan": [node.identity() for node in walk(root) if not node.is_hint],
        "dataset": [node.source.fingerprint() for node in sources(root)],
    }


def input_files(root: Node) -> Iterator[str]:
    """Give the full path of each file of this machine that the sources read."""
    return (path for node in sources(root) if isinstance(node.source, FileSource) for path in node.source.input_files())


def identity_with_files(root: Node, version: str) -> dict[str, Any]:
    """Return the record of `identity`, and what shows that an input file was written to or replaced: 3 us a file."""
    found = stamps(input_files(root))
    return {**identity(root, version), "inputs": hashlib.sha256(found.tobytes()).hexdigest()[:32]}


def unnamed(root: Node) -> tuple[Callable[..., Any], str] | None:
    """Return the function and the name of the first map whose function's name says too little, or None."""
    return next((node.nameless for node in walk(root) if node.nameless is not None), None)


# -- specs ------------------------------------------------------------------------------------------------------------------------


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


def free_dimensions(root: Node, *, of_batches: bool = False) -> Callable[[int], bool]:
    """Return what tells whether dimension d of an array may differ between the elements of a plan.

    With `of_batches` the elements are batches, whatever made them: the last one may be short unless an operator says otherwise.
    """
    nodes = walk(root)
    if any(node.any_shape for node in nodes):
        return lambda place: True
    may_be_short = of_batches
    for node in nodes:
        if node.may_be_short is not None:
            may_be_short = node.may_be_short
        elif node.streams and not node.selects:  # a flat_map makes others of them
            may_be_short = of_batches
    return lambda place: place == 0 and may_be_short
