"""Random, cut and damaged tf.train.Example for the parser in C and its twin; part of fuzz_kernels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["damaged", "delimited", "parse_examples", "random_example", "random_plan", "varint"]

NAMES = (b"", b"a", b"b", b"xy", b"label", b"image/encoded", "größe".encode())


def varint(value: int) -> bytes:
    """Encode an unsigned number."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number: int, data: bytes) -> bytes:
    """Encode a field of bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def _unknown(rng: np.random.Generator, depth: int = 0) -> bytes:
    """Make a field of a number that no message knows."""
    number = int(rng.choice([4, 5, 15, 16, 99, 2**29 - 1]))
    match int(rng.integers(0, 5)):
        case 0:
            return varint(number << 3) + varint(int(rng.integers(0, 2**63)))
        case 1:
            return varint(number << 3 | 1) + rng.bytes(8)
        case 2:
            return delimited(number, rng.bytes(int(rng.integers(0, 9))))
        case 3 if depth < 4:
            inside = b"".join(_unknown(rng, depth + 1) for _ in range(rng.integers(0, 3)))
            return varint(number << 3 | 3) + inside + varint(number << 3 | 4)
        case _:
            return varint(number << 3 | 5) + rng.bytes(4)


def _list(rng: np.random.Generator, kind: int, num: int) -> bytes:
    parts = []
    for _ in range(num):
        if rng.random() < 0.05:
            parts.append(_unknown(rng))
        if kind == 1:
            parts.append(delimited(1, rng.bytes(int(rng.integers(0, 5)))))
        elif kind == 2:
            parts.append(varint(1 << 3 | 5) + rng.bytes(4) if rng.random() < 0.5 else delimited(1, rng.bytes(4 * int(rng.integers(0, 4)))))
        else:
            values = [varint(int(rng.integers(0, 2**64, dtype=np.uint64)) >> int(rng.integers(0, 64))) for _ in range(rng.integers(0, 4))]
            parts.append(varint(1 << 3) + varint(int(rng.integers(0, 300))) if rng.random() < 0.5 else delimited(1, b"".join(values)))
    return b"".join(parts)


def _exact(rng: np.random.Generator, kind: int, num: int) -> bytes:
    """Make a list of exactly so many values, packed."""
    if kind == 1:
        return b"".join(delimited(1, rng.bytes(int(rng.integers(0, 5)))) for _ in range(num))
    if kind == 2:
        return delimited(1, rng.bytes(4 * num))
    return delimited(1, b"".join(varint(int(rng.integers(0, 400))) for _ in range(num)))


def random_example(rng: np.random.Generator, wanted: Any = None, unknown_in_entries: float = 0.1) -> bytes:
    """Make a well-formed Example, mostly of what a plan wants, with all that the format allows strewn in."""
    entries = [_wanted(rng, one) for one in (() if wanted is None else wanted.features) if rng.random() < 0.97]
    for _ in range(int(rng.integers(0, 3)) if rng.random() < 0.5 else 0):
        feature = b"".join(
            delimited(int(kind), _list(rng, int(kind), int(rng.integers(0, 3)))) for kind in rng.integers(1, 4, int(rng.integers(0, 3)))
        )
        entries.append(_entry(rng, NAMES[rng.integers(0, len(NAMES))], feature, unknown_in_entries))
    rng.shuffle(entries)
    cut = int(rng.integers(0, len(entries) + 1)) if rng.random() < 0.1 else len(entries)
    parts = [delimited(1, b"".join(entries[:cut])), *([delimited(1, b"".join(entries[cut:]))] if cut < len(entries) else [])]
    if rng.random() < 0.1:
        parts.insert(int(rng.integers(0, 2)), _unknown(rng))
    return b"".join(parts)


def _wanted(rng: np.random.Generator, one: Any) -> bytes:
    """Make an entry of what a plan wants."""
    num = one.count * int(rng.integers(1, 3) if one.mode else 1)
    return _entry(rng, one.name, delimited(one.kind, _exact(rng, one.kind, num)))


def _entry(rng: np.random.Generator, name: bytes, feature: bytes, unknown: float = 0.1) -> bytes:
    parts = [delimited(1, name), delimited(2, feature)]
    if rng.random() < unknown:
        parts.insert(int(rng.integers(0, 3)), _unknown(rng))
    if rng.random() < 0.05:
        parts.append(parts[int(rng.integers(0, len(parts)))])
    if rng.random() < 0.1:
        parts.reverse()
    return delimited(1, b"".join(parts))


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Cut, flip, insert or leave out a few bytes."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, len(changed) + 1))
        match int(rng.integers(0, 4)):
            case 0:
                del changed[place:]
            case 1 if place < len(changed):
                changed[place] ^= 1 << int(rng.integers(0, 8))
            case 2:
                changed[place:place] = rng.bytes(int(rng.integers(1, 4)))
            case _:
                del changed[place : place + int(rng.integers(1, 4))]
    return bytes(changed)


def random_plan(rng: np.random.Generator) -> Any:
    """Make a plan of a few features."""
    from penstock.kernels.examples import COUNT, FIXED, FeaturePlan, make_plan

    features = []
    for name in rng.permutation(len(NAMES))[: int(rng.integers(0, 4))].tolist():
        kind, mode = int(rng.integers(1, 4)), COUNT if rng.random() < 0.4 else FIXED
        count = int(rng.integers(1, 4)) if mode == COUNT else int(rng.integers(0, 4))
        size = count * {1: 0, 2: 4, 3: 8}[kind]
        features.append(FeaturePlan(NAMES[name], kind, mode, count, rng.bytes(size) if rng.random() < 0.5 else None))
    return make_plan(features)


def _block(rng: np.random.Generator, plan: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Make a few records in an allocation that ends with the last of them."""
    records = [random_example(rng, plan) for _ in range(int(rng.integers(0, 6)))]
    if records and rng.random() < 0.5:
        victim = int(rng.integers(0, len(records)))
        records[victim] = damaged(rng, records[victim])
    lengths = np.array([len(record) for record in records], np.int64)
    starts = np.cumsum(lengths) - lengths
    if len(records) and rng.random() < 0.05:
        (starts if rng.random() < 0.5 else lengths)[rng.integers(0, len(records))] = rng.choice([-1, 1, 2**62, -(2**63), 2**63 - 1])
    return np.frombuffer(b"".join(records), np.uint8).copy(), starts, lengths


