"""The generators of random numbers that everybody in a process shares: seeded from keys, and put back as they were.

A key is an integer of 64 bits, by the finaliser of SplitMix64 (Steele et al., OOPSLA 2014). PyTorch takes its low half and NumPy its high
half: both begin the same Mersenne Twister, and with one number they would draw the same bits.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from penstock._contracts.process import OwnLocks

__all__ = ["DrawingFrom", "generators_in", "global_seeder", "global_states_kept", "key_of", "mixed"]

_MASK = (1 << 64) - 1


def mixed(number: int) -> int:
    """Return 64 bits that depend on all bits of a number."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def key_of(*numbers: int) -> int:
    """Return the key of several numbers in their order."""
    key = 0
    for number in numbers:
        key = mixed(key ^ number)
    return key


# -- the global ones of torch, random and NumPy -----------------------------------------------------------------------------------


@functools.cache
def global_seeder() -> Any:
    """Return what seeds torch, random and numpy.random of this process from a key: 7 us, of which `random` takes 4."""
    import torch

    seed_torch, seed_random, seed_numpy = torch.default_generator.manual_seed, random.seed, np.random.seed

    def seed(key: int) -> None:
        seed_torch(key)
        seed_random(key)
        seed_numpy(key >> 32)

    return seed


@contextmanager
def global_states_kept() -> Iterator[None]:
    """Put torch, random and numpy.random back behind the `with` block as they were before it: 15 us."""
    import torch

    of_torch, of_random, of_numpy = torch.default_generator.get_state(), random.getstate(), _numpy_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(of_torch)
        random.setstate(of_random)
        _set_numpy_state(of_numpy)


_TWISTER_BYTES = 624 * 4 + 4


@functools.cache
def _twister(bits: Any) -> int | None:
    """Return the address of the 624 words and the position of a Mersenne Twister; None where they do not lie as in NumPy 1.17 to 2.4."""
    if type(bits) is not np.random.MT19937:
        return None
    address: int = bits.ctypes.state_address
    inner = bits.state["state"]
    known = inner["key"].astype(np.uint32).tobytes() + int(inner["pos"]).to_bytes(4, sys.byteorder)
    return address if ctypes.string_at(address, _TWISTER_BYTES) == known else None


def _numpy_state() -> Any:
    """Return the state of numpy.random, for `_set_numpy_state`: a copy of its memory, or what `np.random.get_state` gives.

    That call takes 33 us and its counterpart 37. The half of a pair of normal numbers that may be left over lies elsewhere: it is drawn,
    which moves the twister when there was none.
    """
    address = _twister(np.random.get_bit_generator())
    if address is None:
        return np.random.get_state(legacy=False)
    memory = ctypes.string_at(address, _TWISTER_BYTES)
    half = np.random.standard_normal()
    if ctypes.string_at(address, _TWISTER_BYTES) != memory:
        return address, memory
    state = np.random.get_state(legacy=False)
    return {**state, "has_gauss": 1, "gauss": half}


def _set_numpy_state(state: Any) -> None:
    if isinstance(state, dict):
        np.random.set_state(state)
        return
    np.random.seed(0)  # no half is left over
    ctypes.memmove(state[0], state[1], _TWISTER_BYTES)


# -- those that a sampler draws from ----------------------------------------------------------------------------------------------


@functools.cache
def _locks() -> OwnLocks:
    return OwnLocks()


class DrawingFrom:
    """The global generators and some others, in states that follow from a key inside of each `with` block, and untouched outside.

    The second block goes on where the first one ended. One block at a time in a process.
    """

    def __init__(self, others: list[Any], key: int) -> None:
        """Change nothing yet."""
        import torch

        of_random: Any = random.seed
        of_numpy: Any = np.random.random_sample
        everywhere = [torch.default_generator, of_numpy.__self__, of_random.__self__]
        self._generators = [*everywhere, *(one for one in others if all(one is not known for known in everywhere))]
        self._key = key
        self._inside: list[Any] | None = None

    def __enter__(self) -> None:
        """Save the states of outside, and set those of inside."""
        _locks().own().acquire()
        self._outside = list(map(_state_of, self._generators))
        if self._inside is None:
            for number, generator in enumerate(self._generators):
                _seed(generator, key_of(self._key, number))
        else:
            self._set(self._inside)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Save the states of inside, and put those of outside back."""
        self._inside = list(map(_state_of, self._generators))
        self._set(self._outside)
        _locks().own().release()

    def _set(self, states: list[Any]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            _set_state(generator, state)


def generators_in(*holders: Any) -> list[Any]:
    """Return the generators that objects hold as attributes, and samplers that they hold, in turn."""
    from torch.utils.data import Sampler

    found: list[Any] = []
    seen: list[Any] = []
    left = list(holders)
    while left:
        holder = left.pop(0)
        if any(holder is one for one in seen):
            continue
        seen.append(holder)
        if _is_generator(holder):
            found.append(holder)
        else:
            values = getattr(holder, "__dict__", {}).values()
            left += [value for value in values if isinstance(value, Sampler) or _is_generator(value)]
    return found


def _is_generator(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _seed(generator: Any, key: int) -> None:
    if isinstance(generator, np.random.Generator):
        kind: Any = type(generator.bit_generator)
        generator.bit_generator.state = kind(key).state
    elif isinstance(generator, random.Random):
        generator.seed(key)
    elif isinstance(generator, np.random.RandomState):
        generator.seed(key >> 32)
    else:
        generator.manual_seed(key)
