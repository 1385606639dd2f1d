from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import penstock as ps
import penstock.image as image
from penstock._contracts.transform import BlockTransform, Scratch, Transform
from penstock.errors import PlanError, SpecError

Photo = NDArray[np.uint8]

ALL: list[tuple[str, Callable[..., Any]]] = [
    ("resize", lambda field, **more: image.resize(field, 32, **more)),
    ("random_resized_crop", lambda field, **more: image.random_resized_crop(field, 32, **more)),
    ("center_crop", lambda field, **more: image.center_crop(field, 32, **more)),
    ("random_crop", lambda field, **more: image.random_crop(field, 70, padding=8, fill=9, **more)),
    ("random_crop", lambda field, **more: image.random_crop(field, 32, **more)),
    ("random_flip", image.random_flip),
    ("random_flip", lambda field, **more: image.random_flip(field, probability=1.0, **more)),
    ("normalize", lambda field, **more: image.normalize(field, (0.1, 0.2, 0.3), 3 * (0.5,), **more)),
    ("normalize", lambda field, **more: image.normalize(field, (0.1, 0.2, 0.3), 3 * (0.5,), layout="HWC", **more)),
    ("to_layout", image.to_layout),
    ("to_layout", lambda field, **more: image.to_layout(field, "HWC", **more)),
    ("color_jitter", lambda field, **more: image.color_jitter(field, 0.4, 0.4, 0.4, 0.1, **more)),
    ("random_grayscale", image.random_grayscale),
    ("gaussian_blur", lambda field, **more: image.gaussian_blur(field, 5, **more)),
    ("random_erase", image.random_erase),
    ("auto_contrast", image.auto_contrast),
    ("equalize", image.equalize),
    ("posterize", lambda field, **more: image.posterize(field, 4, **more)),
    ("solarize", lambda field, **more: image.solarize(field, 128, **more)),
    ("rand_augment", image.rand_augment),
    ("trivial_augment", image.trivial_augment),
]
RANDOM = [(name, make) for name, make in ALL if make("x").num_draws]
each = pytest.mark.parametrize(("name", "make"), ALL)
each_random = pytest.mark.parametrize(("name", "make"), RANDOM)


def draws_of(operator: Any, seed: int) -> list[float]:
    return np.random.default_rng(seed).random(operator.num_draws).tolist()  # type: ignore[no-any-return]


@each
def test_every_operator_is_a_transform_with_its_two_fields(name: str, make: Callable[..., Any]) -> None:
    operator = make("image", out="other")
    assert isinstance(operator, Transform)
    assert (operator.name, operator.field, operator.out_field) == (name, "image", "other")
    assert operator == make("image", out="other")
    assert hash(operator) == hash(make("image", out="other"))
    assert operator != make("image")
    assert make("image").out_field == "image"


@each
@pytest.mark.parametrize("seed", range(4))
def test_call_apply_out_scratch_and_plain_function_give_the_same_bytes(
    name: str, make: Callable[..., Any], photo: Photo, seed: int
) -> None:
    operator = make("image")
    draws = draws_of(operator, seed)
    before = photo.copy()
    fresh = operator.apply(photo, draws, None, None)
    rng = {"rng": np.random.default_rng(seed)} if operator.num_draws else {}
    called = operator({"image": photo, "label": 1}, np.random.default_rng(seed))
    out = np.zeros((3, *fresh.shape), fresh.dtype)
    written = operator.apply(photo, draws, Scratch(), out[1])
    assert written.base is out
    for other in (called["image"], make(photo, **rng), written, operator.apply(photo, draws, Scratch(), None)):
        assert other.dtype == fresh.dtype
        assert np.array_equal(other, fresh)
    assert called["label"] == 1
    assert not out[0].any()
    assert not out[2].any()
    assert np.array_equal(photo, before)


@each
def test_without_scratch_the_result_is_new_and_contiguous(name: str, make: Callable[..., Any], photo: Photo) -> None:
    operator = make("image")
    result = operator.apply(photo, draws_of(operator, 0), None, None)
    assert result.flags.c_contiguous
    assert not np.shares_memory(result, photo)


