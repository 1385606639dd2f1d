"""Images: in threads, in line, by index and operator by operator, the same bytes; and what is held never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._ops.worker import KeyedGenerator

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUM_IMAGES = 40

pytest.importorskip("simplejpeg")
pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write JPEG files of many sizes, some of them grey, and a list of them."""
    import simplejpeg

    folder = tmp_path_factory.mktemp("photos")
    chance, lines = np.random.default_rng(5), []
    for number in range(NUM_IMAGES):
        height, width = chance.integers(40, 130, 2)
        ramp = np.add.outer(np.arange(height) * 2, np.arange(width))[..., None] + np.arange(3) * 40
        image = ((ramp + chance.integers(0, 60, ramp.shape)) % 256).astype(np.uint8)
        grey = number % 7 == 3
        data = simplejpeg.encode_jpeg(image[..., :1].copy() if grey else image, colorspace="GRAY" if grey else "RGB", quality=90)
        (folder / f"{number:02}.jpg").write_bytes(data)
        lines.append(f"{number:02}.jpg {number % 5}\n")
    (folder / "train.txt").write_text("".join(lines))
    return folder


def training(photos: Path) -> ps.Dataset:
    return (
        ps.read_list(photos / "train.txt")
        .shuffle(seed=3)
        .map(ps.image.decode("data"))
        .map(ps.image.random_resized_crop("data", 32), seed=7)
        .map(ps.image.random_flip("data"), seed=8)
        .map(ps.image.normalize("data", MEAN, STD, layout="CHW"))
    )


def same(one: Any, other: Any) -> bool:
    return (
        list(one) == list(other)
        and all(np.array_equal(one[key], other[key]) for key in one)
        and all(np.asarray(one[key]).dtype == np.asarray(other[key]).dtype for key in one)
    )


def by_hand(photos: Path, epoch: int) -> list[dict[str, Any]]:
    """Apply one operator after the other to each element, as plain functions."""
    decode, flip = ps.image.decode("data"), ps.image.random_flip("data")
    crop, normalize = ps.image.random_resized_crop("data", 32), ps.image.normalize("data", MEAN, STD, layout="CHW")
    source, out = ps.read_list(photos / "train.txt"), []
    order = list(ps.from_source(list(range(NUM_IMAGES))).shuffle(seed=3).repeat(epoch + 1))[epoch * NUM_IMAGES :]
    for index in order:
        element = decode(source[index])
        element = crop(element, rng=KeyedGenerator(7, 1).at(epoch, index, 0))
        element = flip(element, rng=KeyedGenerator(8, 2).at(epoch, index, 0))
        out.append(normalize(element))
    return out


def test_threads_inline_index_and_each_operator_by_hand_give_the_same_batches(photos: Path) -> None:
    ds = training(photos).batch(8, drop_remainder=True).repeat(2)
    inline = list(ds.feed(executor="inline"))
    assert len(inline) == 2 * (NUM_IMAGES // 8)
    assert inline[0]["data"].shape == (8, 3, 32, 32)
    assert inline[0]["data"].dtype == np.float32
    assert inline[0]["label"].dtype == np.int64
    for num_workers in (1, 2, 5):
        threads = list(ds.feed(executor="threads", num_workers=num_workers))
        assert all(map(same, threads, inline))
        assert len(threads) == len(inline)
    assert all(same(ds[place], batch) for place, batch in enumerate(inline))
    rows = by_hand(photos, 0) + by_hand(photos, 1)
    for place, batch in enumerate(inline):
        part = rows[8 * place : 8 * place + 8]
        assert np.array_equal(batch["data"], np.stack([row["data"] for row in part]))
        assert batch["label"].tolist() == [row["label"] for row in part]
        assert list(batch["path"]) == [row["path"] for row in part]


def test_without_a_batch_the_elements_are_the_rows_of_the_batches(photos: Path) -> None:
    elements = list(training(photos).feed(executor="threads", num_workers=2))
    assert all(map(same, elements, by_hand(photos, 0)))
    assert len(elements) == NUM_IMAGES


def test_split_into_stages_of_their_own_the_operators_give_the_same(photos: Path) -> None:
    whole = list(training(photos).batch(8))
    staged = (
        ps.read_list(photos / "train.txt")
        .shuffle(seed=3)
        .map(ps.image.decode("data"), concurrency=2)
        .map(ps.image.random_resized_crop("data", 32), seed=7)
        .map(lambda element: element)
        .map(ps.image.random_flip("data"), seed=8, concurrency=1)
        .map(ps.image.normalize("data", MEAN, STD, layout="CHW"))
        .batch(8)
    )
    assert all(map(same, staged.feed(executor="threads", num_workers=2), whole))


def test_behind_a_filter_the_same_images_come(photos: Path) -> None:
    expected = [row for row in by_hand(photos, 0) if row["label"] != 2]
    kept = training(photos).filter(lambda element: element["label"] != 2)
    assert all(map(same, kept.feed(executor="threads", num_workers=3), expected))
    batches = list(kept.batch(8).feed(executor="threads", num_workers=3))
    assert np.array_equal(np.concatenate([batch["data"] for batch in batches]), np.stack([row["data"] for row in expected]))


@pytest.mark.parametrize("batch_size", [1, 16, 100])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_columns_of_arrays_give_what_element_by_element_gives(layout: str, batch_size: int) -> None:
    chance = np.random.default_rng(2)
    tree = {"image": chance.integers(0, 256, (100, 32, 32, 3), np.uint8), "label": np.arange(100)}

    def steps(ds: ps.Dataset) -> ps.Dataset:
        ds = ds.shuffle(seed=1).map(ps.image.random_crop("image", 32, padding=4), seed=2)
        return ds.map(ps.image.random_flip("image"), seed=3).map(ps.image.normalize("image", MEAN, STD, layout=layout))

    columns = steps(ps.from_arrays(tree)).batch(batch_size).repeat(2)
    rows = [{"image": image, "label": label} for image, label in zip(tree["image"], tree["label"], strict=True)]
    elements = steps(ps.from_source(rows)).batch(batch_size).repeat(2)
    expected = list(elements.feed(executor="inline"))
    assert all(map(same, columns.feed(executor="threads", num_workers=2), expected))
    assert all(map(same, columns.feed(executor="inline"), expected))
    assert len(list(columns)) == len(expected) == len(columns)
    assert same(columns[-1], expected[-1])
