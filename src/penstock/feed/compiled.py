"""What is known of a dataset and the options of a feed before it runs, made once: its program, its length, its policies, its notices."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import Any

from penstock._contracts.frameworks import Output
from penstock._contracts.options import Options, Threads
from penstock._contracts.policy import Policy, Replace, Skip, final
from penstock._engine.lowering import lower
from penstock._engine.placing import stays
from penstock._engine.program import IN_PROGRAM, Policies, Program, SegmentPlan, StagePlan, in_completion_order
from penstock._ops.reading import BatchLeaf
from penstock._order.arithmetic import INFINITE
from penstock._plan import check
from penstock._plan.base import Node, SourceNode, length_of, walk
from penstock._plan.check import rank_notes, reading_notes
from penstock._plan.facts import is_indexable, known_names, lines
from penstock._plan.node import Map, Shard
from penstock.errors import PlanError

_BORDERS = re.compile(r"(window_groups=\d+) of [0-9a-f]{8}")
"""The check sum of borders of groups in the line of a shuffle: above a shard they are other ones on each rank."""


class Compiled:
    """A dataset and the options of a feed, checked.

    Attributes:
        root: the dataset's plan.
        options: of the feed.
        output: what makes batches of another framework, or None.
        shards: the shards of the plan, from the sources up.
        program: what runs.
        policies: what is done about elements that fail.
        length: how many elements or batches an epoch has; INFINITE where that is not known.
        notices: what is to be told when it runs, with the kind of each.
    """

    def __init__(self, root: Node, options: Options, output: Output | None = None) -> None:
        """Check a plan and the options together.

        Raises:
            PlanError: they do not go together.
        """
        self.root, self.options, self.output = root, options, output
        self._nodes = walk(root)
        self.shards = [node for node in self._nodes if isinstance(node, Shard)]
        check.steps_of_ranks(root, self.shards)
        self.policies = self._policies()
        if output is not None and output.spans_processes and self.policies.skips:
            raise PlanError(
                "Skip shortens the batch of one process, and with sharding= over several processes all must give parts of one size",
                where="feed(output=ps.Jax(sharding=...))",
                fix="use Replace(), which puts another element in the place of one that fails",
            )
        self.program = self._lowered(root)
        self._check_policies()
        length = length_of(root)
        self.length = INFINITE if length is None else length
        self.notices = self._notices()

    @property
    def ranks(self) -> tuple[int, int] | None:
        """Return (rank, number of ranks) of the shard by rank, where they are those of the process, or None."""
        return next(((node.index, node.num_shards) for node in self.shards if node.found), None)

    def program_of(self, root: Node) -> Program:
        """Return the program of a plan: its own, or what is left of it after a move to another number of shards."""
        return self.program if root is self.root else self._lowered(root)

    def _lowered(self, root: Node) -> Program:
        program = replace(lower(root), policies=self.policies)
        return program if self.options.ordered else in_completion_order(program) or program

    @cached_property
    def fingerprints(self) -> list[dict[str, Any]]:
        """Those of the sources; the first time it reads a bounded sample of the data."""
        return [node.source.fingerprint() for node in self._nodes if isinstance(node, SourceNode)]

    def common_to_ranks(self) -> list[str]:
        """Describe what must be the same on all ranks."""
        plan = [_BORDERS.sub(r"\1", line) for line in lines(self.root, saved=True)]
        mixes = [node.history for node in self._nodes if node.history]
        weights = [f"mix with weights {weights} from {start}" for history in mixes for start, weights in history]
        return [*plan, *weights, *(f"dataset {one}" for one in self.fingerprints)]

    def _policies(self) -> Policies:
        counted = any(map(check.is_counted, self._nodes))
        every = [final(policy) for policy in self._every_policy()]
        return Policies(
            on_error=self.options.on_error,
            equal_steps=not counted and any(node.equal_steps for node in self.shards),
            skips=any(isinstance(policy, Skip) for policy in every),
            verify=self.options.verify,
            quarantines=any(isinstance(policy, (Skip, Replace)) and policy.quarantine is not None for policy in every),
        )

    def _every_policy(self) -> list[Policy]:
        """List that of the feed, then those that operators have of their own."""
        return [self.options.on_error, *(node.on_error for node in self._nodes if node.on_error is not None)]

    def _check_policies(self) -> None:
        """Refuse policies of operators that cannot do anything where they stand.

        Raises:
            PlanError: a Replace where no positions are known, a Skip after a batch beside a shard, or a Skip after a shard by rank.
        """
        every = self._every_policy()
        if any(node.even == "mask" for node in self.shards) and any(isinstance(final(policy), Replace) for policy in every):
            raise PlanError(  # a second time
                "Replace puts another element in the place of one that fails, which would then be valid twice",
                where="on_error= with shard_by_rank(even='mask')",
                fix="use Raise or Retry, or leave out with filter() what cannot be used, before shard_by_rank()",
            )
        if not self.policies.skips and len(every) == 1:
            return
        self._check_ranks()
        for number, segment in enumerate(self.program.segments):
            for stage, policy in _without_positions(segment, number):
                last = final(policy)
                if isinstance(last, Replace):
                    raise PlanError(
                        "Replace needs the positions of elements, and there are none behind a batch, a stateful operator or a generator",
                        where=f"on_error= of stage {stage!r}",
                        fix="use Skip there, or put the operator before",
                    )
                if isinstance(last, Skip) and self.policies.equal_steps:
                    raise PlanError(
                        "Skip would leave out a whole batch, and beside shard() every rank must make as many steps",
                        where=f"on_error= of stage {stage!r}",
                        fix=f"put {stage!r} before the batch, where Skip shortens it and Replace() takes another element",
                    )

    @property
    def _by_rank(self) -> list[Shard]:
        return [node for node in self.shards if node.even and node.num_shards > 1]

    def _check_ranks(self) -> None:
        """Refuse a Skip above a shard by rank that takes a step from one rank alone, or makes its state differ from that of all."""
        above = [] if self.policies.equal_steps else check.above(self.root, self._by_rank)
        node = next(filter(self._skips, above), None)
        if any(map(check.is_counted, above)):  # each rank has a state of its own
            node = check.uneven_after(self.root, self._by_rank, self._skips)
        if isinstance(node, Map):
            raise PlanError(
                "an element that Skip leaves out after shard_by_rank() is missing on one rank alone, which then makes fewer steps",
                where=f"on_error= of stage {node.name!r}, after shard_by_rank()",
                fix=f"put {node.name!r} before shard_by_rank(), or use Retry or Raise there",
            )

    def _skips(self, node: Node) -> bool:
        return isinstance(node, Map) and isinstance(final(node.on_error or self.policies.on_error), Skip)

    def _notices(self) -> list[tuple[str, str]]:
        out = [("shard", check.shard_notice(self.root, self.shards))]
        if self.policies.skips and not all(map(is_indexable, self._by_rank)):
            text = (
                "Skip before shard_by_rank() leaves an element out on each rank where it fails. An error of the data is the same on all; "
                "one of a machine or a network shifts the rounds of a single rank, which then repeats and misses elements: use Retry() for "
                "such errors"
            )
            out.append(("shard", text))
        out += [("plan", text) for text in check.notices(self._nodes, self.options.output_name)]
        if isinstance(self.options.executor, Threads) and self.options.executor.isolate and stays(self.program):
            words = "a generator, an iterator or a stage with threads of its own runs in the program, and all else with it"
            out.append(("executor", f"isolate=True changes nothing here: {words}"))
        if not self.options.ordered and not any(segment.unordered for segment in self.program.segments):
            text = (
                "ordered=False changes nothing here: an operator counts elements in their order behind a filter, flat_map or generator, so "
                "a slow one holds up those behind it; call as_completed() before that operator to take them as they are finished"
            )
            out.append(("order", text))
        return [(kind, text) for kind, text in out if text]


def _without_positions(segment: SegmentPlan, number: int) -> list[tuple[str, Policy]]:
    """List the operators of a segment whose elements have no positions, with their policies."""
    stages = segment.stages if number or segment.leaf is None else ()
    operators: list[Any] = [*segment.batch_ops, *(one for stage in stages for one in (*stage.operators, *stage.filter_steps))]
    parts = [part for operator in operators for part in getattr(operator, "steps", (operator,))]
    return [(part.name, part.policy) for part in parts if getattr(part, "policy", None) is not None]


def explain(root: Node, program: Program, shared: str) -> str:
    """Return the plan, then its segments and stages with the places where they run; `shared` says what the shared workers are."""
    out = ["plan", *("  " + line for line in lines(root)), "runs as"]
    for number, segment in enumerate(program.segments):
        out.extend(_segment(number, segment, shared, last=number == len(program.segments) - 1))
    nodes = walk(root)
    out.extend(f"  note: {words}" for words in (*reading_notes(nodes), *rank_notes(nodes, explaining=True)))
    if names := known_names(root):
        out.append(f"  known without computing, for by=: {names}")
    out.extend(f"  cache {node.store.label()}" for node in nodes if node.store is not None)
    return "\n".join(out)


def _segment(number: int, segment: SegmentPlan, shared: str, *, last: bool) -> list[str]:
    out = [f"  segment {number + 1}: {_input(segment)}"]
    told = [stage for stage in segment.stages if stage.name or stage.workers is not None]
    out += [f"    stage {stage.name or 'rows'!r} on {_workers(stage, shared)}" for stage in told]
    if isinstance(segment.leaf, BatchLeaf) and (names := [operator.name for operator in segment.leaf.child.operators if operator.name]):
        out.append(f"    read in groups, through {', '.join(names)}: {segment.leaf.collation.words}")
    if segment.batch is not None:
        there = ", in the program" if segment.finisher else ""
        out.append(f"    batches of {segment.batch.batch_size}: {segment.batch.collation.words}{there}")
    if segment.batch_ops:
        out.append(f"    then on whole batches: {', '.join(step.name or 'positions' for step in segment.batch_ops)}")
    if segment.unordered:
        out.append("    its elements go on as they are finished")
    if segment.folds:
        folds = ", ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(fold).__name__.removesuffix("Fold")).lower() for fold in segment.folds)
        out.append(f"    then in order, at one place: {folds}")
    out.append(f"    {'delivered' if last else 'handed on'}{'' if segment.unordered else ' in order'}")
    return out


def _workers(stage: StagePlan, shared: str) -> str:
    if stage.awaited:
        return f"an event loop, {stage.concurrency} call(s) at once"
    if stage.workers == IN_PROGRAM:
        return "one thread of this program, one call at a time"
    processes = " in processes" if stage.workers and stage.workers.executor == "processes" else ""
    return shared if stage.workers is None else f"{stage.concurrency or 'as many'} worker(s) of its own{processes}"


def _input(segment: SegmentPlan) -> str:
    if segment.stream is not None:
        return f"one thread reads {segment.stream.label()}"
    if segment.leaf is None:
        return "what the segment before hands on"
    return "positions by arithmetic, any block at any time"