@each
def test_an_out_that_does_not_fit_is_left_alone(name: str, make: Callable[..., Any], photo: Photo) -> None:
    operator = make("image")
    draws = draws_of(operator, 0)
    fresh = operator.apply(photo, draws, None, None)
    for out in (np.zeros((2, 2, 3), fresh.dtype), np.zeros(fresh.shape, np.float64)):
        scratch = Scratch()
        result = operator.apply(photo, draws, scratch, out)
        assert np.array_equal(result, fresh)
        assert not out.any()
        kept = result.copy()
        operator.apply(255 - photo, draws, scratch, None)
        assert np.array_equal(result, kept)


@each
def test_a_view_with_any_strides_is_read_as_its_copy(name: str, make: Callable[..., Any], photo: Photo) -> None:
    operator = make("image")
    draws = draws_of(operator, 3)
    big = np.concatenate([photo, photo], axis=1)
    for view in (big[:, 3:100], big[::-1, 100:0:-1], big.transpose(1, 0, 2)):
        wanted = operator.apply(view.copy(), draws, None, None)
        out = np.empty_like(wanted)
        assert np.array_equal(operator.apply(view, draws, Scratch(), None), wanted)
        assert np.array_equal(operator.apply(view, draws, None, out), wanted)
        assert np.array_equal(out, wanted)


@pytest.mark.parametrize(
    "operator",
    [image.resize("image", (60, 110)), image.random_resized_crop("image", 70), image.random_crop("image", 76, padding=8)],
    ids=lambda operator: operator.name,
)
def test_the_same_operator_twice_in_one_chain_does_not_write_to_its_own_input(operator: Any, photo: Photo) -> None:
    draws = draws_of(operator, 1)
    scratch = Scratch()
    once = operator.apply(photo, draws, scratch, None)
    kept = once.copy()
    twice = operator.apply(once, draws, scratch, None)
    assert np.array_equal(twice, operator.apply(kept, draws, None, None))
    assert np.array_equal(once, kept)


@pytest.mark.parametrize(
    ("operator", "draws", "part"),
    [
        (image.center_crop("image", 32), (), np.s_[22:54, 34:66]),
        (image.random_crop("image", 32), (0, 0), np.s_[:32, :32]),
        (image.random_flip("image"), (0.1,), np.s_[:, ::-1]),
        (image.random_flip("image"), (0.9,), ...),
        (image.resize("image", 75), (), ...),
    ],
)
def test_with_scratch_what_needs_no_new_pixels_is_a_view(operator: Any, draws: tuple[float, ...], part: Any, photo: Photo) -> None:
    view, wanted = operator.apply(photo, draws, Scratch(), None), photo[part]
    assert view.__array_interface__ == wanted.__array_interface__
    assert np.array_equal(operator.apply(photo, draws, None, None), wanted)


def test_two_fields_of_one_element_keep_apart_in_scratch(photo: Photo) -> None:
    scratch = Scratch()
    first = image.resize("image", (30, 40)).apply(photo, (), scratch, None)
    kept = first.copy()
    image.resize("image", (30, 40), out="mask").apply(255 - photo, (), scratch, None)
    assert np.array_equal(first, kept)


@pytest.mark.parametrize(
    "operator",
    [
        image.random_crop("image", 24, padding=4, fill=7),
        image.random_crop("image", (20, 30)),
        image.random_flip("image"),
        image.normalize("image", (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)),
        image.normalize("image", (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), layout="HWC"),
    ],
    ids=str,
)
def test_a_block_gives_the_same_bytes_as_its_elements(operator: Any) -> None:
    assert isinstance(operator, BlockTransform)
    rng = np.random.default_rng(8)
    values = rng.integers(0, 256, (17, 32, 32, 3), np.uint8)
    draws = rng.random((17, operator.num_draws))
    wanted = np.stack([operator.apply(values[i], draws[i].tolist(), None, None) for i in range(17)])
    out = np.zeros_like(wanted)
    assert operator.apply_block(values, draws, Scratch(), out) is out
    for block in (out, operator.apply_block(values, draws, None, None), operator.apply_block(values, draws, Scratch(), None)):
        assert block.dtype == wanted.dtype
        assert np.array_equal(block, wanted)
    wrong = np.zeros((17, 5), wanted.dtype)
    assert np.array_equal(operator.apply_block(values, draws, None, wrong), wanted)
    assert not wrong.any()
    assert operator.apply_block(values.astype(np.float64), draws, None, None) is None


