from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from penstock import image
from penstock._plan.base import is_async, is_async_generator, wants_rng


def plain(x: Any) -> Any:
    return x


def noisy(x: Any, rng: np.random.Generator) -> Any:
    return x + rng.random()


def keyword_only(x: Any, *, rng: Any = None) -> Any:
    return x


def local_only(x: Any) -> Any:
    rng = 3
    return x + rng


def swallows(x: Any, *rng: Any) -> Any:
    return x


class Augment:
    def __call__(self, x: Any, rng: Any) -> Any:
        return x

    def method(self, x: Any, rng: Any) -> Any:
        return x

    def quiet(self, x: Any) -> Any:
        return x

    @staticmethod
    def static(x: Any, rng: Any) -> Any:
        return x

    @classmethod
    def of_class(cls, x: Any, rng: Any) -> Any:
        return x


class Wrapper:
    """Not a partial, though it keeps its function under the same name."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def __call__(self, x: Any) -> Any:
        return self.func(x, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    "fn",
    [
        noisy,
        keyword_only,
        lambda x, rng: x,
        Augment(),
        Augment().method,
        Augment.static,
        Augment.of_class,
        functools.partial(noisy),
        functools.partial(functools.partial(noisy)),
        functools.partial(Augment().method),
        image.random_flip("image"),
    ],
)
def test_a_function_with_a_parameter_named_rng_wants_a_generator(fn: Any) -> None:
    assert wants_rng(fn)


@pytest.mark.parametrize(
    "fn",
    [
        plain,
        local_only,
        swallows,
        len,
        np.sqrt,
        int,
        Augment().quiet,
        functools.partial(noisy, rng=np.random.default_rng(0)),
        functools.partial(plain),
        Wrapper(noisy),
        image.center_crop("image", 3),
        str.upper,
    ],
)
def test_any_other_function_wants_none(fn: Any) -> None:
    assert not wants_rng(fn)


async def coroutine(x: int, rng: object) -> int:
    return x


async def generator(x: int) -> AsyncIterator[int]:
    yield x


class Called:
    async def __call__(self, x: int) -> int:
        return x

    def plain(self, x: int) -> int:
        return x


def test_async_functions_are_known_without_calling_them() -> None:
    bound = functools.partial(coroutine, rng=1)
    for fn in (coroutine, bound, Called(), Called().__call__, functools.partial(functools.partial(Called()))):
        assert is_async(fn)
        assert not is_async_generator(fn)
    for other in (abs, int, Called, Called().plain, lambda x: coroutine(x, None), functools.partial(abs), image.decode("data")):
        assert not is_async(other)
        assert not is_async_generator(other)
    assert is_async_generator(generator)
    assert not is_async(generator)
    assert wants_rng(coroutine)
    assert not wants_rng(functools.partial(bound, x=3))
