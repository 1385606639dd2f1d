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
from typing import Any

import numpy as np

from penstock._system.process import OwnLocks
from penstock.kernels.checked import GOLDEN, MASK64, finish


def mixed(number: int) -> int:
    """Return 64 bits that depend on all bits of a number."""
    return finish((number + GOLDEN) & MASK64)


def key_of(*numbers: int) -> int:
    """Return the key of several numbers in their order."""
    key = 0
    for number in numbers:
        key = mixed(key ^ number)
    return key


# -- the global ones of torch, random and NumPy -----------------------------------------------------------------------------------


def seed_global(key: int) -> None:
    """Seed torch, random and numpy.random of this process: 7 us, of which `random` takes 4."""
    import torch

    torch.default_generator.manual_seed(key)
    random.seed(key)
    np.random.seed(key >> 32)


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
    module: Any = np.random
    address = _twister(module.get_bit_generator())
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


# -- those that objects hold ------------------------------------------------------------------------------------------------------


def seed_held(generators: list[Any], key: int) -> None:
    """Seed generators from a key and their places."""
    for number, generator in enumerate(generators):
        _seed(generator, mixed(key + number))


def states_of(generators: list[Any]) -> list[Any]:
    """Return the states of generators, for `set_states`."""
    return [_state_of(generator) for generator in generators]


def set_states(generators: list[Any], states: list[Any]) -> None:
    """Put generators back."""
    for generator, state in zip(generators, states, strict=True):
        _set_state(generator, state)


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
        bits: Any = generator.bit_generator
        if type(bits) is np.random.PCG64:  # 3 us, and making another one takes 12
            inner: Any = {"state": key << 64 | mixed(key), "inc": mixed(~key) << 1 | 1}
            bits.state = {"bit_generator": "PCG64", "state": inner, "has_uint32": 0, "uinteger": 0}
        else:
            bits.state = type(bits)(key).state
    elif isinstance(generator, random.Random):
        generator.seed(key)
    elif isinstance(generator, np.random.RandomState):
        generator.seed(key >> 32)
    else:
        generator.manual_seed(key)


# -- drawing beside the program ---------------------------------------------------------------------------------------------------


@functools.cache
def _locks() -> OwnLocks:
    return OwnLocks()


class DrawingFrom:
    """The global generators and some others, in states that follow from a key inside of each `with drawing.here():`, untouched outside.

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

    @contextmanager
    def here(self) -> Iterator[None]:
        """Set the states of inside, and put those of outside back, whatever a signal handler raises meanwhile."""
        with _locks().own():
            outside = states_of(self._generators)
            try:
                if self._inside is None:
                    seed_held(self._generators, self._key)
                else:
                    set_states(self._generators, self._inside)
                yield
                self._inside = states_of(self._generators)
            finally:
                try:
                    set_states(self._generators, outside)
                except BaseException:
                    set_states(self._generators, outside)
                    raise
