"""Random pipelines of all operators, each with its reference in plain Python."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from _order.references import concatenated, first_fitted
from hypothesis import assume
from hypothesis import strategies as st
from laws import joined
from laws import reference as ref
from sources.groups import Grouped
from sources.streams import Numbers

import penstock as ps
from penstock.testing.runs import plain

__all__ = ["Plan", "options", "plain", "plans"]

MOST = 60
"""Elements that are looked at: more than nearly all plans have, and the beginning of an endless one."""

RANDOM = "r"
"""The field that random numbers stand in: the reference does not know them, and no function looks at them."""


# -- functions of elements, for the library and for the reference ----------------------------------------------------------------------


def each(fn: Callable[[Any], Any], x: Any) -> Any:
    if isinstance(x, dict):
        return {key: value if key == RANDOM else each(fn, value) for key, value in x.items()}
    if isinstance(x, tuple):
        return tuple(each(fn, part) for part in x)
    if isinstance(x, list):
        return [fn(part) for part in x]
    return fn(x)


def total(x: Any) -> int:
    if isinstance(x, dict):
        return sum(total(value) for key, value in x.items() if key != RANDOM)
    if isinstance(x, tuple):
        return sum(map(total, x))
    return int(np.sum(x))


def double(x: Any) -> Any:
    return each(lambda part: part * 2, x)


async def later(x: Any) -> Any:
    await asyncio.sleep(0)
    return double(x)


def keep_two_thirds(x: Any) -> bool:
    return total(x) % 3 != 1


def keep_few(x: Any) -> bool:
    return total(x) % 7 == 5


def keep_none(x: Any) -> bool:
    return False


def copies(x: Any) -> list[Any]:
    return [x] * (total(x) % 3)


def noisy(x: Any, rng: np.random.Generator) -> Any:
    return x + int(rng.integers(0, 1000)) * 1000


def drawing(x: Any, rng: np.random.Generator) -> Any:
    return {"x": x, RANDOM: int(rng.integers(0, 1000))}


def residue(x: Any) -> int:
    return total(x) % 5


def kind(x: Any) -> int:
    return total(x) % 3


def sequence(x: Any) -> Any:
    return np.full(residue(x), total(x) % 100, np.int32)


def growing(x: Any) -> Any:
    return {"n": total(x) % 1000, "v": np.full(total(x) % 23 * 40, total(x) % 11, np.int64)}


def pair(x: Any) -> Any:
    return x, total(x) % 7


def named(x: Any) -> Any:
    return {"a": total(x) % 1000, "b": (x,)}


def number(x: Any) -> int:
    return total(x) % 10007


class Fails:
    """A function that fails for some elements."""

    def __init__(self, fn: Callable[[Any], Any], every: int, at: int, error: type[Exception] = ValueError) -> None:
        self.fn, self.every, self.at, self.error = fn, every, at, error
        self.__name__ = f"{fn.__name__}!{every},{at}{'' if error is ValueError else 'OS'}"

    def __call__(self, x: Any) -> Any:
        if total(x) % self.every == self.at:
            raise self.error(f"bad {total(x)}")
        return self.fn(x)


class Flaky:
    """A function that fails when a thread tries it for the first time with some elements, and not again there."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn, self.own = fn, threading.local()
        self.__name__ = f"{fn.__name__}~"

    def __call__(self, x: Any) -> Any:
        tried = self.own.__dict__.setdefault("tried", set())
        if total(x) % 3 == 0 and total(x) not in tried:
            tried.add(total(x))
            raise OSError(f"not yet {total(x)}")
        return self.fn(x)


class Broken:
    """Rows, some of which cannot be read."""

    def __init__(self, rows: list[Any], bad: frozenset[int]) -> None:
        self.rows, self.bad = rows, bad

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise OSError(f"row {index}")
        return self.rows[index]


def code(row: dict[str, Any]) -> int:
    """Return a number that tells packed rows apart."""
    return int(sum(int(part.astype(np.int64) @ np.arange(1, 1 + len(part))) * 1009**place for place, part in enumerate(row.values())))


