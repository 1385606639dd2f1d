"""tf.train.SequenceExample: a context of features, and lists of features. Byte table in docs/formats/example.md."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.source import RowFailed
from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.example import (
    ExampleReader,
    Record,
    bytes_of_record,
    decode_features,
    found_values,
    name_of,
    record_error,
    wire_error,
)
from penstock.formats.features import (
    TEXTS,
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Message,
    check_features,
    check_names,
    delimited,
    encode_feature,
    encode_features,
    encode_map,
)
from penstock.kernels.wire import BYTES, FLOAT, INT64, Fault, WireFault, as_array, entries, lists_of, messages, values_of

__all__ = ["decode_sequence_example", "encode_sequence_example"]

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
    data: Record,
    context_features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
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
            context = _decode_context(record, check_features(context_features, caller))
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
            steps = _steps(record, found[key], _kind(feature), key) if key in found else None
            out[name] = _decode_steps(record, steps, name, feature)
        return context, out
    except WireFault as fault:
        raise wire_error(fault) from fault


def _decode_context(record: bytes, features: dict[str, Feature]) -> dict[str, Any]:
    """Return the context: it is the field of an Example's features, so the same parser reads it."""
    data = np.frombuffer(record, np.uint8)
    try:
        return ExampleReader(features).rows(data, np.zeros(1, np.int64), np.array([data.size], np.int64))[0]
    except RowFailed as bad:
        raise bad.error from None


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
            raise record_error(Fault.MISSING, 0, 0, name, feature)
        steps = []
    wanted = _kind(feature)
    for number, (kind, _) in enumerate(steps):
        if kind not in (0, wanted):
            error = record_error(Fault.KIND, 0, kind, name, feature)
            raise RecordError(error.what, where=f"feature {name!r}, step {number}", fix=error.fix)
    if not isinstance(feature, FixedLenSequenceFeature):
        return [_array(record, wanted, values) for _, values in steps]
    size = int(np.prod(feature.shape, dtype=np.int64))
    for number, (_, values) in enumerate(steps):
        if len(values) != size:
            error = record_error(Fault.COUNT, 0, len(values), name, feature)
            raise RecordError(error.what, where=f"feature {name!r}, step {number}", fix=error.fix)
    flat = [value for _, values in steps for value in values]
    return _array(record, wanted, flat).reshape(len(steps), *feature.shape)


def _array(record: bytes, kind: int, values: list[Any]) -> NDArray[Any]:
    if kind != BYTES:
        array: NDArray[Any] = as_array(kind, values)
        return array
    out = np.empty(len(values), object)
    out[:] = [record[begin : begin + length] for begin, length in values]
    return out


def _kind(feature: Feature) -> int:
    return BYTES if feature.dtype is bytes else FLOAT if feature.dtype == np.float32 else INT64


def _check_sequences(features: Any, caller: str) -> dict[str, Feature]:
    checked = check_features(features, caller, may_be_empty=True)
    for name, feature in checked.items():
        if isinstance(feature, FixedLenFeature):
            raise PlanError(
                f"the sequence {name!r} is declared a FixedLenFeature",
                where=caller,
                fix="declare a FixedLenSequenceFeature of a step",
            )
    return checked
