"""Which policies a plan and a feed have, and which cannot work where they were given. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, Replace, Skip, final
from penstock._engine.lowering import chain_of, lower
from penstock._engine.program import Policies, SegmentPlan
from penstock._plan.base import Node, walk
from penstock._plan.node import AsCompleted, Map, Shard, shards_of
from penstock.errors import PlanError

__all__ = ["check_policies", "policies_in", "policies_of", "rank_notice"]


def policies_in(root: Node) -> list[Policy]:
    """List the policies that operators have of their own."""
    return [node.on_error for node in walk(root) if node.on_error is not None]


def policies_of(root: Node, options: Options) -> Policies:
    """Return the policies of a feed."""
    nodes = walk(root)
    counted = any(node.streams and not isinstance(node, AsCompleted) for node in nodes)
    shards = not counted and any(isinstance(node, Shard) and node.equal_steps for node in nodes)
    skips = any(isinstance(final(policy), Skip) for policy in [options.on_error, *policies_in(root)])
    return Policies(on_error=options.on_error, equal_steps=shards, skips=skips, verify=options.verify)


def check_policies(root: Node, policies: Policies) -> None:
    """Refuse policies of operators that cannot do anything where they stand.

    Raises:
        PlanError: a Replace where no positions are known, a Skip after a batch beside a shard, or a Skip after a shard by rank.
    """
    if any(node.even == "mask" for node in shards_of(root)):
        _check_masks(root, policies)
    if not policies.skips and not policies_in(root):
        return
    _check_ranks(root, policies)
    for number, segment in enumerate(lower(root).segments):
        for stage, policy in _without_positions(segment, number):
            last = final(policy)
            if isinstance(last, Replace):
                raise PlanError(
                    "Replace needs the positions of elements, and there are none behind a batch, a fold or a generator",
                    where=f"on_error= of stage {stage!r}",
                    fix="use Skip there, or put the operator before",
                )
            if isinstance(last, Skip) and policies.equal_steps:
                raise PlanError(
                    "Skip would leave out a whole batch, and beside shard() every rank must make as many steps",
                    where=f"on_error= of stage {stage!r}",
                    fix=f"put {stage!r} before the batch, where Skip shortens it and Replace() takes another element",
                )


def _counted_ranks(chain: Sequence[Node], policies: Policies) -> int | None:
    """Return where a shard by rank stands whose rounds are counted as they come, or None."""
    if policies.equal_steps:
        return None
    counted = [node for node in shards_of(chain[-1]) if node.even and node.num_shards > 1]
    return next((place for place, node in enumerate(chain) if node in counted), None)


def rank_notice(root: Node, policies: Policies) -> str:
    """Say what Skip may do below a shard by rank whose rounds are counted as they come; "" where it is not so."""
    if not policies.skips or _counted_ranks(chain_of(root), policies) is None:
        return ""
    return (
        "Skip below shard_by_rank() leaves an element out on each rank where it fails. An error of the data is the same on all; one of a "
        "machine or a network shifts the rounds of a single rank, which then repeats and misses elements: use Retry() for such errors"
    )


def _check_ranks(root: Node, policies: Policies) -> None:
    """Refuse a Skip above a shard by rank whose rounds are counted as they come: it would take a step from one rank alone."""
    chain = chain_of(root)
    place = _counted_ranks(chain, policies)
    if place is None:
        return
    for node in chain[place:]:
        if isinstance(node, Map) and isinstance(final(node.on_error or policies.on_error), Skip):
            raise PlanError(
                "an element that Skip leaves out above shard_by_rank() is missing on one rank alone, which then makes fewer steps",
                where=f"on_error= of stage {node.name!r}, above shard_by_rank()",
                fix=f"put {node.name!r} below shard_by_rank(), or use Retry or Raise there",
            )


def _check_masks(root: Node, policies: Policies) -> None:
    """Refuse what gives an element a second time, in the place of a failing one: it would be valid twice."""
    every = [final(policy) for policy in (policies.on_error, *policies_in(root)) if policy is not None]
    stands_in = next((policy for policy in every if isinstance(policy, Replace)), None)
    if stands_in is not None:
        raise PlanError(
            f"{type(stands_in).__name__} puts another element in the place of one that fails, which would then be valid twice",
            where="on_error= with shard_by_rank(even='mask')",
            fix="use Raise or Retry, or leave out with filter() what cannot be used, before shard_by_rank()",
        )


def _without_positions(segment: SegmentPlan, number: int) -> Iterator[tuple[str, Policy]]:
    """Yield the operators of a segment whose elements have no positions, with their policies."""
    yield from _own(segment.batch_ops)
    if number or segment.leaf is None:
        for stage in segment.stages:
            yield from _own((*stage.operators, *stage.filter_steps))


def _own(operators: Iterable[Any]) -> Iterator[tuple[str, Policy]]:
    for operator in operators:
        for part in getattr(operator, "steps", (operator,)):
            policy = getattr(part, "policy", None)
            if policy is not None:
                yield part.name, policy
