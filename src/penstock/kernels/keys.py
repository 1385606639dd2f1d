"""Make 64-bit keys out of several integers, the same on every platform."""

from __future__ import annotations

from operator import index

from penstock.errors import SpecError

__all__ = ["GOLDEN", "MASK64", "finish", "mix"]

MASK64 = (1 << 64) - 1
# 2^64 divided by the golden ratio: consecutive multiples of it are spread evenly over 64 bits.
GOLDEN = 0x9E3779B97F4A7C15


def finish(value: int) -> int:
    """Scramble 64 bits one to one: every output bit depends on every input bit (the finaliser of splitmix64)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def mix(*values: int) -> int:
    """Mix integers of any size and sign into one 64-bit key.

    The order and the number of the values count: `mix(1, 2)`, `mix(2, 1)` and `mix(1, 2, 0)` are unrelated. From any thread.

    Args:
        values: what the key is derived from, for example `(seed, epoch, node)`; Python or NumPy integers.

    Returns:
        An integer in 0..2**64-1.

    Raises:
        SpecError: a value is not an integer.
    """
    state = finish(len(values) + GOLDEN)
    for place, value in enumerate(values):
        try:
            number = index(value)
        except TypeError as error:
            raise SpecError(
                f"value {place} of a key is {value!r} of type {type(value).__name__}, not an integer",
                where=f"penstock.kernels.mix, argument {place} of {len(values)}",
                fix="pass integers only, for example mix(seed, epoch, node)",
            ) from error
        if not 0 <= number <= MASK64:
            # Sign and number of words go in first, and all words but the last, so that -1 and 2**64 - 1 do not meet.
            negative = number < 0
            number = ~number if negative else number
            num_words = max(1, (number.bit_length() + 63) // 64)
            state = finish((state ^ MASK64) + 2 * num_words + negative & MASK64)
            for _ in range(num_words - 1):
                state = finish((state ^ (number & MASK64)) + GOLDEN & MASK64)
                number >>= 64
        state = finish((state ^ number) + GOLDEN & MASK64)
    return state
