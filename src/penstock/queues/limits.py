"""Checks of the numbers that calls are given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.errors import PlanError

__all__ = ["limit_of", "positive"]


def limit_of(timeout_s: Any) -> float | None:
    """Return a time limit; None and infinity are none.

    Raises:
        PlanError: it is negative, not a number, or NaN.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float, np.integer, np.floating)) or not timeout_s >= 0:
        raise PlanError(
            f"timeout_s is {timeout_s!r}", where="timeout_s", fix="give seconds, 0 or more; 0 does not block, None waits without limit"
        )
    return None if timeout_s == math.inf else float(timeout_s)


def positive(number: Any, name: str, least: int = 1) -> int:
    """Return a count.

    Raises:
        PlanError: it is no whole number, or less than `least`.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < least:
        raise PlanError(f"{name} is {number!r}", where=name, fix=f"give a whole number, {least} or more")
    return int(number)