@each_random
def test_a_random_operator_without_a_generator_is_a_plan_error(name: str, make: Callable[..., Any], photo: Photo) -> None:
    for act in (lambda: make("image")({"image": photo}), lambda: make(photo)):
        with pytest.raises(PlanError) as caught:
            act()
        assert caught.value.what == f"{name} is random and was given no generator"
        assert caught.value.where == f"image.{name}('image')"
        assert "pass rng=numpy.random.default_rng(seed)" in caught.value.fix


@each
@pytest.mark.parametrize(
    ("value", "got", "fix"),
    [
        (np.zeros((8, 8), np.uint8), "uint8[8, 8]", "add the channel axis: array[..., None]"),
        (np.zeros((0, 8, 3), np.uint8), "uint8[0, 8, 3]", "convert the array"),
        (b"\xff\xd8", "bytes", "put ps.image.decode before this operator"),
        ([[1]], "list", "give a NumPy array"),
    ],
)
def test_what_is_not_an_image_is_a_spec_error_with_field_got_and_expected(
    name: str, make: Callable[..., Any], value: Any, got: str, fix: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make("photo")({"photo": value}, np.random.default_rng(0))
    assert f"field 'photo' is {got}, expected " in caught.value.what
    assert "of shape (height, width, channels) and not empty" in caught.value.what
    assert caught.value.where == f"image.{name}('photo')"
    assert fix in caught.value.fix


@each
@pytest.mark.parametrize("shape", [(3, 80, 90), (1, 80, 90), (4, 80, 90), (3, 80, 80), (3, 5, 6)])
def test_an_image_with_its_channels_first_is_named(name: str, make: Callable[..., Any], shape: tuple[int, ...]) -> None:
    pixels, operator = np.zeros(shape, np.uint8), make("photo")
    got = f"field 'photo' is uint8{list(shape)}, which looks like (channels, height, width), expected "
    for act in (
        lambda: operator({"photo": pixels}, np.random.default_rng(0)),
        lambda: list(ps.from_arrays({"photo": pixels[None]}).map(operator)),
    ):
        with pytest.raises(SpecError) as caught:
            act()
        assert caught.value.what.startswith(got)
        assert caught.value.fix.startswith("give array.transpose(1, 2, 0)")


@pytest.mark.parametrize("shape", [(3, 80, 3), (1, 1, 1), (4, 90, 1), (5, 80, 90)])
def test_a_shape_that_may_be_height_width_channels_is_taken_as_such(shape: tuple[int, ...]) -> None:
    assert image.to_layout(np.zeros(shape, np.uint8), "HWC").shape == shape


@pytest.mark.parametrize("way", [{"num_workers": 0}, {"num_workers": 2}], ids=str)
def test_a_missing_field_is_a_spec_error_in_a_feed_too(photo: Photo, way: dict[str, Any]) -> None:
    dataset = ps.from_source([{"data": photo}]).map(image.resize("image", 8)).batch(1)
    with pytest.raises(SpecError, match=r"reads the field 'image', but the element has \['data'\]"), dataset.feed(**way) as feed:
        list(feed)


@each
def test_a_missing_field_is_a_spec_error_that_lists_those_there_are(name: str, make: Callable[..., Any]) -> None:
    with pytest.raises(SpecError) as caught:
        make("photo")({"data": b"", "label": 1})
    assert caught.value.what == "the element has no field 'photo'; it has 'data', 'label'"
    assert "name one of the fields" in caught.value.fix


def test_an_element_that_is_not_a_dict_is_a_spec_error(photo: Photo) -> None:
    with pytest.raises(SpecError) as caught:
        image.resize("photo", 8)(photo)  # type: ignore[arg-type]
    assert caught.value.what == "resize got a ndarray, expected a dict with the field 'photo'"
    assert "ps.image.resize(array, ...)" in caught.value.fix


def test_field_names_that_cannot_be_are_plan_errors(photo: Photo) -> None:
    with pytest.raises(PlanError) as caught:
        image.to_layout("")
    assert caught.value.what == "field '' with out=None is not a pair of field names"
    with pytest.raises(PlanError) as caught:
        image.to_layout(photo, out="other")  # type: ignore[call-overload]
    assert caught.value.what == "out='other' names a field, but the first argument is a ndarray"
    assert "leave out= away" in caught.value.fix


@pytest.mark.parametrize("size", [0, -3, True, 2.5, "8", (8,), (8, 0), (8, 8, 8), None])
def test_a_size_that_cannot_be_is_a_plan_error(size: Any) -> None:
    for name, make in (("resize", image.resize), ("center_crop", image.center_crop), ("random_crop", image.random_crop)):
        with pytest.raises(PlanError) as caught:
            make("image", size)
        assert caught.value.what == f"size={size!r} is not a size in pixels"
        assert caught.value.where == f"image.{name}"
        assert "(height, width)" in caught.value.fix


@pytest.mark.parametrize(
    "operate",
    [partial(image.resize, size=4), partial(image.center_crop, size=4), image.to_layout, partial(image.normalize, mean=0.5, std=1)],
)
def test_masks_of_pixels_are_not_lost(operate: Callable[[Any], Any]) -> None:
    pixels = np.ma.masked_array(np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8, 3), bool))
    with pytest.raises(SpecError, match="field 'image' is a masked array, whose mask would be lost") as caught:
        operate(pixels)
    assert "the mask as a field of its own" in caught.value.fix


