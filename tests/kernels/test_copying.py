from __future__ import annotations

import sys

import numpy as np
import pytest

from penstock.kernels import columns
from penstock.kernels.columns import LARGE_BYTES, copies


def views(sizes: list[int], seed: int = 0) -> list[memoryview]:
    data = memoryview(np.random.default_rng(seed).bytes(sum(sizes) + 1))
    starts = np.concatenate(([1], 1 + np.cumsum(sizes)))  # not aligned
    return [data[start : start + size] for start, size in zip(starts.tolist(), sizes, strict=False)]


@pytest.mark.parametrize("sizes", [[], [0], [1], [1, 0, 5], [LARGE_BYTES], [LARGE_BYTES, 1, 3 * LARGE_BYTES + 7], [100_000] * 20])
def test_the_bytes_are_those_of_the_views(sizes: list[int]) -> None:
    given = views(sizes)
    made = copies(given)
    assert [type(one) for one in made] == [bytes] * len(sizes)
    assert made == [bytes(view) for view in given]


def test_they_are_objects_of_their_own_with_the_hash_of_any_others() -> None:
    data = bytearray(b"a" * LARGE_BYTES)
    first, second = copies([memoryview(data), memoryview(data)])
    data[:] = b"b" * LARGE_BYTES
    assert first == second == b"a" * LARGE_BYTES
    assert first is not second
    assert hash(first) == hash(b"a" * LARGE_BYTES)
    plain = bytes(data)
    assert sys.getrefcount(first) == sys.getrefcount(plain)  # 2; 1 on Python 3.14, where a call borrows a variable


def test_without_the_library_they_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_chosen", lambda: None)
    given = views([LARGE_BYTES, 3])
    assert copies(given) == [bytes(view) for view in given]
