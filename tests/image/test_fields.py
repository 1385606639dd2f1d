"""Several fields with one draw. The picture names its own pixels: each has its number, from 1, in the mask and in the three channels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from core import core
from feeds import state_behind
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import penstock as ps
import penstock.image as image
from penstock._plan.saved import sealed
from penstock.errors import PlanError, SpecError, StateMismatch

HEIGHT, WIDTH = 37, 52
FIELDS: dict[str, Any] = {
    "image": "image",
    "mask": "mask",
    "drawn": "masks",
    "boxes": image.Boxes(per_box=("labels", "names", "drawn")),
    "points": "points",
}
EXACT: dict[str, Callable[..., Any]] = {
    "random_crop": lambda fields: image.random_crop("image", (20, 30), fields=fields),
    "random_crop with a border": lambda fields: image.random_crop("image", (30, 20), padding=12, fields=fields),
    "center_crop": lambda fields: image.center_crop("image", (20, 17), fields=fields),
    "random_flip": lambda fields: image.random_flip("image", fields=fields),
    "pad_to": lambda fields: image.pad_to("image", 41, multiple_of=(8, 1), fields=fields),
    "random_iou_crop": lambda fields: image.random_iou_crop("image", fields=fields),
}
RESIZING: dict[str, Callable[..., Any]] = {
    "random_resized_crop": lambda fields: image.random_resized_crop("image", (40, 31), interpolation="nearest", fields=fields),
    "resize": lambda fields: image.resize("image", (29, 71), interpolation="nearest", fields=fields),
    "shorter side": lambda fields: image.resize("image", 60, interpolation="nearest", fields=fields),
    "longer side": lambda fields: image.resize("image", 30, max_size=30, interpolation="nearest", fields=fields),
}
AFFINE = {"random_affine": lambda fields: image.random_affine("image", degrees=40, scale=(0.7, 1.4), shear=15, fields=fields)}
ALL = EXACT | RESIZING | AFFINE
each = pytest.mark.parametrize("make", ALL.values(), ids=ALL)


def numbered(height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.int64]:
    return np.arange(1, height * width + 1).reshape(height, width)


def coloured(mask: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.stack([mask // 65536, mask // 256 % 256, mask % 256], axis=2).astype(np.uint8)


def element(boxes: Any = ((4, 6, 30, 20), (0, 0, 9, 9), (40, 10, 52, 37)), dtype: Any = np.float64) -> dict[str, Any]:
    """Return a picture with rectangles, each drawn in a mask of its own, and the centres of all pixels as points."""
    corners = np.array(boxes, dtype).reshape(-1, 4)
    drawn = np.zeros((len(corners), HEIGHT, WIDTH), bool)
    for one, (left, top, right, bottom) in zip(drawn, corners.astype(int), strict=True):
        one[top:bottom, left:right] = True
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return {
        "image": coloured(numbered()),
        "mask": numbered(),
        "drawn": drawn,
        "boxes": corners,
        "labels": np.arange(len(corners)),
        "names": [f"object {number}" for number in range(len(corners))],
        "points": np.stack([columns + 0.5, rows + 0.5], axis=2),
        "id": 7,
    }


def box_of(mask: NDArray[np.bool_]) -> list[int]:
    rows, columns = mask.any(1).nonzero()[0], mask.any(0).nonzero()[0]
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def alike(one: Any, other: Any) -> bool:
    assert one.keys() == other.keys()
    return all(np.array_equal(one[name], other[name], equal_nan=name == "points") for name in one)


@given(st.lists(st.sampled_from(sorted(EXACT | RESIZING)), min_size=1, max_size=5), st.integers(0, 2**32))
def test_after_any_chain_the_mask_names_the_pixels_of_the_image(names: list[str], seed: int) -> None:
    rng, now = np.random.default_rng(seed), element()
    for name in names:
        if "crop" in name and min(now["mask"].shape) < 30:
            continue  # too small for it
        now = ALL[name](FIELDS)(now, rng)
    assert np.array_equal(now["image"], coloured(now["mask"]))
    assert now["image"].flags.c_contiguous
    assert now["mask"].flags.c_contiguous
    assert now["mask"].dtype == np.int64
    assert len(now["boxes"]) == len(now["labels"]) == len(now["names"]) == len(now["drawn"])
    assert now["names"] == [f"object {label}" for label in now["labels"]]
    assert now["id"] == 7


@given(st.lists(st.sampled_from(sorted(EXACT)), max_size=5), st.integers(0, 2**32))
def test_boxes_and_points_go_where_their_pixels_go(names: list[str], seed: int) -> None:
    rng, now = np.random.default_rng(seed), element()
    for name in names:
        if "crop" not in name or min(now["mask"].shape) >= 30:
            now = EXACT[name](FIELDS)(now, rng)
    assert [box_of(drawn) for drawn in now["drawn"]] == now["boxes"].tolist()
    for number, (x, y) in enumerate(now["points"].reshape(-1, 2), 1):
        assert np.isnan(x) == np.isnan(y) == (number not in now["mask"])
        assert np.isnan(x) or now["mask"][int(y), int(x)] == number


@pytest.mark.parametrize("make", (RESIZING | AFFINE).values(), ids=RESIZING | AFFINE)
@pytest.mark.parametrize("seed", range(6))
def test_a_resized_or_turned_box_is_that_of_its_mask_to_a_pixel(make: Any, seed: int) -> None:
    turned = make is AFFINE["random_affine"]
    now = make(FIELDS)(element(((18, 12, 34, 26),)), np.random.default_rng(seed))
    for drawn, box in zip(now["drawn"], now["boxes"], strict=True):
        inner, size = np.array(box_of(drawn)), np.array([*drawn.shape[::-1]] * 2)
        inside = (inner > 0) & (inner < size)  # where the picture cuts a turned rectangle, its box may be larger
        far = (np.array([-1, -1, 1, 1]) * (box - inner))[inside | (not turned)]
        assert (far > -1).all()
        assert (far < (2.5 if turned else 1)).all()


@pytest.mark.parametrize("make", [AFFINE["random_affine"], partial(image.random_resized_crop, "image", (200, 300))])
def test_an_interpolated_image_lies_on_its_mask(make: Any) -> None:
    mask = np.zeros((90, 120), np.uint8)
    mask[20:60, 30:100] = 255
    for one in ps.from_source([{"image": mask[..., None], "mask": mask}] * 10).map(make(fields={"mask": "mask"}), seed=1):
        assert not np.array_equal(one["mask"], mask)
        assert abs((one["image"][..., 0] > 127).astype(int) - (one["mask"] > 0)).mean() < 0.005
    still = image.random_affine("image", fields=FIELDS)
    assert alike(still(element(), np.random.default_rng(0)), element())


def test_two_flips_are_none() -> None:
    flip = image.random_flip("image", probability=1.0, fields=FIELDS)
    rng, before = np.random.default_rng(0), element()
    once = flip(before, rng)
    assert not alike(once, before)
    assert alike(flip(once, rng), before)
    assert alike(before, element())


@pytest.mark.parametrize("make", core(ALL.values(), 2), ids=ALL)
def test_every_executor_gives_the_same(make: Any) -> None:
    dataset = ps.from_source([element()] * 24).map(make(FIELDS), seed=5).batch(4, collate_fn=list)
    wanted = [one for batch in dataset.feed(executor="inline") for one in batch]
    assert len({one["mask"].tobytes() for one in wanted}) > 1 or make(FIELDS).num_draws == 0
    for way in ({"executor": "threads", "num_workers": 3}, {"executor": "processes", "num_workers": 2}):
        with dataset.feed(**way) as feed:  # type: ignore[arg-type]
            assert all(map(alike, wanted, (one for batch in feed for one in batch)))


@each
def test_the_draw_does_not_depend_on_the_fields(make: Any) -> None:
    few = {"boxes": "boxes"}
    whole, part = (list(ps.from_source([element()] * 8).map(make(fields), seed=2)) for fields in (FIELDS, few))
    assert all(np.array_equal(one["image"], other["image"]) for one, other in zip(whole, part, strict=True))
    assert all(np.array_equal(one["boxes"], other["boxes"]) for one, other in zip(whole, part, strict=True))
    assert all(np.array_equal(one["mask"], numbered()) for one in part)


@pytest.mark.parametrize(
    "make",
    [
        partial(image.resize, "image", 50),
        partial(image.random_resized_crop, "image", 24),
        partial(image.random_crop, "image", 30, padding=3),
        partial(image.center_crop, "image", 30),
        partial(image.random_flip, "image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "given",
)
def test_the_image_is_what_the_operator_alone_gives(make: Callable[..., Any]) -> None:
    steps = [ps.from_source([element()] * 6).map(operator, seed=4) for operator in (make(), make(fields=FIELDS))]
    alone, joint = ([one["image"].tobytes() for one in step.map(image.random_flip("image"), seed=4)] for step in steps)
    assert alone == joint


def test_a_longer_side_has_at_most_max_size() -> None:
    shapes = {(100, 200): (25, 50), (200, 100): (50, 25), (100, 110): (40, 44), (100, 100): (40, 40), (1, 500): (1, 50)}
    for shape, wanted in shapes.items():
        assert image.resize(np.zeros((*shape, 3), np.uint8), 40, max_size=50).shape[:2] == wanted
    assert image.resize("image", 40, max_size=50) != image.resize("image", 40)
    assert "max_size=50" in repr(image.resize("a", 40, max_size=50))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.uint16, np.int64, np.uint64, np.float32])
@each
def test_a_mask_of_any_dtype_keeps_its_values(make: Any, dtype: Any) -> None:
    now = make(FIELDS)({**element(), "mask": (numbered() % 5 > 1).astype(dtype)}, np.random.default_rng(1))
    assert now["mask"].dtype == dtype
    assert now["mask"].shape == now["drawn"].shape[1:] == now["image"].shape[:2]
    assert {*now["mask"].ravel().tolist()} == {0, 1}


def test_what_comes_from_outside_of_a_mask_is_its_fill() -> None:
    pad = image.pad_to("image", 64, fill=114, fields={"mask": image.Mask(fill=255)})
    now = pad({"image": np.zeros((21, 64, 3), np.uint8), "mask": np.zeros((21, 64), np.uint8)})
    for name, fill in (("image", 114), ("mask", 255)):
        assert [{*part.ravel().tolist()} for part in np.split(now[name], [21, 42])] == [{fill}, {0}, {fill}]


def test_several_images_and_clips_move_alike() -> None:
    rng = np.random.default_rng(3)
    frames = rng.integers(0, 256, (4, 40, 50, 3), np.uint8)
    both = {"left": frames[0], "right": frames[1], "clip": frames}
    for operator in (
        image.random_resized_crop("left", 32, fields={"right": "image", "clip": "images"}),
        image.random_crop("clip", 20, fields={"clip": "images", "left": "image", "right": "image"}),
    ):
        now = operator(both, np.random.default_rng(1))
        assert np.array_equal(now["clip"][0], now["left"])
        assert np.array_equal(now["clip"][1], now["right"])


@pytest.mark.parametrize(("form", "middle"), [("xywh", 0), ("cxcywh", 0.5)])
@each
def test_all_formats_mean_the_same_boxes(make: Any, form: Any, middle: float) -> None:
    def write(box: Any) -> Any:
        size = box[:, 2:] - box[:, :2]
        return np.concatenate([box[:, :2] + middle * size, size], axis=1)

    now, rngs = element(), [np.random.default_rng(6) for _ in range(2)]
    wanted = make({"boxes": "boxes"})(now, rngs[0])["boxes"]
    assert np.allclose(make({"boxes": image.Boxes(form)})({**now, "boxes": write(now["boxes"])}, rngs[1])["boxes"], write(wanted))


@each
def test_whole_numbers_stay_whole(make: Any) -> None:
    for dtype in (np.int64, np.int32, np.float32):
        now, exact = (make(FIELDS)(element(dtype=kind), np.random.default_rng(8))["boxes"] for kind in (dtype, np.float64))
        assert now.dtype == dtype
        assert np.abs(now - exact).max(initial=0) <= (0.5 if dtype != np.float32 else 1e-4)


def test_boxes_are_clipped_and_dropped_by_what_is_left() -> None:
    boxes = [(0, 0, 20, 20), (8, 8, 12, 12), (-30, 12, 100, 14), (200, 0, 300, 9), (12, 12, 12, 15), (9.5, 10, 10.5, 11), (0, 0, 0, 0)]
    left = {
        image.Boxes(): [[0, 0, 10, 10], [0, 0, 2, 2], [0, 2, 20, 4]],
        image.Boxes(min_area=0): [[0, 0, 10, 10], [0, 0, 2, 2], [0, 2, 20, 4], [0, 0, 0.5, 1]],
        image.Boxes(min_area=5): [[0, 0, 10, 10], [0, 2, 20, 4]],
        image.Boxes(min_area=0, min_visible=0.25): [[0, 0, 10, 10], [0, 0, 2, 2], [0, 0, 0.5, 1]],
        image.Boxes(min_visible=0.26): [],
    }
    picture = np.zeros((40, 40, 3), np.uint8)
    for kind, wanted in left.items():
        now = image.center_crop("image", 20, fields={"boxes": kind})({"image": picture, "boxes": np.array(boxes, float)})
        assert now["boxes"].tolist() == wanted
    for outside in ((-9, -9, -5, -5), (0, 0, 0, 0)):
        now = image.random_flip("image", fields={"boxes": "boxes"})(
            {"image": picture, "boxes": np.array([outside], float)}, np.random.default_rng(0)
        )
        assert now["boxes"].shape == (0, 4)


@each
def test_an_element_may_have_no_boxes(make: Any) -> None:
    for none in (np.zeros((0, 4), np.float32), np.zeros(0, np.float32), []):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            now = make(FIELDS)({**element(()), "boxes": none}, np.random.default_rng(0))
        assert now["boxes"].shape == (0, 4)
        assert now["drawn"].shape == (0, *now["mask"].shape)


def test_a_point_that_has_left_stays_marked() -> None:
    points = np.array([[5, 5, 2], [30, 30, 1], [25, 25, 0]])
    crop, pad = (make("image", size, fields={"points": "points"}) for make, size in ((image.center_crop, 20), (image.pad_to, 40)))
    whole, floating = (
        pad(crop({"image": np.zeros((40, 40, 3), np.uint8), "points": given_points}))["points"]
        for given_points in (points, points[:, :2].astype(np.float32))
    )
    assert resized([], "points")["it"].shape == (0, 2)
    assert whole.tolist() == [[0, 0, 0], [30, 30, 1], [0, 0, 0]]
    assert np.isnan(floating[0]).all()
    assert floating[1:].tolist() == [[30, 30], [25, 25]]
    assert (whole.dtype, floating.dtype) == (points.dtype, np.float32)


def test_an_iou_crop_holds_the_centres_of_its_boxes_and_overlaps_with_one_as_drawn() -> None:
    crop, start, whole = image.random_iou_crop("image", fields=FIELDS), element(), 0
    for seed in range(300):
        now, least = (
            crop(start, np.random.default_rng(seed)),
            (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)[int(np.random.default_rng(seed).random() * 7)],
        )
        if now["mask"].shape == (HEIGHT, WIDTH):
            whole += 1
            continue
        cut = np.isin(start["mask"], now["mask"])
        left, top, right, bottom = box_of(cut)
        centres = (start["boxes"][:, :2] + start["boxes"][:, 2:]) / 2
        assert now["labels"].tolist() == np.flatnonzero(((centres >= (left, top)) & (centres <= (right, bottom))).all(1)).tolist()
        assert max((one & cut).sum() / (one | cut).sum() for one in start["drawn"][now["labels"]]) >= least
        assert 0.5 <= (right - left) / (bottom - top) <= 2
    assert 300 / 7 < whole < 250


NAN = float("nan")


@pytest.mark.parametrize(
    ("change", "text", "fix"),
    [
        ({"boxes": [[1, 2, 3, NAN]]}, "box 0 of field 'boxes' is [1.0, 2.0, 3.0, nan], which is no xyxy box", "mend the boxes"),
        ({"boxes": [[1, 2, 3, 4], [30, 2, 3, 8]]}, "box 1 of field 'boxes' is [30, 2, 3, 8], which is no xyxy", 'ps.image.Boxes("xywh")'),
        ({"boxes": [[0.1, 0.2, 0.5, 0.9]]}, "lie between 0 and 0.9: they are shares of the picture", "multiply them by the width"),
        ({"boxes": [[0.2, 0.3, 1.0, 0.8]]}, "lie between 0 and 1: they are shares of the picture", "multiply them by the width"),
        ({"boxes": [[1, 2, 3, 4], [1]]}, "expected an array of numbers, not masked, or lists of equal lengths", "mend it"),
        ({"boxes": np.ma.array([[1.0, 2, 30, 40]], mask=[[0, 0, 0, 1]])}, "expected an array of numbers, not masked", "mend it"),
        ({"boxes": [[1, 2, float("inf"), 4]]}, "which is no xyxy box: a number is not finite", "mend the boxes"),
        ({"boxes": [1, 2, 3, 4]}, "field 'boxes' is int64[4], expected boxes [n, 4] of numbers", "one row of four numbers"),
        ({"boxes": [["1", "2", "3", "4"]]}, "expected boxes [n, 4] of numbers", "one row of four numbers"),
        ({"boxes": None}, "field 'boxes' is object[], expected boxes [n, 4] of numbers", "one row of four numbers"),
        ({"labels": np.arange(2)}, "field 'labels' is int64[2], expected 3 entries, one for each box of 'boxes'", "as many as"),
        ({"labels": 3}, "field 'labels' is int, expected 3 entries", "as many as there are boxes"),
        ({"mask": numbered(36)}, "field 'mask' has 36 x 52 pixels, and 'image' 37 x 52", "bring both to one size"),
        ({"mask": numbered()[None]}, "field 'mask' has 1 x 37 pixels, and 'image' 37 x 52", "bring both to one size"),
        ({"mask": numbered().astype(object)}, "field 'mask' is object[37, 52], expected a mask of numbers or bools", "convert it"),
        ({"mask": [[1]]}, "field 'mask' is list, expected a mask of numbers or bools, not empty, of shape (height, width)", "convert it"),
        ({"drawn": numbered()}, "field 'drawn' is int64[37, 52], expected a mask of numbers or bools, not empty, of", "convert"),
        ({"points": [[1, 2]]}, "field 'points' is int64[1, 2], expected points [..., 2] of floating numbers", "make the numbers floating"),
        ({"points": [[1.0]]}, "field 'points' is float64[1, 1], expected points", "add a third number, the visibility"),
        ({"image": coloured(numbered())[..., 0]}, "field 'image' is uint8[37, 52], expected", "add the channel axis"),
    ],
    ids=lambda value: value if isinstance(value, str) else "given",
)  # fmt: skip
def test_what_is_not_of_its_kind_is_a_spec_error_with_field_value_and_remedy(change: dict[str, Any], text: str, fix: str) -> None:
    with pytest.raises(SpecError) as caught:
        list(ps.from_source([{**element(), **change}]).map(image.random_flip("image", fields=FIELDS)))
    assert text in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.where == "image.random_flip('image')"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (partial(image.random_flip, fields={"small": image.Mask(fill=300)}), "field 'small' is uint8"),
        (partial(image.random_flip, fields={"other": "mask"}), "the element has no field 'other'"),
        (partial(image.random_flip, fields={"boxes": image.Boxes(per_box=("other",))}), "the element has no field 'other'"),
        (partial(image.random_flip, fields={"image": "images"}), "expected an array of shape (images, height, width, channels)"),
        (partial(image.random_crop, size=60, fields=FIELDS), "height 37, width 52, smaller than the crop 60 x 60"),
    ],
    ids=lambda value: value if isinstance(value, str) else "given",
)
def test_what_does_not_fit_the_operator_is_a_spec_error_too(make: Callable[..., Any], text: str) -> None:
    with pytest.raises(SpecError) as caught:
        make("image")({**element(), "small": numbered().astype(np.uint8)}, np.random.default_rng(0))
    assert text in caught.value.what


@pytest.mark.parametrize(
    "make",
    [
        lambda: image.random_flip("image", fields={"mask": "masc"}),
        lambda: image.random_flip("image", fields={"boxes": "boxes:xywh"}),
        lambda: image.random_flip("boxes", fields={"boxes": "boxes"}),
        lambda: image.random_flip("image", fields="mask"),  # type: ignore[call-overload]
        lambda: image.random_flip("image", out="small", fields={}),  # type: ignore[call-overload]
        lambda: image.random_flip(element()["image"], fields={"mask": "mask"}),  # type: ignore[call-overload]
        lambda: image.random_iou_crop("image", fields={"mask": "mask"}),
        lambda: image.Boxes("xyhw"),  # type: ignore[arg-type]
        lambda: image.Boxes(per_box="labels"),
        lambda: image.Boxes(min_visible=30),
        lambda: image.pad_to("image", 0),
        lambda: image.random_affine("image", degrees=181),
        lambda: image.random_affine("image", shear=NAN),
        lambda: image.random_affine("image", scale=(0, 1)),
        lambda: image.resize("image", 50, max_size=40),
        lambda: image.resize("image", (50, 50), max_size=80),
    ],
)
def test_arguments_that_cannot_be_are_plan_errors(make: Callable[[], Any]) -> None:
    with pytest.raises(PlanError) as caught:
        make()
    assert caught.value.where.startswith("image.")
    assert caught.value.fix


def test_only_random_operators_have_a_seed() -> None:
    ds = ps.from_source([element()])
    assert "seed=9" in str(ds.map(image.random_flip("image", fields=FIELDS), seed=9))
    assert "seed=" not in str(ds.map(image.center_crop("image", 8, fields=FIELDS), seed=9))


def test_a_state_names_what_an_operator_does_and_one_of_an_earlier_release_its_name_alone() -> None:
    def state_of(operator: Any, seed: int = 3) -> Any:
        return state_behind(ps.from_source([element()] * 4).map(operator, seed=seed), num_workers=0)

    def load(operator: Any, state: Any, seed: int = 3) -> None:
        with ps.from_source([element()] * 4).map(operator, seed=seed).feed(num_workers=0) as feed:
            feed.load_state_dict(state)
            assert feed.step == 1

    crop = partial(image.random_crop, "image", fields=FIELDS)
    load(crop(20), state_of(crop(20)))
    for other in (crop(21), crop(20, padding=1), image.random_crop("image", 20, fields={}), image.pad_to("image", 20)):
        with pytest.raises(StateMismatch, match=r'had "map\(random_crop: JointOperator.* where this one has "map\((random_crop|pad_to): '):
            load(other, state_of(crop(20)))
    line = f"map(random_crop: {crop(20)!r}, seed=3)"
    early = state_of(crop(20))
    assert early["plan"][-1] == line
    early["plan"][-1] = "map(random_crop, seed=3)"
    load(crop(20), sealed(early))
    for other, seed in ((image.random_flip("image", fields=FIELDS), 3), (crop(20), 4), (image.center_crop("image", 20, fields={}), 3)):
        with pytest.raises(StateMismatch):
            load(other, sealed(early), seed)


def resized(value: Any, kind: Any, size: Any = (400, 800), **more: Any) -> Any:
    given = {"image": np.zeros((100, 200, 3), np.uint8), "it": value, **more}
    return image.resize("image", size, fields={"it": kind})(given)


def test_a_box_of_whole_numbers_that_is_rounded_away_is_dropped_with_its_label() -> None:
    for form, box in (("xyxy", [6, 0, 14, 100]), ("xywh", [6, 0, 8, 100])):
        kind = image.Boxes(form, per_box=("labels",), min_area=0)  # type: ignore[arg-type]
        found = resized(np.array([box, [0, 0, 200, 100]]), kind, (50, 20), labels=np.array([1, 2]))
        assert (found["it"].tolist(), found["labels"].tolist()) == ([[0, 0, 20, 50]], [2])


def test_boxes_of_whole_pixels_are_no_shares() -> None:
    assert resized(np.array([[0, 0, 1, 1]], np.float32), "boxes", (100, 200))["it"].tolist() == [[0, 0, 1, 1]]


def test_coordinates_that_a_dtype_cannot_hold_are_an_error_and_none_wraps() -> None:
    with pytest.raises(SpecError, match="becomes 800, and uint8 holds at most 255"):
        resized(np.array([[10, 10, 200, 100]], np.uint8), "boxes")
    with pytest.raises(SpecError, match="becomes 400, and int8 holds at most 127"):
        resized(np.array([[100, 50, 2]], np.int8), "points")


def test_a_fill_that_the_image_cannot_hold_is_a_spec_error() -> None:
    depths = {"image": np.zeros((4, 4, 1), np.int8)}
    for pad in (image.pad_to("image", 6, fill=200), image.random_crop("image", 6, padding=1, fill=200)):
        with pytest.raises(SpecError, match=r"is int8\[4, 4, 1\], which cannot hold fill=200.*\n.*\n.*give another fill"):
            pad(depths, np.random.default_rng(0))
    assert image.pad_to("image", 6, fill=100)(depths)["image"].max() == 100


def test_a_mask_of_floats_may_be_filled_with_nan_and_a_fill_is_a_number() -> None:
    mask = {"image": np.zeros((4, 4, 1), np.uint8), "mask": np.zeros((4, 4), np.float32)}
    assert np.isnan(image.pad_to("image", 6, fields={"mask": image.Mask(fill=np.nan)})(mask)["mask"][0]).all()
    with pytest.raises(PlanError, match="is no number"):
        image.Mask(fill="x")  # type: ignore[arg-type]