def test_an_operator_above_batch_says_where_it_belongs() -> None:
    encoded = cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    dataset = ps.from_source([{"data": encoded}] * 4)
    decoded = dataset.map(image.decode("data"))
    for wrong in (dataset.batch(2).map(image.decode("data")), decoded.batch(2).map(image.random_flip("data"))):
        with pytest.raises(SpecError, match=r"fix:   put this map before batch\(\): image operators take one image at a time"):
            list(wrong)


def test_bytes_are_called_bytes_also_where_they_come_as_a_view_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(SpecError, match=r"field 'data' is bytes, expected .*\n.*\n  fix:   put ps.image.decode before this operator"):
        list(ps.read_files(str(tmp_path / "*.jpg")).map(image.resize("data", 8)))


def notices(dataset: ps.Dataset) -> tuple[str, ...]:
    with dataset.feed(num_workers=0) as feed:
        next(feed)
        return feed.stats().notices


def test_crop_only_without_the_crop_right_behind_it_is_noticed() -> None:
    encoded = cv2.imencode(".jpg", np.zeros((40, 40, 3), np.uint8))[1].tobytes()
    decoded = ps.from_source([{"data": encoded}]).map(image.decode("data", crop_only=True))
    crop = image.random_resized_crop("data", 8, antialias=True)
    assert notices(decoded.map(crop)) == ()
    assert notices(decoded.map(crop).map(image.random_flip("data")).batch(1)) == ()
    for idle in (
        decoded,
        decoded.map(image.resize("data", 8, antialias=True)),
        decoded.map(image.random_flip("data")).map(crop),
        decoded.map(image.random_resized_crop("data", 8, antialias=True, out="small")),
        decoded.map(image.random_resized_crop("data", 8, antialias=True, fields={})),
    ):
        (notice,) = notices(idle)
        assert notice.startswith(
            "crop_only=True of image.decode('data') does nothing: it leaves out rows only where random_resized_crop('data'"
        )


def test_two_random_operators_with_one_seed_on_two_fields_are_noticed_and_fields_makes_them_alike() -> None:
    pixels = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    both = ps.from_source([{"image": pixels, "mask": pixels[..., :1]}] * 20)
    crop = {name: image.random_crop(name, 8) for name in ("image", "mask")}
    (notice,) = notices(both.map(crop["image"], seed=3).map(crop["mask"], seed=3))
    assert notice == (
        "image.random_crop of 'image' and of 'mask' have the same seed=3, and draw different numbers: each map has its own; "
        "for the same crop or flip of both, name the other one in fields=: "
        "random_crop('image', ..., fields={'mask': \"mask\"}), docs/image.md"
    )
    assert notices(both.map(crop["image"], seed=3).map(crop["mask"], seed=4)) == ()
    joint = {name: image.random_crop(name, 8, fields={}) for name in ("image", "mask")}
    for first, second in ((joint["image"], crop["mask"]), (crop["image"], joint["mask"]), (joint["image"], joint["mask"])):
        assert notices(both.map(first, seed=3).map(second, seed=3)) == (notice,)
    assert notices(both.map(crop["image"]).map(image.random_flip("mask")).map(image.random_crop("image", 4))) == ()

    paired = list(both.map(image.random_crop("image", 8, fields={"mask": "mask"}), seed=3))
    assert all(np.array_equal(one["image"][..., :1], one["mask"]) for one in paired)
    assert len({one["mask"].tobytes() for one in paired}) > 1
