"""A function that draws from a generator of the process is named, with the generator, wherever it runs; any other is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core import core

import penstock as ps
from penstock._ops.draws import Draws

PLACES: list[dict[str, Any]] = [{}, {"executor": "inline"}, {"executor": "threads", "num_workers": 2}, {"num_workers": 1}]


def uniform(x: Any) -> Any:
    return x + np.random.rand()


def normal(x: Any) -> Any:
    return x + np.random.normal()


def python(x: Any) -> Any:
    return x + random.random()


def own(x: Any, rng: np.random.Generator) -> Any:
    return x + rng.random()


def seeded(x: Any) -> Any:
    return x + np.random.default_rng(int(np.sum(x))).random()


def nothing(x: Any) -> Any:
    return x


GENERATORS = {uniform: "numpy.random", normal: "numpy.random", python: "random", own: "", seeded: "", nothing: ""}


def named(ds: ps.Dataset, **options: Any) -> list[str]:
    with ds.feed(**options) as feed:
        for _ in range(2):
            list(feed)
        return [text for text in feed.stats().notices if "draws from the generator" in text]


@pytest.mark.parametrize(
    ("fn", "options"),
    core(
        [(fn, options) for options in PLACES for fn in GENERATORS],
        [(fn, PLACES[1]) for fn in GENERATORS] + [(uniform, PLACES[2]), (uniform, PLACES[3])],
    ),
)
def test_one_notice_names_the_function_and_the_generator(fn: Callable[..., Any], options: dict[str, Any]) -> None:
    ds = ps.from_source(range(40)) if options.get("num_workers") == 2 else ps.from_source(range(40)).map(nothing)
    found = named(ds.map(fn).batch(8), **options)  # of two threads, one may draw during a call of what the other runs
    if not GENERATORS[fn]:
        assert found == []
        return
    (text,) = found
    assert text == (
        f"'{fn.__name__}' draws from the generator of {GENERATORS[fn]}, which all functions of a process share: what it gives depends on "
        "which worker runs it, and another run or a resume gives something else. Let it draw from an argument rng: "
        f"map({fn.__name__}) with `def {fn.__name__}(element, rng)` gets a NumPy generator that depends on seed, epoch and element only"
    )


def test_a_map_of_batches_is_watched_too() -> None:
    assert len(named(ps.from_source(range(40)).batch(8).map(uniform))) == 1


def test_two_functions_in_one_thread_are_both_named() -> None:
    assert len(named(ps.from_source(range(40)).map(uniform).map(python).map(nothing).batch(8))) == 2


def test_a_draw_of_the_training_loop_is_not_one_of_the_function() -> None:
    draws = Draws(lambda: False)
    assert [draws.watched(uniform, "uniform", 0)(1) > 0 for _ in range(9)] == [True] * 9
    assert draws.take() == []


def test_where_several_workers_run_functions_the_first_that_draws_is_named_alone() -> None:
    draws = Draws()
    for _ in range(2):  # NumPy loads the module at the first draw
        draws.watched(uniform, "uniform", 0)(1)
    draws.watched(nothing, "nothing", 1)(1)
    draws.watched(python, "python", 0)(1)
    assert [text.partition(" ")[0] for _, text in draws.take()] == ["'uniform'"]
