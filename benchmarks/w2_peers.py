"""tf.data and DALI on the files of W2: `python w2_peers.py KIND FOLDER COUNT SECONDS SHUFFLED` prints a line of JSON.

KIND is tfdata_interleave, tfdata_files (one TFRecordDataset of all files, with a large buffer: for local files often the faster form)
or dali.

Run by w2.py, perhaps in another environment: it needs NumPy and the peer's package, not Penstock.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import drive
import w2_data

_BATCH_SIZE = w2_data.BATCH_SIZE
_BUFFER = 10_000
_READ_BYTES = 8 << 20


def tfdata_interleave(folder: Path, count: int, shuffled: bool) -> Callable[[], Iterable[Any]]:
    """Native operators throughout: interleave, shuffle buffer, batch, parse_example of whole batches, prefetch, all with AUTOTUNE."""
    tf = _tensorflow()
    files = tf.data.Dataset.from_tensor_slices(sorted(map(str, folder.glob("*.tfrecord"))))
    auto = tf.data.AUTOTUNE
    return _parsed(
        files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=auto, deterministic=not shuffled), count, shuffled
    )


def tfdata_files(folder: Path, count: int, shuffled: bool) -> Callable[[], Iterable[Any]]:
    """The same, but for the reading: file by file, in pieces of 8 MB."""
    tf = _tensorflow()
    return _parsed(tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord"))), buffer_size=_READ_BYTES), count, shuffled)


def _tensorflow() -> Any:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import tensorflow as tf

    return tf


def _parsed(dataset: Any, count: int, shuffled: bool) -> Callable[[], Iterable[Any]]:
    tf = _tensorflow()
    features = {"x": tf.io.FixedLenFeature([w2_data.NUM_FLOATS], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    if shuffled:
        dataset = dataset.shuffle(min(_BUFFER, count))
    dataset = dataset.batch(_BATCH_SIZE, drop_remainder=True)
    auto = tf.data.AUTOTUNE
    dataset = dataset.map(lambda records: tf.io.parse_example(records, features), num_parallel_calls=auto).prefetch(auto)
    return dataset.as_numpy_iterator  # type: ignore[no-any-return]


def dali(folder: Path, count: int, shuffled: bool) -> Callable[[], Iterable[Any]]:
    """Its TFRecord reader on the CPU, two threads, four batches ahead."""
    from nvidia.dali import fn, pipeline_def, tfrecord

    files = sorted(map(str, folder.glob("*.tfrecord")))
    features = {"x": tfrecord.FixedLenFeature([256], tfrecord.float32, 0.0), "y": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)}

    @pipeline_def(batch_size=_BATCH_SIZE, num_threads=2, device_id=None, prefetch_queue_depth=4)  # type: ignore[untyped-decorator]
    def read() -> Any:
        out = fn.readers.tfrecord(
            path=files,
            index_path=[f"{file}.idx" for file in files],
            features=features,
            random_shuffle=shuffled,
            initial_fill=min(_BUFFER, count),
            name="reader",
        )
        return out["x"], out["y"]

    pipeline = read()
    pipeline.build()

    def epoch() -> Iterator[Any]:
        for _ in range(count // _BATCH_SIZE):
            floats, labels = pipeline.run()
            yield {"x": floats.as_array(), "y": labels.as_array().reshape(-1)}

    return epoch


KINDS = {"tfdata_interleave": tfdata_interleave, "tfdata_files": tfdata_files, "dali": dali}


def main() -> None:
    """Measure one of them."""
    kind, folder, count, seconds, shuffled = sys.argv[1:]
    try:
        epoch = KINDS[kind](Path(folder), int(count), bool(int(shuffled)))
    except ImportError as missing:
        print("PEER " + json.dumps({"missing": f"{missing.name} is not installed"}), flush=True)
        return
    result = drive.epochs(epoch, _BATCH_SIZE, float(seconds), w2_data.checker(int(count)))
    print("PEER " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