def packed(values: list[Any], split: bool) -> list[int]:
    """Return the codes of rows of 6 tokens, first fit into 2 rows or split."""
    sequences = [sequence(value) for value in values]
    sized = [(place, len(one)) for place, one in enumerate(sequences)]
    if split:
        groups = concatenated(sized, 6)
    else:
        groups = [[(place, 0, len(sequences[place])) for place in group] for group in first_fitted(sized, 6, 2)]
    out = []
    for group in groups:
        row = {name: np.zeros(6, np.int32) for name in ("tokens", "segment_ids", "positions")}
        start = 0
        for segment, (place, begin, end) in enumerate(group, 1):
            for token in range(begin, end):
                row["tokens"][start], row["segment_ids"][start], row["positions"][start] = sequences[place][token], segment, token - begin
                start += 1
        out.append(code(row))
    return out


# -- plans ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan:
    """A dataset and its reference.

    Attributes:
        rows: what the elements are: "one" shape, arrays of "several" lengths, or a batch ("rows") that can be split again.
        composed: whether what is delivered depends on which elements stand together in a batch.
        removes: whether elements are removed by count, or computed more than once.
        random: whether some come from a random generator.
        fails: whether a function or the source fails.
        private: whether a stage has workers of its own.
    """

    dataset: ps.Dataset
    node: ref.Node
    words: str
    rows: str = "one"
    composed: bool = False
    removes: bool = False
    random: bool = False
    fails: bool = False
    private: bool = False
    groups: list[int] | None = None
    policies: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.words + (
            f".feed({', '.join(f'{name}={_short(policy)}' for name, policy in self.policies.items())})" if self.policies else ""
        )

    @property
    def indexable(self) -> bool:
        return self.node.indexable

    @property
    def grouped(self) -> bool:
        return any(isinstance(node, (ref.Batch, ref.Bucket)) for node in self.node.walk())

    def then(self, dataset: ps.Dataset, node: ref.Node, word: str, **changes: Any) -> Plan:
        return replace(self, dataset=dataset, node=node, words=f"{self.words}.{word}", **{"groups": None, **changes})

    def outcome(self, most: int = MOST) -> ref.Outcome:
        return ref.outcome_of(self.node, self.policies.get("on_error", ps.Raise()), most)

    def everything(self) -> list[Any]:
        """Return what a plan delivers in which nothing fails."""
        outcome = self.outcome(10**6)
        assert not outcome.errors
        return [plain(item) for item in outcome.items]


def _short(policy: Any) -> str:
    words = repr(policy).replace("limit=None, ", "").replace("<class 'Exception'>", "Exception").replace("<class 'OSError'>", "OSError")
    return words.replace("errors=(Exception,)", "").replace("times=", "").replace("backoff_s=0.0, ", "").replace(", )", ")")


BOUNDS, SIZES = (2, 4), (3, 2, 1)
SMALL = st.integers(1, 4)
SHARES = st.sampled_from([1.0, 2.0, 0.3])
STOPS = st.sampled_from(["first_exhausted", "all_exhausted"])


def _policy(draw: Any, *, kinds: str = "-RSPTUV") -> tuple[Any, str]:
    kinds = draw(st.sampled_from(kinds))
    policy = {
        "-": None,
        "R": ps.Raise(),
        "S": ps.Skip(),
        "P": ps.Replace(),
        "T": ps.Skip(errors=OSError),
        "U": ps.Retry(1, then=ps.Skip()),
        "V": ps.Retry(2, errors=OSError, then=ps.Replace()),
    }[kinds]
    return policy, "" if policy is None else f", {kinds}"


