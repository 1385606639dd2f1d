"""tf.train.Example and tf.train.SequenceExample: elements to bytes and back. Byte table in docs/formats/example.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from itertools import pairwise
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from penstock._contracts.element import LEAF, Structure
from penstock._contracts.source import Leaves, RowFailed
from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.features import (
    TEXTS,
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Message,
    check_features,
    check_names,
    default_of,
    delimited,
    dtype_name,
    encode_feature,
    encode_features,
    encode_map,
    kind_of,
)
from penstock.kernels.examples import COUNT, FIXED, BadRecord, FeaturePlan, fill_examples, framed_taker, make_plan, parse_examples
from penstock.kernels.library import Array, Ints, Uint8s
from penstock.kernels.spans import Taker
from penstock.kernels.wire import (
    BYTES,
    MAX_DEPTH,
    Entry,
    WireFault,
    WireProblem,
    as_array,
    entries,
    lists_of,
    messages,
    values_of,
)

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
    return ExampleReader(check_features(features, "parse_example"))


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


# -- blocks of records: columns of fixed features, rows of dicts of any -----------------------------------------------------------


class ExampleReader:
    """Parses records by declared features; the function that `parse_example` returns. Never changed after it is made; for any thread.

    Args:
        features: as `check_features` left them.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self.__name__, self.features = "parse_example", dict(features)
        self._names = tuple(self.features)
        self._plan = make_plan([_feature_plan(name, feature) for name, feature in self.features.items()])
        self._defaults = [
            default_of(feature) if isinstance(feature, FixedLenFeature) and feature.dtype is bytes else None
            for feature in self.features.values()
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return ExampleReader, (self.features,)

    def __call__(self, record: Record | Mapping[str, Any]) -> dict[str, Any]:
        """Return the element of a record, or of an element of `read_tfrecord`."""
        return self.row(bytes_of_record(record, "parse_example"))

    def __repr__(self) -> str:
        return f"parse_example({', '.join(self.features)})"

    @property
    def columnar(self) -> bool:
        """Tell whether all features are fixed and of numbers, so that `columns` can be called."""
        return all(isinstance(feature, FixedLenFeature) and feature.dtype is not bytes for feature in self.features.values())

    def structure(self) -> Structure:
        """Return the structure of an element."""
        return ("dict", self._names, (LEAF,) * len(self._names))

    def leaves(self) -> Leaves:
        """Return shape and dtype of each feature of an element; only of columnar features."""
        return [(feature.shape, feature.dtype) for feature in self.features.values() if isinstance(feature, FixedLenFeature)]

    def columns(self, data: Uint8s, starts: Ints, lengths: Ints, out: list[Array]) -> None:
        """Parse a block into arrays (n, *shape), with one call; only of columnar features.

        Raises:
            RowFailed: the first bad record.
        """
        self._check(parse_examples(data, starts, lengths, self._plan, out))

    def taker(self, out: list[Array], *, check_crc: bool) -> Taker | None:
        """Return what checks and parses TFRecord frames into `out`, arrays as for `columns`, where storage reads them; None: there is none.

        What it leaves is for `columns`, which says what is wrong; only of columnar features.
        """
        return framed_taker(self._plan, out, len(out[0]) if out else 0, check_data=check_crc)

    def rows(self, data: Uint8s, starts: Ints, lengths: Ints) -> list[dict[str, Any]]:
        """Parse a block into elements, with one call, or two where features vary in length. Arrays are views of those of the block.

        Raises:
            RowFailed: the first bad record.
        """
        num, features = len(starts), self._plan.features
        outs: list[Array] = [
            np.empty(num if one.mode == COUNT else num * one.count * one.width, np.int64 if one.mode == COUNT else one.dtype)
            for one in features
        ]
        self._check(parse_examples(data, starts, lengths, self._plan, outs))
        filled: list[Any] = [None] * len(features)
        if self._plan.has_variable:
            counts = [out if one.mode == COUNT else None for one, out in zip(features, outs, strict=True)]
            bad, filled = fill_examples(data, starts, lengths, self._plan, counts)
            self._check(bad)
        columns = []
        for number, (feature, out, values) in enumerate(zip(self.features.values(), outs, filled, strict=True)):
            if isinstance(feature, FixedLenFeature):
                columns.append(_fixed(data, feature, out, num, self._defaults[number]))
            else:
                columns.append(_variable(data, feature, *values))
        names = self._names
        return [dict(zip(names, leaves, strict=True)) for leaves in zip(*columns, strict=True)] if names else [{} for _ in range(num)]

    def row(self, record: bytes) -> dict[str, Any]:
        """Return {name: value} of one record.

        Raises:
            RecordError: it cannot be read.
        """
        data = np.frombuffer(record, np.uint8)
        try:
            return self.rows(data, np.zeros(1, np.int64), np.array([data.size], np.int64))[0]
        except RowFailed as bad:
            raise bad.error from None

    def _check(self, bad: BadRecord | None) -> None:
        if bad is None:
            return
        name = self._names[bad.feature] if bad.feature >= 0 else None
        raise RowFailed(bad.row, record_error(bad.fault, bad.at, bad.found, name, self.features.get(name or "")))


def _feature_plan(name: str, feature: Feature) -> FeaturePlan:
    kind = kind_of(feature.dtype)
    if isinstance(feature, FixedLenFeature):
        value = default_of(feature)
        default = None if value is None else b"" if isinstance(value, list) else value.tobytes()
        return FeaturePlan(name.encode(), kind, FIXED, prod(feature.shape), default)
    if isinstance(feature, FixedLenSequenceFeature):
        return FeaturePlan(name.encode(), kind, COUNT, prod(feature.shape), b"" if feature.allow_missing else None)
    return FeaturePlan(name.encode(), kind, COUNT, 1, b"")


def _fixed(data: Uint8s, feature: FixedLenFeature, out: Array, num: int, default: list[bytes] | None) -> list[Any]:
    """Return one leaf for each record."""
    if feature.dtype is not bytes:
        return list(out.reshape(num, *feature.shape))
    values = _bytes_of(data, out, default)
    return values if not feature.shape else list(_objects(values).reshape(num, *feature.shape))


def _variable(data: Uint8s, feature: Feature, values: Array, offsets: Ints) -> list[Any]:
    shape = feature.shape if isinstance(feature, FixedLenSequenceFeature) else ()
    flat = _objects(_bytes_of(data, values, None)) if feature.dtype is bytes else values
    ends = offsets.tolist()
    return [flat[begin:end].reshape(-1, *shape) for begin, end in pairwise(ends)]


def _bytes_of(data: Uint8s, spans: Ints, default: list[bytes] | None) -> list[bytes]:
    view = data.data
    pairs = spans.reshape(-1, 2).tolist()
    if default is None:
        return [bytes(view[begin : begin + length]) for begin, length in pairs]
    return [bytes(view[begin : begin + length]) if begin >= 0 else default[-1 - begin] for begin, length in pairs]


def _objects(values: list[bytes]) -> Array:
    out = np.empty(len(values), object)
    out[:] = values
    return out


# -- errors -----------------------------------------------------------------------------------------------------------------------

_KINDS: Final = ("nothing", "bytes", "float32", "int64")
_DAMAGED: Final = "write the record again: it is no tf.train.Example, or was changed after it was written"
_WORDS: Final = {
    WireProblem.SPAN: "the record does not lie inside the bytes that were read",
    WireProblem.VARINT: "a number is cut off or has more than ten bytes",
    WireProblem.TAG: "there is a field number 0, an unknown wire type or an end of a group that was not opened",
    WireProblem.LENGTH: "a length does not fit the bytes that are left, or is not that of whole values",
    WireProblem.WIRE: "a field has another wire type than the format says",
    WireProblem.DEPTH: f"more than {MAX_DEPTH} groups lie in each other",
}


def record_error(fault: WireProblem, at: int, found: int, name: str | None, feature: Feature | None) -> RecordError:
    """Return the error for what a parser found; `name` and `feature` are those concerned, if known."""
    where = f"byte {at} of the record" if name is None else f"feature {name!r}, byte {at} of the record"
    if fault == WireProblem.MISSING:
        kind = type(feature).__name__
        fix = "allow_missing=True" if isinstance(feature, FixedLenSequenceFeature) else "a default_value, or declare a VarLenFeature"
        return RecordError(
            f"the record has no feature {name!r}", where=f"feature {name!r} ({kind})", fix=f"correct its name, or give it {fix}"
        )
    if fault == WireProblem.KIND and feature is not None:
        return RecordError(
            f"feature {name!r} holds {_KINDS[found]} and is declared {dtype_name(feature.dtype)}",
            where=where,
            fix=f"declare it with dtype {_KINDS[found]}, or write the record again",
        )
    if fault == WireProblem.COUNT and feature is not None:
        return RecordError(
            f"feature {name!r} has {found} values, and is declared as {feature!r:.200}",
            where=where,
            fix="declare the shape that the records have, or a VarLenFeature for numbers of values that differ",
        )
    return RecordError(_WORDS.get(fault, fault.name), where=where, fix=_DAMAGED)


def wire_error(fault: WireFault) -> RecordError:
    """Return the error for bytes that are no message."""
    name = None if fault.name is None else fault.name.decode("utf-8", "backslashreplace")
    return record_error(fault.fault, fault.at, fault.found, name, None)


Steps = list[tuple[int, list[Any]]]
"""Kind and values of each step."""


def encode_sequence_example(
    context: Mapping[str, Any],
    sequences: Mapping[str, Any],
    context_features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
) -> bytes:
    """Serialize a context and sequences as a tf.train.SequenceExample. The same values give the same bytes; from any thread.

    Args:
        context: as the element of `encode_example`.
        sequences: names to steps: a list or array whose items are the values of a step each, as those of `context`.
        context_features: as the features of `encode_example`.
        sequence_features: a FixedLenSequenceFeature (each step has its shape) or VarLenFeature for each sequence. None: kinds follow
            from the values.

    Raises:
        SpecError: a value that a record cannot hold, or that is not what the features say; with its name.
        PlanError: features that are no mapping of features, or a FixedLenFeature for a sequence.
    """
    caller = "encode_sequence_example"
    checked = None if context_features is None else check_features(context_features, caller, may_be_empty=True)
    declared = None if sequence_features is None else _check_sequences(sequence_features, caller)
    _, head = encode_features(context, checked, caller)
    check_names(sequences, declared, caller, "sequences")
    lists: dict[str, Message] = {}
    for name in sequences if declared is None else declared:
        feature = None if declared is None else declared[name]
        if name in sequences:
            lists[name] = _encode_steps(sequences[name], feature, f"{caller}, sequence {name!r}")
        elif isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            raise SpecError(f"there is no sequence {name!r}", where=caller, fix="give it, or the feature allow_missing=True")
    return b"".join(head + delimited(2, encode_map(lists))[1])


def decode_sequence_example(
    data: Record, context_features: Mapping[str, Feature] | None = None, sequence_features: Mapping[str, Feature] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a serialized tf.train.SequenceExample; from any thread.

    Args:
        data: the record.
        context_features: what to take from the context, as in `decode_example`.
        sequence_features: what to take from the lists: a FixedLenSequenceFeature gives an array [steps, *shape], a VarLenFeature a list
            with an array [n] for each step. Of bytes the arrays have dtype object.

    Returns:
        (context, sequences). With both features None: everything that is there, each step as in `decode_example`. With one of them only
        what it names.

    Raises:
        RecordError: the bytes are no SequenceExample, or not what the features say; with the feature and the byte.
        PlanError: features that are no mapping of features, or a FixedLenFeature for a sequence.
    """
    caller = "decode_sequence_example"
    record = bytes_of_record(data, caller)
    everything = context_features is None and sequence_features is None
    sequences = {} if sequence_features is None else _check_sequences(sequence_features, caller)
    context: dict[str, Any] = {}
    try:
        if everything:
            context = decode_features(record, messages(record, 0, len(record), 1))
        elif context_features:
            context = ExampleReader(check_features(context_features, caller)).row(record)  # it is written as the features of an Example
        found = entries(record, messages(record, 0, len(record), 2))
        if everything:
            lists = {name: _steps(record, entry, None, name) for name, entry in found.items()}
            return context, {
                name_of(name, found[name]): [found_values(record, *step) if step[0] else [] for step in steps]
                for name, steps in lists.items()
            }
        out = {}
        for name, feature in sequences.items():
            key = name.encode()
            steps = _steps(record, found[key], kind_of(feature.dtype), key) if key in found else None
            out[name] = _decode_steps(record, steps, name, feature)
        return context, out
    except WireFault as fault:
        raise wire_error(fault) from fault


def _encode_steps(steps: Any, feature: Feature | None, where: str) -> Message:
    one: Feature | None = FixedLenFeature(feature.shape, feature.dtype) if isinstance(feature, FixedLenSequenceFeature) else feature
    ordered = hasattr(steps, "__iter__") and not isinstance(steps, (*TEXTS, Mapping, Set))
    if not ordered or (isinstance(steps, np.ndarray) and steps.ndim == 0):
        raise SpecError(
            f"the sequence is {type(steps).__name__}{' without a dimension' if ordered else ''}",
            where=where,
            fix="give a list or array of steps",
        )
    done = [delimited(1, encode_feature(step, one, f"{where}, step {number}")) for number, step in enumerate(steps)]
    return sum(size for size, _ in done), [piece for _, pieces in done for piece in pieces]


def _steps(record: bytes, entry: tuple[int, int], kind: int | None, name: bytes) -> Steps:
    try:
        return [
            lists_of(record, iter([step]), kind) for part in values_of(record, entry) for step in messages(record, part.begin, part.end, 1)
        ]
    except WireFault as fault:
        fault.name = name
        raise


def _decode_steps(record: bytes, steps: Steps | None, name: str, feature: Feature) -> Any:
    if steps is None:
        if isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            raise record_error(WireProblem.MISSING, 0, 0, name, feature)
        steps = []
    wanted = kind_of(feature.dtype)
    for number, (kind, _) in enumerate(steps):
        if kind not in (0, wanted):
            error = record_error(WireProblem.KIND, 0, kind, name, feature)
            raise RecordError(error.what, where=f"feature {name!r}, step {number}", fix=error.fix)
    if not isinstance(feature, FixedLenSequenceFeature):
        return [_array(record, wanted, values) for _, values in steps]
    size = prod(feature.shape)
    for number, (_, values) in enumerate(steps):
        if len(values) != size:
            error = record_error(WireProblem.COUNT, 0, len(values), name, feature)
            raise RecordError(error.what, where=f"feature {name!r}, step {number}", fix=error.fix)
    flat = [value for _, values in steps for value in values]
    return _array(record, wanted, flat).reshape(len(steps), *feature.shape)


def _array(record: bytes, kind: int, values: list[Any]) -> Array:
    if kind != BYTES:
        array: Array = as_array(kind, values)
        return array
    return _objects([record[begin : begin + length] for begin, length in values])


def _check_sequences(features: Any, caller: str) -> dict[str, Feature]:
    checked = check_features(features, caller, may_be_empty=True)
    for name, feature in checked.items():
        if isinstance(feature, FixedLenFeature):
            raise PlanError(
                f"the sequence {name!r} is declared a FixedLenFeature", where=caller, fix="declare a FixedLenSequenceFeature of a step"
            )
    return checked
