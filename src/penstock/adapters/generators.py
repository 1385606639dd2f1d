"""The generators of random numbers that everybody in a process shares: seeded from keys, and put back as they were.

A key is an integer of 64 bits, by the finaliser of SplitMix64 (Steele et al., OOPSLA 2014). PyTorch takes its low half and NumPy its high
half: both begin the same Mersenne Twister, and with one number they would draw the same bits.
"""

from __future__ import annotations

import functools
import random
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


def everywhere() -> list[Any]:
    """Return the three themselves."""
    import torch

    of_random: Any = random.seed
    of_numpy: Any = np.random.random_sample
    return [torch.default_generator, of_numpy.__self__, of_random.__self__]


# -- those that objects hold ------------------------------------------------------------------------------------------------------


def seed_held(generators: list[Any], key: int) -> None:
    """Seed generators from a key and their places."""
    for number, generator in enumerate(generators):
        _seed(generator, mixed(key + number))


@contextmanager
def states_kept(generators: list[Any]) -> Iterator[None]:
    """Put generators back behind the `with` block as they were before it, whatever a signal handler raises meanwhile."""
    states = [_state_of(generator) for generator in generators]
    try:
        yield
    finally:
        try:
            _set_states(generators, states)
        except BaseException:
            _set_states(generators, states)
            raise


def _set_states(generators: list[Any], states: list[Any]) -> None:
    for generator, state in zip(generators, states, strict=True):
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = state
        elif isinstance(generator, random.Random):
            generator.setstate(state)
        else:
            generator.set_state(state)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):  # the usual form of its state knows the Mersenne Twister only
        return generator.get_state(legacy=False)
    return generator.get_state()


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
        shared = everywhere()
        self._generators = [*shared, *(one for one in others if all(one is not known for known in shared))]
        self._key = key
        self._inside: list[Any] | None = None

    @contextmanager
    def here(self) -> Iterator[None]:
        """Set the states of inside, and put those of outside back."""
        with _locks().own(), states_kept(self._generators):
            if self._inside is None:
                seed_held(self._generators, self._key)
            else:
                _set_states(self._generators, self._inside)
            yield
            self._inside = [_state_of(generator) for generator in self._generators]