def _rows(size: int) -> dict[str, Callable[[], list[Any]]]:
    return {
        "numbers": lambda: list(range(size)),
        "pairs": lambda: [(row, 100 - row) for row in range(size)],
        "dicts": lambda: [{"a": row, "b": (np.full(2, row), {"c": row % 4})} for row in range(size)],
        "ragged": lambda: [np.arange(row % 5) + row for row in range(size)],
        "lists": lambda: [[row, 2 * row] for row in range(size)],
        "ragged lists": lambda: [{"a": row, "b": list(range(row % 4))} for row in range(size)],
        "growing": lambda: [np.full(row * row, row) for row in range(size)],
    }


def _source(draw: Any, failing: bool) -> Plan:
    size = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 26, 30]))
    kinds = ["source", "source", "arrays", "tree", "generator", "stream", "groups", "rows", "rows"] + (["broken"] * 2 if failing else [])
    name = draw(st.sampled_from(kinds))
    numbers = list(range(size))
    if name == "groups":
        sizes = draw(st.lists(st.integers(0, 9), max_size=6))
        groups = [place for place, size in enumerate(sizes) for _ in range(size)]
        return Plan(ps.from_source(Grouped(sizes)), ref.Source(list(range(sum(sizes)))), f"groups({sizes})", groups=groups)
    if name == "generator":
        fails = draw(st.sampled_from([None, None, size // 2])) if failing else None
        node = ref.Generator(numbers, fails)

        def generate() -> Any:
            for row in numbers:
                if row == fails:
                    raise OSError(f"row {row}")
                yield row

        word = f"generator({size}{'' if fails is None else f', fails at {fails}'})"
        return Plan(ps.from_generator(generate, fast_forward=True), node, word, fails=fails is not None)
    if name == "stream":
        return Plan(ps.from_stream(Numbers(size)), ref.Generator(numbers), f"stream({size})")
    if name == "arrays":
        return Plan(ps.from_arrays(np.arange(size)), ref.Source(numbers), f"arrays({size})")
    if name == "tree":
        arrays = {"a": np.arange(size), "b": (np.arange(size * 2).reshape(size, 2),)}
        return Plan(
            ps.from_arrays(arrays), ref.Source([{"a": arrays["a"][k], "b": (arrays["b"][0][k],)} for k in numbers]), f"tree({size})"
        )
    if name == "rows":
        kind = draw(st.sampled_from(sorted(_rows(0))))
        rows = _rows(size)[kind]()
        return Plan(
            ps.from_source(rows),
            ref.Source(rows),
            f"{kind}({size})",
            rows="several" if kind in ("ragged", "ragged lists", "growing") else "one",
        )
    if name == "broken":
        bad = frozenset(draw(st.lists(st.integers(0, max(0, size - 1)), min_size=1, max_size=4)))
        return Plan(ps.from_source(Broken(numbers, bad)), ref.Source(numbers, bad), f"broken({size}, {sorted(bad)})", fails=True)
    return Plan(ps.from_source(numbers), ref.Source(numbers), f"source({size})")


MAPPED = {
    "double": (double, {}),
    "pair": (pair, {}),
    "named": (named, {}),
    "number": (number, {"rows": "one"}),
    "sequence": (sequence, {"rows": "several"}),
    "growing": (growing, {"rows": "several"}),
}


def _function(
    draw: Any, fn: Callable[..., Any], failing: bool, kinds: str
) -> tuple[Callable[..., Any], Callable[..., Any], Any, str, bool]:
    """Return a function for the dataset, one for the reference, the policy, words, and whether it fails."""
    way = draw(st.sampled_from(["fine", "fails", "fails", "flaky"])) if failing else "fine"
    if way == "fine":
        return fn, fn, None, fn.__name__, False
    if way == "flaky":
        flaky = Flaky(fn)
        return flaky, fn, ps.Retry(99), flaky.__name__, False
    every = draw(st.sampled_from([2, 3, 5, 7, 11, 1]))
    error = draw(st.sampled_from([ValueError, OSError]))
    fragile = Fails(fn, every, draw(st.integers(0, every - 1)), error)
    policy, word = _policy(draw, kinds=kinds)
    return fragile, fragile, policy, fragile.__name__ + word, True


def _map(draw: Any, plan: Plan, failing: bool, random: bool) -> Plan:
    ds, node = plan.dataset, plan.node
    names = ["double", "double", "double", "pair", "named", "number", "async", "sequence", "growing"] + ["random"] * random
    name = draw(st.sampled_from(names))
    splits = {"composed": plan.composed or plan.grouped} if name not in ("double", "async") else {}
    if name == "async":
        concurrency = draw(st.sampled_from([None, 2]))
        return plan.then(
            ds.map(later, concurrency=concurrency), ref.Map(node, double, apart=True), f"map(async, {concurrency})", private=True
        )
    if name == "random":
        mapped = ds.map(drawing, seed=draw(st.integers(0, 2)))
        drawn = ref.Map(node, lambda x: {"x": x, RANDOM: 0}, draws=True)
        return plan.then(mapped, drawn, "map(rng)", random=True, groups=plan.groups, rows=_kept(plan), **splits)
    fn, changes = MAPPED[name]
    own, reference, policy, word, fails = _function(draw, fn, failing, "-RSPTUV" if plan.indexable and not plan.node.batched else "-RSSTU")
    concurrency = draw(st.sampled_from([None, None, None, 2]))
    return plan.then(
        ds.map(own, concurrency=concurrency, on_error=policy),
        ref.Map(node, reference, policy, fails=fails, apart=concurrency is not None),
        f"map({word}{'' if concurrency is None else f', c={concurrency}'})",
        groups=plan.groups,
        private=plan.private or concurrency is not None,
        fails=plan.fails or fails,
        composed=plan.composed or splits.get("composed", False) or (fails and plan.grouped),
        **{"rows": _kept(plan) if name in ("pair", "named") else plan.rows, **changes},
    )


def _kept(plan: Plan) -> str:
    return "one" if plan.rows == "rows" else plan.rows


def _other(draw: Any, plan: Plan, number: int) -> Plan:
    """Return another dataset of the same kind of elements."""
    if draw(st.booleans()):
        return plan.then(plan.dataset.skip(number), ref.Skip(plan.node, number), f"skip({number})")
    return plan.then(plan.dataset.take(number), ref.Take(plan.node, number), f"take({number})")


def _finite(plan: Plan) -> bool:
    return plan.indexable and plan.node.size() != ref.INFINITE


def _names(plan: Plan) -> list[str]:
    names = ["map"] * 4 + ["take", "skip", "shard", "repeat", "repeat", "enumerate", "prefetch", "filter", "flat_map", "resample", "bucket"]
    names += ["padded", "windows", "ragged", "pack", "batch"] if plan.rows != "several" else ["padded", "padded", "ragged", "windows"]
    names += ["batch"] * 3 if plan.rows == "one" else []
    names += ["unbatch"] * 3 if plan.rows == "rows" else []
    if not plan.indexable:
        return [*names, "buffer"]
    if not plan.private:
        names += ["concatenate", "zip", "mix", "interleave", "cache"]
    if _finite(plan):
        names += ["shuffle", "window"]
    return names + (["groups"] * 3 if plan.groups is not None and _finite(plan) else [])


def _cut(plan: Plan, part: slice) -> list[int] | None:
    return None if plan.groups is None else plan.groups[part]


def _step(draw: Any, plan: Plan, failing: bool, endless: bool, random: bool) -> Plan:
    name = draw(st.sampled_from(_names(plan)))
    ds, node = plan.dataset, plan.node
    if name in _COUNTED:
        return _COUNTED[name](draw, plan, endless)
    if name in _JOINED:
        return _JOINED[name](draw, plan)
    match name:
        case "map":
            return _map(draw, plan, failing, random)
        case "filter":
            fn, reference, policy, word, fails = _function(
                draw, draw(st.sampled_from([keep_two_thirds, keep_two_thirds, keep_few, keep_none])), failing, _kinds(plan)
            )
            kept = ref.Filter(node, reference, policy, fails=fails)
            composed = plan.composed or plan.grouped
            return plan.then(ds.filter(fn, on_error=policy), kept, f"filter({word})", fails=plan.fails or fails, composed=composed)
        case "flat_map":
            fn, reference, policy, word, fails = _function(draw, copies, failing, _kinds(plan))
            several = ref.FlatMap(node, reference, policy, fails=fails)
            composed = plan.composed or plan.grouped
            return plan.then(ds.flat_map(fn, on_error=policy), several, f"flat_map({word})", fails=plan.fails or fails, composed=composed)
        case "unbatch":
            return plan.then(ds.unbatch(), ref.FlatMap(node, joined.rows), "unbatch", rows="one")
        case "buffer":
            size, again = draw(st.integers(1, 13)), draw(st.booleans())
            return plan.then(ds.shuffle(size, 3, again), ref.Buffer(node, size, 3, again), f"buffer({size}, {again})")
        case "resample":
            seed, initial = draw(st.integers(0, 9)), draw(st.sampled_from([None, [2.0, 1.0, 1.0]]))
            node = ref.Resample(node, kind, [0.25, 0.5, 0.25], initial and [0.5, 0.25, 0.25], seed)
            ds = ds.rejection_resample(kind, [1.0, 2.0, 1.0], initial, seed=seed)
            return plan.then(ds, node, f"resample({seed}, {initial is not None})", composed=True)
        case "cache":
            limit = draw(st.sampled_from([None, 600]))
            return plan.then(ds.cache(max_bytes=limit), ref.Cache(node), f"cache({limit})", removes=True)
    return plan.then(ds.prefetch(2), ref.Prefetch(node), "prefetch(2)", groups=plan.groups)


def _kinds(plan: Plan) -> str:
    return "-RSPTUV" if plan.indexable and not plan.node.batched else "-RSSTU"


def _take(draw: Any, plan: Plan, endless: bool) -> Plan:
    count = draw(st.integers(0, 16))
    return plan.then(plan.dataset.take(count), ref.Take(plan.node, count), f"take({count})", removes=True, groups=_cut(plan, slice(count)))


def _skip(draw: Any, plan: Plan, endless: bool) -> Plan:
    count = draw(st.integers(0, 12))
    return plan.then(
        plan.dataset.skip(count), ref.Skip(plan.node, count), f"skip({count})", removes=True, groups=_cut(plan, slice(count, None))
    )


def _shard(draw: Any, plan: Plan, endless: bool) -> Plan:
    shards = draw(st.integers(1, 3))
    index = draw(st.integers(0, shards - 1))
    sharded, node = plan.dataset.shard(shards, index), ref.Shard(plan.node, shards, index)
    return plan.then(sharded, node, f"shard({shards},{index})", removes=True, groups=_cut(plan, slice(index, None, shards)))


def _repeat(draw: Any, plan: Plan, endless: bool) -> Plan:
    count = draw(st.sampled_from([1, 2, 2, 3, None, None])) if endless else draw(st.integers(1, 3))
    if plan.indexable and plan.node.size() == ref.INFINITE and count is not None and count > 1:
        count = None
    repeated = plan.then(plan.dataset.repeat(count), ref.Repeat(plan.node, count), f"repeat({'' if count is None else count})")
    return _take(draw, repeated, endless) if count is None and draw(st.integers(0, 2)) else repeated


def _enumerate(draw: Any, plan: Plan, endless: bool) -> Plan:
    start = draw(st.integers(0, 3))
    composed = plan.composed or plan.grouped
    node = ref.Enumerate(plan.node, start)
    return plan.then(plan.dataset.enumerate(start), node, f"enumerate({start})", groups=plan.groups, rows=_kept(plan), composed=composed)


def _shuffle(draw: Any, plan: Plan, endless: bool) -> Plan:
    seed, again = draw(st.integers(0, 12)), draw(st.booleans())
    return plan.then(plan.dataset.shuffle(None, seed, again), ref.Shuffle(plan.node, None, seed, again), f"shuffle({seed}, {again})")


def _window(draw: Any, plan: Plan, endless: bool) -> Plan:
    size = draw(st.integers(1, 13))
    return plan.then(plan.dataset.shuffle(size, seed=3), ref.Shuffle(plan.node, size, 3), f"window({size})")


def _by_groups(draw: Any, plan: Plan, endless: bool) -> Plan:
    window, seed = draw(st.integers(1, 5)), draw(st.integers(0, 12))
    shuffled = ref.Shuffle(plan.node, window, seed, groups=plan.groups)
    return plan.then(plan.dataset.shuffle(seed=seed, window_groups=window), shuffled, f"groups({window}, {seed})")


_COUNTED: dict[str, Callable[[Any, Plan, bool], Plan]] = {
    "take": _take,
    "skip": _skip,
    "shard": _shard,
    "repeat": _repeat,
    "enumerate": _enumerate,
    "shuffle": _shuffle,
    "window": _window,
    "groups": _by_groups,
}


def _concatenate(draw: Any, plan: Plan) -> Plan:
    other = _other(draw, plan, draw(st.integers(0, 12)))
    node = ref.Concatenate(plan.node, other.node)
    groups = None
    return plan.then(
        plan.dataset.concatenate(other.dataset), node, f"concatenate(_.{other.words[len(plan.words) + 1 :]})", groups=groups, removes=True
    )


def _zip(draw: Any, plan: Plan) -> Plan:
    other = _other(draw, plan, draw(st.integers(0, 12)))
    node = ref.Zip(plan.node, other.node)
    word = f"zip(_.{other.words[len(plan.words) + 1 :]})"
    return plan.then(plan.dataset.zip(other.dataset), node, word, removes=True, rows=_kept(plan), composed=plan.composed or plan.grouped)


def _mix(draw: Any, plan: Plan) -> Plan:
    if not _finite(plan):
        raise ps.errors.PlanError("endless", where="", fix="")
    weights, stop, number = draw(st.tuples(SHARES, SHARES, SHARES)), draw(STOPS), draw(st.integers(0, 12))
    if draw(st.booleans()):
        weights = {0: draw(st.sampled_from([(1, 0, 0), (0, 1, 2)])), draw(st.integers(1, 15)): weights}
    mixed = plan.dataset.mix(plan.dataset.skip(number), plan.dataset.take(number), weights=weights, stop=stop)
    node = ref.mixed([plan.node, ref.Skip(plan.node, number), ref.Take(plan.node, number)], weights, stop)
    return plan.then(mixed, node, f"mix(_.skip({number}), _.take({number}), {weights}, {stop})", removes=True)


def _interleave(draw: Any, plan: Plan) -> Plan:
    cycle, block, number = draw(SMALL), draw(st.integers(1, 3)), draw(st.integers(0, 12))
    parts = [slice(place * number, 3 * place + 5) for place in range(4)]
    ds = plan.dataset
    outer = ps.from_source(parts).interleave(lambda cut: ds.skip(cut.start).take(max(0, cut.stop - cut.start)), cycle, block)
    nodes: list[ref.Node] = [ref.Take(ref.Skip(plan.node, cut.start), max(0, cut.stop - cut.start)) for cut in parts]
    return plan.then(outer, ref.interleaved(nodes, cycle, block), f"interleave({number}, {cycle}, {block})", removes=True)


def _batch(draw: Any, plan: Plan) -> Plan:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    changes = {"removes": plan.removes or drop, "composed": plan.composed or drop or plan.grouped, "rows": "rows"}
    return plan.then(plan.dataset.batch(size, drop), ref.Batch(plan.node, joined.stacked, size, drop), f"batch({size},{drop})", **changes)


def _padded(draw: Any, plan: Plan) -> Plan:
    size, drop, value = draw(st.integers(1, 5)), draw(st.booleans()), draw(st.sampled_from([0, 3]))
    changes = {"removes": plan.removes or drop, "composed": True, "rows": "rows"}
    padded = plan.dataset.padded_batch(size, padding_values=value, drop_remainder=drop)
    return plan.then(padded, ref.Batch(plan.node, joined.padded(value), size, drop), f"padded({size},{value},{drop})", **changes)


def _ragged(draw: Any, plan: Plan) -> Plan:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    changes = {"removes": plan.removes or drop, "composed": True, "rows": "several"}
    return plan.then(
        plan.dataset.ragged_batch(size, drop), ref.Batch(plan.node, joined.ragged, size, drop), f"ragged({size},{drop})", **changes
    )


def _windows(draw: Any, plan: Plan) -> Plan:
    size, shift, stride, drop = (draw(kind) for kind in (*[SMALL] * 3, st.booleans()))
    ds = plan.dataset
    if plan.rows == "several":
        ds, plan = ds.map(number), plan.then(ds, ref.Map(plan.node, number), "map(number)", composed=plan.composed or plan.grouped)
    node = ref.Batch(plan.node, joined.stacked, size, drop, shift, stride)
    changes = {"removes": True, "composed": True, "rows": "rows"}
    return plan.then(ds.window(size, shift, stride, drop), node, f"windows({size},{shift},{stride},{drop})", **changes)


def _bucket(draw: Any, plan: Plan) -> Plan:
    drop = draw(st.booleans())
    node = ref.Bucket(plan.node, residue, BOUNDS, SIZES, drop)
    changes = {"removes": plan.removes or drop, "composed": True, "rows": "rows"}
    return plan.then(plan.dataset.bucket_by_length(residue, BOUNDS, SIZES, drop_remainder=drop), node, f"bucket({drop})", **changes)


def _pack(draw: Any, plan: Plan) -> Plan:
    split, bins = draw(st.booleans()), draw(st.integers(1, 3))
    node = ref.Pack(ref.Map(plan.node, sequence), 6, None if split else bins)
    rows = plan.dataset.map(sequence).pack_sequences(6, num_bins=bins, split=split)
    return plan.then(rows, node, f"pack({'split' if split else bins})", composed=True, rows="one")


_JOINED: dict[str, Callable[[Any, Plan], Plan]] = {
    "concatenate": _concatenate,
    "zip": _zip,
    "mix": _mix,
    "interleave": _interleave,
    "batch": _batch,
    "padded": _padded,
    "ragged": _ragged,
    "windows": _windows,
    "bucket": _bucket,
    "pack": _pack,
}


def _fits(plan: Plan) -> bool:
    """Tell whether the elements of each batch fit each other, and the plan does not search for ever."""
    try:
        return not plan.outcome(300).errors
    except ref.Endless:
        return False


@st.composite
def plans(draw: Any, *, most_steps: int = 8, failing: bool = False, endless: bool = False, random: bool = False) -> Plan:
    """Draw a pipeline of up to `most_steps` operators; `failing` ones have functions and sources that fail, and policies."""
    plan = _source(draw, failing)
    for _ in range(max(draw(st.integers(0, most_steps)), draw(st.integers(0, most_steps)))):
        try:
            plan = _step(draw, plan, failing, endless, random)
        except ps.errors.PlanError:
            continue
    if not failing:
        assume(_fits(plan))
        return plan
    policies = {}
    policy, _ = _policy(draw, kinds="----SSPTU")
    if policy is not None:
        policies["on_error"] = policy
    return replace(plan, policies=policies)


def options() -> st.SearchStrategy[dict[str, Any]]:
    """Draw feed options."""
    return st.sampled_from(
        [
            {"executor": "inline"},
            {},
            {"memory_bytes": 1},
            {"executor": "threads", "num_workers": 1},
            {"executor": "threads", "num_workers": 2},
            {"executor": "threads", "num_workers": 5},
            {"executor": "threads", "num_workers": 2, "memory_bytes": 1},
        ]
    )
