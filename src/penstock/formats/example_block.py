"""Records of tf.train.Example to elements, by whole blocks: columns of fixed features, rows of dicts of any."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, Structure
from penstock._contracts.source import RowFailed
from penstock.formats.example_errors import record_error
from penstock.formats.features import Feature, FixedLenFeature, FixedLenSequenceFeature, default_of
from penstock.kernels.examples import BadRecord, FeaturePlan, fill_examples, framed_taker, make_plan, parse_examples
from penstock.kernels.examples_plan import COUNT, FIXED
from penstock.kernels.messages import BYTES, FLOAT, INT64
from penstock.kernels.spans import Taker

__all__ = ["ExampleReader"]

Spans = NDArray[np.int64]
Data = NDArray[np.uint8]


class ExampleReader:
    """Parses records by declared features. Never changed after it is made; for any number of threads.

    Args:
        features: as `check_features` left them.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self.features = dict(features)
        self._names = tuple(self.features)
        self._plan = make_plan([_feature_plan(name, feature) for name, feature in self.features.items()])
        self._defaults = [
            default_of(feature) if isinstance(feature, FixedLenFeature) and feature.dtype is bytes else None
            for feature in self.features.values()
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return ExampleReader, (self.features,)

    @property
    def columnar(self) -> bool:
        """Tell whether all features are fixed and of numbers, so that `columns` can be called."""
        return all(isinstance(feature, FixedLenFeature) and feature.dtype is not bytes for feature in self.features.values())

    def structure(self) -> Structure:
        """Return the structure of an element."""
        return ("dict", self._names, (LEAF,) * len(self._names))

    def leaves(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of each feature of an element; only of columnar features."""
        return [(feature.shape, feature.dtype) for feature in self.features.values() if isinstance(feature, FixedLenFeature)]

    def columns(self, data: Data, starts: Spans, lengths: Spans, out: list[NDArray[Any]]) -> None:
        """Parse a block into arrays (n, *shape), with one call; only of columnar features.

        Raises:
            RowFailed: the first bad record.
        """
        self._check(data, starts, lengths, parse_examples(data, starts, lengths, self._plan, out))

    def taker(self, out: list[NDArray[Any]], *, check_crc: bool) -> Taker | None:
        """Return what checks and parses TFRecord frames into `out`, arrays as for `columns`, where storage reads them; None: there is none.

        What it leaves is for `columns`, which says what is wrong; only of columnar features.
        """
        return framed_taker(self._plan, out, len(out[0]) if out else 0, check_data=check_crc)

    def rows(self, data: Data, starts: Spans, lengths: Spans) -> list[dict[str, Any]]:
        """Parse a block into elements, with one call, or two where features vary in length. Arrays are views of those of the block.

        Raises:
            RowFailed: the first bad record.
        """
        num, features = len(starts), self._plan.features
        outs: list[NDArray[Any]] = [
            np.empty(num if one.mode == COUNT else num * one.count * one.width, np.int64 if one.mode == COUNT else one.dtype)
            for one in features
        ]
        self._check(data, starts, lengths, parse_examples(data, starts, lengths, self._plan, outs))
        filled: list[Any] = [None] * len(features)
        if self._plan.has_variable:
            counts = [out if one.mode == COUNT else None for one, out in zip(features, outs, strict=True)]
            bad, filled = fill_examples(data, starts, lengths, self._plan, counts)
            self._check(data, starts, lengths, bad)
        columns = []
        for number, (feature, out, values) in enumerate(zip(self.features.values(), outs, filled, strict=True)):
            if isinstance(feature, FixedLenFeature):
                columns.append(_fixed(data, feature, out, num, self._defaults[number]))
            else:
                columns.append(_variable(data, feature, *values))
        names = self._names
        return [dict(zip(names, leaves, strict=True)) for leaves in zip(*columns, strict=True)] if names else [{} for _ in range(num)]

    def _check(self, data: Data, starts: Spans, lengths: Spans, bad: BadRecord | None) -> None:
        if bad is None:
            return
        name = self._names[bad.feature] if bad.feature >= 0 else None
        raise RowFailed(bad.row, record_error(bad.fault, bad.at, bad.found, name, self.features.get(name or "")))


def _feature_plan(name: str, feature: Feature) -> FeaturePlan:
    kind = BYTES if feature.dtype is bytes else FLOAT if feature.dtype == np.float32 else INT64
    if isinstance(feature, FixedLenFeature):
        value = default_of(feature)
        default = None if value is None else b"" if isinstance(value, list) else value.tobytes()
        return FeaturePlan(name.encode(), kind, FIXED, prod(feature.shape), default)
    if isinstance(feature, FixedLenSequenceFeature):
        return FeaturePlan(name.encode(), kind, COUNT, prod(feature.shape), b"" if feature.allow_missing else None)
    return FeaturePlan(name.encode(), kind, COUNT, 1, b"")


def _fixed(data: Data, feature: FixedLenFeature, out: NDArray[Any], num: int, default: list[bytes] | None) -> list[Any]:
    """Return one leaf for each record."""
    if feature.dtype is not bytes:
        return list(out.reshape(num, *feature.shape))
    values = _bytes_of(data, out, default)
    return values if not feature.shape else list(_objects(values).reshape(num, *feature.shape))


def _variable(data: Data, feature: Feature, values: NDArray[Any], offsets: Spans) -> list[Any]:
    shape = feature.shape if isinstance(feature, FixedLenSequenceFeature) else ()
    flat = _objects(_bytes_of(data, values, None)) if feature.dtype is bytes else values
    ends = offsets.tolist()
    return [flat[begin:end].reshape(-1, *shape) for begin, end in pairwise(ends)]


def _bytes_of(data: Data, spans: NDArray[np.int64], default: list[bytes] | None) -> list[bytes]:
    view = data.data
    pairs = spans.reshape(-1, 2).tolist()
    if default is None:
        return [bytes(view[begin : begin + length]) for begin, length in pairs]
    return [bytes(view[begin : begin + length]) if begin >= 0 else default[-1 - begin] for begin, length in pairs]


def _objects(values: list[bytes]) -> NDArray[Any]:
    out = np.empty(len(values), object)
    out[:] = values
    return out
