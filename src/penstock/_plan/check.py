"""What cannot run is refused when it is written down, with the line that would work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any, get_args

from penstock._contracts.arguments import flag, listed, path_name, real_number, whole_number
from penstock._contracts.transform import Noticing
from penstock._order.folds import Even, uneven
from penstock._order.mixing import History
from penstock._order.planned import BalancedOrder
from penstock._plan.base import Node, function_name, is_async, is_async_generator, length_of, never_ends, substituted, walk, wants_rng
from penstock._plan.facts import INFINITE, is_indexable, known_spec
from penstock._plan.known import Chosen, Measure
from penstock._plan.node import AsCompleted, Map, RaggedBatch, Shard, Window, shards_of
from penstock.errors import PlanError

__all__ = [
    "above",
    "as_completed",
    "bounded",
    "callable_argument",
    "count_argument",
    "counts_argument",
    "drop_remainder_argument",
    "finite",
    "flag_argument",
    "index_argument",
    "indexable",
    "instead_of_by",
    "is_counted",
    "leaving_out",
    "listeners_argument",
    "no_async",
    "no_async_generator",
    "no_rng",
    "not_as_completed",
    "one_order",
    "path_argument",
    "rank_notes",
    "rank_shard",
    "reading_notes",
    "seed_argument",
    "shard_notice",
    "shared_workers",
    "shares_argument",
    "splittable",
    "steps_of_ranks",
    "uneven_after",
    "weights_argument",
]

_LARGEST = 2**63 - 1
_FEW_RANKS = 8
"""So many may each read everything without a notice: a job on one machine."""
_BY_NUMBER = frozenset(("filter", "pack_sequences", "bucket_by_length", "batch_by_cost"))
"""The stream operators that also go by a number that `measure` has found."""


def weights_argument(value: Any, count: int, operator: str) -> History:
    """Return `count` finite weights from each position on: equal ones for None, or those of a schedule."""
    if value is None:
        return ((0, (1.0,) * count),)
    if not isinstance(value, Mapping):
        return ((0, _weights(value, count, operator, zero=False)),)
    starts = [start for start in map(whole_number, value) if start is not None]
    if len(starts) < len(value) or min(starts, default=1) != 0:
        raise PlanError(
            f"weights={value!r} are not weights from position 0 on",
            where=f"{operator}()",
            fix="give {0: weights, position: weights from there on}; positions count the elements of the mix",
        )
    given = zip(starts, value.values(), strict=True)
    history = tuple(sorted((start, _weights(weights, count, operator, zero=True)) for start, weights in given))
    for number in range(count):
        if not any(weights[number] for _, weights in history):
            raise PlanError(f"dataset {number} has the weight 0 from position 0 on", where=f"{operator}()", fix="leave it out")
    return history


def _weights(value: Any, count: int, operator: str, *, zero: bool) -> tuple[float, ...]:
    items = listed(value) or []
    weights = tuple(weight for weight in map(real_number, items) if weight is not None and 0 <= weight < INFINITE and (weight or zero))
    if len(weights) != count or len(items) != count or not any(weights):
        raise PlanError(
            f"weights={value!r} are not {count} {'finite numbers >= 0, not all of them 0' if zero else 'positive finite numbers'}",
            where=f"{operator}()",
            fix="give one weight per dataset, this one first; leave out a dataset that should give nothing",
        )
    return weights


def count_argument(value: Any, name: str, operator: str, *, least: int = 0, otherwise: str = "") -> int:
    """Return `value` as an int that is at least `least`; `otherwise` says what else to do."""
    number = whole_number(value)
    if number is None or number < least:
        right = f"a whole number >= {least}"
        raise PlanError(f"{name}={value!r} is not {right}", where=f"{operator}()", fix=f"give {name} {right}{otherwise}")
    return number


def part_arguments(index: Any, count: Any, names: tuple[str, str], operator: str) -> tuple[int, int]:
    """Return the number of a part, and how many there are, as ints."""
    count = count_argument(count, names[1], operator, least=1)
    index = count_argument(index, names[0], operator)
    if index >= count:
        raise PlanError(f"{names[0]}={index} of {names[1]}={count}", where=f"{operator}()", fix=f"give {names[0]} as 0..{count - 1}")
    return index, count


def index_argument(value: Any) -> int:
    """Return the i of `ds[i]` as an int, which may be negative."""
    number = whole_number(value)
    if number is None:
        raise PlanError(
            f"the index {value!r:.60} is not a whole number",
            where="ds[i]",
            fix="give one whole number; use ds.skip(a).take(b - a) for ds[a:b], and [ds[i] for i in several] for several",
        )
    return number


def instead_of_by(fn: Any, name: str, operator: str) -> None:
    """Refuse an argument of an operator that looks at elements, beside the name of a known number."""
    if fn is not None:
        raise PlanError(
            f"{name} is given beside the name of a known number, and {name} is for elements whose numbers are not known",
            where=f"{operator}()",
            fix="leave one out",
        )


def flag_argument(value: Any, name: str, operator: str) -> bool:
    """Return a flag as a bool; what only counts as true or false is none."""
    given = flag(value)
    if given is None:
        raise PlanError(f"{name}={value!r} is neither True nor False", where=f"{operator}()", fix=f"give {name} True or False")
    return given


def path_argument(value: Any, name: str, operator: str) -> str:
    """Return an absolute path."""
    path = path_name(value)
    if path is None:
        raise PlanError(f"{name}={value!r} is no path", where=f"{operator}()", fix=f"give {name} a str or pathlib.Path that is not empty")
    return path


def names_argument(values: Any, name: str, operator: str) -> Any:
    """Return names, or a mapping of them, as they are if they can be gone through, and None as None."""
    try:
        return values if values is None or isinstance(values, (str, Mapping)) else list(values)
    except TypeError:
        raise PlanError(
            f"{name}={values!r:.60} is a {type(values).__name__}", where=f"{operator}()", fix=f'give {name} a list of names, such as ["x"]'
        ) from None


def mapping_argument(value: Any, name: str, operator: str) -> dict[Any, Any]:
    """Return a mapping as a dict, None as an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise PlanError(
            f"{name}={value!r:.60} is a {type(value).__name__}",
            where=f"{operator}()",
            fix=f'give {name} a dict by column, such as {{"x": 0}}',
        )
    return dict(value or {})


