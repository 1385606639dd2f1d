"""Checks of the numbers that calls are given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.errors import PlanError
from penstock.queues.trees import number_words

__all__ = ["limit_of", "no_such_keywords", "positive"]

_OURS = {
    "stop_grace_period_secs": "its name is stop_grace_period_s here, an argument of Coordinator.join()",
    "sess": "there is no session here: leave it out",
    "timeout": "its name is timeout_s here",
    "close_op": "a runner closes its queue by itself when its last thread ends: leave it out",
    "cancel_op": "the stop of the coordinator cancels by itself: leave it out",
}
"""What TensorFlow's keywords are here."""


def no_such_keywords(call: str, given: dict[str, Any]) -> None:
    """Refuse keywords that a call has not got, with our word for those of TensorFlow.

    Raises:
        PlanError: there is one.
    """
    for name in given:
        raise PlanError(f"{call} has no argument {name!r}", where=call, fix=_OURS.get(name, "look at the arguments in its docstring"))


def limit_of(timeout_s: Any) -> float | None:
    """Return a time limit; None and infinity are none.

    Raises:
        PlanError: it is negative, not a number, NaN, or beyond all floats.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float, np.integer, np.floating)) or not timeout_s >= 0:
        raise _no_limit(f"{timeout_s!r}")
    try:
        limit_s = float(timeout_s)
    except OverflowError as error:
        raise _no_limit(number_words(int(timeout_s))) from error
    return None if limit_s == math.inf else limit_s


def _no_limit(told: str) -> PlanError:
    return PlanError(f"timeout_s is {told}", where="timeout_s", fix="give seconds, 0 or more; 0 does not block, None waits without limit")


def positive(number: Any, name: str, least: int = 1) -> int:
    """Return a count.

    Raises:
        PlanError: it is no whole number, or less than `least`.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < least:
        raise PlanError(f"{name} is {number!r}", where=name, fix=f"give a whole number, {least} or more")
    return int(number)
