"""A plan in words: for `print(ds)`, and for the state, which refuses another plan by naming the first line that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock._contracts.transform import Transform
from penstock._plan.groups import group_mark
from penstock._plan.node import (
    AnyBatch,
    Batch,
    BucketByLength,
    Cache,
    Concatenate,
    Enumerate,
    Filter,
    FlatMap,
    Interleave,
    Map,
    Mix,
    Node,
    PackSequences,
    PaddedBatch,
    Pick,
    Prefetch,
    RaggedBatch,
    Read,
    ReadStream,
    RejectionResample,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    Take,
    Unbatch,
    Window,
    Zip,
    children_of,
)
from penstock._storage.redaction import redacted

__all__ = ["components", "describe", "function_name", "lines", "sources"]


def function_name(fn: Callable[..., Any]) -> str:
    """Name a function without its address: its qualified name, or the repr of a frozen operator without passwords and the like."""
    name = getattr(fn, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    if isinstance(fn, partial):
        return f"partial({function_name(fn.func)})"
    text = repr(fn)
    return type(fn).__qualname__ if " at 0x" in text else redacted(text)


def describe(node: Node, *, saved: bool = False) -> str:
    """Say one node in one line; with `saved`, without what a state does not depend on: the numbers of a shard, the place of a source."""
    match node:
        case Read() | ReadStream():
            label = node.source.label()
            return label.partition("(")[0] if saved else label
        case Map() | Filter() | FlatMap() | RejectionResample():
            return _describe_function(node, saved)
        case Unbatch():
            return "unbatch()"
        case Shuffle():
            return _describe_shuffle(node, saved)
        case Shard():
            return _describe_shard(node, saved)
        case Take() | Skip():
            return f"{type(node).__name__.lower()}({node.count})"
        case Repeat():
            return f"repeat({'' if node.count is None else node.count})"
        case Enumerate():
            return f"enumerate({node.start or ''})"
        case Concatenate() | Zip():
            return f"{type(node).__name__.lower()} of {len(node.children)}"
        case Mix():
            shares = "" if saved else _shares(node.history[-1][1])
            return f"mix of {len(node.children)}{shares}{', all_exhausted' if node.restart else ''}"
        case Interleave():
            return f"interleave({node.name}, cycle_length={node.cycle_length}, block_length={node.block_length}) of {len(node.children)}"
        case Batch() | PaddedBatch() | RaggedBatch() | Window() | BucketByLength() | PackSequences():
            return _describe_group(node, saved)
        case Pick() | Prefetch():
            return f"quarantined({len(node.places)})" if isinstance(node, Pick) else f"prefetch({node.buffer_size})"
        case Cache():
            return "cache()" if saved else f"cache({_cache_words(node)})"


def _describe_function(node: Map | Filter | FlatMap | RejectionResample, saved: bool) -> str:
    fn = node.name if saved else function_name(node.fn)
    match node:
        case Map():
            fn = function_name(node.fn) if isinstance(node.fn, Transform) else fn
            seed = f", seed={node.seed}" if node.random else ""
            return f"map({fn}{seed}{'' if node.output_spec is None else f', output_spec={node.output_spec!r}'})"
        case Filter():
            return f"filter({fn})"
        case FlatMap():
            return f"flat_map({fn})"
        case RejectionResample():
            initial = "" if node.initial is None else f", initial_dist={list(node.initial)}"
            return f"rejection_resample({fn}, {list(node.target)}{initial}, seed={node.seed})"


def _describe_shuffle(node: Shuffle, saved: bool) -> str:
    size = "" if node.buffer_size is None else f"buffer_size={node.buffer_size}, "
    size += f"buffer_bytes={node.buffer_bytes}, " if node.buffer_bytes else ""
    if node.window_groups is not None:
        size += f"window_groups={node.window_groups}{f' of {group_mark(node.child)}' if saved else ''}, "
    again = "" if node.reshuffle_each_epoch else ", reshuffle_each_epoch=False"
    return f"shuffle({size}seed={node.seed}{again})"


def _describe_shard(node: Shard, saved: bool) -> str:
    if node.even is not None:
        rank = "" if saved else f", rank={node.index}, num_ranks={node.num_shards}"
        return f"shard_by_rank(even={node.even!r}{rank})"
    return "shard(num_shards, index)" if saved else f"shard({node.num_shards}, {node.index})"


def _collate(node: Batch) -> str:
    return "" if node.collate_fn is None else f", collate_fn={function_name(node.collate_fn)}"


def _describe_group(node: AnyBatch | Window | BucketByLength | PackSequences, saved: bool) -> str:
    drop = ", drop_remainder=True" if not isinstance(node, PackSequences) and node.drop_remainder else ""
    match node:
        case Batch():
            return f"batch({node.batch_size}{drop}{_collate(node)})"
        case PaddedBatch():
            return f"padded_batch({node.batch_size}{_extras(node)})"
        case RaggedBatch():
            ragged = "" if node.ragged is None else f", ragged={node.ragged!r}"
            return f"ragged_batch({node.batch_size}{drop}{ragged})"
        case Window():
            return f"window({node.size}, shift={node.shift}, stride={node.stride}{drop})"
        case BucketByLength():
            fn = node.name if saved else function_name(node.fn)
            return f"bucket_by_length({fn}, {list(node.boundaries)}, {list(node.batch_sizes)}{_extras(node)})"
        case PackSequences():
            how = "split=True" if node.num_bins is None else f"num_bins={node.num_bins}"
            return f"pack_sequences({node.length}, {how}, padding_value={node.padding_value!r})"


def _cache_words(node: Cache) -> str:
    path = [] if node.path is None else [repr(node.path)]
    limit = [] if node.max_bytes is None else [f"max_bytes={node.max_bytes}"]
    return ", ".join([*path, *limit, *([f"version={node.version!r}"] if node.version else [])])


def _extras(node: PaddedBatch | BucketByLength) -> str:
    drop = ", drop_remainder=True" if node.drop_remainder else ""
    return drop + "".join(
        f", {name}={value!r}"
        for name, value in (("padded_shapes", node.padded_shapes), ("padding_values", node.padding_values))
        if value is not None
    )


def _shares(weights: Sequence[float]) -> str:
    return "" if len(set(weights)) == 1 else f" by {', '.join(f'{weight:g}' for weight in weights)}"


def lines(node: Node, *, saved: bool = False, depth: int = 0) -> list[str]:
    """List a plan from its sources up, branches indented; with `saved`, as a state has it: without prefetch."""
    children = children_of(node)
    inner = depth + 1 if len(children) > 1 else depth
    out = [line for child in children for line in lines(child, saved=saved, depth=inner)]
    if saved and isinstance(node, Prefetch):
        return out
    return [*out, "  " * depth + describe(node, saved=saved)]


def components(node: Node, inside: str = "") -> tuple[list[str], list[str]]:
    """Say for each line of a saved plan, and for each of its sources, which component of a mix it belongs to; empty for none."""
    of_lines: list[str] = []
    of_sources = [inside] if isinstance(node, (Read, ReadStream)) else []
    for number, child in enumerate(children_of(node)):
        below = components(child, f"component {number + 1} of the mix" if isinstance(node, Mix) else inside)
        of_lines += below[0]
        of_sources += below[1]
    return of_lines if isinstance(node, Prefetch) else [*of_lines, inside], of_sources


def sources(node: Node) -> list[Read | ReadStream]:
    """List the sources of a plan, in the order of `lines`."""
    if isinstance(node, (Read, ReadStream)):
        return [node]
    return [found for child in children_of(node) for found in sources(child)]