def listeners_argument(values: Any) -> tuple[Any, ...]:
    """Return the listeners of a feed."""
    listeners = listed(values)
    if listeners is None or not all(map(callable, listeners)):
        raise PlanError(f"listeners={values!r} is no list of functions", where="feed()", fix="give a list of callables that take one event")
    return tuple(listeners)


def counts_argument(values: Any, name: str, operator: str) -> tuple[int, ...]:
    """Return a list of whole numbers, each at least 1."""
    items = listed(values)
    if items is None:
        raise PlanError(f"{name}={values!r} is not a list of whole numbers", where=f"{operator}()", fix=f"give {name} a list, such as [2]")
    return tuple(count_argument(value, name, operator, least=1) for value in items)


def seed_argument(value: Any, operator: str) -> int:
    """Return a seed in 0..2**64-1."""
    seed = count_argument(value, "seed", operator)
    if seed >= 2**64:
        raise PlanError(f"seed={seed} does not fit 64 bits", where=f"{operator}()", fix="give a seed below 2**64")
    return seed


def shares_argument(values: Any, name: str, operator: str, count: int | None = None) -> tuple[float, ...]:
    """Return shares that add up to 1, for numbers of any positive scale."""
    items = listed(values) or []
    shares = [share for share in map(real_number, items) if share is not None and math.isfinite(share) and share >= 0]
    if sum(shares) <= 0 or len(shares) != len(items) or (count is not None and len(shares) != count):
        how_many = "" if count is None else f"{count} "
        raise PlanError(
            f"{name}={values!r} is not a list of {how_many}shares",
            where=f"{operator}()",
            fix=f"give {how_many}numbers >= 0, not all of them 0",
        )
    return tuple(share / sum(shares) for share in shares)


