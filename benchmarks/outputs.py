"""What an output adds to a batch of NumPy arrays, in microseconds; and batches into TensorFlow, beside from_generator."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size

_BATCH_SIZE = 32


def _dataset(run: rounds.Run) -> Any:
    import penstock as ps

    count = max(_BATCH_SIZE * 50, run.size.num_integers // 50)
    return ps.from_arrays({"x": np.zeros((count, 16), np.float32), "y": np.zeros(count, np.float32)}).batch(_BATCH_SIZE)


def _us_per_batch(epoch: Iterable[Any]) -> float:
    """Return the mean time of a batch, the first one left out."""
    iterator = iter(epoch)
    next(iterator)
    begin, count = time.perf_counter(), 0
    for _ in iterator:
        count += 1
    return 1e6 * (time.perf_counter() - begin) / count


def _beside_numpy(make: Callable[[Any], tuple[Any, Iterable[Any]]]) -> Callable[[rounds.Run], dict[str, Any]]:
    """Measure epochs of NumPy and of another output in turn."""

    def measure(run: rounds.Run) -> dict[str, Any]:
        dataset = _dataset(run)
        plain = dataset.feed()
        feed, epoch = make(dataset)
        everybody, own, start = machine.busy_s(), time.process_time(), time.perf_counter()
        numpy_us, output_us = [], []
        for _ in range(6):
            numpy_us.append(_us_per_batch(plain))
            output_us.append(_us_per_batch(epoch))
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        plain.close()
        feed.close()
        return {
            "added_us": float(np.median(output_us) - np.median(numpy_us)),
            "numpy_us": float(np.median(numpy_us)),
            "rate": 1e6 / float(np.median(output_us)),
            "other_cores": max(0.0, other_s / (time.perf_counter() - start)),
        }

    return measure


def _torch(dataset: Any) -> tuple[Any, Iterable[Any]]:
    rounds.torch()
    feed = dataset.feed(output="torch")
    return feed, feed


def _behind_data_loader(dataset: Any) -> tuple[Any, Iterable[Any]]:
    data = rounds.torch().utils.data
    feed = dataset.feed(output="torch")
    return feed, data.DataLoader(feed, batch_size=None)


def _jax(dataset: Any) -> tuple[Any, Iterable[Any]]:
    try:
        import jax  # noqa: F401
    except ImportError:
        raise rounds.Missing("jax is not installed") from None
    feed = dataset.feed(output="jax")
    return feed, feed


def _tensorflow() -> Any:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        import tensorflow
    except ImportError:
        raise rounds.Missing("tensorflow is not installed") from None
    return tensorflow


def _into_tensorflow(make: Callable[[Any, Any], Any]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        tf = _tensorflow()
        data = make(tf, run)
        us = [_us_per_batch(data.take(max(20, run.size.num_integers // 20_000))) for _ in range(3)]
        return {"rate": 1e6 / float(np.median(us))}

    return measure


def _from_generator(tf: Any, run: rounds.Run) -> Any:
    """Samples from a generator, batched by tf.data: what tf.data's guide shows for Python data."""
    spec = {"x": tf.TensorSpec((16,), tf.float32), "y": tf.TensorSpec((), tf.float32)}
    arrays = np.zeros((1_000_000, 16), np.float32), np.zeros(1_000_000, np.float32)

    def samples() -> Any:
        for x, y in zip(*arrays, strict=True):
            yield {"x": x, "y": y}

    return tf.data.Dataset.from_generator(samples, output_signature=spec).batch(_BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def _batches_from_generator(tf: Any, run: rounds.Run) -> Any:
    """Whole batches from a generator: as few calls as `to_tf` makes."""
    spec = {"x": tf.TensorSpec((None, 16), tf.float32), "y": tf.TensorSpec((None,), tf.float32)}
    batch = {"x": np.zeros((_BATCH_SIZE, 16), np.float32), "y": np.zeros(_BATCH_SIZE, np.float32)}
    return tf.data.Dataset.from_generator(lambda: iter(lambda: batch, None), output_signature=spec)


def _to_tf(tf: Any, run: rounds.Run) -> Any:
    return _dataset(run).repeat().to_tf()


def _prepare(size: Size, root: Path) -> None:
    """Need no data."""


CLAIM = rounds.Claim(
    name="outputs",
    title="Outputs: microseconds added to a batch of two small arrays, and batches/s into TensorFlow",
    unit="batches/s",
    reference="tensorflow_from_generator",
    prepare=_prepare,
    also=("added_us",),
    targets=(
        rounds.Target(contestant="torch", metric="added_us", sense="<=", bound=20.0),
        rounds.Target(contestant="torch_behind_data_loader", metric="added_us", sense="<=", bound=50.0),
        rounds.Target(contestant="jax", metric="added_us", sense="<=", bound=20.0),
        rounds.Target(contestant="tensorflow_to_tf", metric="ratio", sense=">=", bound=5.0),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "torch": _beside_numpy(_torch),
            "torch_behind_data_loader": _beside_numpy(_behind_data_loader),
            "jax": _beside_numpy(_jax),
            "tensorflow_from_generator": _into_tensorflow(_from_generator),
            "tensorflow_from_generator_of_batches": _into_tensorflow(_batches_from_generator),
            "tensorflow_to_tf": _into_tensorflow(_to_tf),
        },
    )
