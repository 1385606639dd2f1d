from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from penstock import image
from penstock._plan.random import wants_rng


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