def callable_argument(fn: Any, operator: str, *, where: str = "") -> None:
    """Refuse what cannot be called with one element."""
    if not callable(fn):
        where = where or f"{operator}()"
        raise PlanError(f"{fn!r} is not callable", where=where, fix=f"give {operator} a function that takes one element")
    if isinstance(fn, FunctionType):
        code = fn.__code__
        needed = [name for name in code.co_varnames[: code.co_argcount - len(fn.__defaults__ or ())] if name != "rng"]
        if len(needed) > 1:
            raise PlanError(
                f"{function_name(fn)} has the parameters {', '.join(needed)}, and is called with one argument",
                where=where or f"{operator}()",
                fix="let it take the element, and take that apart: pair[0], pair[1] of a tuple, element['name'] of a dict",
            )


def no_rng(fn: Any, operator: str) -> None:
    """Refuse a function that waits for a generator that it will not get."""
    if wants_rng(fn):
        raise PlanError(
            f"{operator} gives no rng to its function",
            where=f"{operator}({function_name(fn)})",
            fix=f"draw in a map(fn, seed=...) before it, and let {operator} look at what was drawn",
        )


def no_async(fn: Any, operator: str) -> None:
    """Refuse an async function where its result is looked at here and now: a coroutine that nobody awaits is always true."""
    if is_async(fn) or is_async_generator(fn):
        raise PlanError(
            f"{operator} does not await its function",
            where=f"{operator}({function_name(fn)})",
            fix=f"await in a map() before it, and let {operator} look at what that returned",
        )


def workers_argument(concurrency: int | None, executor: object, *, asynchronous: bool) -> int | None:
    """Return how many workers of its own a map has, 0 for as many as the feed has; None for those of the feed.

    Raises:
        PlanError: it cannot run there.
    """
    count = None if concurrency is None else count_argument(concurrency, "concurrency", "map", least=1)
    if executor is None:
        return count
    if executor not in ("threads", "processes"):
        raise PlanError(f"executor={executor!r} is not known", where="map(executor=...)", fix='give "threads" or "processes"')
    if asynchronous:
        raise PlanError(
            "an async function runs on an event loop of the feed's process", where="map(executor=...)", fix="leave executor= out"
        )
    return count or 0


def no_async_generator(fn: Any, operator: str) -> None:
    """Refuse a function that gives many results one by one where one is asked for."""
    if is_async_generator(fn):
        raise PlanError(
            "an async generator gives no single element to await",
            where=f"{operator}({function_name(fn)})",
            fix=f"return a list, and unfold it with flat_map(list) after this {operator}",
        )


def notices(nodes: Sequence[Node], output: str = "numpy") -> list[str]:
    """Say what in a plan does nothing, is not what it looks like, or is most likely not meant, with the output that a feed gives."""
    above = {id(child): node for node in nodes for child in node.children}
    out: list[str] = [*rank_notes(nodes), *(getattr(getattr(node, "source", None), "notice", "") for node in nodes)]
    if any(node.operator == "shuffle" and _gives_batches(node) for node in nodes):
        out.append("shuffle() after batch() moves whole batches, and the elements of each stay together: put it before batch()")
    if output == "torch" and not any(node.makes_batches for node in nodes):
        out.append('output="torch" without batch() gives single elements: put batch(n) last, unless each element is a batch already')
    for node in nodes:
        if not isinstance(node, Map) or not isinstance(node.fn, Noticing):
            continue
        maps, parent = list[tuple[Any, int]](), above.get(id(node))
        right_behind = parent.fn if isinstance(parent, Map) else None
        while parent is not None:
            if isinstance(parent, Map):
                maps.append((parent.fn, parent.seed))
            parent = above.get(id(parent))
        out.append(node.fn.notice(node.seed, maps, right_behind))
    return list(dict.fromkeys(filter(None, out)))


def _gives_batches(node: Node) -> bool:
    """Tell whether elements are batches, perhaps mapped, in another order or number."""
    while node.selects or node.aligned:
        node = node.children[0]
    return node.makes_batches


