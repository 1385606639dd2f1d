from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock import kernels
from penstock.errors import SpecError

IMAGES = np.zeros((2, 4, 5, 3), np.uint8)
COLOURS = np.ones(3, np.float32)
PAIR = np.zeros(2, np.int64)
HALF, SIDES = np.array([2**62], np.uint64), np.array([[~0, ~1]])
FLIPS = np.zeros(2, np.uint8)


def blank(*shape: int, dtype: Any = np.uint8) -> Any:
    return np.empty(shape, dtype)


def test_permute_takes_strided_read_only_and_unaligned_positions() -> None:
    straight = np.arange(0, 20, 2)
    expected = kernels.permute(straight, 1000, 1).tolist()
    read_only = straight.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(bytes(1) + straight.tobytes(), np.int64, offset=1)
    for positions in (np.arange(20)[::2], read_only, unaligned):
        assert kernels.permute(positions, 1000, 1).tolist() == expected
    assert kernels.permute(straight[::-1], 1000, 1).tolist() == expected[::-1]


def test_deal_sends_positions_to_children_in_their_order() -> None:
    dealt, starts = kernels.deal(np.arange(5), HALF, SIDES, 2)
    assert dealt.tolist() == [[0, 2, 4, 1, 3], [0, 1, 2, 0, 1], [0, 1, 0, 1, 0], [0, 0, 1, 1, 2]]
    assert starts.tolist() == [0, 3, 5]
    one, starts = kernels.deal(np.arange(9)[::-2], HALF[:0], SIDES[:0], 1)
    assert one.tolist() == [[0, 1, 2, 3, 4], [8, 6, 4, 2, 0], [0, 0, 0, 0, 0], [8, 6, 4, 2, 0]]
    assert starts.tolist() == [0, 5]
    assert kernels.deal(PAIR[:0], HALF, SIDES, 2)[1].tolist() == [0, 0, 0]
    alone, nothing = kernels.deal(np.arange(5), HALF, SIDES, 2, grouped=False)
    assert (alone.tolist(), nothing.tolist()) == ([[0, 1, 0, 1, 0], [0, 0, 1, 1, 2]], [])


def test_a_negative_position_and_a_side_that_is_none_are_never_followed() -> None:
    with pytest.raises(AssertionError, match="position 0 is negative"):
        kernels.deal(PAIR - 1, HALF, SIDES, 2)
    with pytest.raises(AssertionError, match="node 0 leads nowhere"):
        kernels.deal(PAIR, HALF, SIDES, 1)


@pytest.mark.parametrize("num_elements", [3, 1000])
@pytest.mark.parametrize("bad", [-1, 1000, 2**63 - 1, -(2**63)])
def test_a_position_out_of_range_is_an_error_that_names_row_and_range(num_elements: int, bad: int) -> None:
    positions = np.zeros(200, np.int64)
    positions[150:] = bad
    with pytest.raises(SpecError) as caught:
        kernels.permute(positions, num_elements, 1)
    assert f"position {bad} is outside 0..{num_elements - 1}" in caught.value.what
    assert "permute, positions[150]" in caught.value.where
    assert "0..num_elements-1" in caught.value.fix


@pytest.mark.parametrize(("bad", "capacity"), [(0, 9), (10, 9), (-1, 2**40), (2**40 + 1, 2**40)])
def test_a_size_that_no_row_can_have_is_an_error_that_names_it(bad: int, capacity: int) -> None:
    with pytest.raises(SpecError, match=rf"element 1 has size {bad}, outside 1\.\.{capacity}") as caught:
        kernels.best_fit(np.array([9, bad, bad]), capacity)
    assert "best_fit, sizes[1]" in caught.value.where


def test_no_positions_and_no_rows_are_fine() -> None:
    none = np.zeros(0, np.int64)
    assert kernels.permute(none, 2**63, 0).shape == (0,)
    assert kernels.philox_uniform(0, 0, none, none, none.view(np.uint64), 3).shape == (0, 3)
    assert kernels.philox_uniform(0, 0, PAIR, PAIR, PAIR.view(np.uint64), 0).shape == (2, 0)
    kernels.normalize(IMAGES[:0], COLOURS, COLOURS, blank(0, 3, 4, 5, dtype=np.float32), True)
    kernels.crop_image(IMAGES[0, :0], 0, 0, False, 0, blank(0, 5, 3))
    kernels.crop_image(IMAGES[0, ..., :0], 0, 0, True, 0, blank(4, 5, 0))
    kernels.crop_images(IMAGES, PAIR, PAIR, FLIPS, 0, blank(2, 0, 7, 3))


