"""Says while a feed runs which elements it leaves out or replaces, and which fields it gives as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock._contracts.element import flatten, leaf_paths, structure_of
from penstock._contracts.event import ElementLost, Event, Listener, noted
from penstock._system.frames import warn

_MOST_PATHS = 5


class Losses:
    """Warns of the first element that a policy leaves out or replaces, and counts all of them at the end of each epoch.

    From any thread. A warning that the program turns into an error is raised by `look`, not where the element was lost.

    Args:
        finds_texts: whether to name the fields of the first delivery that no tensor is made of.
    """

    def __init__(self, *, finds_texts: bool) -> None:
        self._finds_texts = finds_texts
        self._before: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._first = ""
        self._warned = False

    def __call__(self, event: Event) -> None:
        """Count an element; other events are not of interest."""
        if not isinstance(event, ElementLost):
            return
        self._counts[event.action, event.stage] += 1
        if self._warned:
            return
        self._warned = True
        name = "element epoch {} index {}".format(*event.keys[0]) if event.keys else "a batch"
        where = f" ({event.where})" if event.where else ""
        self._first = (  # without the text of the error, which may hold a password
            f"{name}{where} was {event.action}: stage {event.stage!r} raised {type(event.error).__name__}. Further ones are counted, and "
            "told at the end of the epoch; a quarantine= file lists them all, with their errors"
        )

    def look(self, items: Sequence[Any], announce: Listener) -> None:
        """Look at a delivery, and warn of the first lost element if that was not done; `announce` gets notices."""
        if self._finds_texts and items:
            self._finds_texts = False
            if text := texts_in(items[-1]):
                announce(noted("plan", text))
        if self._first:
            text, self._first = self._first, ""
            announce(noted("policy", text))
            warn(text)

    def end(self, epoch: int, announce: Listener) -> None:
        """Say how many there were in an epoch, by stage, unless they were as many in the one before."""
        counts, self._counts = self._counts, Counter()
        if not counts or counts == self._before:
            return
        self._before = counts
        for action in sorted({action for action, _ in counts}):
            stages = {stage: count for (one, stage), count in sorted(counts.items()) if one == action}
            total, parts = sum(stages.values()), ", ".join(f"{count} by stage {stage!r}" for stage, count in stages.items())
            elements = "1 element was" if total == 1 else f"{total} elements were"
            announce(noted("policy", f"epoch {epoch}: {elements} {action}, {parts}"))


def texts_in(batch: Any) -> str:
    """Name the fields of a batch that PyTorch has no tensors for: texts, bytes and other objects; empty where there is none."""
    paths = leaf_paths(structure_of(batch))
    found = [path or "the element" for path, leaf in zip(paths, flatten(batch), strict=True) if _is_text(leaf)]
    if not found:
        return ""
    names = ", ".join(found[:_MOST_PATHS]) + (", ..." if len(found) > _MOST_PATHS else "")
    return (
        f'output="torch" leaves {names} as {"it is" if len(found) == 1 else "they are"}: PyTorch has no tensors of texts or bytes. '
        "Decode or tokenize such a field in a map, or drop it there, if the training step is to get tensors only"
    )


def _is_text(leaf: Any) -> bool:
    return isinstance(leaf, (str, bytes)) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OUS")
