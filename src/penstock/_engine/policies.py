"""Which policies a plan and a feed have, and which cannot work where they were given. Pure."""

from __future__ import annotations

from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, Replace, Skip, final
from penstock._engine.lower import lower
from penstock._engine.operators import BATCHES, chain_of
from penstock._engine.rescue import Policies
from penstock._plan import node as plan
from penstock._plan.length import STREAMS, walk
from penstock.errors import PlanError

__all__ = ["check_policies", "policies_in", "policies_of"]

_OWN = (plan.Map, plan.Filter, plan.FlatMap)


def policies_in(root: plan.Node) -> list[Policy]:
    """List the policies that operators have of their own."""
    return [node.on_error for node in walk(root) if isinstance(node, _OWN) and node.on_error is not None]


def policies_of(root: plan.Node, options: Options) -> Policies:
    """Return the policies of a feed. Beside a shard of known positions elements are replaced where a policy says skip."""
    chain = chain_of(root)
    first = next((place for place, node in enumerate(chain) if isinstance(node, STREAMS)), len(chain))
    shards = any(isinstance(node, plan.Shard) for below in chain[:first] for node in ([below] if len(chain) > 1 or below is root else []))
    return Policies(on_error=options.on_error, on_read_error=options.on_read_error, keeps_positions=shards)


def check_policies(root: plan.Node, *, skips: bool) -> None:
    """Refuse policies that cannot do anything where they stand.

    Raises:
        PlanError: a Replace where no positions are known, or a Skip that cannot be a Replace beside a shard.
    """
    chain = chain_of(root)
    behind = isinstance(chain[0], plan.ReadStream)
    for place, node in enumerate(chain):
        if isinstance(node, _OWN) and node.on_error is not None and isinstance(final(node.on_error), Replace) and behind:
            raise PlanError(
                "Replace needs the positions of elements, and behind a batch, fold or generator there are none",
                where=f"on_error= of stage {node.name!r}",
                fix="use Skip there, or put the operator below",
            )
        behind = behind or _ends_positions(node, chain[place + 1 :])
    if skips:
        lower(root, folded=True, skips=True)  # a plan that cannot batch what is left says so here


def _ends_positions(node: plan.Node, above: list[plan.Node]) -> bool:
    return isinstance(node, (*BATCHES, plan.BucketByLength, plan.PackSequences, plan.RejectionResample))
