"""What `ps.finalize_step` adds to a call of a step that JAX, PyTorch or TensorFlow compiled, and of one that no framework counts."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size

Step = Callable[[Any], Any]


def _jax() -> tuple[Step, Step]:
    """Return a step, and what waits for its result."""
    try:
        import jax
    except ImportError:
        raise rounds.Missing("jax is not installed") from None
    return jax.jit(lambda batch: batch["x"].sum()), jax.block_until_ready


def _torch() -> tuple[Step, Step]:
    torch = rounds.torch()
    compiled = torch.compile(lambda x: x.sum(), backend="eager")
    return lambda batch: compiled(torch.from_numpy(batch["x"])), lambda result: None


def _tensorflow() -> tuple[Step, Step]:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        import tensorflow
    except ImportError:
        raise rounds.Missing("tensorflow is not installed") from None
    return tensorflow.function(lambda batch: tensorflow.reduce_sum(batch["x"]), autograph=False), lambda result: result.numpy()


def _tensorflow_in_a_function() -> tuple[Step, Step]:
    compiled, wait = _tensorflow()

    def step(batch: Any) -> Any:
        return compiled(batch)

    return step, wait


def _no_framework() -> tuple[Step, Step]:
    return lambda batch: None, lambda result: None


def _measure(make: Callable[[], tuple[Step, Step]]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        bare, wait = make()
        finalized = ps.finalize_step(bare, on_recompile="raise")
        batch = {"x": np.ones((8, 4), np.float32), "label": np.zeros(8, np.int64)}
        taken_us: dict[Any, list[float]] = {bare: [], finalized: []}
        for _ in range(10):
            finalized(batch)
        everybody, own, start = machine.busy_s(), time.process_time(), time.perf_counter()
        for number in range(max(100, run.size.num_integers // 1000)):
            for step in (bare, finalized) if number % 2 else (finalized, bare):
                begin_ns = time.perf_counter_ns()
                result = step(batch)
                taken_us[step].append((time.perf_counter_ns() - begin_ns) / 1e3)
                wait(result)
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        bare_us, finalized_us = statistics.median(taken_us[bare]), statistics.median(taken_us[finalized])
        return {
            "added_us": finalized_us - bare_us,
            "step_us": bare_us,
            "other_cores": max(0.0, other_s / (time.perf_counter() - start)),
        }

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


STEPS = {
    "no_framework": _no_framework,
    "jax": _jax,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "tensorflow_in_a_function": _tensorflow_in_a_function,
}
CLAIM = rounds.Claim(
    name="finalize_step",
    title="What finalize_step adds to a training step, median",
    unit="us",
    metric="added_us",
    prepare=_nothing,
    reference="no_framework",
    also=("step_us",),
    targets=tuple(rounds.Target(contestant=name, metric="added_us", sense="<=", bound=5.0) for name in STEPS),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {name: _measure(make) for name, make in STEPS.items()})