def parse_examples(library: Any, rng: np.random.Generator) -> None:
    """Compare columns and reports of a block with the twin's, then every cut of one record."""
    from penstock.kernels import examples

    plan = random_plan(rng)
    buffer, starts, lengths = _block(rng, plan)
    _compare(library, examples, plan, buffer, starts, lengths)
    record = random_example(rng, plan)
    for end in range(len(record)):
        own = np.frombuffer(record[:end], np.uint8).copy()
        _compare(library, examples, plan, own, np.zeros(1, np.int64), np.array([end], np.int64))


def _compare(library: Any, twin: Any, plan: Any, buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Run both calls in both versions."""
    num, results = len(starts), []
    for version in (library.parse_examples, twin.parse_examples_twin):
        outs = [np.zeros(num if one.mode else num * one.count * one.width, np.int64 if one.mode else one.dtype) for one in plan.features]
        report = np.zeros(4, np.int64)
        row = version(buffer, starts, lengths, plan, plan.first, outs, None, report)
        done = [row, report.tolist()]
        if row < 0 and plan.has_variable:
            offsets = [
                np.concatenate([[0], np.cumsum(out)]) if one.mode else np.zeros(1, np.int64)
                for one, out in zip(plan.features, outs, strict=True)
            ]
            filled = [
                np.zeros(int(where[-1]) * one.width, one.dtype) if one.mode else out
                for one, out, where in zip(plan.features, outs, offsets, strict=True)
            ]
            again = version(buffer, starts, lengths, plan, plan.second, filled, offsets, report)
            outs += filled
            done.append(again)
        if row < 0:
            done += [out.tobytes() for out in outs]
        results.append(done)
    if results[0] != results[1]:
        raise AssertionError(f"C and twin differ: {results}, {plan.features}, {buffer.tobytes()!r}, {starts}, {lengths}")
