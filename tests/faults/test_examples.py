"""Malformed tf.train.Example in real files, and records that would like to be unpickled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import output_of

import penstock as ps
from fuzz_examples import delimited, varint
from penstock.errors import RecordError
from penstock.formats.tfrecord import RecordWriter

NUMBERS: dict[str, Any] = {"x": ps.FixedLenFeature((2,), "float32"), "label": ps.FixedLenFeature((), "int64")}
ROWS: dict[str, Any] = {**NUMBERS, "name": ps.FixedLenFeature((), bytes, b"")}
GOOD = ps.encode_example({"x": [1.0, 2.0], "label": 1})
MILLION = 1_000_000


def entry(name: bytes, value: bytes) -> bytes:
    return delimited(1, delimited(1, name) + delimited(2, value))


def with_label(value: bytes) -> bytes:
    """Return a record whose label is these bytes of a Feature."""
    return delimited(1, entry(b"x", delimited(2, delimited(1, bytes(8)))) + entry(b"label", value))


HOSTILE = {
    "bad varint": (with_label(delimited(3, delimited(1, b"\xff" * 11))), "more than ten bytes", "label"),
    "varint that is cut off": (with_label(delimited(3, delimited(1, b"\x80"))), "cut off", "label"),
    "wrong wire type": (with_label(delimited(3, b"\x0d\x01\x01\x01\x01")), "another wire type", "label"),
    "length beyond the end": (with_label(b"\x1a\xff\xff\xff\xff\x07"), "length does not fit", "label"),
    "deep nesting": (GOOD + varint(9 << 3 | 3) * 100_000, "groups lie in each other", ""),
    "a group that never ends": (GOOD + varint(9 << 3 | 3), "length does not fit", ""),
    "field number 0": (b"\x00" + GOOD, "field number 0", ""),
    "missing feature": (delimited(1, entry(b"label", delimited(3, b"\x0a\x01\x01"))), "has no feature 'x'", "x"),
    "feature without a kind": (with_label(b""), "has no feature 'label'", "label"),
    "wrong kind": (with_label(delimited(1, delimited(1, b"cat"))), "holds bytes and is declared int64", "label"),
    "too many values": (with_label(delimited(3, delimited(1, b"\x01\x02"))), "has 2 values", "label"),
    "too few values": (with_label(delimited(3, b"")), "has 0 values", "label"),
    "half a float": (delimited(1, entry(b"x", delimited(2, delimited(1, bytes(7))))), "length does not fit", "x"),
    "no record at all": (b"not an example, but text", "unknown wire type", ""),
}


def write(path: Path, *records: bytes) -> str:
    with path.open("wb") as file, RecordWriter(file) as writer:
        for record in records:
            writer.write(record)
    return str(path)


@pytest.mark.parametrize("features", [NUMBERS, ROWS], ids=["columns", "rows"])
@pytest.mark.parametrize("case", HOSTILE)
def test_a_malformed_example_is_an_error_with_its_record_and_feature(tmp_path: Path, case: str, features: dict[str, Any]) -> None:
    record, what, feature = HOSTILE[case]
    dataset = ps.read_tfrecord(write(tmp_path / "a.tfrecord", GOOD, record, GOOD), features=features)
    with pytest.raises(RecordError, match=what) as caught:
        list(dataset.batch(3))
    assert not feature or f"feature {feature!r}" in caught.value.where
    assert any("record 1 of" in note for note in caught.value.__notes__)
    with dataset.feed(on_error=ps.Skip()) as feed:
        assert len(list(feed)) == 2


def test_a_record_of_a_million_features_is_read(tmp_path: Path) -> None:
    many = entry(b"other", b"") * MILLION
    record = delimited(1, entry(b"x", delimited(2, delimited(1, bytes(8)))) + many + entry(b"label", delimited(3, b"\x0a\x01\x07")))
    (batch,) = ps.read_tfrecord(write(tmp_path / "a.tfrecord", record), features=NUMBERS).batch(1)
    assert batch["label"].tolist() == [7]


@pytest.mark.parametrize("features", [NUMBERS, ROWS], ids=["columns", "rows"])
def test_every_cut_of_a_record_in_a_good_frame_is_an_error(tmp_path: Path, features: dict[str, Any]) -> None:
    path = write(tmp_path / "a.tfrecord", *(GOOD[:end] for end in range(len(GOOD))), GOOD)
    with ps.read_tfrecord(path, features=features).feed(on_error=ps.Skip()) as feed:
        assert len(list(feed)) == 1
        assert feed.stats().num_skipped == len(GOOD)


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


_AUDITED = """
import sys
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event) if event == "pickle.find_class" else None)
import penstock as ps
features = {"data": ps.FixedLenFeature((), bytes), "more": ps.VarLenFeature(bytes)}
dataset = ps.read_tfrecord(sys.argv[1], features=features)
with dataset.feed() as feed:
    elements = list(feed)
raw = [ps.decode_example(one["record"]) for one in ps.read_tfrecord(sys.argv[1])]
assert elements[0]["data"] == raw[0]["data"][0] and raw[0]["data"][0][:1] == b"\\x80"
assert elements[0]["more"].tolist() == raw[0]["more"]
print(len(seen))
"""


def test_bytes_of_a_record_are_never_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "was-run"
    bomb = pickle.dumps(Bomb(str(marker)))
    objects = np.array([Bomb(str(marker))], object)
    path = write(tmp_path / "a.tfrecord", ps.encode_example({"data": bomb, "more": [objects.dumps(), bomb]}))
    assert output_of("-c", _AUDITED, path) == "0\n"
    assert not marker.exists()
