"""What an engine does about a stall that its watch has found."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from penstock._contracts.event import Notice
from penstock._engine.flow import Flow
from penstock._engine.stall import Kind, report
from penstock._engine.watch import Watch
from penstock.errors import FeedStalled

__all__ = ["Stalls"]


class Stalls:
    """Acts by policy, in the thread of the consumer that waits."""

    __slots__ = ("_announce", "_broke", "_flow", "_watch")

    def __init__(self, flow: Flow, watch: Watch, announce: Callable[[Notice], Any], broke: Callable[[BaseException], Any]) -> None:
        """Prepare.

        Args:
            flow: what stalls.
            watch: finds it.
            announce: gets a notice of each stall.
            broke: ends the run with an error.
        """
        self._flow, self._watch = flow, watch
        self._announce, self._broke = announce, broke

    def act(self, kind: Kind) -> None:
        """Let an error take the place of the next hand-over, or give a warning and let the wait go on.

        Slow progress is only warned about: a job must not die of a cold disk, or of a resume that reads a generator forward.
        """
        situation = self._watch.situation(kind, self._flow)
        if kind == "stuck" and not any(facts.stuck for facts in situation.busy):
            return  # it has gone on meanwhile
        what, where, fix = report(situation)
        error = FeedStalled(what, where=where, fix=fix)
        self._announce(Notice(time.perf_counter_ns(), "stall", error.what))
        if kind != "slow" and self._watch.on_stall == "raise":
            self._broke(error)
        else:
            warnings.warn(str(error), RuntimeWarning, stacklevel=6)  # the line of the loop that asked for the next element
