"""A plan in words: for `print(ds)`, for the key of a disk cache, and for the state, which names the first line that differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock._plan.base import Node, sources, walk

__all__ = ["components", "identity", "lines", "sources", "unnamed"]

_FORM = 1
"""Raised when the form of a record, or what an operator computes, changes: older caches are then not looked at."""


def lines(node: Node, *, saved: bool = False, depth: int = 0) -> list[str]:
    """List a plan from its sources up, branches indented; with `saved`, as a state has it: without prefetch."""
    inner = depth + 1 if len(node.children) > 1 else depth
    out = [line for child in node.children for line in lines(child, saved=saved, depth=inner)]
    if saved and node.is_hint:
        return out
    return [*out, "  " * depth + node.line(saved=saved)]


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


def unnamed(root: Node) -> tuple[Callable[..., Any], str] | None:
    """Return the function and the name of the first map whose function's name says too little, or None."""
    return next((node.nameless for node in walk(root) if node.nameless is not None), None)