def indexable(node: Node, operator: str, fix: str) -> None:
    """Refuse a child whose positions are only known by reading it."""
    if not is_indexable(node):
        raise PlanError(
            f"{operator} needs positions that are known before reading, but a filter, flat_map, unbatch, generator or compressed file "
            "stands before it",
            where=operator if operator == "ds[i]" else f"{operator}()",
            fix=fix,
        )


def as_completed(root: Node) -> None:
    """Refuse the operator where the elements before it are counted in their order, or where it stands already."""
    chain, node = [root], root
    while len(node.children) == 1:
        node = node.children[0]
        chain.append(node)
    streaming = False
    for node in reversed(chain):
        if isinstance(node, AsCompleted):
            raise PlanError("as_completed() stands in this plan already", where="as_completed()", fix="leave one of them out")
        if node is root and _gives_batches(root):
            raise PlanError(
                f"as_completed() of {root.line()}: it orders elements, not batches",
                where="as_completed()",
                fix="call as_completed() before batch(); for whole batches as they are finished, use feed(ordered=False)",
            )
        behind_stream = (streaming or (node.streams and node.children)) and not (node.per_element or node.is_hint)
        if isinstance(node, Window) or behind_stream:
            raise PlanError(
                f"as_completed() after {node.line()}, which counts elements in their order"
                + " behind a filter, flat_map or generator" * bool(behind_stream),
                where="as_completed()",
                fix=f"call as_completed() before {node.operator}()",
            )
        streaming = streaming or node.streams


def not_as_completed(root: Node, operator: str) -> None:
    """Refuse a shard behind as_completed(): what comes when differs from rank to rank."""
    if any(isinstance(node, AsCompleted) for node in walk(root)):
        raise PlanError(
            f"{operator}() after as_completed(): elements come in another order on each rank, so some would come twice and others never",
            where=f"{operator}()",
            fix=f"call {operator}() before as_completed()",
        )


def splittable(node: Node) -> None:
    """Refuse to unbatch what a ragged_batch made: its arrays have other first dimensions than its elements."""
    part = node
    while part.selects and not part.streams and not part.starts_chain:
        part = part.children[0]
    if isinstance(part, RaggedBatch):
        raise PlanError(
            "unbatch splits every array along its first dimension, but a ragged batch has values and row_splits of other lengths",
            where="unbatch() after ragged_batch()",
            fix="leave out both, or use flat_map with a function that returns the rows: values[row_splits[i]:row_splits[i + 1]]",
        )


def shared_workers(node: Node, operator: str) -> None:
    """Refuse a branch with workers of its own: branches are computed inside one task."""
    parts = walk(node)
    if any(part.asynchronous for part in parts):
        raise PlanError(
            f"an async function cannot be awaited inside a branch of {operator}: branches are computed inside one task",
            where=f"map(async function) before {operator}()",
            fix=f"put the async map after the {operator}, and let it pick its part of the element",
        )
    if any(part.concurrency is not None for part in parts):
        raise PlanError(
            f"concurrency= has no effect inside a branch of {operator}",
            where=f"map(concurrency=...) before {operator}()",
            fix=f"give concurrency= to a map after the {operator}",
        )


def finite(node: Node, operator: str, fix: str) -> None:
    """Refuse an endless child."""
    if length_of(node) == INFINITE:
        raise PlanError(f"{operator} of an endless dataset", where=f"{operator}()", fix=fix)


def one_order(node: Node, operator: str) -> None:
    """Refuse a child that has an element at two positions, or at another position in another epoch."""
    for part in walk(node):
        if part.changes_order:
            raise PlanError(
                f"{operator} after {part.line()}, which puts an element in one part now and in another part later",
                where=f"{operator}()",
                fix=f"call {operator}() first, and then {part.line().partition('(')[0].partition(' ')[0]}() on the part to train on",
            )


def bounded(node: Node) -> None:
    """Refuse a length that does not fit 63 bits."""
    length = length_of(node) or 0
    if _LARGEST < length < INFINITE:
        fix = "use repeat() without a count for endless passes"
        raise PlanError(f"{length} elements are more than 2**63", where=f"{node.operator}()", fix=fix)


