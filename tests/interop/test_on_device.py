"""Image operators on whole batches of tensors: the windows, pixels and labels of the operators of the host, the same in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
import penstock.image as image
from penstock.errors import PlanError, SpecError, StateMismatch

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EXACT = {
    "center_crop": image.center_crop("image", (20, 17)),
    "random_crop": image.random_crop("image", (20, 30)),
    "random_crop with a border": image.random_crop("image", (44, 30), padding=12, fill=7),
    "random_flip": image.random_flip("image"),
}
CLOSE = {
    "resize": image.resize("image", (29, 71)),
    "shorter side": image.resize("image", 20),
    "as OpenCV": image.resize("image", 20, antialias=False),
    "random_resized_crop": image.random_resized_crop("image", (24, 31)),
    "normalize": image.normalize("image", MEAN, STD),
    "normalize in place": image.normalize("image", MEAN, STD, layout="HWC"),
}
MIXED = {"mixup": image.mixup(0.8, 4), "cutmix": image.cutmix(1.0, 4), "either": image.mixup_or_cutmix(0.8)}
COLOURS: list[dict[str, float]] = [{"brightness": 0.4}, {"contrast": 0.4}, {"saturation": 0.4}, {"hue": 0.2}]
EVERYTHING = image.on_device(
    image.random_resized_crop("image", 24),
    image.random_flip("image"),
    image.color_jitter("image", 0.4, 0.4, 0.4, 0.1),
    image.random_crop("image", 24, padding=3),
    image.normalize("image", MEAN, STD),
    image.mixup_or_cutmix(num_classes=4),
)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return str(request.param)


def dataset(layout: str = "HWC", dtype: Any = np.uint8, size: int = 5) -> ps.Dataset:
    pixels = np.random.default_rng(2).integers(0, 256, (40, 37, 52, 3)).astype(dtype)
    pixels = np.moveaxis(pixels, 3, 1) if layout == "CHW" else pixels
    return ps.from_arrays({"image": pixels, "label": np.arange(40) % 4}).shuffle(seed=1).batch(size)


def on(device: str, augment: Any, ds: ps.Dataset, **options: Any) -> Any:
    return ds.map(augment.draw, seed=3).feed(output=ps.Torch(device=device, transform=augment), **options)


def arrays(batches: Any) -> list[dict[str, Any]]:
    return [{name: value.numpy(force=True) for name, value in batch.items()} for batch in batches]


def on_host(operator: Any, ds: ps.Dataset, layout: str = "HWC") -> list[dict[str, Any]]:
    """Return the batches with an operator of one image done to each image, with the numbers of the batch."""

    def apply(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        images = np.moveaxis(batch["image"], 1, 3) if layout == "CHW" else batch["image"]
        made = np.stack([operator.apply(one, operator.draw(rng), None, None) for one in np.ascontiguousarray(images)])
        back = layout == "CHW" and operator.name != "normalize"
        return {**batch, "image": np.moveaxis(made, 3, 1) if back else made}

    return list(ds.map(apply, seed=3).feed())


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.uint16, np.bool_])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_a_batch_has_the_windows_and_pixels_of_its_images(name: str, layout: str, dtype: Any, device: str) -> None:
    operator, ds = {**EXACT, **CLOSE}[name], dataset(layout, dtype)
    found = arrays(on(device, image.on_device(operator), ds))
    for made, wanted in zip(found, on_host(operator, ds, layout), strict=True):
        assert (made["image"].shape, made["image"].dtype) == (wanted["image"].shape, wanted["image"].dtype)
        most = 0 if name in EXACT else 1 if made["image"].dtype.kind in "ub" else 0.01
        assert np.abs(made["image"].astype(float) - wanted["image"]).max() <= most
        assert np.array_equal(made["label"], wanted["label"])


@pytest.mark.parametrize("spans", [*COLOURS, {**COLOURS[0], **COLOURS[1], **COLOURS[2], **COLOURS[3]}], ids="+".join)
def test_colours_change_as_by_the_operator(spans: dict[str, float], device: str) -> None:
    operator, ds = image.color_jitter("image", probability=0.8, **spans), dataset(size=1)  # one order for a batch
    plain, wanted = ([batch["image"].astype(int) for batch in batches] for batches in (ds.feed(), on_host(operator, ds)))
    found = [batch["image"] for batch in arrays(on(device, image.on_device(operator), ds))]
    assert np.abs(np.subtract(found, wanted)).max() <= 2 * len(spans)
    assert 20 < sum(not np.array_equal(one, other) for one, other in zip(found, plain, strict=True)) < 40


@pytest.mark.parametrize(("layout", "dtype"), [("HWC", np.uint8), ("CHW", np.float32)])
@pytest.mark.parametrize("name", MIXED)
def test_mixed_batches_have_the_pixels_and_labels_of_the_host(name: str, layout: str, dtype: Any, device: str) -> None:
    ds = dataset(layout, dtype)
    found = arrays(on(device, image.on_device(MIXED[name]), ds))
    for made, wanted in zip(found, ds.map(MIXED[name], seed=3).feed(), strict=True):
        assert {field: value.dtype for field, value in made.items()} == {field: value.dtype for field, value in wanted.items()}
        for field, value in wanted.items():
            assert np.allclose(made[field].astype(float), value, atol=1 if field == "image" and dtype == np.uint8 else 1e-3)


def test_each_way_to_run_and_a_resume_give_the_same_batches_and_draw_from_no_generator_of_pytorch(device: str) -> None:
    ds, before = dataset().repeat(2), torch.get_rng_state()
    wanted = arrays(on("cpu", EVERYTHING, ds, executor="inline"))
    assert len({batch["image"].tobytes() for batch in wanted}) == 16
    for options in ({"executor": "threads", "num_workers": 3}, {"executor": "processes", "num_workers": 2}, {"ordered": False}):
        with on(device, EVERYTHING, ds, **options) as feed:
            found = arrays(next(feed) for _ in range(5))
            state = feed.state_dict()
        with on(device, EVERYTHING, ds, **options) as feed:
            feed.load_state_dict(state)
            found += arrays(feed)
        for made, batch in zip(*(sorted(some, key=lambda batch: batch["label"].tolist()) for some in (found, wanted)), strict=True):
            assert np.allclose(made["label"], batch["label"], atol=1e-6)
            assert np.abs(made["image"] - batch["image"]).max() <= (1e-6 if device == "cpu" else 0.05)  # a level of 256, normalised
    assert torch.equal(torch.get_rng_state(), before)


def test_a_saved_state_names_the_operators() -> None:
    with on("cpu", EVERYTHING, dataset()) as feed:
        state = feed.state_dict()
    with on("cpu", image.on_device(EXACT["random_flip"]), dataset()) as feed, pytest.raises(StateMismatch, match="RandomFlip"):
        feed.load_state_dict(state)


def test_other_operators_are_refused() -> None:
    area = image.resize("image", 20, interpolation="area")
    for operator in (area, image.random_flip("image", fields={}), image.random_flip("image", out="o"), image.equalize("image"), np.flip):
        with pytest.raises(PlanError, match="cannot be done on the device") as caught:
            image.on_device(operator)
        assert "map the others before batch()" in str(caught.value.fix)


def test_what_is_missing_or_too_late_is_named() -> None:
    flip = image.on_device(EXACT["random_flip"])
    with dataset().feed(output=ps.Torch(transform=flip)) as feed, pytest.raises(SpecError, match="has the random numbers") as caught:
        next(feed)
    assert ".map(augment.draw, seed=...)" in str(caught.value.fix)
    other = image.on_device(image.random_flip("image", probability=0.1))
    swapped = dataset().map(other.draw, seed=3)
    with swapped.feed(output=ps.Torch(transform=flip)) as feed, pytest.raises(SpecError, match="drawn for other operators") as caught:
        next(feed)
    assert "use one object for both" in str(caught.value.fix)
    for batch in ({"image": np.zeros((8, 9, 3))}, [1]):
        with pytest.raises(SpecError, match="expected images of one size"):
            flip.draw(batch, np.random.default_rng(0))  # type: ignore[arg-type]
    late = image.on_device(CLOSE["normalize"], image.color_jitter("image", 0.5))
    with on("cpu", late, dataset()) as feed, pytest.raises(SpecError, match=r"float32.*uint8 images of three channels") as caught:
        next(feed)
    assert "before normalize" in str(caught.value.fix)
