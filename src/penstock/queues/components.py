"""Elements and their components."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Components"]


class Components:
    """Checks elements, slices and stacks them."""

    def entry(self, element: Any) -> Any:
        """Make the entry of an element."""
        return element

    def entries(self, elements: Any) -> list[Any]:
        """Make the entries of the slices of `elements`."""
        return list(elements)

    def element(self, entries: list[Any]) -> Any:
        """Return the only element."""
        return entries[0]

    def batch(self, entries: list[Any]) -> Any:
        """Stack."""
        return np.stack(entries)
