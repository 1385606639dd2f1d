"""A plan in words: for `print(ds)`, and for the state, which refuses another plan by naming the first line that differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock._plan.node import (
    Batch,
    Concatenate,
    Enumerate,
    Filter,
    FlatMap,
    Map,
    Node,
    PaddedBatch,
    Prefetch,
    Read,
    ReadStream,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    Take,
    Unbatch,
    Zip,
    children_of,
)

__all__ = ["describe", "function_name", "lines", "sources"]


def function_name(fn: Callable[..., Any]) -> str:
    """Name a function without its address: its qualified name, or the repr of a frozen operator."""
    name = getattr(fn, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    inner = getattr(fn, "func", None)
    if callable(inner):
        return f"partial({function_name(inner)})"
    text = repr(fn)
    return type(fn).__qualname__ if " at 0x" in text else text


def describe(node: Node, *, shard: bool = True) -> str:
    """Say one node in one line. With shard=False the shard's numbers are left out: a state is valid for other ones."""
    match node:
        case Read() | ReadStream():
            return node.source.label()
        case Map():
            seed = f", seed={node.seed}" if node.random else ""
            return f"map({function_name(node.fn)}{seed})"
        case Filter():
            return f"filter({function_name(node.fn)})"
        case FlatMap():
            return f"flat_map({function_name(node.fn)})"
        case Unbatch():
            return "unbatch()"
        case Shuffle():
            size = "" if node.buffer_size is None else f"buffer_size={node.buffer_size}, "
            again = "" if node.reshuffle_each_epoch else ", reshuffle_each_epoch=False"
            return f"shuffle({size}seed={node.seed}{again})"
        case Shard():
            return f"shard({node.num_shards}, {node.index})" if shard else "shard(num_shards, index)"
        case Take() | Skip():
            return f"{type(node).__name__.lower()}({node.count})"
        case Repeat():
            return f"repeat({'' if node.count is None else node.count})"
        case Enumerate():
            return f"enumerate({node.start or ''})"
        case Concatenate() | Zip():
            return f"{type(node).__name__.lower()} of {len(node.children)}"
        case Batch():
            return f"batch({node.batch_size}{', drop_remainder=True' if node.drop_remainder else ''})"
        case PaddedBatch():
            extra = "".join(
                f", {name}={value!r}"
                for name, value in (("padded_shapes", node.padded_shapes), ("padding_values", node.padding_values))
                if value is not None
            )
            return f"padded_batch({node.batch_size}{', drop_remainder=True' if node.drop_remainder else ''}{extra})"
        case Prefetch():
            return f"prefetch({node.buffer_size})"


def lines(node: Node, *, shard: bool = True, depth: int = 0) -> list[str]:
    """List a plan from its sources up, branches indented."""
    children = children_of(node)
    if len(children) > 1:
        out = [line for child in children for line in lines(child, shard=shard, depth=depth + 1)]
    else:
        out = [line for child in children for line in lines(child, shard=shard, depth=depth)]
    return [*out, "  " * depth + describe(node, shard=shard)]


def sources(node: Node) -> list[Read | ReadStream]:
    """List the sources of a plan, in the order of `lines`."""
    if isinstance(node, (Read, ReadStream)):
        return [node]
    return [found for child in children_of(node) for found in sources(child)]
