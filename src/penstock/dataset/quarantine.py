"""The elements that a feed skipped or replaced, as a dataset of their own."""

from __future__ import annotations

import os
from dataclasses import replace

from penstock._contracts.policy import Raise
from penstock._plan import node as plan
from penstock._plan.length import INFINITE, length_of
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError, SourceError
from penstock.formats.quarantine import QuarantinedLine, read_lines

__all__ = ["read_quarantine"]


def read_quarantine(file: str | os.PathLike[str], ds: Dataset) -> Dataset:
    """Return the elements of a quarantine file alone: those of `ds`, run through its operators up to the first batch, window or pack.

    Each comes once, in the order of the file, with the epoch and so the random numbers that it failed with. What only orders, repeats or
    leaves out is not there: `shuffle`, `shard`, `take`, `skip`, `repeat`; `enumerate` counts again from its start. Policies are taken off,
    so an element that still fails raises: give `feed(on_error=ps.Skip())` to go on. A line of a whole batch stands for all its elements.

    Args:
        file: what a feed wrote with `quarantine=`; an element may stand in several lines.
        ds: the pipeline that wrote it, or one with the same source and mended functions.

    Raises:
        OSError: the file cannot be read.
        SourceError: a line is not one of such a file, or names an element that `ds` does not have.
        PlanError: `ds` reads a generator, whose elements have no numbers.
    """
    chain = [ds._root]
    while not chain[0].starts_chain:
        chain.insert(0, chain[0].children[0])
    base = chain[0]
    if base.streams:
        raise PlanError(
            "the elements of a generator cannot be read by number",
            where="read_quarantine()",
            fix="filter the generator by what the file says",
        )
    places: dict[tuple[int, int], None] = {}
    for line in read_lines(file):
        for place in _places(line, base, os.fsdecode(file)):
            places[place] = None
    root: plan.Node = plan.Pick(child=base, places=tuple(places))
    for node in chain[1:]:
        if node.groups_elements:
            break
        if node.per_element or not node.selects:
            root = node.without_policy().with_children([root])
    return Dataset(root, replace(ds._options, on_error=Raise(), on_read_error=None, quarantine=None))


def _places(line: QuarantinedLine, base: plan.Node, file: str) -> list[tuple[int, int]]:
    """Return the places in `base` of the elements of a line."""
    where, length = f"line {line.number} of {file!r}", length_of(base)
    if line.place is not None:
        found = [line.place]
    elif not base.children and line.keys:
        found = [(epoch, index) for epoch, index, _ in line.keys]
    else:
        raise SourceError(
            "the elements of this line can only be found again in a plan with one source, and without a batch of batches",
            where=where,
            fix="give the branch of zip, concatenate, mix or interleave, or the part below cache() or the batch, in place of the whole "
            "dataset; or look at the line itself",
        )
    for epoch, position in found:
        if length is None or (length != INFINITE and position >= length):
            raise SourceError(
                f"the file names element {position} of epoch {epoch}, and this dataset has {length}",
                where=where,
                fix="give the dataset that wrote the file, or one with the same source",
            )
    return found
