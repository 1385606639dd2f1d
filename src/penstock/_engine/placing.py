"""Where the stages of a program run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from penstock._engine.program import IN_PROGRAM, SHARED, FilterStep, Program, SegmentPlan, StagePlan
from penstock._ops.operator import Leaf, Operator
from penstock._ops.reading import ReadLeaf
from penstock._system.ownership import users_of

_INNER = ("leaf", "child", "branches", "operators", "filter_steps", "batch_ops", "batch", "collation", "steps", "transform", "stages")


def functions_in(part: Any) -> Iterator[Any]:
    """Yield the functions and objects of the user's that a part of a program runs; a stream is none of them: it stays in the program."""
    if isinstance(part, tuple):
        for one in part:
            yield from functions_in(one)
        return
    if isinstance(part, ReadLeaf):
        yield from users_of(part.source)
        return
    fn = getattr(part, "fn", None)
    if fn is not None:
        yield from users_of(fn)
    if not is_dataclass(part) or isinstance(part, type):
        return
    for name in _INNER:
        inner = getattr(part, name, None)
        if inner is not None:
            yield from users_of(inner) if name == "transform" else functions_in(inner)


def _runs_users(part: Any) -> bool:
    return next(functions_in(part), None) is not None


class _Flagged(NamedTuple):
    """A piece of a stage: the reading, or one step; `users` None where it goes with its neighbours."""

    kind: str
    step: Any
    users: bool | None


def stays(program: Program) -> bool:
    """Tell whether a part of a program can run nowhere else: a generator, an iterator, or a stage with threads of the program."""
    stages = (stage for segment in program.segments for stage in segment.stages)
    in_threads = any(stage.workers is not None and stage.workers.executor == "threads" for stage in stages)
    return in_threads or any(segment.stream is not None for segment in program.segments)


def together(program: Program) -> Program:
    """Leave functions of the user's to the shared workers; they make batches, too, where stages of other workers stand before them."""
    return replace(program, segments=tuple(map(_finished_by_shared, program.segments)))


def _finished_by_shared(segment: SegmentPlan) -> SegmentPlan:
    last = segment.stages[-1] if segment.stages else None
    if last is None or last.workers is None or not _runs_users((segment.batch, segment.batch_ops)):
        return segment
    return replace(segment, finisher=SHARED)


def apart(program: Program) -> Program:
    """Give what runs functions of the user's to one thread of the program, and leave the rest to the shared workers.

    Stages are cut where the one changes into the other. Reading what lies in memory goes with the function behind it: handing it over
    would cost more. Stages with workers of their own stay as they are.
    """
    return replace(program, segments=tuple(map(_apart, program.segments)))


def _apart(segment: SegmentPlan) -> SegmentPlan:
    stages: list[StagePlan] = []
    for number, stage in enumerate(segment.stages):
        leaf = segment.leaf if number == 0 else None
        stages += [stage] if stage.workers is not None else _cut(stage, leaf)
    reader = IN_PROGRAM.pool if segment.stream is not None and next(users_of(segment.stream), None) is not None else ""
    finishing = _runs_users((segment.batch, segment.batch_ops))
    return replace(segment, stages=tuple(stages), reader=reader, finisher=IN_PROGRAM.pool if finishing else "")


def _cut(stage: StagePlan, leaf: Leaf | None) -> list[StagePlan]:
    """Cut a stage where functions of the user's begin and end."""
    parts = [] if leaf is None else [_Flagged("leaf", leaf, True if _runs_users(leaf) else None if _in_memory(leaf) else False)]
    for kind, steps in (("operators", stage.operators), ("filter_steps", stage.filter_steps)):
        parts += [_Flagged(kind, step, _runs_users(step) if step.name else None) for step in steps]
    known = [part.users for part in parts if part.users is not None]
    if len(set(known)) < 2:
        return [replace(stage, workers=IN_PROGRAM if known and known[0] else None)]
    users, out = known[0], []
    flags = [users := users if part.users is None else part.users for part in parts]
    for is_users, group in groupby(zip(flags, parts, strict=True), key=lambda pair: pair[0]):
        run = [part for _, part in group]
        out.append(_stage(run, IN_PROGRAM if is_users else None, stage.name if leaf is not None and run[0].kind == "leaf" else ""))
    return out


def _stage(parts: Sequence[_Flagged], workers: Any, first_name: str) -> StagePlan:
    """Make a stage of some parts of one; that with the leaf is named by how it reads, as the whole was."""
    steps: dict[str, tuple[Any, ...]] = {
        kind: tuple(part.step for part in parts if part.kind == kind) for kind in ("operators", "filter_steps")
    }
    names = [first_name.partition("+")[0], *(step.name for kind in steps for step in steps[kind])]
    return StagePlan(name="+".join(filter(None, names)), workers=workers, **steps)


def _in_memory(leaf: Leaf) -> bool:
    """Tell whether a leaf only looks into arrays or lists of this process."""
    return isinstance(leaf, ReadLeaf) and getattr(leaf.source, "in_memory", False)


def seeds_generators(program: Program) -> bool:
    """Tell whether a function of a program seeds the generators that everybody in a process shares."""
    steps = (step for segment in program.segments for stage in segment.stages for step in (*stage.operators, *stage.filter_steps))
    return any(getattr(getattr(step, "fn", None), "seeds_generators", False) for step in steps)


def names_of_users(program: Program) -> list[str]:
    """Name the steps that run functions of the user's where the feed says, from the source up, each once; of a source its class.

    Those with workers of their own, and `async` ones, run where `map` says.
    """
    names: dict[str, None] = {}
    for segment in program.segments:
        stages = [stage for stage in segment.stages if stage.workers in (None, IN_PROGRAM) and stage.awaited is None]
        for user in functions_in(segment.leaf) if segment.stages[:1] == tuple(stages[:1]) else ():
            names[getattr(user, "__name__", type(user).__name__)] = None
        steps: list[FilterStep | Operator] = [step for stage in stages for step in (*stage.operators, *stage.filter_steps)]
        names |= {step.name: None for step in steps if step.name and _runs_users(step)}
        if segment.batch is not None and _runs_users(segment.batch):
            names["collate_fn"] = None
        names |= {step.name: None for step in segment.batch_ops if step.name and _runs_users(step)}
    return list(names)
