from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from core import core
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image.pixels import exif
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
import penstock.image as image
from penstock._contracts.transform import FusedTransform, Scratch, Transform, WritingTransform
from penstock.errors import DecodeError, SpecError
from penstock.image import decoding
from penstock.image.decoding import FusedImage, fused

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]

DECODE = image.decode("image")
CROPS = {
    "crop": image.random_resized_crop("image", (24, 20)),
    "plain crop": image.random_resized_crop("image", (24, 20), antialias=False),
    "cubic crop": image.random_resized_crop("image", (24, 20), interpolation="cubic"),
    "resize": image.resize("image", (24, 20)),
    "shorter side": image.resize("image", 24),
    "same size": image.resize("image", (75, 100)),
}
FLIPS = {"no flip": (), "always": (image.random_flip("image", probability=1.0),), "sometimes": (image.random_flip("image"),)}
NORMALS = {
    "no normalize": (),
    "CHW": (image.normalize("image", (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),),
    "HWC": (image.normalize("image", (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), layout="HWC"),),
}


@pytest.fixture(scope="module")
def files(encode: Encode, photo: Photo) -> dict[str, bytes]:
    """Return images of every kind, of one size when they are upright."""
    picture = Image.fromarray(photo)
    return {
        "JPEG": encode(photo, "JPEG"),
        "progressive": encode(photo, "JPEG", progressive=True),
        "grey": encode(picture.convert("L"), "JPEG"),
        "CMYK": encode(picture.convert("CMYK"), "JPEG"),
        "turned": encode(photo, "JPEG", exif=exif(6)),
        "mirrored": encode(photo, "JPEG", exif=exif(2)),
        "PNG": encode(photo, "PNG"),
        "WEBP": encode(photo, "WEBP"),
    }


def one_by_one(parts: Sequence[Transform], value: Any, draws: Sequence[float]) -> NDArray[Any]:
    used = 0
    for part in parts:
        value = part.apply(value, draws[used : used + part.num_draws], None, None)
        used += part.num_draws
    return np.ascontiguousarray(value)


@settings(deadline=None, max_examples=2 * settings.default.max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(CROPS)), st.sampled_from(sorted(FLIPS)), st.sampled_from(sorted(NORMALS)), st.data())
def test_all_in_one_gives_the_bytes_of_one_after_the_other(files: dict[str, bytes], crop: str, flip: str, normal: str, data: Any) -> None:
    decode = image.decode("image", crop_only=data.draw(st.booleans()))
    parts = (decode, CROPS[crop], *FLIPS[flip], *NORMALS[normal])
    together = decode.fuse(parts[1:])
    assert isinstance(together, FusedTransform)
    assert together.parts == parts
    assert together.num_draws == sum(part.num_draws for part in parts)
    draws = np.random.default_rng(data.draw(st.integers(0, 99))).random(together.num_draws).tolist()
    scratch = Scratch()
    for _ in range(2):  # the second time in memory that was used
        kind = data.draw(st.sampled_from(sorted(files)))
        for given_bytes in (files[kind], memoryview(files[kind]), bytearray(files[kind])):
            wanted = one_by_one(parts, files[kind], draws)
            for lent in (scratch, None):
                made = together.apply(given_bytes, draws, lent, None)
                assert made.dtype == wanted.dtype
                assert np.array_equal(made, wanted)
                row = np.empty(wanted.shape, wanted.dtype)
                assert together.apply(given_bytes, draws, lent, row) is row
                assert np.array_equal(row, wanted)
                for misfit in (np.zeros((3, 3, 3), np.uint8), np.zeros(wanted.shape, np.float64)):
                    made = together.apply(given_bytes, draws, lent, misfit)
                    assert made is not misfit
                    assert np.array_equal(made, wanted)
                    assert not misfit.any()


