"""tf.train.Example: elements to bytes and back. Byte table in docs/formats/example.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from penstock._contracts.source import RowFailed
from penstock.errors import PlanError, RecordError
from penstock.formats.example_block import ExampleReader
from penstock.formats.example_encode import encode_features
from penstock.formats.example_errors import wire_error
from penstock.formats.features import Feature, check_features
from penstock.kernels.messages import BYTES, Entry, as_array, entries, lists_of, messages, values_of
from penstock.kernels.wire import WireFault

__all__ = ["Record", "bytes_of_record", "decode_example", "decode_features", "encode_example", "found_values", "name_of", "parse_example"]

Record: TypeAlias = bytes | bytearray | memoryview


def encode_example(element: Mapping[str, Any], features: Mapping[str, Feature] | None = None) -> bytes:
    """Serialize a dict as a tf.train.Example. The same element gives the same bytes, whatever the order of its keys; from any thread.

    Keys are written in the order of their UTF-8 bytes, lists packed, as protobuf's deterministic serialization does.

    Args:
        element: names to values. Floats and arrays of them become a float list (rounded to float32), integers and bools an int64 list,
            bytes, str (as UTF-8) and lists or arrays of them a bytes list. Arrays are written flat, in C order.
        features: what the record is to hold; kinds, numbers and, unless they come flat, shapes of values are then checked, a feature
            that may be missing may be left out, and no other name may be there. None: kinds follow from the values.

    Raises:
        SpecError: a value that none of the three kinds can hold as it is, or that is not what `features` says; with its name.
        PlanError: `features` is no mapping of features.
    """
    checked = None if features is None else check_features(features, "encode_example", may_be_empty=True)
    return b"".join(encode_features(element, checked, "encode_example")[1])


def decode_example(data: Record, features: Mapping[str, Feature] | None = None) -> dict[str, Any]:
    """Read a serialized tf.train.Example; from any thread. To read many, use `parse_example`, which prepares `features` once.

    Args:
        data: the record.
        features: what to take from it; what else is there is skipped. See `FixedLenFeature` for what becomes of each.
            None: everything: float32 and int64 arrays [n], and lists of bytes. Features without a kind are left out.

    Raises:
        RecordError: the bytes are no Example, or not what `features` says; with the feature and the byte.
        PlanError: `features` is no mapping of features.
    """
    if features is not None:
        return parse_example(features)(data)
    record = bytes_of_record(data, "decode_example")
    try:
        return decode_features(record, messages(record, 0, len(record), 1))
    except WireFault as fault:
        raise wire_error(fault) from fault


def parse_example(features: Mapping[str, Feature]) -> Callable[[Any], dict[str, Any]]:
    """Return a function that parses serialized tf.train.Example, for a map: `ds.map(ps.parse_example(features))`.

    It takes bytes, or {"record": bytes} as `read_tfrecord` gives them, and returns a dict with one entry for each feature, in their order.
    From any number of threads; it can be pickled.

    Args:
        features: what to take from a record; see `FixedLenFeature`.

    Raises:
        PlanError: `features` is no mapping of features; from the function: its argument is no record.
        RecordError: from the function: the record is no Example, or not what was declared; with the feature and the byte.
    """
    return _Parser(ExampleReader(check_features(features, "parse_example")))


class _Parser:
    """What `parse_example` returns."""

    def __init__(self, reader: ExampleReader) -> None:
        self._reader = reader
        self.__name__ = "parse_example"

    def __call__(self, record: Record | Mapping[str, Any]) -> dict[str, Any]:
        data = np.frombuffer(bytes_of_record(record, "parse_example"), np.uint8)
        try:
            return self._reader.rows(data, np.zeros(1, np.int64), np.array([data.size], np.int64))[0]
        except RowFailed as bad:
            raise bad.error from None

    def __repr__(self) -> str:
        return f"parse_example({', '.join(self._reader.features)})"


def bytes_of_record(record: Any, caller: str) -> bytes:
    """Return the bytes of a record, which may be an element of `read_tfrecord`.

    Raises:
        PlanError: it is no record.
    """
    data = record.get("record") if isinstance(record, Mapping) else record
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise PlanError(
        f"{caller} got {'a dict without a record of bytes' if isinstance(record, Mapping) else type(data).__name__}",
        where=caller,
        fix='give the bytes of a record, or an element {"record": bytes}',
    )


def decode_features(record: bytes, parts: Any) -> dict[str, Any]:
    """Return all features of a Features message in one or several parts.

    Raises:
        WireFault: the bytes are no message.
        RecordError: a name is no UTF-8.
    """
    found: dict[str, Any] = {}
    for name, entry in entries(record, parts).items():
        try:
            kind, values = lists_of(record, values_of(record, entry), None)
        except WireFault as fault:
            fault.name = name
            raise
        if kind:
            found[name_of(name, entry)] = found_values(record, kind, values)
    return found


def found_values(record: bytes, kind: int, values: list[Any]) -> Any:
    """Return the values of a Feature: a list of bytes, or an array."""
    if kind == BYTES:
        return [record[begin : begin + length] for begin, length in values]
    return as_array(kind, values)


def name_of(name: bytes, entry: Entry) -> str:
    """Return the name of a map entry.

    Raises:
        RecordError: it is no UTF-8.
    """
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise RecordError(
            f"the name {name!r} of a feature is no UTF-8", where=f"byte {entry[0]} of the record", fix="write the record again"
        ) from error
