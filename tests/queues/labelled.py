"""An array-like whose items have labels, for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Labelled"]


class Labelled:
    """As a Series is: a number in brackets is a label."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, label: int) -> int:
        return {2: 10, 1: 20, 0: 30}[label]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([10, 20, 30], dtype)
