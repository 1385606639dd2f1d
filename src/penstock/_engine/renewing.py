"""A unit that is run again because an element of it does not end. Pure.

A worker that is stuck in a user's function cannot be taken out of it. It is left behind with its unit, whose buffers are its own as long as
it holds them; everything of the unit is computed again in another one, around the element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock._engine.unit import Levels, Unit
from penstock._ops.block import ElementFailed

__all__ = ["check_wanted", "renewed", "stalls_at"]


def check_wanted(unit: Unit | None) -> None:
    """Let the task of a unit that was given up end here: who was stuck in it has come to, and its work is done by others.

    Raises:
        ElementFailed: which is not tried again.
    """
    if unit is not None and unit.dead:
        gone = ElementFailed(0, "", TimeoutError())
        gone.stalled = True
        raise gone


def stalls_at(unit: Unit, stage: int, row: int) -> Callable[[Sequence[tuple[int, ...]]], ElementFailed | None]:
    """Return what says whether a row, without some of the elements that it gives, is known not to end: as the failure that it counts as."""
    stalls = {stall.without: stall for stall in reversed(unit.stalled.get((stage, row), ())) if not stall.stand_in}

    def failed(without: Sequence[tuple[int, ...]]) -> ElementFailed | None:
        stall = stalls.get(tuple(without))
        if stall is None:
            return None
        out = ElementFailed(0, stall.stage, stall.error, stall.policy)
        out.inner, out.key, out.stalled = stall.inner, stall.key, True
        return out

    return failed


def renewed(unit: Unit, levels: Levels) -> Unit:
    """Give a unit up; return one with the same rows, of which nothing is done. One row is a task: the next stall then names its row."""
    given = unit.given
    heir = replace(
        unit,
        levels=levels,
        given=None if given is None else given.select(slice(0, len(given))),
        rows=None,
        parts={},
        claimed=0,
        done=[],
        num_done=0,
        limit=-1,
        failure=None,
        cost_ns=0,
        finishing=False,
        result=None,
        leased=False,
        kept_bytes=0,
        granted_bytes=0,
        charged_bytes=0,
        mishaps=[],
        late={},
        bad_rows=dict(unit.bad_rows),
        single=True,
        stalled={place: list(stalls) for place, stalls in unit.stalled.items()},
    )
    unit.dead = True
    if unit.failure is not None:  # it has been told of
        heir.fail(unit.failure)
    return heir
