"""The words for a record that is not the tf.train.Example that it should be."""

from __future__ import annotations

from typing import Final

from penstock.errors import RecordError
from penstock.formats.features import Feature, FixedLenFeature, FixedLenSequenceFeature
from penstock.kernels.wire import MAX_DEPTH, Fault, WireFault

__all__ = ["record_error", "wire_error"]

_KINDS: Final = ("nothing", "bytes", "float32", "int64")
_DAMAGED: Final = "write the record again: it is no tf.train.Example, or was changed after it was written"
_WORDS: Final = {
    Fault.SPAN: "the record does not lie inside the bytes that were read",
    Fault.VARINT: "a number is cut off or has more than ten bytes",
    Fault.TAG: "there is a field number 0, an unknown wire type or an end of a group that was not opened",
    Fault.LENGTH: "a length does not fit the bytes that are left, or is not that of whole values",
    Fault.WIRE: "a field has another wire type than the format says",
    Fault.DEPTH: f"more than {MAX_DEPTH} groups lie in each other",
}


def record_error(fault: Fault, at: int, found: int, name: str | None, feature: Feature | None) -> RecordError:
    """Return the error for what a parser found; `name` and `feature` are those concerned, if known."""
    where = f"byte {at} of the record" if name is None else f"feature {name!r}, byte {at} of the record"
    if fault == Fault.MISSING:
        kind = type(feature).__name__
        fix = "allow_missing=True" if isinstance(feature, FixedLenSequenceFeature) else "a default_value, or declare a VarLenFeature"
        return RecordError(f"the record has no feature {name!r}", where=f"feature {name!r} ({kind})", fix=f"give it {fix}")
    if fault == Fault.KIND and feature is not None:
        return RecordError(
            f"feature {name!r} holds {_KINDS[found]} and is declared {_declared(feature)}",
            where=where,
            fix=f"declare it with dtype {_KINDS[found]}, or write the record again",
        )
    if fault == Fault.COUNT and feature is not None:
        return RecordError(
            f"feature {name!r} has {found} values, and {_expected(feature)}",
            where=where,
            fix="declare the shape that the records have, or a VarLenFeature for numbers of values that differ",
        )
    return RecordError(_WORDS.get(fault, fault.name), where=where, fix=_DAMAGED)


def wire_error(fault: WireFault) -> RecordError:
    """Return the error for bytes that are no message."""
    name = None if fault.name is None else fault.name.decode("utf-8", "backslashreplace")
    return record_error(fault.fault, fault.at, fault.found, name, None)


def _declared(feature: Feature) -> str:
    return "bytes" if feature.dtype is bytes else str(feature.dtype)


def _expected(feature: Feature) -> str:
    if isinstance(feature, FixedLenFeature):
        return f"its shape {feature.shape} says otherwise"
    if isinstance(feature, FixedLenSequenceFeature):
        return f"its steps have shape {feature.shape}"
    return "it had another number when it was counted"
