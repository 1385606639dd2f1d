"""MixUp and CutMix: what is mixed, the labels that go with it, and the same batches from every executor and after a resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from feeds import resumed
from numpy.typing import NDArray

import penstock as ps
import penstock.image as image
from penstock.errors import PlanError, SpecError

LAYOUTS = ("CHW", "HWC")
MADE: dict[str, Callable[..., Any]] = {"mixup": image.mixup, "cutmix": image.cutmix, "either": image.mixup_or_cutmix}


def batch_of(layout: str, dtype: Any = np.uint8) -> dict[str, NDArray[Any]]:
    pixels = np.random.default_rng(2).integers(0, 256, (6, 20, 30, 3)).astype(dtype)
    pixels = pixels.transpose(0, 3, 1, 2) if layout == "CHW" else pixels  # not contiguous
    return {"image": pixels, "label": np.array([3, 0, 1, 1, 2, 3]), "other": np.arange(6)}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_mixup_adds_the_image_before_with_the_share_of_the_labels(layout: str, dtype: Any) -> None:
    batch = batch_of(layout, dtype)
    before = batch["image"].copy()
    mixed = image.mixup(0.8)(batch, np.random.default_rng(3))
    share = float(mixed["label_share"][0])
    assert 0 < share < 1
    wanted = share * before.astype(np.float64) + (1 - share) * np.roll(before, 1, axis=0)
    assert mixed["image"].dtype == dtype
    assert np.abs(mixed["image"] - wanted).max() <= (0.5001 if dtype is np.uint8 else 1e-3)
    assert np.array_equal(batch["image"], before)
    assert mixed["label_other"].tolist() == [3, 3, 0, 1, 1, 2]
    assert (mixed["label_share"].dtype, set(mixed)) == (np.float32, {*batch, "label_other", "label_share"})
    assert mixed["label"] is batch["label"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cutmix_replaces_one_box_whose_area_the_labels_know(layout: str) -> None:
    batch, sizes = batch_of(layout), set()
    before = np.roll(batch["image"], 1, axis=0)
    for seed in range(60):
        mixed = image.cutmix(1.0, 4)(batch, np.random.default_rng(seed))
        pixel_axis = 1 if layout == "CHW" else 3
        taken = (mixed["image"] != batch["image"]).any(axis=(0, pixel_axis))
        assert np.array_equal(np.where(np.expand_dims(taken, (0, pixel_axis)), before, batch["image"]), mixed["image"])
        rows, columns = np.flatnonzero(taken.any(axis=1)), np.flatnonzero(taken.any(axis=0))
        assert taken.sum() == len(rows) * len(columns)
        share = 1 - taken.mean()
        soft = mixed["label"]
        assert (soft.dtype, soft.shape) == (np.float32, (6, 4))
        assert np.allclose(soft, share * np.eye(4)[batch["label"]] + (1 - share) * np.eye(4)[np.roll(batch["label"], 1)], atol=1e-6)
        sizes.add(int(taken.sum()))
    assert len(sizes) > 20


def test_the_choice_follows_its_share() -> None:
    batch = batch_of("HWC")
    own, before = batch["image"], np.roll(batch["image"], 1, axis=0)
    made = [image.mixup_or_cutmix(0.5, 1.0, cutmix_share=0.25)(batch, np.random.default_rng(seed))["image"] for seed in range(400)]
    assert 60 < sum(bool(((one == own) | (one == before)).all()) for one in made) < 140


@pytest.mark.parametrize("kind", MADE)
def test_each_executor_and_a_resumed_run_give_the_same_batches(kind: str) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (50, 16, 16, 3), np.uint8)
    ds = ps.from_arrays({"image": pixels, "label": np.arange(50) % 10}).shuffle(seed=1).batch(8)
    ds = ds.map(MADE[kind](num_classes=10), seed=5).repeat(2)
    wanted = [(one["image"].tobytes(), one["label"].tobytes()) for one in ds.feed(executor="inline")]
    assert len(set(wanted)) == 14
    for way in ({"executor": "threads", "num_workers": 3}, {"executor": "processes", "num_workers": 2}):
        with ds.feed(**way) as feed:
            first = [next(feed) for _ in range(5)]
            state = feed.state_dict()
        rest = resumed(ds, state, **way)
        assert [(one["image"].tobytes(), one["label"].tobytes()) for one in first + rest] == wanted


@pytest.mark.parametrize(
    "make",
    [
        lambda: image.mixup(0),
        lambda: image.cutmix(-1.0),
        lambda: image.mixup_or_cutmix(cutmix_share=1.5),
        lambda: image.mixup(float("inf")),
        lambda: image.mixup(1, 0),
        lambda: image.cutmix("1"),  # type: ignore[arg-type]
    ],
    ids=["mixup", "cutmix", "either", "infinite", "classes", "text"],
)
def test_numbers_out_of_range_are_a_plan_error(make: Callable[[], Any]) -> None:
    with pytest.raises(PlanError, match="out of range: Mixing") as caught:
        make()
    assert "a finite alpha above 0" in str(caught.value.fix)


@pytest.mark.parametrize("channels", [2, 8])
def test_a_box_is_cut_in_rows_and_columns_whatever_the_channels(channels: int) -> None:
    images = np.zeros((2, channels, 32, 40), np.float32)
    images[1] = 1
    for batch, axis in ((images, 1), (np.moveaxis(images, 1, 3), 3)):
        found = image.cutmix(1.0)({"image": batch, "label": np.arange(2)}, np.random.default_rng(199))["image"][0]
        boxes = np.moveaxis(found, axis - 1, 0)
        assert boxes.any()
        assert (boxes == boxes[0]).all()


GOOD = batch_of("HWC")
BAD = {
    "one image": {**GOOD, "image": GOOD["image"][0]},
    "float64": {**GOOD, "image": GOOD["image"].astype(float)},
    "empty": {**GOOD, "image": GOOD["image"][:0], "label": GOOD["label"][:0]},
    "no labels": {"image": GOOD["image"]},
    "float labels": {**GOOD, "label": GOOD["label"].astype(float)},
    "another number": {**GOOD, "label": GOOD["label"][:5]},
    "no such class": {**GOOD, "label": GOOD["label"] + 1},
    "as many rows as channels": {**GOOD, "image": np.zeros((len(GOOD["label"]), 8, 9, 8), np.uint8)},
    "a list": [GOOD],
}


@pytest.mark.parametrize("batch", BAD.values(), ids=list(BAD))
def test_what_is_no_batch_of_images_and_classes_is_a_spec_error(batch: Any) -> None:
    with pytest.raises(SpecError, match=r"'image' is .* and 'label' is .* below num_classes=4") as caught:
        image.mixup(0.2, 4)(batch, np.random.default_rng(0))
    assert str(caught.value.where) == "image.mixup"
    assert "behind batch()" in str(caught.value.fix)