@settings(deadline=None, max_examples=settings.default.max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(CROPS)), st.sampled_from(sorted(FLIPS)), st.sampled_from(sorted(NORMALS)), st.data())
def test_a_block_gives_the_bytes_of_one_after_the_other(files: dict[str, bytes], crop: str, flip: str, normal: str, data: Any) -> None:
    parts = (DECODE, CROPS[crop], *FLIPS[flip], *NORMALS[normal])
    together, scratch = DECODE.fuse(parts[1:]), Scratch()
    assert isinstance(together, WritingTransform)
    kinds = data.draw(st.lists(st.sampled_from([*sorted(files), "tall", "misfit"]), min_size=1, max_size=9))
    files = {**files, "tall": tall(files), "misfit": files["JPEG"]}
    draws = np.random.default_rng(len(kinds)).random((len(kinds), together.num_draws)).tolist()
    writer, pairs = together.writer(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_SMALL_BYTES", data.draw(st.sampled_from([1, 3 * 24 * 20 * 3, decoding._SMALL_BYTES])))
        for kind, numbers in zip(kinds, draws, strict=True):
            wanted = one_by_one(parts, files[kind], numbers)
            row = np.zeros((1, 1), np.uint8) if kind == "misfit" else np.empty_like(wanted)
            made = writer.apply(files[kind], numbers, scratch, row)
            assert (made is row) == (kind != "misfit")
            pairs.append((made, wanted))
        writer.finish()
    for made, wanted in pairs:
        assert made.dtype == wanted.dtype
        assert np.array_equal(made, wanted)


def tall(files: dict[str, bytes]) -> bytes:
    """Return an image of other proportions: its shorter side makes it another size."""
    whole = np.asarray(Image.open(io.BytesIO(files["PNG"])))
    out = io.BytesIO()
    Image.fromarray(whole[:, :40]).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"num_workers": 2}, {"executor": "processes", "num_workers": 2}], ids=str)
def test_an_image_that_fails_takes_no_other_with_it(files: dict[str, bytes], way: dict[str, Any]) -> None:
    rows = [{"image": files["JPEG"], "label": label} for label in range(40)]
    for label in (3, 4, 11, 39):
        rows[label]["image"] = files["JPEG"][: 500 + label]
    ds = ps.from_source(rows)
    for number, step in enumerate((DECODE, CROPS["crop"], *FLIPS["sometimes"], *NORMALS["CHW"])):
        ds = ds.map(step, seed=number)
    whole = {int(row["label"]): row["image"] for row in ds.feed(executor="inline", on_error=ps.Skip())}
    assert whole.keys() == set(range(40)) - {3, 4, 11, 39}
    with ds.batch(8).feed(on_error=ps.Skip(), **way) as feed:
        batches = list(feed)
    pairs = [(int(label), picture) for batch in batches for label, picture in zip(batch["label"], batch["image"], strict=True)]
    assert [label for label, _ in pairs] == sorted(whole)
    assert all(np.array_equal(picture, whole[label]) for label, picture in pairs)


@pytest.mark.parametrize(
    ("steps", "number"),
    [
        ((DECODE, CROPS["crop"]), 2),
        ((DECODE, CROPS["crop"], *FLIPS["sometimes"], *NORMALS["CHW"], *FLIPS["always"]), 4),
        ((DECODE, CROPS["crop"], *NORMALS["CHW"]), 3),
        ((DECODE, CROPS["crop"], *NORMALS["CHW"], *FLIPS["always"]), 3),
        ((DECODE, CROPS["crop"], image.random_flip("other"), *NORMALS["CHW"]), 2),
        ((DECODE, CROPS["crop"], image.random_flip("image", out="flipped"), *NORMALS["CHW"]), 2),
        ((DECODE, CROPS["crop"], image.center_crop("image", 4), *NORMALS["CHW"]), 2),
        ((image.decode("data", out="image"), CROPS["resize"], *NORMALS["CHW"]), 3),
        ((DECODE,), 0),
        ((DECODE, *NORMALS["CHW"]), 0),
        ((DECODE, image.resize("other", 4)), 0),
        ((DECODE, image.resize("image", 4, out="small")), 0),
        ((image.decode("image", mode="GRAY"), CROPS["resize"]), 0),
        ((CROPS["resize"], *NORMALS["CHW"]), 0),
    ],
)
def test_the_longest_run_on_one_field_is_taken(steps: tuple[Any, ...], number: int) -> None:
    made = fused(steps)
    assert (0 if made is None else len(made.parts)) == number
    if made is not None:
        assert isinstance(made, FusedImage)
        assert (made.field, made.out_field) == (steps[0].field, steps[number - 1].out_field)


