"""Random pipelines, and what each must deliver according to a reference in plain Python."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np
from _order.references import bucketed, concatenated, drawn, first_fitted, group_shuffled, resampled
from hypothesis import strategies as st
from laws.turns import interleaved_turns, mix_turns
from sources.groups import Grouped
from sources.streams import Numbers

import penstock as ps
from penstock._order.permutation import shuffled, window_shuffled
from penstock.testing.elements import plain

__all__ = ["Plan", "options", "plain", "plans"]

SOURCE_SIZES = st.integers(0, 40)
SHARES = st.sampled_from([1.0, 2.0, 0.3])


def double(x: Any) -> Any:
    return x * 2


async def later(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * 2


def keep_two_thirds(x: Any) -> bool:
    return int(np.sum(x)) % 3 != 1


def copies(x: Any) -> list[Any]:
    return [x] * (int(np.sum(x)) % 3)


def noisy(x: Any, rng: np.random.Generator) -> Any:
    return x + int(rng.integers(0, 1000)) * 1000


def residue(x: Any) -> int:
    return int(np.sum(x)) % 5


def kind(x: Any) -> int:
    return int(np.sum(x)) % 3


def sequence(x: Any) -> Any:
    return np.full(residue(x), int(np.sum(x)) % 100, np.int32)


def code(row: dict[str, Any]) -> int:
    """Return a number that tells packed rows apart."""
    return int(sum(int(part.astype(np.int64) @ np.arange(1, 1 + len(part))) * 1009**place for place, part in enumerate(row.values())))


def packed(values: list[Any], split: bool) -> list[int]:
    """Return the codes of rows of 6 tokens, first fit into 2 rows or split."""
    sequences = [sequence(value) for value in values]
    sized = [(number, len(one)) for number, one in enumerate(sequences)]
    if split:
        groups = concatenated(sized, 6)
    else:
        groups = [[(number, 0, len(sequences[number])) for number in group] for group in first_fitted(sized, 6, 2)]
    out = []
    for group in groups:
        row = {name: np.zeros(6, np.int32) for name in ("tokens", "segment_ids", "positions")}
        start = 0
        for segment, (number, begin, end) in enumerate(group, 1):
            for place in range(begin, end):
                row["tokens"][start], row["segment_ids"][start], row["positions"][start] = sequences[number][place], segment, place - begin
                start += 1
        out.append(code(row))
    return out


def counting(x: Any) -> Any:
    return np.arange(int(x) % 4)


def row_sums(batch: Any) -> Any:
    values, splits = batch["values"], batch["row_splits"]
    return np.array([values[begin:end].sum() for begin, end in pairwise(splits)])


class Plan:
    """A dataset and its reference: `reference(epoch)` lists one pass of what it delivers."""

    def __init__(
        self, dataset: ps.Dataset, reference: Any, words: str, indexable: bool, batched: bool, random: int = 0, groups: Any = None
    ) -> None:
        self.dataset, self.reference, self.words = dataset, reference, words
        self.indexable, self.batched, self.random = indexable, batched, random
        self.groups: list[int] | None = groups  # the group of each element, where they lie in groups

    def __repr__(self) -> str:
        return self.words

    def then(self, dataset: ps.Dataset, reference: Any, word: str, **changes: Any) -> Plan:
        return Plan(
            dataset,
            reference,
            f"{self.words}.{word}",
            changes.get("indexable", self.indexable),
            changes.get("batched", self.batched),
            self.random,
            changes.get("groups"),
        )

    def cut(self, part: slice) -> list[int] | None:
        return None if self.groups is None else self.groups[part]

    def everything(self) -> list[Any]:
        return [plain(item) for item in self.reference(0)]


def _source(draw: Any) -> Plan:
    size = draw(SOURCE_SIZES)
    kind = draw(st.sampled_from(["source", "arrays", "generator", "stream", "groups"]))
    if kind == "groups":
        sizes = draw(st.lists(st.integers(0, 9), max_size=8))
        groups = [number for number, size in enumerate(sizes) for _ in range(size)]
        dataset = ps.from_source(Grouped(sizes))
        return Plan(dataset, lambda epoch: list(range(sum(sizes))), f"groups({sizes})", indexable=True, batched=False, groups=groups)
    if kind == "generator":
        dataset = ps.from_generator(lambda: iter(range(size)), fast_forward=True)
        return Plan(dataset, lambda epoch: list(range(size)), f"generator({size})", indexable=False, batched=False)
    if kind == "stream":
        return Plan(ps.from_stream(Numbers(size)), lambda epoch: list(range(size)), f"stream({size})", indexable=False, batched=False)
    if kind == "arrays":
        return Plan(ps.from_arrays(np.arange(size)), lambda epoch: list(range(size)), f"arrays({size})", indexable=True, batched=False)
    return Plan(ps.from_source(list(range(size))), lambda epoch: list(range(size)), f"source({size})", indexable=True, batched=False)


def _grouped(values: list[Any], size: int, drop: bool) -> list[Any]:
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [group for group in groups if len(group) == size or not drop]


def _windows(values: list[Any], size: int, shift: int, stride: int, drop: bool) -> list[Any]:
    windows = [values[start::stride][:size] for start in range(0, len(values), shift)]
    return [window for window in windows if len(window) == size or not drop]


def _permuted(values: list[Any], epoch: int, window: int | None, seed: int) -> list[Any]:
    if not values:
        return values
    epochs, positions = np.full(len(values), epoch, np.int64), np.arange(len(values), dtype=np.int64)
    if window is None:
        places = shuffled(epochs, positions, len(values), seed=seed, reshuffle=True)
    else:
        places = window_shuffled(epochs, positions, len(values), window, seed=seed, reshuffle=True)
    return [values[place] for place in places.tolist()]


def _step(draw: Any, plan: Plan) -> Plan:
    names = ["map", "take", "skip", "shard", "repeat", "batch", "filter", "flat_map", "prefetch", "ragged"]
    names += ["resample"] if plan.indexable else ["resample", "buffer"]
    if not plan.batched:
        names += ["bucket", "pack"]
    if plan.indexable:
        names += ["groups"] * 3 if plan.groups is not None else []
        names += ["shuffle", "window", "concatenate", "cache", "windows", "mix", "interleave"]
    if plan.batched:
        names += ["unbatch"]
        names = [name for name in names if name not in ("batch", "windows", "ragged")]
    name = draw(st.sampled_from(names))
    ds, ref = plan.dataset, plan.reference
    number = draw(st.integers(0, 12))
    match name:
        case "map":
            concurrency = draw(st.sampled_from([None, None, 2]))
            if draw(st.integers(0, 3)) == 3:
                return plan.then(
                    ds.map(later, concurrency=concurrency), lambda e: [plain_double(x) for x in ref(e)], f"map(async, {concurrency})"
                )
            mapped = ds.map(double, concurrency=concurrency)
            return plan.then(mapped, lambda e: [plain_double(x) for x in ref(e)], f"map(c={concurrency})", groups=plan.groups)
        case "take":
            return plan.then(ds.take(number), lambda e: ref(e)[:number], f"take({number})", groups=plan.cut(slice(number)))
        case "skip":
            return plan.then(ds.skip(number), lambda e: ref(e)[number:], f"skip({number})", groups=plan.cut(slice(number, None)))
        case "shard":
            shards = draw(st.integers(1, 3))
            index = draw(st.integers(0, shards - 1))
            groups = plan.cut(slice(index, None, shards))
            return plan.then(ds.shard(shards, index), lambda e: ref(e)[index::shards], f"shard({shards},{index})", groups=groups)
        case "repeat":
            count = draw(st.integers(1, 3))
            return plan.then(ds.repeat(count), lambda e: [x for k in range(count) for x in ref(e * count + k)], f"repeat({count})")
        case "batch":
            size, drop = draw(st.integers(1, 5)), draw(st.booleans())
            return plan.then(ds.batch(size, drop), lambda e: _grouped(ref(e), size, drop), f"batch({size},{drop})", batched=True)
        case "filter":
            return plan.then(ds.filter(keep_two_thirds), lambda e: [x for x in ref(e) if keep_two_thirds(x)], "filter", indexable=False)
        case "flat_map":
            return plan.then(ds.flat_map(copies), lambda e: [y for x in ref(e) for y in copies(x)], "flat_map", indexable=False)
        case "unbatch":
            return plan.then(ds.unbatch(), lambda e: [y for x in ref(e) for y in x], "unbatch", indexable=False, batched=False)
        case "shuffle":
            return plan.then(ds.shuffle(seed=number), lambda e: _permuted(ref(e), e, None, number), f"shuffle({number})")
        case "groups":
            labels = plan.groups or []
            return plan.then(
                ds.shuffle(seed=number, window_groups=1 + number // 3),
                lambda e: group_shuffled(_by_group(ref(e), labels), 1 + number // 3, number, e),
                f"groups({1 + number // 3}, {number})",
            )
        case "buffer":
            size = number + 1
            return plan.then(ds.shuffle(size, seed=3), lambda e: drawn([(x, 0) for x in ref(e)], e, size, 1, 3), f"buffer({size})")
        case "bucket":
            drop = draw(st.booleans())
            return plan.then(
                ds.bucket_by_length(residue, [2, 4], [3, 2, 1], drop_remainder=drop),
                lambda e: bucketed([(x, residue(x)) for x in ref(e)], (2, 4), (3, 2, 1), drop),
                f"bucket(3,{drop})",
                batched=True,
                indexable=False,
            )
        case "pack":
            split = draw(st.booleans())
            rows = ds.map(sequence).pack_sequences(6, num_bins=2, split=split).map(code)
            return plan.then(rows, lambda e: packed(ref(e), split), f"pack({split})", indexable=False)
        case "resample":
            shares = [1.0, 2.0, 1.0], [2.0, 1.0, 1.0]
            return plan.then(
                ds.rejection_resample(kind, *shares, seed=number),
                lambda e: resampled([[(x, kind(x)) for x in ref(e)]], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25], number, e)[0],
                f"resample({number})",
                indexable=False,
            )
        case "window":
            return plan.then(ds.shuffle(number + 1, seed=3), lambda e: _permuted(ref(e), e, number + 1, 3), f"window({number + 1})")
        case "ragged":
            size, drop = draw(st.integers(1, 5)), draw(st.booleans())
            batches = ds.map(counting).ragged_batch(size, drop).map(row_sums)
            return plan.then(
                batches,
                lambda e: [[sum(range(x % 4)) for x in g] for g in _grouped(ref(e), size, drop)],
                f"ragged({size},{drop})",
                batched=True,
            )
        case "windows":
            size, shift, stride, drop = (draw(kind) for kind in (*[st.integers(1, 4)] * 3, st.booleans()))
            return plan.then(
                ds.window(size, shift, stride, drop),
                lambda e: _windows(ref(e), size, shift, stride, drop),
                f"window({size},{shift},{stride},{drop})",
                batched=True,
            )
        case "concatenate":
            twice = None if plan.groups is None else plan.groups + [label + 1000 for label in plan.groups]
            return plan.then(ds.concatenate(ds), lambda e: ref(e) + ref(e), "concatenate(self)", groups=twice)
        case "cache":
            limit = draw(st.sampled_from([None, 600]))
            return plan.then(ds.cache(max_bytes=limit), lambda e: ref(0), f"cache({limit})")
        case "mix":
            weights, stop = draw(st.tuples(SHARES, SHARES, SHARES)), draw(st.sampled_from(["first_exhausted", "all_exhausted"]))
            mixed = ds.mix(ds.skip(number), ds.take(number), weights=weights, stop=stop)  # type: ignore[arg-type]
            cuts = [slice(None), slice(number, None), slice(number)]
            turns = mix_turns(weights, [len(ref(0)[cut]) for cut in cuts], stop)
            return plan.then(
                mixed, lambda e: [ref(turn.epoch(e))[cuts[turn.child]][turn.place] for turn in turns], f"mix({weights}, {stop})"
            )
        case "interleave":
            cycle, block, parts = draw(st.integers(1, 4)), draw(st.integers(1, 3)), [slice(k * number, 3 * k + 5) for k in range(5)]
            outer = ps.from_source(parts).interleave(lambda cut: ds.skip(cut.start).take(max(0, cut.stop - cut.start)), cycle, block)
            order = interleaved_turns([len(ref(0)[cut]) for cut in parts], cycle, block)
            return plan.then(outer, lambda e: [ref(e)[parts[child]][place] for child, place in order], f"interleave({cycle}, {block})")
    return plan.then(ds.prefetch(2), ref, "prefetch(2)")


def _by_group(values: list[Any], labels: list[int]) -> list[list[Any]]:
    return [[value for value, label in zip(values, labels, strict=True) if label == group] for group in sorted(set(labels))]


def plain_double(x: Any) -> Any:
    return [plain_double(part) for part in x] if isinstance(x, list) else x * 2


@st.composite
def plans(draw: Any, *, most_steps: int = 6) -> Plan:
    """Draw a pipeline of up to `most_steps` operators."""
    plan = _source(draw)
    for _ in range(draw(st.integers(0, most_steps))):
        try:
            plan = _step(draw, plan)
        except ps.errors.PlanError:
            continue
    return plan


def options() -> st.SearchStrategy[dict[str, Any]]:
    """Draw feed options."""
    return st.sampled_from(
        [{"executor": "inline"}, {"num_workers": 1}, {"num_workers": 2}, {"num_workers": 5}, {"num_workers": 2, "memory_bytes": 1}]
    )
