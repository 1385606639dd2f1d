"""Steps compiled by JAX, PyTorch, TensorFlow and Keras themselves: what is compiled again is reported in its step, and nothing else is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SpecError

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the frameworks have warnings of their own

Step = Callable[[dict[str, Any]], Any]
NUM_STEPS = 10_000


def compiled_by_jax() -> tuple[Any, Callable[[Any], Step]]:
    jax = pytest.importorskip("jax", reason="JAX is not installed")

    @jax.jit
    def train(weights: Any, batch: Any) -> Any:
        return jax.tree.map(lambda value: value - 0.1 * (batch["x"].sum() + batch["y"].sum()), weights), batch["x"].mean()

    def loop(step: Any) -> Step:
        weights = {"kernel": np.zeros((4, 2), np.float32), "bias": 0.0}

        def call(batch: Any) -> Any:
            nonlocal weights
            weights, loss = step(weights, batch)
            return float(loss)

        return call

    return train, loop


def called_by_a_function(train: Any) -> Any:
    def step(weights: Any, batch: Any) -> Any:
        return train(weights, batch)

    return step


def compiled_by_jax_inside_a_function() -> tuple[Any, Callable[[Any], Step]]:
    train, loop = compiled_by_jax()
    return called_by_a_function(train), loop


def compiled_by_torch() -> tuple[Any, Callable[[Any], Step]]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch._dynamo.reset()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    compiled = torch.compile(lambda rows: model(rows.float()), backend="aot_eager", dynamic=False)

    def train(batch: Any) -> Any:
        loss = compiled(torch.as_tensor(batch["x"])).sum() + torch.as_tensor(batch["y"]).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return train, lambda step: step


def compiled_by_tensorflow() -> tuple[Any, Callable[[Any], Step]]:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    weight = tensorflow.Variable(1.0)

    @tensorflow.function(autograph=False)  # autograph leaves a temporary file behind
    def train(batch: Any) -> Any:
        weight.assign_add(tensorflow.reduce_sum(tensorflow.cast(batch["x"], "float32")))
        return weight + tensorflow.cast(tensorflow.reduce_sum(batch["y"]), "float32")

    return train, lambda step: step


def compiled_by_keras() -> tuple[Any, Callable[[Any], Step]]:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model.train_on_batch, lambda step: lambda batch: step(batch["x"], batch["y"])


EVERY = [
    compiled_by_jax,
    compiled_by_jax_inside_a_function,
    compiled_by_torch,
    compiled_by_tensorflow,
    compiled_by_keras,
]


@pytest.fixture(scope="module", autouse=True)
def torch_started() -> None:
    """Let PyTorch make its folder of temporary files before an audit looks."""
    if importlib.util.find_spec("torch") is not None:
        run = compiled_by_torch()[0]
        run({"x": np.ones((8, 4), np.float32), "y": np.ones(8, np.float32)})


@pytest.fixture(params=EVERY, ids=lambda make: make.__name__)
def made(request: pytest.FixtureRequest) -> tuple[Any, Callable[[Any], Step]]:
    return request.param()


def dataset_of(num_rows: int) -> Any:
    return ps.from_arrays({"x": np.ones((num_rows, 4), np.float32), "y": np.ones(num_rows, np.float32)}).batch(8)


def reported(step: Any, batch: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(batch)
    return [str(one.message) for one in caught if "the training step" in str(one.message)]


def test_a_smaller_last_batch_is_reported_in_its_step_with_its_key_and_both_shapes(made: Any) -> None:
    train, loop = made
    step = ps.finalize_step(train)
    run = loop(step)
    found = {}
    with dataset_of(35).feed(executor="threads", num_workers=1) as feed:
        for _ in range(3):
            for batch in feed:
                found[feed.step - 1] = reported(run, batch)
    ((number, (text,)),) = [(number, texts) for number, texts in found.items() if texts]
    assert number == 4
    assert "was compiled again in its call 5: " in text
    assert "float32[8, 4] -> float32[3, 4]" in text
    assert "where: batch 4 of the feed (epoch 0)\n" in text
    assert step.num_recompilations == 1


def test_a_new_dtype_is_reported_and_raised_on_request(made: Any) -> None:
    train, loop = made
    step = ps.finalize_step(train, on_recompile="raise")
    run = loop(step)
    batch = {"x": np.ones((8, 4), np.float32), "y": np.ones(8, np.float32)}
    for _ in range(4):
        run(batch)
    with pytest.raises(SpecError, match=r"float32\[8, 4\] -> int32\[8, 4\]") as caught:
        run({**batch, "x": np.ones((8, 4), np.int32)})
    assert "compiled again in its call 5" in str(caught.value)
    run(batch)


def test_nothing_is_reported_in_10_000_steps_of_one_shape(made: Any) -> None:
    train, loop = made
    step = ps.finalize_step(train, on_recompile="raise")
    run = loop(step)
    for number in range(NUM_STEPS):
        run({"x": np.full((8, 4), number, np.float32), "y": np.ones(8, np.float32)})
    assert step.num_recompilations == 0


def test_a_jax_argument_that_becomes_a_jax_array_or_a_shape_compiled_elsewhere_is_no_recompilation() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    train = jax.jit(lambda batch: batch.sum())
    step = ps.finalize_step(train, on_recompile="raise")
    for _ in range(3):
        step(np.ones(4, np.float32))
    step(jax.numpy.ones(4, np.float32))
    train(np.ones(5, np.float32))
    step(np.ones(5, np.float32))
    with pytest.raises(SpecError, match=r"batch float32\[5\] -> float32\[6\]|batch float32\[4\] -> float32\[6\]"):
        step(np.ones(6, np.float32))
    assert step.lower(np.ones(4, np.float32)).as_text()


def test_a_python_number_that_tensorflow_traces_for_each_value_is_named() -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    step = ps.finalize_step(tensorflow.function(lambda batch, number: tensorflow.reduce_sum(batch) + number, autograph=False))
    batch = np.ones(4, np.float32)
    texts = [reported(lambda number: step(batch, number), number) for number in (1, 1, 1, 2)]
    assert texts[:3] == [[], [], []]
    assert "call 4: number 1 -> 2\n" in texts[3][0]
    assert "give numbers that change as arrays" in texts[3][0]


def test_a_flag_that_torch_compiles_for_is_reported_without_a_shape() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch._dynamo.reset()
    model = torch.nn.Dropout(0.5)
    step = ps.finalize_step(torch.compile(model, backend="eager"))
    batch = torch.ones(4)
    assert [reported(step, batch) for _ in range(3)] == [[], [], []]
    step.eval()
    (text,) = reported(step, batch)
    assert "call 4, and no argument changed its shape or dtype\n" in text
    assert "TORCH_LOGS=recompiles" in text


def test_other_threads_that_compile_with_jax_are_not_the_step() -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    program = """
import threading, time
import jax, numpy as np, penstock as ps
def slow(batch):
    time.sleep(0.2)
    return train(batch)
train = jax.jit(lambda batch: batch.sum())
step = ps.finalize_step(slow, on_recompile="raise")
step(np.ones(3)); step(np.ones(3))
other = threading.Thread(target=lambda: jax.jit(lambda batch: batch * 2)(np.ones(7)).block_until_ready())
other.start()
step(np.ones(3))
other.join()
print(step.num_recompilations)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
