"""The C library and its NumPy twin give the same bytes, whatever the shapes, strides and edge sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.kernels import checked
from penstock.kernels.library import load_library

LIBRARY = load_library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")
# Around the sizes of a vector (6 and 16 pixels, 24 values), of a piece of a row (1365 pixels) and of nothing.
SIDES = st.one_of(st.integers(0, 40), st.sampled_from([47, 48, 49, 1023, 1025, 1364, 1366, 1400]))
GUARD = 64


def library() -> Any:
    assert LIBRARY is not None
    return LIBRARY


def guarded(shape: tuple[int, ...], dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make an array with known bytes before and behind it, to see whether anything was written there."""
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(num_bytes + 2 * GUARD, 0xA5, np.uint8)
    return memory, memory[GUARD : GUARD + num_bytes].view(dtype).reshape(shape)


def untouched(memory: NDArray[Any]) -> bool:
    return bool((memory[:GUARD] == 0xA5).all() and (memory[-GUARD:] == 0xA5).all())


@st.composite
def views(draw: st.DrawFn, max_channels: int = 4) -> NDArray[np.uint8]:
    """Draw images as a loader sees them: whole, cropped, mirrored, turned, every second, with channels reversed or picked."""
    channels = draw(st.integers(1, max_channels))
    length, height, width = draw(st.integers(0, 3)), draw(st.integers(0, 5)), draw(SIDES)
    margin, step = draw(st.integers(0, 3)), draw(st.sampled_from([1, 1, 2]))
    shape = (length + margin, height * step + margin, width * step + margin, channels + draw(st.sampled_from([0, 0, 1])))
    images = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, shape, dtype=np.uint8)
    view = images[margin:, margin : margin + height * step : step, margin : margin + width * step : step, :channels]
    for axis in range(4):
        if draw(st.booleans()):
            view = np.flip(view, axis)
    if draw(st.integers(0, 4)) == 0:
        view = view.transpose(0, 2, 1, 3)
    return np.broadcast_to(view, view.shape) if draw(st.integers(0, 9)) == 0 else view


@needs_library
@given(st.one_of(st.integers(1, 600), st.integers(1, 2**63), st.integers(2**63 - 99, 2**63)), st.integers(0, 2**64 - 1), st.data())
def test_permute_equals_its_twin(num_elements: int, key: int, data: st.DataObject) -> None:
    length = data.draw(st.sampled_from([0, 1, 7, 8, 63, 64, 65, 300]))
    positions = np.random.default_rng(key).integers(0, num_elements - 1, length, endpoint=True)
    positions[: length // 2] = num_elements - 1 - np.arange(length // 2) % num_elements
    ours, other = np.empty(length, np.int64), np.empty(length, np.int64)
    assert library().permute(positions, num_elements, key, ours) == -1
    assert checked.permute_twin(positions, num_elements, key, other) == -1
    assert ours.tobytes() == other.tobytes()


@needs_library
@pytest.mark.parametrize("num_elements", [1, 2, 255, 256, 257, 1000, 66_000])
def test_permute_equals_its_twin_on_a_whole_range(num_elements: int) -> None:
    positions = np.arange(num_elements)
    ours, other = np.empty(num_elements, np.int64), np.empty(num_elements, np.int64)
    library().permute(positions, num_elements, 99, ours)
    checked.permute_twin(positions, num_elements, 99, other)
    assert np.array_equal(ours, other)


@needs_library
@given(st.integers(1, 2**63 - 1), st.integers(0, 199), st.integers(-(2**63), 2**63 - 1))
def test_permute_finds_the_same_first_bad_row_as_its_twin(num_elements: int, row: int, bad: int) -> None:
    positions = np.zeros(200, np.int64)
    positions[row::3] = bad
    out = np.empty(200, np.int64)
    expected = -1 if 0 <= bad < num_elements else row
    assert library().permute(positions, num_elements, 1, out) == checked.permute_twin(positions, num_elements, 1, out) == expected


@needs_library
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 30), st.integers(0, 13))
@example(1, 2, 300, 13)  # so many that the GIL is let go of
def test_philox_uniform_equals_its_twin(key0: int, key1: int, length: int, num_draws: int) -> None:
    counters = np.random.default_rng(key0).integers(-(2**63), 2**63 - 1, (3, length), endpoint=True)
    ours, other = np.empty((length, num_draws)), np.empty((length, num_draws))
    for fill, out in ((library().philox_uniform, ours), (checked.philox_uniform_twin, other)):
        fill(key0, key1, counters[0], counters[1], counters[2].view(np.uint64), out)
    assert ours.tobytes() == other.tobytes()


