from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import checked


def test_a_normalised_pixel_is_its_value_times_scale_plus_bias_rounded_twice() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    scale, bias = np.array([0.017124753], np.float32), np.array([-2.117904], np.float32)
    out = np.empty((1, 16, 16, 1), np.float32)
    checked.normalize_twin(values, scale, bias, out, False)
    expected = [np.float32(np.float32(value) * scale[0]) + bias[0] for value in range(256)]
    assert out.ravel().tolist() == [float(number) for number in expected]


def test_channels_first_moves_the_channels_in_front() -> None:
    values = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    scale, bias = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    planes, pixels = np.empty((2, 3, 3, 4), np.float32), np.empty((2, 3, 4, 3), np.float32)
    checked.normalize_twin(values, scale, bias, planes, True)
    checked.normalize_twin(values, scale, bias, pixels, False)
    assert np.array_equal(planes, pixels.transpose(0, 3, 1, 2))
    assert np.array_equal(pixels, values * scale + bias)


def test_a_crop_is_padded_where_it_leaves_the_image_and_then_mirrored() -> None:
    values = np.arange(1, 7, dtype=np.uint8).reshape(1, 2, 3, 1)
    out = np.empty((1, 2, 3, 1), np.uint8)
    checked.crop_images_twin(values, np.array([-1]), np.array([1]), np.array([0], np.uint8), 9, out)
    assert out[0, :, :, 0].tolist() == [[9, 9, 9], [2, 3, 9]]
    checked.crop_images_twin(values, np.array([-1]), np.array([1]), np.array([1], np.uint8), 9, out)
    assert out[0, :, :, 0].tolist() == [[9, 9, 9], [9, 3, 2]]


@pytest.mark.parametrize(("top", "left"), [(2, 0), (-2, 0), (0, 3), (0, -3), (2**63 - 1, -(2**63))])
def test_a_window_wholly_outside_is_all_fill(top: int, left: int) -> None:
    out = np.empty((1, 2, 3, 1), np.uint8)
    checked.crop_images_twin(np.ones((1, 2, 3, 1), np.uint8), np.array([top]), np.array([left]), np.array([1], np.uint8), 7, out)
    assert (out == 7).all()


def test_long_runs_of_positions_are_the_same_as_short_ones() -> None:
    positions = np.arange(20_000)
    out, part = np.empty(20_000, np.int64), np.empty(100, np.int64)
    checked.permute_twin(positions, 20_000, 5, out)
    for start in (0, 8150, 8192, 19_900):
        checked.permute_twin(positions[start : start + 100], 20_000, 5, part)
        assert np.array_equal(out[start : start + 100], part)


@pytest.mark.parametrize("positions", [range(200), range(10**6, 10**6 + 200), [5, 5, 0, 10**9, 3]])
def test_positions_go_down_a_tree_as_plain_python_sends_them(positions: Sequence[int]) -> None:
    shares = [2**62, 2**63 // 3]
    sides = [[1, ~0], [~1, ~2]]
    children, places = [], []
    for position in positions:
        node = 0
        while node >= 0:
            before, after = ((count * shares[node] + 2**62) >> 63 for count in (position, position + 1))
            position, node = (before, sides[node][0]) if after > before else (position - before, sides[node][1])
        children.append(~node)
        places.append(position)
    out, starts = np.empty((4, len(positions)), np.int64), np.empty(4, np.int64)
    tree = np.array(shares, np.uint64), np.array(sides), 3
    assert checked.deal_twin(np.array(positions), *tree, out, starts) == -1
    assert out[2].tolist() == children
    assert out[3].tolist() == places
    rows = sorted(range(len(children)), key=children.__getitem__)
    assert out[0].tolist() == rows
    assert out[1].tolist() == [places[row] for row in rows]
    assert starts.tolist() == [sum(child < border for child in children) for border in range(4)]
    alone = np.empty((2, len(positions)), np.int64)
    assert checked.deal_twin(np.array(positions), *tree, alone, starts[:0]) == -1
    assert alone.tolist() == [children, places]


def test_the_first_node_that_is_none_and_the_first_negative_position_are_returned() -> None:
    out, starts = np.empty((4, 3), np.int64), np.empty(3, np.int64)
    half = np.array([2**62, 2**62], np.uint64)
    for sides in ([[1, ~0], [1, ~1]], [[1, ~0], [0, ~1]], [[1, ~0], [2, ~1]], [[1, ~0], [~0, ~2]]):
        assert checked.deal_twin(np.arange(3), half, np.array(sides), 2, out, starts) == -3
    assert checked.deal_twin(np.arange(3), half * np.uint64(2), np.array([[1, ~0], [~1, ~0]]), 2, out, starts) == -2
    assert checked.deal_twin(np.array([4, -1, -1]), half, np.array([[1, ~0], [~1, ~0]]), 2, out, starts) == 1


@pytest.mark.parametrize("capacity", [4096, 2**25])
def test_each_element_goes_to_the_fullest_row_that_has_room(capacity: int) -> None:
    def rows(*parts: float) -> list[int]:
        return kernels.best_fit((np.array(parts) * capacity).astype(np.int64), capacity).tolist()

    assert rows() == []
    assert rows(0.5) == [0]
    assert rows(1, 1, 1) == [0, 1, 2]
    assert rows(0.25, 0.25, 0.25, 0.25, 0.25) == [0, 0, 0, 0, 1]
    assert rows(0.125, 0.5, 0.75, 0.25, 0.625) == [1, 2, 0, 0, 1]
    assert rows(0.25, 0.75, 0.75, 0.125) == [1, 0, 1, 0]  # of two rows with as much room the one that came to it last
    assert rows(*([1 / 64] * 128)) == [0] * 64 + [1] * 64