def photos(files: dict[str, bytes], count: int = 24) -> ps.Dataset:
    kinds = list(files.values())
    return ps.from_source([{"data": kinds[number % len(kinds)], "label": number} for number in range(count)])


def augmented(ds: ps.Dataset, *, apart: bool) -> ps.Dataset:
    steps = (
        image.decode("data", out="image"),
        CROPS["crop"],
        image.random_flip("image"),
        image.normalize("image", (0.5,) * 3, (0.2,) * 3),
    )
    for number, step in enumerate(steps):
        ds = ds.map(step, seed=number)
        ds = ds.map(dict) if apart else ds
    return ds


@pytest.mark.parametrize("batch", core([5, None]))
@pytest.mark.parametrize("way", core([{"executor": "inline"}, {"num_workers": 3}, {"num_workers": 2, "ordered": False}], 2), ids=str)
def test_a_feed_gives_the_same_fused_and_apart_the_first_batch_without_slots_included(
    files: dict[str, bytes], batch: int | None, way: dict[str, Any]
) -> None:
    both = []
    for apart in (False, True):
        ds = augmented(photos(files), apart=apart)
        if batch is None:
            rows = {int(row["label"]): row for row in ds.feed(**way)}
        else:
            rows = {
                int(label): {"data": data, "image": picture}
                for rows in ds.batch(batch).feed(**way)
                for label, data, picture in zip(rows["label"], rows["data"], rows["image"], strict=True)
            }
        both.append(rows)
    fused_rows, apart_rows = both
    assert fused_rows.keys() == apart_rows.keys()
    for label, row in fused_rows.items():
        assert row["image"].dtype == np.float32
        assert np.array_equal(row["image"], apart_rows[label]["image"])
        assert row["data"] == apart_rows[label]["data"]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("steps", "change", "kind", "stage", "words"),
    [
        ("CHW", lambda data: data[: len(data) // 2], DecodeError, "decode", "JPEG image is damaged"),
        ("CHW", lambda data: b"<html>" * 9, DecodeError, "decode", "image.decode('image')"),
        ("CHW", lambda data: "0.jpg", SpecError, "decode", "field 'image' is str"),
        ("HWC", lambda data: data[:40], DecodeError, "decode", "damaged"),
    ],
)
def test_an_error_names_the_operator_that_failed(
    files: dict[str, bytes], steps: str, change: Any, kind: Any, stage: str, words: str, batch: bool
) -> None:
    ds = ps.from_source([{"image": files["JPEG"]}, {"image": change(files["JPEG"])}])
    for step in (DECODE, CROPS["crop"], *FLIPS["sometimes"], *NORMALS[steps]):
        ds = ds.map(step)
    with (ds.batch(1) if batch else ds).feed(executor="threads", num_workers=1) as feed:
        next(feed)
        with pytest.raises(kind) as caught:
            next(feed)
    assert words in str(caught.value)
    assert f"stage '{stage}'" in caught.value.__notes__[0]


def test_an_error_of_a_later_operator_names_that_one(files: dict[str, bytes]) -> None:
    ds = ps.from_source([{"image": files["JPEG"]}]).map(DECODE).map(CROPS["crop"])
    ds = ds.map(image.normalize("image", (0.5,), (0.2,)))
    with pytest.raises(SpecError) as caught:
        list(ds.feed(executor="threads", num_workers=1))
    assert "stage 'normalize'" in caught.value.__notes__[0]


def test_an_image_over_the_limit_is_refused_as_by_decode_alone(files: dict[str, bytes]) -> None:
    small = image.decode("image", max_pixels=75 * 100 - 1)
    together = fused((small, CROPS["resize"]))
    assert together is not None
    with pytest.raises(DecodeError, match="is over the limit of 7499"):
        together.apply(files["JPEG"], (), Scratch(), None)
    assert small.usual(files["JPEG"]) is None


def test_only_the_usual_image_takes_the_short_way(files: dict[str, bytes]) -> None:
    taken = {kind for kind, data in files.items() if DECODE.usual(data) is not None}
    assert taken == {"JPEG", "progressive", "grey"}
    assert DECODE.usual(bytearray(files["JPEG"])) is None
