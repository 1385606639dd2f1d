from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from penstock._contracts.options import Options
from penstock.errors import PlanError


def test_the_defaults_leave_the_choice_to_penstock() -> None:
    assert Options() == Options(
        num_workers="auto", executor="auto", memory_bytes="auto", grace_period_s=2.0, stall_timeout_s=60.0, on_stall="raise"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": 0},
        {"num_workers": 64},
        {"executor": "inline"},
        {"executor": "threads"},
        {"memory_bytes": 1},
        {"grace_period_s": 0},
        {"stall_timeout_s": None},
        {"stall_timeout_s": float("inf")},
        {"stall_timeout_s": 0.01},
        {"on_stall": "warn"},
    ],
)
def test_what_makes_sense_is_accepted(given: dict[str, Any]) -> None:
    options = Options(**given)
    assert {name: getattr(options, name) for name in given} == given


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        ({"num_workers": -1}, "num_workers=-1 is not a number of workers", '"auto", 0 (inline) or a positive number'),
        ({"num_workers": True}, "num_workers=True is not a number of workers", '"auto", 0 (inline)'),
        ({"num_workers": 2.0}, "num_workers=2.0 is not a number of workers", '"auto", 0 (inline)'),
        ({"num_workers": "many"}, "num_workers='many' is not a number of workers", '"auto", 0 (inline)'),
        ({"executor": "processs"}, "executor='processs' is not known", "give one of auto, inline, threads"),
        ({"memory_bytes": 0}, "memory_bytes=0 is not a size", '"auto" or a number of bytes'),
        ({"memory_bytes": -5}, "memory_bytes=-5 is not a size", '"auto" or a number of bytes'),
        ({"memory_bytes": 1e9}, "memory_bytes=1000000000.0 is not a size", '"auto" or a number of bytes'),
        ({"grace_period_s": -0.1}, "grace_period_s=-0.1 is not a time", "number of seconds >= 0"),
        ({"grace_period_s": float("nan")}, "grace_period_s=nan is not a time", "number of seconds >= 0"),
        ({"stall_timeout_s": 0}, "stall_timeout_s=0 is not a time", "give a number of seconds > 0, or None"),
        ({"stall_timeout_s": -1.0}, "stall_timeout_s=-1.0 is not a time", "give a number of seconds > 0, or None"),
        ({"stall_timeout_s": float("nan")}, "stall_timeout_s=nan is not a time", "give a number of seconds > 0, or None"),
        ({"num_workers": None}, "num_workers=None is not a number of workers", '"auto", 0 (inline)'),
        ({"grace_period_s": "1"}, "grace_period_s='1' is not a time", "number of seconds >= 0"),
        ({"grace_period_s": None}, "grace_period_s=None is not a time", "number of seconds >= 0"),
        ({"grace_period_s": True}, "grace_period_s=True is not a time", "number of seconds >= 0"),
        ({"grace_period_s": float("inf")}, "grace_period_s=inf is not a time", "at most 2**31"),
        ({"grace_period_s": 1e300}, "grace_period_s=1e+300 is not a time", "at most 2**31"),
        ({"stall_timeout_s": "5"}, "stall_timeout_s='5' is not a time", "give a number of seconds > 0, or None"),
        ({"stall_timeout_s": 1e300}, "stall_timeout_s=1e+300 is not a time", "at most 2**31"),
        ({"ordered": "false"}, "ordered='false' is neither True nor False", "give True or False"),
        ({"ordered": 2}, "ordered=2 is neither True nor False", "give True or False"),
        ({"ordered": None}, "ordered=None is neither True nor False", "give True or False"),
        ({"on_error": "skip"}, "on_error='skip' is no policy", "ps.Raise(), ps.Retry(...), ps.Skip(...) or ps.Replace(...)"),
        ({"on_error": ValueError}, "on_error=<class 'ValueError'> is no policy", "ps.Skip(...)"),
        ({"quarantine": 7.5}, "quarantine=7.5 is no path", "give the path of a file"),
        ({"quarantine": "no/such/folder/x"}, "quarantine='no/such/folder/x' is not a file in an existing folder", "make its folder"),
        ({"quarantine": "."}, "quarantine='.' is not a file in an existing folder", "give the path of a file"),
        (
            {"on_stall": "skip"},
            "on_stall='skip' needs workers that can be killed, and a thread cannot be",
            'give executor="processes" too',
        ),
        ({"on_stall": "wait"}, "on_stall='wait' is not known", "give one of raise, warn"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_value(given: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(PlanError) as caught:
        Options(**given)
    assert caught.value.what == what
    assert caught.value.where == "feed options"
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"num_workers": np.int64(2)}, int),
        ({"memory_bytes": np.uint32(10**6)}, int),
        ({"grace_period_s": np.float32(0.5)}, float),
        ({"stall_timeout_s": np.int64(5)}, float),
        ({"ordered": np.False_}, bool),
    ],
)
def test_numbers_of_numpy_become_those_of_python(given: dict[str, Any], kind: type) -> None:
    for name, value in given.items():
        kept = getattr(Options(**given), name)
        assert type(kept) is kind
        assert kept == value


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().num_workers = 3  # type: ignore[misc]