def rank_shard(node: Shard) -> Shard:
    """Return a shard by rank, or refuse one that cannot keep what it promises."""
    if node.even not in get_args(Even):
        raise PlanError(f"even={node.even!r} is not known", where="shard_by_rank()", fix="give 'drop', 'pad', 'mask' or 'error'")
    if node.num_shards > 1 and any(part.num_shards > 1 for part in shards_of(node.child)):
        raise PlanError(
            "a shard stands before it already, so a rank would have a part of a part, and most elements would belong to no rank",
            where="shard_by_rank()",
            fix="leave one of them out",
        )
    _balanced_for(node)
    length = length_of(node.child)
    if node.even == "error" and length not in (None, INFINITE) and int(length or 0) % node.num_shards:
        raise uneven(node.num_shards, int(length or 0) % node.num_shards)
    if node.even == "mask":
        known_spec(node)  # which refuses elements without fields, where it is known
        if any(part.makes_batches and getattr(part, "drop_remainder", False) for part in walk(node.child)):
            raise _drops_samples("drop_remainder=True before shard_by_rank()")
    return node


def _balanced_for(shard: Shard) -> None:
    balanced = [part.order.size for part in walk(shard.child) if isinstance(part, Chosen) and isinstance(part.order, BalancedOrder)]
    if shard.num_shards > 1 and 1 in balanced:
        raise PlanError(
            f"balance() below was made for 1 rank, so it balances nothing for {shard.num_shards}",
            where="shard_by_rank()",
            fix=f"give balance(..., num_ranks={shard.num_shards})",
        )


def drop_remainder_argument(value: Any, operator: str, below: Node) -> bool:
    """Return the flag; refuse it where each sample must count once."""
    drops = flag_argument(value, "drop_remainder", operator)
    if drops and any(part.even == "mask" for part in shards_of(below)):
        raise _drops_samples(f"{operator}(drop_remainder=True)")
    return drops


def _drops_samples(where: str) -> PlanError:
    return PlanError(
        "drop_remainder=True leaves elements out, and even='mask' is for giving each of them once",
        where=where,
        fix="leave drop_remainder= out, or give even='drop'",
    )


def is_counted(node: Node) -> bool:
    """Tell whether an operator gives another number of elements than can be known before reading."""
    return node.streams and not isinstance(node, AsCompleted)


def uneven_after(root: Node, shards: Sequence[Shard], changes: Callable[[Node], Any]) -> Node | None:
    """Return the last operator above the first of some shards that `changes` the number of elements, if ranks then make unequal steps.

    They do not where an operator above never ends: no rank comes to an end, or all come to that of the same `take`.
    """
    found = None
    for node in above(root, shards):
        found = node if changes(node) else found
        if found is not None and never_ends(node):
            found = None
    return found


def steps_of_ranks(root: Node, shards: Sequence[Shard]) -> None:
    """Refuse what gives ranks different numbers of steps: an operator above a shard by rank that leaves out or makes elements."""
    node = uneven_after(root, [node for node in shards if node.even is not None], is_counted)
    if node is not None:
        name = _name(node)
        raise PlanError(
            f"{name} stands after shard_by_rank: each rank would then make its own number of steps, and wait for the others for ever",
            where=f"{name}() after shard_by_rank()",
            fix=f"put shard_by_rank() after {name}(): each rank computes it for all elements, and keeps its part; or put repeat() before "
            "shard_by_rank(), and take(n) last: each rank computes its own elements only, without end or n steps long",
        )


def _name(node: Node) -> str:
    return node.line(saved=True).partition("(")[0]