@needs_library
@given(views(), st.booleans(), st.integers(0, 99))
def test_normalize_equals_its_twin(values: NDArray[np.uint8], channels_first: bool, seed: int) -> None:
    length, height, width, channels = values.shape
    scale, bias = np.random.default_rng(seed).normal(0, 3, (2, channels)).astype(np.float32)
    shape = (length, channels, height, width) if channels_first else values.shape
    memory, ours = guarded(shape, np.float32)
    other = np.empty(shape, np.float32)
    library().normalize(values, scale, bias, ours, channels_first)
    checked.normalize_twin(values, scale, bias, other, channels_first)
    assert ours.tobytes() == other.tobytes()
    assert untouched(memory)


@needs_library
@pytest.mark.parametrize("reverse", [slice(None), slice(None, None, -1)])
@pytest.mark.parametrize("swap", [slice(None), slice(None, None, -1)])
@pytest.mark.parametrize("channels_first", [True, False])
def test_every_value_of_a_large_photograph_is_normalised_as_by_its_twin(reverse: slice, swap: slice, channels_first: bool) -> None:
    values = np.random.default_rng(1).integers(0, 256, (2, 250, 227, 3), dtype=np.uint8)[:, 3:227, 2:226][:, :, reverse, swap]
    scale, bias = np.array([0.0171, 0.0175, 0.0174], np.float32), np.array([-2.1179, -2.0357, -1.8044], np.float32)
    shape = (2, 3, 224, 224) if channels_first else (2, 224, 224, 3)
    ours, other = np.empty(shape, np.float32), np.empty(shape, np.float32)
    library().normalize(values, scale, bias, ours, channels_first)
    checked.normalize_twin(values, scale, bias, other, channels_first)
    assert ours.tobytes() == other.tobytes()


@needs_library
@given(views(max_channels=5))
def test_copy_images_equals_its_twin(values: NDArray[np.uint8]) -> None:
    memory, ours = guarded(values.shape, np.uint8)
    library().copy_images(values, ours)
    assert np.array_equal(ours, values)
    assert untouched(memory)


@needs_library
def test_images_without_channels_are_copied_as_nothing() -> None:
    library().copy_images(np.empty((2, 3, 4, 0), np.uint8), np.empty((2, 3, 4, 0), np.uint8))


@needs_library
@given(views(), st.sampled_from([None, True, False]), st.integers(0, 99))
def test_write_images_equals_its_twin(values: NDArray[np.uint8], channels_first: bool | None, seed: int) -> None:
    values = np.ascontiguousarray(values)
    length, height, width, channels = values.shape
    rng = np.random.default_rng(seed)
    flips = rng.random(length) < 0.5
    scale, bias = (None, None) if channels_first is None else rng.normal(0, 3, (2, channels)).astype(np.float32)
    shape = (channels, height, width) if channels_first else (height, width, channels)
    made = [guarded(shape, np.uint8 if channels_first is None else np.float32) for _ in range(length)]
    others = [np.empty_like(ours) for _, ours in made]
    library().write_images(values, flips, scale, bias, bool(channels_first), [ours for _, ours in made])
    checked.write_images_twin(values, flips, scale, bias, bool(channels_first), others)
    for (memory, ours), other in zip(made, others, strict=True):
        assert ours.tobytes() == other.tobytes()
        assert untouched(memory)


EDGES = st.one_of(st.integers(-45, 45), st.sampled_from([-(2**63), 2**63 - 1]))


@needs_library
@given(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 40), st.integers(0, 5)),
    st.tuples(st.integers(0, 6), st.integers(0, 40)),
    st.lists(st.tuples(EDGES, EDGES, st.sampled_from([0, 1, 255])), min_size=4, max_size=4),
    st.integers(0, 255),
)
@example((1, 1, 1, 3), (1, 1), [(0, 0, 1)] * 4, 9)
@example((2, 32, 32, 3), (32, 32), [(-4, 4, 1), (3, -2, 0), (0, 0, 0), (0, 0, 0)], 0)
def test_crop_images_equals_its_twin(
    shape: tuple[int, int, int, int], window: tuple[int, int], places: list[tuple[int, int, int]], fill: int
) -> None:
    values = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    tops, lefts = (np.array([place[axis] for place in places], np.int64)[: shape[0]] for axis in (0, 1))
    flips = np.array([place[2] for place in places], np.uint8)[: shape[0]]
    memory, ours = guarded((shape[0], *window, shape[3]), np.uint8)
    other = np.empty_like(ours)
    library().crop_images(values, tops, lefts, flips, fill, ours)
    checked.crop_images_twin(values, tops, lefts, flips, fill, other)
    assert ours.tobytes() == other.tobytes()
    assert untouched(memory)


