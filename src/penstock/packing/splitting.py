"""A dataset as shards: which part of it has positions, what runs on its elements, and which positions belong to which shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, Replace, Retry, Skip, checked_policy, final
from penstock._plan import node as plan
from penstock._plan.base import substituted
from penstock._plan.facts import is_indexable, length_of, never_ends
from penstock.dataset import Dataset
from penstock.errors import PlanError, SourceError, TooManySkipped

__all__ = ["Split", "check_ends", "check_losses", "for_part", "has_positions", "leaving_out", "policy_of", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A plan with positions, and operators that make nothing, one or several elements of each of its elements.

    Attributes:
        base: the plan below the first filter, flat_map or unbatch.
        above: these operators and the maps between and above them, from below.
        options: of the dataset.
        num_positions: elements of `base`.
    """

    base: plan.Node
    above: tuple[plan.Node, ...]
    options: Options
    num_positions: int

    def whole(self) -> plan.Node:
        """Return the plan of all elements."""
        return self._with(self.base)

    def part(self, begin: int, end: int) -> Dataset:
        """Return the elements that come of positions begin..end-1: what they are in the whole, random numbers included."""
        return Dataset(self._with(plan.Take(child=plan.Skip(child=self.base, count=begin), count=end - begin)), self.options)

    def some(self, positions: list[int]) -> Dataset:
        """Return the elements that come of some positions, in their order."""
        return Dataset(self._with(plan.Pick(child=self.base, places=tuple((0, position) for position in positions))), self.options)

    def borders(self, num_shards: int) -> list[int]:
        """Return where shards begin, and the end: shard s has positions borders[s]..borders[s + 1] - 1, sizes differ by one at most."""
        return [number * self.num_positions // num_shards for number in range(num_shards + 1)]

    def _with(self, root: plan.Node) -> plan.Node:
        for node in self.above:
            root = node.with_children([root])
        return root


def has_positions(root: plan.Node) -> bool:
    """Tell whether a plan has positions, but for elementwise operators above them. The elements of any other only reading tells."""
    while (root.per_element or root.is_hint) and not is_indexable(root):
        root = root.children[0]
    return is_indexable(root)


def split(dataset: Dataset, *, variants: int, shuffle: int | None) -> Split:
    """Cut a dataset for packing.

    Args:
        dataset: what is to be packed; it has positions, see `has_positions`.
        variants: passes over it; the random numbers of each are other ones.
        shuffle: seed of an order over all of it, variants included; None for its own.

    Raises:
        PlanError: it is endless.
    """
    chain = [dataset._root]
    while not is_indexable(chain[0]):
        chain.insert(0, chain[0].children[0])
    base, above = chain[0], [node for node in chain[1:] if not node.is_hint]
    check_ends(base)
    whole = Dataset(base)
    if variants > 1:
        whole = whole.repeat(variants)
    if shuffle is not None:
        whole = whole.shuffle(seed=shuffle)
    return Split(base=whole._root, above=tuple(above), options=dataset._options, num_positions=int(length_of(base) or 0) * variants)


def check_ends(root: plan.Node) -> None:
    """Make sure that a plan ends; a stream is taken to end.

    Raises:
        PlanError: it does not.
    """
    if never_ends(root):
        raise PlanError("an endless dataset cannot be packed", where="pack()", fix="give repeat a count, use take(n), or variants=K")


def leaving_out(root: plan.Node) -> plan.Node:
    """Return a plan whose shards have what they have: what is skipped is left out, not replaced by another element of the shard."""
    others: dict[plan.Node, plan.Node] = {}
    for node in plan.shards_of(root):
        others[node] = replace(node, child=substituted(node.child, others), equal_steps=False)
    return substituted(root, others)


def policy_of(options: Options, on_error: Policy | None) -> Policy:
    """Return what is done about elements that fail: what was given, or the dataset's own.

    Raises:
        PlanError: it is no policy, or puts other elements in their place.
    """
    policy = checked_policy(options.on_error if on_error is None else on_error, "on_error", "pack()")
    if isinstance(final(policy), Replace):
        raise PlanError(
            "Replace() would put an element in place of another that stands in another shard",
            where="pack(on_error=...)",
            fix="use ps.Skip() or ps.Retry()",
        )
    return policy


def for_part(policy: Policy) -> Policy:
    """Return the policy for a part of a dataset: a share of all is judged when all is known, a number now, too."""
    last = final(policy)
    if not isinstance(last, Skip) or not isinstance(last.limit, float):
        return policy
    free = replace(last, limit=None)
    return replace(policy, then=free) if isinstance(policy, Retry) else free


def check_losses(policy: Policy, lost: Sequence[dict[str, Any]], num_written: int, num_read: int | None = None) -> None:
    """Refuse a result of which too much, or all, is missing.

    Args:
        policy: what is done about elements that fail.
        lost: a record of each that was left out.
        num_written: elements.
        num_read: positions that were read; None: those that were written or left out.

    Raises:
        SourceError, TooManySkipped: what is wrong.
    """
    if not num_written:
        raise SourceError("no element is left to write", where="pack()", fix="look at the filter, and at what on_error leaves out")
    last = final(policy)
    limit = last.limit if isinstance(last, Skip) else None
    count = num_written + len(lost) if num_read is None else num_read
    most = None if limit is None else limit if isinstance(limit, int) else limit * count
    if most is not None and len(lost) > most:
        raise TooManySkipped(
            f"{len(lost)} of {count} elements failed, limit {limit!r}; first: {lost[0]['error']}: {lost[0]['text']}",
            where=f"pack(), {lost[0]['where']}",
            fix="mend the input, or allow more: ps.Skip(limit)",
        )
