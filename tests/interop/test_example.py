"""TensorFlow writes Examples and Penstock reads them, and the other way round: the same values, and the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from fuzz_examples import random_example
from penstock.formats.tfrecord import RecordWriter

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def some_elements() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    names = ("a", "label", "image/encoded", "größe", "z" * 200)  # none begins another: protobuf's runtimes order such names differently
    out = []
    for _ in range(100):
        element: dict[str, Any] = {}
        for name in rng.permutation(names)[: rng.integers(0, 6)].tolist():
            num = int(rng.choice([0, 1, 2, 40]))
            element[name] = [
                rng.standard_normal(num, np.float32),
                rng.integers(-(2**63), 2**63 - 1, num) >> int(rng.integers(0, 64)),
                np.array([*(rng.bytes(int(rng.integers(0, 300))) for _ in range(num)), None], object)[:-1],
            ][int(rng.integers(0, 3))]
        out.append(element)
    return out


def serialized(tf: Any, element: dict[str, Any]) -> bytes:
    """Serialize with TensorFlow."""
    features = {}
    for name, value in element.items():
        match value.dtype.kind:
            case "f":
                features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
            case "i":
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            case _:
                features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=list(value)))
    data: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)
    return data


def test_examples_have_the_same_bytes_and_values(tf: Any) -> None:
    for element in some_elements():
        data = serialized(tf, element)
        assert ps.encode_example(element) == data
        found = ps.decode_example(data)
        assert found.keys() == element.keys()
        assert all(list(found[name]) == list(element[name]) for name in element)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_files_of_tensorflow_are_read_into_batches(tf: Any, tmp_path: Path, compression: str | None) -> None:
    rng = np.random.default_rng(6)
    floats, labels = rng.standard_normal((50, 4), np.float32), rng.integers(-5, 5, 50)
    with tf.io.TFRecordWriter(str(tmp_path / "x"), compression) as writer:
        for row, label in zip(floats, labels, strict=True):
            writer.write(serialized(tf, {"x": row, "y": np.array([label])}))
        writer.write(b"")
    features = {"x": ps.FixedLenFeature((4,), "float32", 0), "y": ps.FixedLenFeature((), "int64", -9)}
    batches = list(ps.read_tfrecord(str(tmp_path / "x"), features=features, compression=compression).batch(8))
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == [*floats.tolist(), [0] * 4]
    assert np.concatenate([batch["y"] for batch in batches]).tolist() == [*labels.tolist(), -9]


def test_tensorflow_parses_what_was_written(tf: Any, tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file, RecordWriter(file) as writer:
        for number in range(20):
            writer.write(
                ps.encode_example({"x": np.full((2, 2), number / 3), "y": number, "name": f"n{number}", "v": np.arange(number % 3)})
            )
    features = {
        "x": tf.io.FixedLenFeature([2, 2], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
        "v": tf.io.VarLenFeature(tf.int64),
        "gone": tf.io.FixedLenFeature([], tf.int64, 7),
    }
    parsed = tf.io.parse_example(list(tf.data.TFRecordDataset(str(tmp_path / "x"))), features)
    assert parsed["x"].numpy().tolist() == [np.full((2, 2), np.float32(number / 3)).tolist() for number in range(20)]
    assert parsed["y"].numpy().tolist() == list(range(20))
    assert parsed["name"].numpy().tolist() == [f"n{number}".encode() for number in range(20)]
    assert parsed["v"].values.numpy().tolist() == [value for number in range(20) for value in range(number % 3)]
    assert parsed["gone"].numpy().tolist() == [7] * 20


def test_joined_and_repeated_fields_mean_what_they_mean_to_protobuf(tf: Any) -> None:
    rng, both = np.random.default_rng(7), 0
    for _ in range(3000):
        # Protobuf's Python runtime, other than its C++ one, takes a map entry with an unknown field as unknown itself.
        data = random_example(rng, unknown_in_entries=0)
        message = tf.train.Example.FromString(data)
        features = {name: feature for name, feature in message.features.feature.items() if feature.WhichOneof("kind")}
        found = ps.decode_example(data)
        assert found.keys() == features.keys(), data
        for name, feature in features.items():
            kind = feature.WhichOneof("kind")
            values = list(getattr(feature, kind).value)
            assert kind == "bytes_list" or found[name].dtype == ("float32" if kind == "float_list" else "int64")
            np.testing.assert_array_equal(found[name], values if kind == "bytes_list" else np.array(values, found[name].dtype))
            both += 1
    assert both > 500


def test_sequence_examples_have_the_same_bytes(tf: Any) -> None:
    def numbers(*values: float) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    steps = {"frames": tf.train.FeatureList(feature=[numbers(1, 2), numbers(3)]), "none": tf.train.FeatureList()}
    context = tf.train.Features(feature={"rate": numbers(0.5)})
    message = tf.train.SequenceExample(context=context, feature_lists=tf.train.FeatureLists(feature_list=steps))
    assert ps.encode_sequence_example({"rate": 0.5}, {"frames": [[1.0, 2.0], [3.0]], "none": []}) == message.SerializeToString(
        deterministic=True
    )


def test_features_of_tensorflow_may_be_given_their_dtypes(tf: Any) -> None:
    assert ps.FixedLenFeature([2], tf.float32) == ps.FixedLenFeature((2,), "float32")
    assert ps.VarLenFeature(tf.string) == ps.VarLenFeature(bytes)
