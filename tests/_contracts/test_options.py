from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._contracts.options import Options
from penstock.errors import PlanError


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        ({"num_workers": -1}, "num_workers=-1 is not a number of workers", '"auto", 0 (inline) or a positive number'),
        ({"num_workers": 2.0}, "num_workers=2.0 is not a number of workers", '"auto", 0 (inline)'),
        ({"executor": "processs"}, "executor='processs' is not known", "give one of auto, inline, threads"),
        ({"memory_bytes": 0}, "memory_bytes=0 is not a size", '"auto" or a number of bytes'),
        ({"memory_bytes": 1e9}, "memory_bytes=1000000000.0 is not a size", '"auto" or a number of bytes'),
        ({"grace_period_s": -0.1}, "grace_period_s=-0.1 is not a time", "number of seconds >= 0"),
        ({"stall_timeout_s": 0}, "stall_timeout_s=0 is not a time", "give a number of seconds > 0, or None"),
        ({"stall_timeout_s": float("nan")}, "stall_timeout_s=nan is not a time", "give a number of seconds > 0, or None"),
        ({"grace_period_s": "1"}, "grace_period_s='1' is not a time", "number of seconds >= 0"),
        ({"grace_period_s": float("inf")}, "grace_period_s=inf is not a time", "at most 2**31"),
        ({"stall_timeout_s": 1e300}, "stall_timeout_s=1e+300 is not a time", "at most 2**31"),
        ({"ordered": "false"}, "ordered='false' is neither True nor False", "give True or False"),
        ({"on_error": "skip"}, "on_error='skip' is no policy", "ps.Raise(), ps.Retry(...), ps.Skip(...) or ps.Replace(...)"),
        ({"executor": 3}, "executor=3 is not known", "or ps.Threads(...), ps.Processes(...), ps.Ray(...)"),
        ({"executor": ps.Threads}, f"executor={ps.Threads!r} is not known", "ps.Threads(...)"),
        ({"executor": ps.Torch()}, f"executor={ps.Torch()!r} is not known", "give one of auto, inline, threads"),
        ({"output": "tensor"}, "output='tensor' is not known", "give one of numpy, torch, jax, or ps.Torch(...), ps.Jax(...)"),
        ({"output": ps.Jax}, f"output={ps.Jax!r} is not known", "ps.Jax(...)"),
        ({"on_stall": np.arange(2)}, "on_stall=array([0, 1]) is not known", "give one of raise, warn"),
        ({"on_stall": "skip", "executor": ps.Threads()}, "on_stall='skip' needs workers that can be killed, and a thread cannot be", "too"),
        (
            {"on_stall": "skip"},
            "on_stall='skip' needs workers that can be killed, and a thread cannot be",
            'give executor="processes" too',
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_value(given: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(PlanError) as caught:
        Options(**given)
    assert caught.value.what == what
    assert caught.value.where == "feed options"
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("make", "field", "wanted"),
    [
        (lambda: Options(num_workers=np.int64(2)), "num_workers", 2),  # type: ignore[arg-type]
        (lambda: Options(memory_bytes=np.uint32(10**6)), "memory_bytes", 10**6),  # type: ignore[arg-type]
        (lambda: Options(grace_period_s=np.float32(0.5)), "grace_period_s", 0.5),  # type: ignore[arg-type]
        (lambda: Options(stall_timeout_s=np.int64(5)), "stall_timeout_s", 5.0),  # type: ignore[arg-type]
        (lambda: Options(ordered=np.False_), "ordered", False),  # type: ignore[arg-type]
        (lambda: ps.Torch(pin_memory=np.True_), "pin_memory", True),  # type: ignore[arg-type]
        (lambda: ps.Torch(depth=np.int64(3)), "depth", 3),  # type: ignore[arg-type]
        (lambda: ps.Retry(np.int64(3)), "times", 3),  # type: ignore[arg-type]
        (lambda: ps.Retry(1, backoff_s=np.float32(0.5)), "backoff_s", 0.5),  # type: ignore[arg-type]
        (lambda: ps.Skip(np.int64(3)), "limit", 3),  # type: ignore[arg-type]
        (lambda: ps.Skip(np.float32(0.25)), "limit", 0.25),  # type: ignore[arg-type]
        (lambda: ps.Replace(np.uint8(1)), "limit", 1),  # type: ignore[arg-type]
    ],
)
def test_numbers_of_numpy_become_those_of_python(make: Callable[[], Any], field: str, wanted: float) -> None:
    kept = getattr(make(), field)
    assert (type(kept), kept) == (type(wanted), wanted)


@pytest.mark.parametrize(
    ("option", "short", "value"),
    [
        ("executor", "threads", ps.Threads()),
        ("executor", "processes", ps.Processes()),
        ("executor", "ray", ps.Ray()),
        ("output", "torch", ps.Torch()),
        ("output", "jax", ps.Jax()),
    ],
)
def test_a_short_form_is_its_value(option: str, short: str, value: Any) -> None:
    options = Options(**{option: short})
    assert options == Options(**{option: value})
    assert getattr(options, f"{option}_name") == short


@pytest.mark.parametrize(
    ("make", "what", "where"),
    [
        (lambda: ps.Torch(pin_memory=3), "pin_memory=3 is not known", "Torch"),
        (lambda: ps.Torch(pin_memory=np.arange(2)), "pin_memory=array([0, 1]) is not known", "Torch"),
        (lambda: ps.Torch(depth=0), "depth=0 is not a number of batches", "Torch"),
        (lambda: ps.Jax(depth=1.5), "depth=1.5 is not a number of batches", "Jax"),
        (lambda: ps.Torch(transform=3), "transform=3 is no function", "Torch"),
        (lambda: ps.Jax(device="cpu", sharding=1), "sharding=1 names the devices already", "Jax"),
        (lambda: ps.Ray(num_cpus=-1), "num_cpus=-1 is no amount", "Ray"),
        (lambda: ps.Ray(num_cpus=1.5), "num_cpus=1.5 is no amount", "Ray"),
        (lambda: ps.Ray(resources={"disk": "much"}), "disk='much' is no amount", "Ray"),
        (lambda: ps.Ray(resources=3), "resources=3 is of another type", "Ray"),
        (lambda: ps.Ray(address=8), "address=8 is of another type", "Ray"),
        (lambda: ps.Ray(runtime_env="."), "runtime_env='.' is of another type", "Ray"),
        (lambda: ps.Skip(quarantine=7.5), "quarantine=7.5 is not a file in an existing folder", "Skip()"),
        (lambda: ps.Skip(quarantine=""), "quarantine='' is not a file in an existing folder", "Skip()"),
        (lambda: ps.Replace(quarantine="."), "quarantine='.' is not a file in an existing folder", "Replace()"),
        (lambda: ps.Skip(quarantine="no/such/x"), "quarantine='no/such/x' is not a file in an existing folder", "Skip()"),
    ],
)
def test_a_value_refuses_what_makes_no_sense_when_it_is_made(make: Callable[[], Any], what: str, where: str) -> None:
    with pytest.raises(PlanError) as caught:
        make()
    assert (caught.value.what, caught.value.where) == (what, where)
    assert "give" in caught.value.fix or "leave" in caught.value.fix


def test_the_path_of_a_quarantine_is_absolute_from_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    policies = ps.Skip(quarantine="bad.jsonl"), ps.Replace(quarantine=Path("bad.jsonl"))
    monkeypatch.chdir("/")
    assert [policy.quarantine for policy in policies] == [str(tmp_path / "bad.jsonl")] * 2
    assert "bad.jsonl" not in repr(policies)  # that stands in the manifest of a pack
