"""Functions that worker processes import."""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def busy(element: int) -> Any:
    """Compute in Python for some 0.2 ms; return the number, and the process that has computed it."""
    total = 0
    for number in range(3000):
        total += number * element
    return {"number": np.int64(element), "total": np.int64(total % 1000), "pid": np.int64(os.getpid())}
