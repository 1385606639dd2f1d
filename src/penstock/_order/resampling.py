"""Keep so many items of each class that their shares become the wanted ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock import kernels

__all__ = ["ResampleFold", "acceptance"]

Item = Any
State = dict[str, Any]


def acceptance(target: Sequence[float], initial: Sequence[float]) -> list[float]:
    """Return for each class the share of its items to keep: as many as possible such that the shares of what is kept become `target`.

    With r[c] = target[c] / initial[c] that is r[c] / max(r), as in tf.data's rejection_resample. A class that does not occur counts for
    nothing.
    """
    ratios = [wanted / found if found > 0 else 0.0 for wanted, found in zip(target, initial, strict=True)]
    most = max(ratios)
    return [ratio / most if most > 0 else 0.0 for ratio in ratios]


@dataclass(frozen=True, slots=True)
class ResampleFold:
    """Each item with the probability that its class needs; the draw depends on seed, pass and number of the item alone.

    Without `initial` the shares below are those of the items of the pass so far, this one included, one of each class added at the start:
    how many items of an earlier pass came this far, where a `take` above has cut it short, depends on how far it was read ahead.
    State: the numbers of the pass and of the items in it, and the counts of classes in it.
    """

    target: tuple[float, ...]
    initial_dist: tuple[float, ...] | None
    seed: int
    weight: Callable[[Item], int]
    bare: Callable[[Item], Item]

    def initial(self) -> State:
        return self.initial_of(0)

    def restart(self, state: State) -> State:
        return self.initial_of(state["pass"] + 1)

    def initial_of(self, pass_number: int) -> State:
        return {"pass": pass_number, "seen": 0, "counts": [1] * len(self.target) if self.initial_dist is None else []}

    def push(self, state: State, item: Item) -> tuple[State, Sequence[Item]]:
        number = self.weight(item)
        counts = state["counts"]
        if self.initial_dist is None:
            counts = [count + (place == number) for place, count in enumerate(counts)]
        keep = acceptance(self.target, self.initial_dist or counts)[number]
        draw = kernels.mix(self.seed, state["pass"], state["seen"]) / 2**64
        return {"pass": state["pass"], "seen": state["seen"] + 1, "counts": counts}, ((self.bare(item),) if draw < keep else ())

    def end(self, state: State) -> tuple[State, Sequence[Item], bool]:
        return self.restart(state), (), True

    def closed(self, state: State) -> bool:
        return False
