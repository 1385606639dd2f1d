from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import framing


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8192, 70_000, (1 << 20) + 5])
def test_lanes_side_by_side_give_the_check_sum_of_a_plain_loop(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    in_lanes = framing.crc32c_twin(data, size, 0xDEADBEEF)
    monkeypatch.setattr(framing, "_LEAST_BYTES", 1 << 30)
    assert framing.crc32c_twin(data, size, 0xDEADBEEF) == in_lanes


def test_zeros_in_front_count_though_the_remainder_begins_with_zero_there() -> None:
    sums = {framing.crc32c_twin(bytes(size), size, 0) for size in range(0, 9000, 500)}
    assert len(sums) == 18
