"""to_tf and to_keras, with TensorFlow and Keras themselves; each Keras backend in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make interop")
pytestmark = pytest.mark.slow


def _pipeline(**batch: Any) -> ps.Dataset:
    def element(n: Any) -> dict[str, Any]:
        return {"x": np.full(3, n, np.float32), "y": int(n), "name": f"n{n}"}

    return ps.from_arrays(np.arange(30)).shuffle(seed=7).map(element).batch(4, **batch)


def test_a_tf_dataset_has_whole_batches_and_its_iterations_are_epochs() -> None:
    data = _pipeline().to_tf()
    assert data.element_spec == {
        "x": tf.TensorSpec((None, 3), tf.float32),
        "y": tf.TensorSpec((None,), tf.int64),
        "name": tf.TensorSpec((None,), tf.string),
    }
    epochs = [[(batch["y"].numpy().tolist(), batch["name"].numpy().tolist()) for batch in data] for _ in range(2)]
    with _pipeline().feed() as feed:
        want = [[(batch["y"].tolist(), [name.encode() for name in batch["name"]]) for batch in feed] for _ in range(2)]
    assert epochs == want


def test_shapes_that_do_not_change_are_static() -> None:
    assert _pipeline(drop_remainder=True).to_tf().element_spec["x"].shape == (4, 3)
    padded = ps.from_arrays(np.arange(1, 9)).map(np.arange).padded_batch(4, drop_remainder=True)
    assert padded.to_tf().element_spec.shape.as_list() == [None, None]
    known = padded.to_tf(output_signature=tf.TensorSpec((4, None), tf.int64))
    assert [batch.shape.as_list() for batch in known] == [[4, 4], [4, 8]]


def test_shapes_of_a_collate_fn_may_differ() -> None:
    def pad(samples: list[Any]) -> Any:
        return np.stack([np.pad(one, (0, max(map(len, samples)) - len(one))) for one in samples])

    data = ps.from_arrays(np.arange(1, 9)).map(np.arange).batch(4, True, pad).to_tf()
    assert [batch.shape.as_list() for batch in data] == [[4, 4], [4, 8]]


def test_kept_tensors_stay_right() -> None:
    kept = list(_pipeline().to_tf())
    assert all(np.array_equal(one["x"].numpy()[:, 0], one["y"].numpy()) for one in kept)


def test_an_error_is_no_end() -> None:
    def fails(n: Any) -> Any:
        if n == 9:
            raise ValueError("nine")
        return n

    got: list[Any] = []
    with pytest.raises(tf.errors.OpError, match="nine"):
        got.extend(batch.numpy() for batch in ps.from_arrays(np.arange(20)).map(fails).batch(3).to_tf())
    assert len(got) == 3


def test_a_feed_of_ones_own_says_where_it_is() -> None:
    ds = _pipeline()
    with ds.feed() as feed:
        first = [batch["y"].numpy().tolist() for _, batch in zip(range(3), ds.to_tf(feed), strict=False)]
        state = feed.state_dict()
    with ds.feed() as feed:
        feed.load_state_dict(state)
        first += [batch["y"].numpy().tolist() for batch in ds.to_tf(feed)]
    assert sorted(n for batch in first for n in batch) == list(range(30))


_FIT = """
import json, os, sys
import numpy as np
import keras
import penstock as ps

seen = []
numbers = ps.from_arrays(np.arange(30)).shuffle(seed=7)
if sys.argv[1] == "filter":
    numbers = numbers.filter(lambda n: n % 5 > 0)
ds = numbers.map(lambda n: {"x": np.full(3, n, np.float32), "y": np.float32(3 * n), "w": np.float32(1)}).batch(4)
if sys.argv[1] == "batches":  # elements are whole batches, of which the last is short
    ds = ps.from_source(list(ds))
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(1e-4), loss="mse")
train = ds.to_keras("x", "y", "w")
steps = []

class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        steps.append(train.feed.state_dict()["step"])

history = model.fit(train, epochs=3, verbose=0, callbacks=[Watch()], validation_data=ds.to_keras("x", "y"))
loss = model.evaluate(ds.to_keras("x", "y"), verbose=0)
predicted = model.predict(ds.to_keras("x"), verbose=0)
several = keras.Model(inputs := {"x": keras.Input((3,), name="x")}, keras.layers.Dense(1)(inputs["x"]))
several.compile(optimizer="sgd", loss="mse")
several.fit(ds.to_keras(["x"], "y"), verbose=0)
rows = sum(len(batch["x"]) for batch in ds)
with ds.feed() as feed:
    want = [batch["y"].tolist() for _ in range(3) for batch in feed]

print(json.dumps({
    "backend": keras.backend.backend(), "losses": history.history["loss"],
    "steps": steps, "epoch": train.feed.state_dict()["epoch"], "loss": loss,
    "predicted": len(predicted), "rows": rows, "num": len(want),
}))
"""


@pytest.mark.parametrize("length", ["known", "filter", "batches"])
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_fits_evaluates_and_predicts(backend: str, length: str, tmp_path: Path) -> None:
    own = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    environment = {**os.environ, **own}
    done = subprocess.run([sys.executable, "-c", _FIT, length], capture_output=True, text=True, env=environment, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    out = json.loads(done.stdout.splitlines()[-1])
    assert out["backend"] == backend
    assert out["losses"][-1] < out["losses"][0]
    assert out["epoch"] == [3, 0]
    assert out["predicted"] == out["rows"]
    assert out["steps"] == list(range(1, out["num"] + 1)), "the state counts what was trained"


def test_an_enqueuer_feeds_keras_and_tf_as_it_is() -> None:
    def batches() -> Any:
        while True:
            yield np.ones((4, 3), np.float32), np.ones(4, np.float32)

    enqueuer = ps.GeneratorEnqueuer(batches())
    enqueuer.start()
    signature = (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.float32))
    data = tf.data.Dataset.from_generator(enqueuer.get, output_signature=signature)
    assert [x.shape.as_list() for x, _ in data.take(3)] == [[4, 3]] * 3
    enqueuer.stop()


_SIGNATURES = """
import numpy as np
import tensorflow as tf
import penstock as ps

batches = [{"x": np.zeros((4, 3), np.float32), "y": np.zeros(4)}, {"x": np.zeros((2, 3), np.float32), "y": np.zeros(2)}]
rows = ps.from_arrays({"x": np.zeros((6, 3), np.float32), "y": np.zeros(6)})
own = {"x": tf.TensorSpec((None, None), tf.float32), "y": tf.TensorSpec((None,), tf.float64)}
for data in (
    ps.from_source(batches).to_keras("x", "y"),
    rows.batch(4, drop_remainder=True).to_keras("x", "y"),
    rows.batch(4, drop_remainder=True).flat_map(lambda batch: [batch]).to_keras("x", "y"),
    ps.from_source(batches).to_keras(["x"], "y", output_signature=own),
):
    spec = data.get_tf_dataset().element_spec
    print([None if one is None else one.shape.as_list() for one in tf.nest.flatten(spec)])
"""


def test_the_first_dimension_of_a_batch_is_open_unless_the_remainder_is_dropped() -> None:
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    out = subprocess.run([sys.executable, "-c", _SIGNATURES], env=environment, capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["[[None, 3], [None]]", "[[4, 3], [4]]", "[[None, 3], [None]]", "[[None, None], [None]]"]
