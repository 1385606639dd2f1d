"""Classes whose methods are compiled late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from penstock._system import lazy


def _classes(options: dict[str, Any]) -> list[type]:
    """Return one class made by each of the two decorators."""
    made: list[type] = []
    for decorator in (dataclasses.dataclass, lazy.dataclass):

        @decorator(**options)
        class Base:
            a: int
            b: list[int] = dataclasses.field(default_factory=list)

            def __post_init__(self) -> None:
                self.b.append(self.a)

        @decorator(**options)
        class Child(Base):
            c: str = "c"
            d: int = dataclasses.field(default=4, repr=False, compare=False, kw_only=True)
            made: list[int] = dataclasses.field(default_factory=list, init=False)
            fixed: int = dataclasses.field(default=7, init=False)
            unset: int = dataclasses.field(init=False, repr=False, compare=False)

            def __post_init__(self) -> None:
                Base.__post_init__(self)
                object.__setattr__(self, "unset", 8)

        made.append(Child)
    return made


def _outcome(call: Any) -> Any:
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def _behaviour(cls: Any) -> list[Any]:
    one, two = (cls(a=1, c="x", d=d) for d in (5, 6))
    return [
        str(inspect.signature(cls)),
        cls.__init__.__qualname__,
        cls.__match_args__,
        repr(one).split(" object at")[0],
        [one == two, one == "x", one == dataclasses.replace(one, a=2)],
        "" if cls.__hash__ is object.__hash__ else _outcome(lambda: hash(one)),
        _outcome(lambda: setattr(one, "a", 3)),
        _outcome(lambda: delattr(two, "a")),
        _outcome(lambda: cls(1, 2, 3, 4, 5, 6)),
        dataclasses.asdict(copy.copy(one)),
        hasattr(one, "__dict__"),
    ]


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("options", [{}, {"eq": False, "kw_only": True}, {"frozen": True, "eq": False}, {"frozen": True, "repr": False}])
def test_a_lazy_class_is_as_one_of_the_standard_library(options: dict[str, Any], slots: bool) -> None:
    theirs, ours = _classes({**options, "slots": slots})
    assert _behaviour(ours) == _behaviour(theirs)


@lazy.dataclass
class _Bare:
    a: int


@lazy.dataclass(frozen=True, slots=True)
class _Pair:
    a: int
    b: int = 2


def test_a_lazy_class_can_be_pickled() -> None:
    pair = _Pair(1)
    assert pickle.loads(pickle.dumps(pair)) == pair
    assert {pair: "x"}[_Pair(1, 2)] == "x"
    assert pickle.loads(pickle.dumps(_Bare(1))) == _Bare(1)