@st.composite
def trees(draw: st.DrawFn) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
    """Draw the nodes of a tree: each side is a later node or any child, the same one at several places too."""
    num_nodes, num_children = draw(st.integers(0, 40)), draw(st.sampled_from([1, 2, 35, 70_000]))
    shares = draw(
        st.lists(st.one_of(st.integers(0, 2**63 - 1), st.sampled_from([0, 1, 2**62, 2**63 - 1])), min_size=num_nodes, max_size=num_nodes)
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    sides = ~rng.integers(0, num_children, (num_nodes, 2))
    for node in range(1, num_nodes):
        sides[rng.integers(0, node), rng.integers(0, 2)] = node
    return np.array(shares, np.uint64), sides, num_children


@needs_library
@given(
    trees(),
    st.one_of(st.integers(0, 2**63 - 500), st.integers(0, 99)),
    st.sampled_from([0, 1, 2, 63, 300]),
    st.booleans(),
    st.integers(-9, 9),
    st.booleans(),
)
def test_deal_equals_its_twin(tree: Any, first: int, length: int, running: bool, bad: int, grouped: bool) -> None:
    shares, sides, num_children = tree
    rng = np.random.default_rng(length)
    positions = first + (np.arange(length) if running else rng.integers(0, 500, length))
    if bad < 0 and length:
        positions[rng.integers(0, length)] = bad
    if bad > 6 and len(shares):
        sides[rng.integers(0, len(shares)), bad % 2] = rng.choice([0, len(shares), ~num_children, -(2**63)])
    guards, results = [], []
    for version in (library().deal, checked.deal_twin):
        memory, out = guarded((4 if grouped else 2, length), np.int64)
        other_memory, starts = guarded((num_children + 1 if grouped else 0,), np.int64)
        found = version(positions, shares, sides, num_children, out, starts)
        results.append((found, *((out.tobytes(), starts.tobytes()) if found == -1 else ())))
        guards += [memory, other_memory]
    assert results[0] == results[1]
    assert all(map(untouched, guards))


@needs_library
@given(st.one_of(st.integers(1, 300), st.sampled_from([4095, 4096, 4097, 10**6, 2**24 - 1])), st.data())
def test_best_fit_equals_its_twin(capacity: int, data: st.DataObject) -> None:
    most = data.draw(st.sampled_from([1, max(1, capacity // 5), capacity]))
    sizes = np.array(data.draw(st.lists(st.one_of(st.integers(1, most), st.just(capacity)), max_size=80)), np.int64)
    memory, ours = guarded(sizes.shape, np.int64)
    other = np.empty(len(sizes), np.int64)
    assert library().best_fit(sizes, capacity, ours) == checked.best_fit_twin(sizes, capacity, other) == -1
    assert ours.tobytes() == other.tobytes()
    assert untouched(memory)


@needs_library
@pytest.mark.parametrize("capacity", [512, 2048, 10**6])
def test_best_fit_equals_its_twin_on_many_elements(capacity: int) -> None:
    sizes = np.random.default_rng(capacity).lognormal(5.5, 1, 20_000).astype(np.int64).clip(1, capacity)
    ours, other = np.empty(20_000, np.int64), np.empty(20_000, np.int64)
    assert library().best_fit(sizes, capacity, ours) == checked.best_fit_twin(sizes, capacity, other) == -1
    assert np.array_equal(ours, other)


@needs_library
@given(st.integers(0, 99), st.one_of(st.integers(-(2**63), 0), st.integers(8, 2**63 - 1)))
def test_best_fit_finds_the_same_first_bad_element_as_its_twin(row: int, bad: int) -> None:
    sizes = np.full(100, 7)
    sizes[row::3] = bad
    out = np.empty(100, np.int64)
    assert library().best_fit(sizes, 7, out) == checked.best_fit_twin(sizes, 7, out) == row