@pytest.mark.parametrize("channels_first", [True, False])
def test_a_normalised_pixel_is_its_value_times_scale_plus_bias_rounded_twice(channels_first: bool) -> None:
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, 3)
    scale, bias = np.array([0.017124753, 2, 3], np.float32), np.array([-2.117904, 5, 6], np.float32)
    out = blank(1, 3, 16, 16, dtype=np.float32) if channels_first else blank(1, 16, 16, 3, dtype=np.float32)
    kernels.normalize(values, scale, bias, out, channels_first)
    pixels = out.transpose(0, 2, 3, 1) if channels_first else out
    expected = [[np.float32(np.float32(value) * scale[channel]) + bias[channel] for channel in range(3)] for value in range(256)]
    assert pixels.reshape(-1, 3).tolist() == np.array(expected).tolist()


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "O", "m8[s]"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("fill", [0, 7])
def test_an_image_of_any_dtype_and_strides_is_cropped_as_numpy_pads(dtype: str, flip: bool, fill: int) -> None:
    big = np.arange(1, 1 + 9 * 40 * 3).reshape(9, 40, 3).astype(dtype)
    unwritable = big.copy()
    unwritable.flags.writeable = False
    for values in (big, big[:, 5:31], big[::-2], big[:, ::-1], big.transpose(1, 0, 2), big[..., :2], big[..., 0], unwritable):
        height, width = values.shape[:2]
        padded = np.pad(values, [(50, 50), (50, 50), (0, 0)][: values.ndim], constant_values=fill)
        for top, left, rows, columns in ((0, 0, height, width), (2, 3, 4, 5), (-3, -4, 20, 49), (1, -9, 2, 4), (-45, 2, 9, 9)):
            wanted = padded[50 + top : 50 + top + rows, 50 + left : 50 + left + columns]
            for out in (np.empty(wanted.shape, dtype), np.empty(wanted.shape[::-1], dtype).T):
                kernels.crop_image(values, top, left, flip, fill, out)
                assert np.array_equal(out, wanted[:, ::-1] if flip else wanted)
    with pytest.raises(OverflowError):
        kernels.crop_image(np.zeros((2, 2), np.int8), -1, 0, flip, 200, np.empty((3, 2), np.int8))


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


@pytest.mark.parametrize("num_draws", [11, 900])  # with so many the GIL is let go of
def test_uniform_numbers_are_those_of_numpys_own_generator(num_draws: int) -> None:
    epochs, indices, lanes = np.array([0, 3, -1]), np.array([2**63 - 1, 0, 7]), np.array([2**64 - 1, 1, 0], np.uint64)
    result = kernels.philox_uniform(2**64 - 1, 5, epochs, indices, lanes, num_draws)
    for row in range(3):
        counter = np.array([0, lanes[row], indices.view(np.uint64)[row], epochs.view(np.uint64)[row]], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=np.array([2**64 - 1, 5], np.uint64), counter=counter))
        assert result[row].tobytes() == generator.random(num_draws).tobytes()


WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "positions of another dtype": (lambda: kernels.permute(np.arange(3, dtype=np.int32), 9, 1), "positions is 1-d int32", "permute"),
    "too many elements": (lambda: kernels.permute(PAIR, 2**63 + 1, 1), "num_elements=9223372036854775809", "permute"),
    "a whole float": (lambda: kernels.permute(PAIR, 9, 1.0), "key is 1.0, not an integer", "permute"),  # type: ignore[arg-type]
    "an output that cannot be written": (
        lambda: kernels.crop_images(IMAGES, PAIR, PAIR, FLIPS, 0, np.frombuffer(bytes(120), np.uint8).reshape(2, 4, 5, 3)),
        "writeable False",
        "crop_images",
    ),
    "a negative key": (lambda: kernels.permute(PAIR, 9, -1), "key=-1 is outside 0..18446744073709551615", "permute"),
    "one side only": (lambda: kernels.deal(PAIR, HALF, SIDES[:, :1], 2), "sides has shape (1, 1), not (1, 2)", "deal"),
    "indices too short": (
        lambda: kernels.philox_uniform(0, 0, PAIR, PAIR[:1], PAIR.view(np.uint64), 1),
        "indices has shape (1,), not (2,)",
        "philox_uniform",
    ),
    "five channels": (
        lambda: kernels.normalize(blank(1, 2, 2, 5), COLOURS, COLOURS, blank(1, 5, 2, 2, dtype=np.float32), True),
        "number of channels of values=5 is outside 1..4",
        "normalize",
    ),
    "the other layout": (
        lambda: kernels.normalize(IMAGES, COLOURS, COLOURS, blank(2, 3, 4, 5, dtype=np.float32), False),
        "out has shape (2, 3, 4, 5), not (2, 4, 5, 3)",
        "normalize",
    ),
    "crop onto itself": (lambda: kernels.crop_images(IMAGES, PAIR, PAIR, FLIPS, 0, IMAGES), "lies in the memory of values", "crop_images"),
    "crop of a view": (
        lambda: kernels.crop_images(IMAGES[:, :, ::-1], PAIR, PAIR, FLIPS, 0, blank(2, 4, 5, 3)),
        "values is not C-contiguous: strides",
        "crop_images",
    ),
    "one image for two": (
        lambda: kernels.write_images(IMAGES, FLIPS > 0, None, None, False, [blank(4, 5, 3)]),
        "number of outs=1 is outside 2..2",
        "write_images",
    ),
    "scale without bias": (
        lambda: kernels.write_images(IMAGES, FLIPS > 0, COLOURS, None, False, [blank(4, 5, 3, dtype=np.float32)] * 2),
        "bias is NoneType, not a 1-d float32 array",
        "write_images",
    ),
    "images in no block": (
        lambda: kernels.write_images(IMAGES, FLIPS > 0, None, None, False, [blank(5, 4, 3).transpose(1, 0, 2)] * 2),
        "out cannot be written as one block",
        "write_images",
    ),
    "ends of another number of files": (
        lambda: kernels.read_files(b"a\0b\0", blank(9), 0, PAIR[:1].copy(), PAIR[:1].copy()),
        "ends has shape (1,), not (2,)",
        "read_files",
    ),
    "ends of bytes": (
        lambda: kernels.read_files(b"a\0", blank(9), 0, blank(1), PAIR[:1].copy()),
        "ends is 1-d uint8, not a 1-d int64",
        "read_files",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_an_error_that_names_the_function_and_what_came(case: str) -> None:
    call, what, function = WRONG[case]
    with pytest.raises(SpecError) as caught:
        call()
    assert what in caught.value.what
    assert f"penstock.kernels.{function}, argument" in caught.value.where
    assert "pass" in caught.value.fix