def rank_notes(nodes: Sequence[Node], *, explaining: bool = False) -> list[str]:
    """List what the shards by rank among them leave out, repeat, or make each of many ranks read; `explaining`, of any number of ranks."""
    out: list[str] = []
    for place, node in enumerate(nodes):
        if isinstance(node, Shard) and node.even is not None and node.num_shards > 1:
            out += [_last_round(node), _reading(node, explaining)]
            own = [_name(part) for part in nodes[place:] if explaining and is_counted(part)]
            out += [f"{name} counts the elements of this rank alone, so each rank saves a state of its own" for name in own[:1]]
    return [f"shard_by_rank: {words}" for words in out if words]


def reading_notes(nodes: Sequence[Node]) -> list[str]:
    """Say which shuffles make a source that decodes whole groups decode them again and again."""
    return [words for node in nodes for words in node.reading_notes()]


def _last_round(node: Shard) -> str:
    """Say what a shard by rank leaves out or repeats."""
    length = length_of(node.child)
    num_left = 0 if length in (None, INFINITE) else int(length or 0) % node.num_shards
    if not num_left:
        return ""
    if node.even == "drop":
        return f"the last {num_left} of {length} elements of each pass are left out, so that {node.num_shards} ranks have equally many"
    mark = ", marked as not valid" if node.even == "mask" else ""
    repeats = f"repeats some for {node.num_shards - num_left} of the ranks{mark}"
    return f"the last round of each pass has {num_left} elements, and {repeats}"


def _reading(node: Shard, explaining: bool) -> str:
    """Say whether each rank reads all elements or its own, which numbers are known of them, and what would spare it."""
    below, ranks = walk(node.child), f"each of {node.num_shards} ranks reads"
    streams = [part for part in below if part.streams]
    streaming = list(dict.fromkeys(map(_name, streams)))
    if not explaining and (not streaming or node.num_shards <= _FEW_RANKS):
        return ""
    known = "".join(f"; known: {part.line()}" for part in below if isinstance(part, Measure))
    if not streaming:
        return f"{ranks} only its own elements{known}"
    by_number = f"measure() the numbers of {' and '.join(streaming)} once, and give by="
    once = by_number if _BY_NUMBER.issuperset(streaming) else f"pack() the output of {streaming[-1]} once"
    reads = f"{ranks} and computes all elements up to {streaming[-1]}, and keeps one in {node.num_shards}{known}"
    before = next((f", or put repeat() and shard_by_rank() before {_name(part)}()" for part in streams if part.children), "")
    return f"{reads}; for each to read only its own, {once}{before}"


def shard_notice(root: Node, shards: Sequence[Shard]) -> str:
    """Say that ranks may make different numbers of steps, and where shard() makes them equal but for one; empty when all is well."""
    node = uneven_after(root, [node for node in shards if _has_others(node)], lambda node: node.streams or node.num_passes != 1)
    if node is None:
        return ""
    most, fewest = (length_of(_with_shard(root, last=last)) for last in (False, True))
    if most is not None and fewest is not None and most - fewest <= 1:
        return ""
    name = _name(node)
    numbers = "different numbers of steps" if most is None or fewest is None else f"{most} to {fewest} steps"
    cost = "; each rank then computes the elements of all" if node.streams else ""
    return f"shard() stands before {name}(), so ranks make {numbers}: put shard() after {name}(), and they differ by at most one{cost}"


def _has_others(node: Shard) -> bool:
    """Tell whether other shards may make more or fewer steps."""
    return node.equal_steps and node.even is None and node.num_shards > 1


def above(node: Node, wanted: Sequence[Node]) -> list[Node]:
    """List the nodes above the first of those that are wanted, the lowest first; none where there is none."""
    for child in node.children:
        found = above(child, wanted)
        if found or child in wanted:
            return [*found, node]
    return []


def _with_shard(root: Node, *, last: bool) -> Node:
    """Return the plan of the first or the last rank."""
    return substituted(root, {node: replace(node, index=node.num_shards - 1 if last else 0) for node in shards_of(root)})


def leaving_out(root: Node) -> Node:
    """Return a plan whose shards have what they have: what is skipped is left out, not replaced by another element of the shard."""
    others: dict[Node, Node] = {}
    for node in shards_of(root):
        others[node] = replace(node, child=substituted(node.child, others), equal_steps=False)
    return substituted(root, others)
