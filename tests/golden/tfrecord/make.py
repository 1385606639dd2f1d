"""Writes the golden files of this folder with TensorFlow: `python make.py` where tensorflow is installed. Made with TensorFlow 2.21.0.

All hold the same five records: none, b"a", "penstock" 100 times, the bytes 0 to 255 three times, 1,000 zeros.
"""

from __future__ import annotations

from pathlib import Path

RECORDS = [b"", b"a", b"penstock" * 100, bytes(range(256)) * 3, bytes(1000)]
FOLDER = Path(__file__).parent


def main() -> None:
    """Write plain shards with names as TensorFlow Datasets gives them, and a GZIP and a ZLIB file."""
    import tensorflow as tf

    for name, options, records in (
        ("plain.tfrecord-00000-of-00002", None, RECORDS[:3]),
        ("plain.tfrecord-00001-of-00002", None, RECORDS[3:]),
        ("gzip.tfrecord.gz", "GZIP", RECORDS),
        ("zlib.tfrecord", "ZLIB", RECORDS),
    ):
        with tf.io.TFRecordWriter(str(FOLDER / name), options) as writer:
            for record in records:
                writer.write(record)


if __name__ == "__main__":
    main()
