"""Cutting photographs into crops: once, completely, and never sharing a pixel between training and held-out."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import photographs
from penstock.errors import MissingExtra, SourceError

cv2 = pytest.importorskip("cv2")


def make_photos(folder: Path, count: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        rng = np.random.default_rng(number)
        pixels = cv2.resize(rng.integers(0, 256, (12, 16, 3), np.uint8), (400, 300), interpolation=cv2.INTER_CUBIC)
        (folder / f"photo {number}.png").write_bytes(bytes(cv2.imencode(".png", pixels)[1]))
    return folder


def test_crops_and_lists_are_written(tmp_path: Path) -> None:
    crops = photographs.cut_crops(photographs.photos_in(make_photos(tmp_path / "in")), tmp_path / "out", num_train=24, num_test=6)
    assert not crops.reused
    assert crops.names == ("photo 0", "photo 1", "photo 2")
    lines = crops.train_list.read_text().splitlines()
    assert len(lines) == 24
    assert lines[4] == "train/photo_1-00004.jpg 1"
    assert len(crops.test_list.read_text().splitlines()) == 6
    files = [crops.root / line.split()[0] for line in lines + crops.test_list.read_text().splitlines()]
    assert sum(path.stat().st_size for path in files) == crops.num_bytes
    image = cv2.imread(str(files[0]))
    assert image.shape == (photographs.CROP_HEIGHT, photographs.CROP_WIDTH, 3)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [crops.root.name]


def test_a_second_run_reuses_the_crops_and_other_numbers_make_new_ones(tmp_path: Path) -> None:
    found = photographs.photos_in(make_photos(tmp_path / "in"))
    first = photographs.cut_crops(found, tmp_path / "out", num_train=8, num_test=4)
    stamp = first.train_list.stat().st_mtime_ns
    again = photographs.cut_crops(found, tmp_path / "out", num_train=8, num_test=4)
    assert again.reused
    assert again.root == first.root
    assert again.num_bytes == first.num_bytes
    assert again.train_list.stat().st_mtime_ns == stamp
    other = photographs.cut_crops(found, tmp_path / "out", num_train=9, num_test=4)
    assert not other.reused
    assert other.root != first.root


def test_the_same_photographs_give_the_same_crops(tmp_path: Path) -> None:
    found = photographs.photos_in(make_photos(tmp_path / "in"))
    one, other = (photographs.cut_crops(found, tmp_path / name, num_train=8, num_test=4).root for name in ("a", "b"))
    for path in one.rglob("*.jpg"):
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes()


def test_held_out_crops_come_from_a_window_that_training_never_sees(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    left, top, right, bottom = photographs._HELD_OUT
    for name in ("a", "b"):
        pixels = np.zeros((300, 400, 3), np.uint8)
        pixels[round(300 * top) : round(300 * bottom), round(400 * left) : round(400 * right)] = 255
        (folder / f"{name}.png").write_bytes(bytes(cv2.imencode(".png", pixels)[1]))
    crops = photographs.cut_crops(photographs.photos_in(folder), tmp_path / "out", num_train=60, num_test=20)
    assert max(cv2.imread(str(path)).max() for path in (crops.root / "train").iterdir()) < 30
    assert min(cv2.imread(str(path)).min() for path in (crops.root / "test").iterdir()) > 225


@pytest.mark.parametrize("size", [(64, 64), (64, 900), (900, 64), (65, 97)])
def test_a_crop_fits_beside_the_window_of_any_photograph(size: tuple[int, int]) -> None:
    image = np.zeros((*size, 3), np.uint8)
    for index in range(30):
        assert photographs._one_crop(image, index % 2 == 0, np.random.default_rng(index)).startswith(b"\xff\xd8")


def test_a_photograph_that_is_none_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    folder = make_photos(tmp_path / "in")
    (folder / "broken.jpg").write_bytes(b"not a picture")
    with pytest.raises(SourceError) as caught:
        photographs.cut_crops(photographs.photos_in(folder), tmp_path / "out", num_train=8, num_test=4)
    assert "'broken.jpg' is not a readable picture" in caught.value.what
    assert "broken.jpg" in caught.value.where
    assert "take it away" in caught.value.fix
    assert list((tmp_path / "out").iterdir()) == []


def test_a_tiny_photograph_is_refused_with_its_size(tmp_path: Path) -> None:
    folder = make_photos(tmp_path / "in")
    (folder / "tiny.png").write_bytes(bytes(cv2.imencode(".png", np.zeros((20, 30, 3), np.uint8))[1]))
    with pytest.raises(SourceError) as caught:
        photographs.cut_crops(photographs.photos_in(folder), tmp_path / "out", num_train=8, num_test=4)
    assert "'tiny.png' is only 30x20 pixels large" in caught.value.what
    assert "at least 64x64 pixels" in caught.value.fix


def test_a_folder_with_one_photograph_has_nothing_to_tell_apart(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        photographs.photos_in(make_photos(tmp_path / "in", count=1))
    assert "holds 1 JPEG or PNG files, the demo needs at least two" in caught.value.what
    assert "--photos" in caught.value.where
    assert "add photographs" in caught.value.fix


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        photographs.photos_in(tmp_path / "nowhere")
    assert "nowhere' is not a folder" in caught.value.what
    assert "--photos" in caught.value.where
    assert "at least two photographs" in caught.value.fix


def test_missing_photograph_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photographs, "_SHIPPED", {"penstock_has_no_such_package": ("data", ("a.png",))})
    with pytest.raises(MissingExtra) as caught:
        photographs.find_photos()
    assert "photographs are not installed: they are files inside scikit-image and scikit-learn" in caught.value.what
    assert "the demo" in caught.value.where
    assert 'pip install "penstock[demo]"' in caught.value.fix
    assert "--photos" in caught.value.fix


@pytest.mark.skipif(importlib.util.find_spec("skimage") is None, reason="scikit-image (extra demo) is not installed")
def test_the_photographs_of_scikit_image_are_found_as_files() -> None:
    found = photographs.find_photos()
    assert "astronaut.png" in [path.name for path in found]
    assert all(path.is_file() for path in found)
