"""What the elements of a plan depend on, as far as it can be said without computing them: the key of a disk cache."""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import Any

from penstock._contracts.transform import Transform
from penstock._plan.describe import describe, sources
from penstock._plan.length import walk
from penstock._plan.node import Cache, Map, Node, Prefetch, Read, ReadStream

__all__ = ["identity", "unnamed"]

_FORM = 1
"""Raised when the form of a record, or what an operator computes, changes: older caches are then not looked at."""


def identity(root: Node, version: str) -> dict[str, Any]:
    """Return a JSON-able record that differs for plans with other elements: their lines, the fingerprints of the data, the user's version.

    Functions count by name and module. Reads the fingerprints, which may take a bounded sample of the data.
    """
    return {
        "form": _FORM,
        "version": version,
        "plan": [_line(node) for node in walk(root) if not isinstance(node, Prefetch)],
        "dataset": [node.source.fingerprint() for node in sources(root)],
    }


def _line(node: Node) -> str:
    """Say one node: its children come before it, so the list as a whole has one reading. A source's place does not count, a shard does."""
    if isinstance(node, Cache):
        return f"cache(version={node.version!r})"
    module = f" of {getattr(node.fn, '__module__', '')}" if isinstance(node, Map) else ""
    return describe(node, saved=isinstance(node, (Read, ReadStream))) + module


def unnamed(root: Node) -> Map | None:
    """Return the first map whose function's name says too little: a lambda, or one that carries values of its own.

    Two lambdas have one name; so have `partial(crop, 32)` and `partial(crop, 64)`, a function that its maker gave other values, and the
    method of another object.
    """
    return next((node for node in walk(root) if isinstance(node, Map) and not _named(node.fn)), None)


def _named(fn: Any) -> bool:
    if isinstance(fn, Transform):
        return True
    if isinstance(fn, FunctionType):
        return fn.__closure__ is None and fn.__name__ != "<lambda>"
    if isinstance(fn, MethodType):
        return isinstance(fn.__self__, type)
    if isinstance(fn, partial):
        return False
    return isinstance(getattr(fn, "__qualname__", None), str) or " at 0x" not in repr(fn)
