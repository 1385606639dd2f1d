"""How a plan will run, in words."""

from __future__ import annotations

from penstock._engine.lower import lower
from penstock._engine.program import SegmentPlan
from penstock._plan.check import rank_notes, reading_notes
from penstock._plan.describe import lines
from penstock._plan.length import walk
from penstock._plan.node import Cache, Node

__all__ = ["explain"]


def explain(root: Node) -> str:
    """Return the plan, then its segments and stages."""
    program = lower(root)
    out = ["plan", *("  " + line for line in lines(root)), "runs as"]
    for number, segment in enumerate(program.segments):
        out.extend(_segment(number, segment, last=number == len(program.segments) - 1))
    out.extend(f"  note: {words}" for words in (*reading_notes(root), *rank_notes(root)))
    out.extend(f"  cache {node.store.label()}" for node in walk(root) if isinstance(node, Cache))
    return "\n".join(out)


def _segment(number: int, segment: SegmentPlan, *, last: bool) -> list[str]:
    out = [f"  segment {number + 1}: {_input(segment)}"]
    for stage in segment.stages:
        workers = "the shared workers" if stage.concurrency is None else f"{stage.concurrency} worker(s) of its own"
        if stage.awaited:
            workers = f"an event loop, {stage.concurrency} call(s) at once"
        if stage.name or stage.concurrency is not None:
            out.append(f"    stage {stage.name or 'rows'!r} on {workers}")
    if segment.batch is not None:
        out.append(f"    batches of {segment.batch.batch_size}: {segment.batch.collation.words}")
    if segment.top:
        out.append(f"    then on whole batches: {', '.join(step.name or 'positions' for step in segment.top)}")
    if segment.folds:
        folds = ", ".join(type(fold).__name__.lower() for fold in segment.folds)
        out.append(f"    then in order, at one place: {folds}")
    out.append("    delivered in order" if last else "    handed on in order")
    return out


def _input(segment: SegmentPlan) -> str:
    if segment.stream is not None:
        return f"one thread reads {segment.stream.label()}"
    if segment.leaf is None:
        return "what the segment before hands on"
    return "positions by arithmetic, any block at any time"
