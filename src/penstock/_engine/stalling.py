"""What an engine does about a stall that its watch has found."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.event import Notice
from penstock._contracts.policy import Replace, Skip, decide
from penstock._engine.flow import Flow
from penstock._engine.stall import Kind, Situation, WorkerFacts, report
from penstock._engine.unit import TOP, Stall, Unit
from penstock._engine.watch import Stuck, Watch
from penstock._ops.block import ElementFailed
from penstock.errors import FeedStalled
from penstock.queues.standing import level_of_caller

__all__ = ["Stalls"]

_NO_MORE = 1 << 62  # retries


class _Lent(NamedTuple):
    """What an engine lends.

    Attributes:
        mutex: guards the flow.
        announce: gets a notice of each stall.
        broke: ends the run with an error.
        ring: tells the workers that there is something to do.
    """

    mutex: threading.Lock
    announce: Callable[[Notice], Any]
    broke: Callable[[BaseException], Any]
    ring: Callable[[], Any]


class Stalls:
    """Acts by policy, in the thread of the consumer that waits.

    Attributes:
        vacant: workers that were given up, as (pool, number): each wants to be replaced.
    """

    __slots__ = ("_flow", "_lent", "_watch", "vacant")

    def __init__(self, flow: Flow, watch: Watch, *lent: Any) -> None:
        """Prepare; the engine lends its mutex, and its functions `announce`, `broke` and `ring`."""
        self._flow, self._watch, self._lent = flow, watch, _Lent(*lent)
        self.vacant: list[tuple[str, int]] = []

    def act(self, kind: Kind) -> None:
        """Let an error take the place of the next hand-over, or give a warning and let the wait go on, or give up who is stuck.

        Slow progress is only warned about: a job must not die of a cold disk, or of a resume that reads a generator forward.
        """
        situation = self._watch.situation(kind, self._flow)
        if kind == "stuck" and not any(facts.stuck for facts in situation.busy):
            return  # it has gone on meanwhile
        if kind == "stuck" and self._watch.on_stall == "skip":
            self._give_up(situation)
            return
        error = _error(situation)
        self._lent.announce(Notice(time.perf_counter_ns(), "stall", error.what))
        if kind != "slow" and self._watch.on_stall != "warn":
            self._lent.broke(error)
        else:
            warnings.warn(str(error), RuntimeWarning, stacklevel=level_of_caller())  # the line of the loop that asked for the next element

    def _give_up(self, situation: Situation) -> None:
        """Begin the units anew in which somebody is stuck, around the elements that do not end."""
        blocking = [facts for facts in situation.busy if facts.blocks]
        if blocking:
            self._refuse(situation, blocking[0], "no other call can go on while it holds up their loop")
            return
        found = []
        for stuck in self._watch.stuck(self._flow):
            failed, error = self._failed(stuck), _error(_about(situation, stuck.facts))
            why = self._reason_against(stuck, failed, error)
            if stuck.gone_on():
                continue
            if why:
                self._refuse(situation, stuck.facts, why)
                return
            found.append((stuck, failed, error))
        with self._lent.mutex:
            found = [one for one in found if not one[0].gone_on()]
            dead = self._renew(found)
        for unit in dead:
            for loop in self._watch.loops:
                loop.drop(unit)
        self._watch.restart()
        self._lent.ring()
        for _, _, error in found:
            self._lent.announce(Notice(time.perf_counter_ns(), "stall", error.what))

    def _refuse(self, situation: Situation, facts: WorkerFacts, why: str) -> None:
        error = _error(_about(situation, facts), f"; it cannot be skipped: {why}")
        self._lent.announce(Notice(time.perf_counter_ns(), "stall", error.what))
        self._lent.broke(error)

    def _reason_against(self, stuck: Stuck, failed: ElementFailed, error: FeedStalled) -> str:
        """Say why a stall cannot be skipped, or nothing."""
        post = stuck.post
        if stuck.task.read:
            return "what a generator gives next is not known before it has given this"
        if post is not None and post.worker.piece is None:
            return "it belongs to no element in particular"
        policy, site = self._flow.program.policies.of(failed)
        decided = decide(policy, error, _NO_MORE)
        return "" if isinstance(decided, (Skip, Replace)) else f"the policy of {site} raises it"

    def _failed(self, stuck: Stuck) -> ElementFailed:
        """Return the failure that a stall counts as, without its error."""
        plan = self._flow.segments[stuck.task.segment].plan
        worker = None if stuck.post is None else stuck.post.worker
        operator = plan.stages[stuck.task.stage].awaited if worker is None else worker.operator
        reads = worker is not None and operator is None and not worker.finishing and stuck.task.stage == 0 and plan.leaf is not None
        if stuck.facts.stage == "read" or reads:
            return ElementFailed(0, "read", TimeoutError())
        steps = [part for step in getattr(operator, "steps", (operator,)) for part in (getattr(step, "parts", ()) or (step,))]
        policies = [policy for policy in (getattr(step, "policy", None) for step in steps) if policy is not None]
        return ElementFailed(0, stuck.facts.stage, TimeoutError(), policies[0] if policies else None)

    def _renew(self, found: list[tuple[Stuck, ElementFailed, FeedStalled]]) -> list[Unit]:
        """Let go of workers and units, and put others in their places; return the units that are given up."""
        stalls: dict[int, tuple[Unit, int, list[tuple[tuple[int, int], Stall]]]] = {}
        for stuck, failed, error in found:
            (stage, row), stall = _stall(stuck, failed, error)
            unit = stuck.task.unit
            assert unit is not None
            over = unit.finishing and stage != TOP  # a row before it failed, and the unit was finished without it
            if stuck.post is not None:
                self._watch.leave(stuck.post)
                self.vacant.append((stuck.post.pool, stuck.post.worker.index))
            now = self._flow.segments[stuck.task.segment].living(unit)
            if over or now is None or (now is not unit and (now.finishing or stage == TOP)):
                continue
            some = stalls.setdefault(id(now), (now, stuck.task.segment, []))[2]
            if row is not None:
                some.append(((stage, row), stall))
        for unit, segment, some in stalls.values():
            heir = self._flow.renew(self._flow.segments[segment], unit)
            for at, stall in some:
                heir.stalled.setdefault(at, []).append(stall)
        return [unit for unit, _, _ in stalls.values()]


def _stall(stuck: Stuck, failed: ElementFailed, error: FeedStalled) -> tuple[tuple[int, int | None], Stall]:
    """Return the stage and row of what is stuck, and what is kept of it."""
    stall = Stall(error, failed.stage, failed.policy, stuck.facts.index)
    if stuck.post is not None:
        worker = stuck.post.worker
        inner, key = worker.inner() or (None, None)
        stall = stall._replace(stand_in=worker.stand_in, without=worker.without, inner=inner, key=key)
        return (TOP if worker.finishing else stuck.task.stage, worker.row()), stall
    assert stuck.call is not None
    block, offset = stuck.call.block, stuck.call.offset
    if block.origins is None:
        return (stuck.task.stage, stuck.task.begin + offset), stall
    row = int(block.origins[offset])
    inner = 0, offset - int(np.searchsorted(block.origins, row))
    return (stuck.task.stage, stuck.task.begin + row), stall._replace(inner=inner, key=block.key_of(offset))


def _about(situation: Situation, facts: WorkerFacts) -> Situation:
    """Let a report be about one of those that are stuck."""
    others = [replace(other, stuck=False) for other in situation.busy if _who(other) != _who(facts)]
    return replace(situation, busy=(facts, *others), more_stuck=0)


def _who(facts: WorkerFacts) -> tuple[Any, ...]:
    return facts.thread, facts.index, facts.element if facts.call else ""


def _error(situation: Situation, more: str = "") -> FeedStalled:
    what, where, fix = report(situation)
    return FeedStalled(what + more, where=where, fix=fix)
