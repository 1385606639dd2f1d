"""The orders of mix and interleave in plain Python, one element after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple


class Turn(NamedTuple):
    """An element of a mix: its child, the pass of that child in the first pass of the mix, the passes per pass of the mix, its place."""

    child: int
    number: int
    passes: int
    place: int

    def epoch(self, epoch: int) -> int:
        return epoch * self.passes + self.number


Weights = Sequence[float] | Mapping[int, Sequence[float]]


def mix_counts(weights: Weights, position: int) -> list[int]:
    """Halve the children again and again; of the elements that come to two halves, the left one gets its share, rounded.

    Each list of a schedule counts from its own position.
    """
    if isinstance(weights, Mapping):
        ends = [*sorted(weights)[1:], position]
        parts = [mix_counts(weights[start], max(0, min(end, position) - start)) for start, end in zip(sorted(weights), ends, strict=True)]
        return [sum(counts) for counts in zip(*parts, strict=True)]
    if len(weights) == 1 or not position:
        return [position] * len(weights)
    half = (len(weights) + 1) // 2
    share = Fraction(sum(map(Fraction, weights[:half]))) / sum(map(Fraction, weights))
    left = (position * round(share * 2**63) + 2**62) // 2**63
    return mix_counts(weights[:half], left) + mix_counts(weights[half:], position - left)


def mix_turns(weights: Weights, lengths: Sequence[int], stop: str) -> list[Turn]:
    """Ask the children one element after the other, until the mix ends."""
    given = [0] * len(lengths)
    order: list[tuple[int, int]] = []
    while any(count < length for count, length in zip(given, lengths, strict=True)):
        after = mix_counts(weights, len(order) + 1)
        child = next(child for child, count in enumerate(after) if count > given[child])
        if stop == "first_exhausted" and given[child] >= lengths[child]:
            break
        order.append((child, given[child]))
        given = after
    restart = stop == "all_exhausted"
    passes = [-(-count // length) if restart else 1 for count, length in zip(given, lengths, strict=True)]
    return [Turn(child, place // lengths[child] if restart else 0, passes[child], place % lengths[child]) for child, place in order]


def interleaved_turns(lengths: Sequence[int], cycle_length: int, block_length: int) -> list[tuple[int, int]]:
    """Do what the loop of tf.data's InterleaveDataset does: return (member, place in it) of each element."""
    out: list[tuple[int, int]] = []
    waiting, slots, slot, given = list(range(len(lengths))), [-1] * cycle_length, 0, 0
    places = [0] * len(lengths)
    while waiting or any(member >= 0 for member in slots):
        member = slots[slot]
        if member < 0 and waiting:
            slots[slot] = waiting.pop(0)
            continue
        if member >= 0 and places[member] < lengths[member]:
            out.append((member, places[member]))
            places[member] += 1
            given += 1
            if given < block_length:
                continue
        elif member >= 0:
            slots[slot] = -1
        slot, given = (slot + 1) % cycle_length, 0
    return out
