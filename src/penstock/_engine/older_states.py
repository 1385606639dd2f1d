"""States of versions before format 3, as this version has them. For one release."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._engine.lowering import chain_of, lower
from penstock._order.arithmetic import INFINITE
from penstock._order.runs import Runs
from penstock._plan.base import Node, length_of
from penstock._plan.node import Pick, Repeat, Skip
from penstock._plan.saved import FORMAT
from penstock.errors import StateMismatch

__all__ = ["converted", "parts_behind"]

_DROP_END, _PASS_END = 1, 2
Behind = tuple[int, tuple[tuple[int, int], ...]]


def converted(root: Node, record: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Return a record as this version writes it.

    Raises:
        StateMismatch: it names a place that this version does not have.
    """
    place = record["position"]
    if record["penstock_state"] >= FORMAT or place is None:
        return record
    lowest = _lowest_batch(root)
    if place.get("folded") and lowest is not None:
        position = _before_batches(root, place, epoch)
    else:
        position = _with_folds_in_their_places(root, place)
    return {**record, "position": position}


def _lowest_batch(root: Node) -> Node | None:
    """Return the first node from the source up that groups elements, where nothing streams before it."""
    for node in chain_of(root):
        if node.streams:
            return None
        if node.groups_elements:
            return node
    return None


def _with_folds_in_their_places(root: Node, place: dict[str, Any]) -> dict[str, Any]:
    """Give each fold its state where folds stood before maps, and stand behind them now: those count as many elements."""
    runs, partial = place["done"]
    chains = [segment.folds for segment in lower(root).segments if not segment.transparent]
    old = [(one if len(one) == 7 else [*one, [], [0, 0]]) for one in place["sequencers"]]
    states = [state for one in old for state in one[2]]
    folds: list[list[Any]] = []
    if old and len(states) == sum(map(len, chains)):
        begins = [sum(map(len, chains[:number])) for number in range(len(chains))]
        folds = [[0, 0, states[begin : begin + len(chain)], 0, 0, [], [0, 0]] for begin, chain in zip(begins, chains, strict=True)]
        begin = 0
        for number, (skip, mode, some, recall, drop, known, replay) in enumerate(old):
            here = [place for place, first in enumerate(begins) if first < begin + len(some) and begin < first + len(chains[place])]
            here = here or [min(number, len(folds) - 1)]
            first, last = here[0], here[-1]
            holding = next((one for one in here if any(hasattr(fold, "held") for fold in chains[one])), first)
            folds[first][0], folds[holding][3], folds[last][4], folds[first][5], folds[first][6] = skip, recall, drop, known, replay
            folds[last if mode == _PASS_END else first][1] = mode
            begin += len(some)
    elif old:
        folds = old
    again: list[list[int]] = []
    if len(partial) == 1 and partial[0][1] == list(range(len(partial[0][1]))) and folds:
        position, results = partial[0]
        again, folds[0][0] = [[place["source"][0], position, position + 1]], len(results)
    elif partial:
        raise _refused("some of the results of several elements were delivered")
    out = {"source": place["source"], "done": runs, "again": again, "folds": folds}
    return {**out, "stream": place["stream"]} if "stream" in place else out


def _before_batches(root: Node, place: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Say a place that counts the elements before a batch as one between batches, or name what was delivered of the pass."""
    lowest = _lowest_batch(root)
    assert lowest is not None
    above = chain_of(root)[chain_of(root).index(lowest) + 1 :]
    if lowest.moves_as != "batch" or any(node.moves_as not in ("same", "repeat") for node in above):
        raise _refused("an operator other than map, prefetch and repeat stands after the batch")
    repeats = [node for node in above if node.moves_as == "repeat"]
    passes: float = 1
    for node in repeats:
        passes *= INFINITE if node.num_passes is None else node.num_passes
    length, size = length_of(lowest.children[0]), lowest.batch_size_each() or 1
    pass_number, position = place["source"]
    pass_number -= epoch * (1 if passes == INFINITE else int(passes))
    mode = place["sequencers"][0][1] if place["sequencers"] else 0
    done = Runs([(0, position), *((begin, end) for begin, end in place["done"][0])])
    if mode == _DROP_END or (length not in (None, INFINITE) and done.gap(0, int(length or 0))[0] >= int(length or 0) and mode != _PASS_END):
        pass_number, done = pass_number + 1, Runs()
    runs = [list(run) for run in done.without(())]
    per_pass = length_of(lowest)
    if mode == _PASS_END or pass_number >= passes:
        return _plain(epoch, int(length_of(root) or 0))
    if len(runs) <= 1 and (not runs or (runs[0][0] == 0 and runs[0][1] % size == 0)):
        start = 0 if per_pass == INFINITE else pass_number * int(per_pass or 0)
        return _plain(epoch, start + (runs[0][1] // size if runs else 0))
    return {**_plain(epoch, 0), "behind": [pass_number, runs]}


def _plain(epoch: int, position: int) -> dict[str, Any]:
    return {"source": [epoch, position], "done": [], "again": [], "folds": []}


def parts_behind(root: Node, behind: Behind, epoch: int) -> tuple[Node, int | None]:
    """Return the plan of what is left of a pass of which elements were delivered that are no whole batches, and the position behind it.

    The position is None where the epoch ends with that pass.

    Raises:
        StateMismatch: the plan is none that a state of an earlier version has such a place in.
    """
    lowest = _lowest_batch(root)
    if lowest is None:
        raise _refused("elements of a batch were delivered, and this plan has no batch")
    chain = chain_of(root)
    above = chain[chain.index(lowest) + 1 :]
    repeats = [number for number, node in enumerate(above) if node.moves_as == "repeat"]
    child, (pass_number, runs) = lowest.children[0], behind
    if len(repeats) > 1 or any(node.moves_as not in ("same", "repeat") for node in above):
        raise _refused("operators other than maps and one repeat stand after the batch")
    count = above[repeats[0]].num_passes if repeats else 1
    if len(runs) == 1 and runs[0][0] == 0:
        rest: Node = Skip(child=child, count=runs[0][1])
    else:
        length = length_of(child)
        if length is None or length == INFINITE:
            raise _refused("the dataset before the batch has no end")
        left = np.ones(int(length), np.bool_)
        for begin, end in runs:
            left[begin:end] = False
        whole = pass_number + (epoch * count if count is not None else epoch)
        rest = Pick(child=child, places=tuple((whole, int(place)) for place in np.flatnonzero(left)))
    plan = lowest.with_children([rest])
    for number, node in enumerate(above):
        if number in repeats:
            plan = Repeat(child=plan, count=1, first=pass_number, whole=count)
        else:
            plan = node.with_children([plan])
    if not repeats or (count is not None and pass_number + 1 >= count):
        return plan, None
    per_pass = int(length_of(above[repeats[0]].children[0]) or 0)
    return plan, (pass_number + 1) * per_pass


def _refused(words: str) -> StateMismatch:
    return StateMismatch(
        f"an earlier version of penstock saved this state at a place that this version does not have: {words}",
        where="load_state_dict()",
        fix="begin the epoch again, or go on with the version that saved it",
    )
