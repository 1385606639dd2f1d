from __future__ import annotations

from pathlib import Path

import pytest
from sources.gathering import fill, gathered

import penstock as ps
from penstock.errors import SourceError
from penstock.sources.files import ImageFolderSource


def test_classes_are_numbered_in_the_order_of_their_names_and_each_image_has_its_own(tmp_path: Path) -> None:
    fill(tmp_path, "dog/1.jpg", "cat/x.PNG", "cat/b.webp", "cat-wild/deep/y.Jpeg")
    source = ImageFolderSource(tmp_path)
    assert source.class_names == ["cat", "cat-wild", "dog"]
    assert [(row["path"], row["label"]) for row in gathered(source)] == [
        ("cat-wild/deep/y.Jpeg", 1),
        ("cat/b.webp", 0),
        ("cat/x.PNG", 0),
        ("dog/1.jpg", 2),
    ]
    assert all(row["data"] == row["path"].encode() and type(row["label"]) is int for row in gathered(source))
    assert source.describe(3) == f"image 'dog/1.jpg' of {str(tmp_path)!r}"


def test_other_files_are_left_out_and_counted_by_suffix_and_hidden_ones_are_nothing(tmp_path: Path) -> None:
    names = (
        "a/1.jpg",
        "a/notes.txt",
        "a/2.jpg.tmp",
        "readme",
        "list.TXT",
        ".cache/x.jpg",
        "a/.thumbs/1.jpg",
        "a/._1.jpg",
        "a/.DS_Store",
        ".hidden",
    )
    fill(tmp_path, *names)
    source = ImageFolderSource(tmp_path)
    assert [row["path"] for row in gathered(source)] == ["a/1.jpg"]
    assert source.label() == f"read_images({str(tmp_path)!r}, 1 elements, 1 classes, 4 other files ignored)"
    notice = f"read_images({str(tmp_path)!r}) left out files that are no images by their suffix: 2 .txt, 1 without a suffix, 1 .tmp"
    assert sorted(source.notice) == sorted(notice)
    with ps.read_images(tmp_path).feed(num_workers=0) as feed:
        next(feed)
        assert feed.stats().notices == (source.notice,)
    for name in ("readme", "list.TXT", "a/notes.txt", "a/2.jpg.tmp"):
        (tmp_path / name).unlink()
    source = ImageFolderSource(tmp_path)
    assert source.label() == f"read_images({str(tmp_path)!r}, 1 elements, 1 classes)"
    assert source.notice == ""


def test_every_suffix_of_a_format_that_decode_reads_is_an_image(tmp_path: Path) -> None:
    names = [f"a/{suffix}.{suffix}" for suffix in ["JPG", "avif", "bmp", "gif", "jfif", "jpe", "jpeg", "jpg", "png", "tif", "tiff", "webp"]]
    fill(tmp_path, *names)
    assert [row["path"] for row in gathered(ImageFolderSource(tmp_path))] == sorted(names)


def test_a_folder_link_to_its_own_parent_does_not_go_round(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "up").symlink_to("..")
    assert len(ImageFolderSource(tmp_path)) == 1


def test_a_class_folder_without_an_image_is_an_error_that_names_it(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/readme.txt")
    with pytest.raises(SourceError, match="class folder 'b' holds no image") as caught:
        ImageFolderSource(tmp_path)
    assert str(tmp_path) in caught.value.where
    assert ".jpeg, .jpg, .png, .tif, .tiff, .webp" in caught.value.fix


def test_a_folder_without_class_folders_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg")
    with pytest.raises(SourceError, match="no sub-folder") as caught:
        ImageFolderSource(tmp_path)
    assert str(tmp_path) in caught.value.where
    assert "read_files" in caught.value.fix


@pytest.mark.parametrize(("name", "found"), [("nowhere", "is not there"), ("1.jpg", "is a file")])
def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path, name: str, found: str) -> None:
    fill(tmp_path, "1.jpg")
    with pytest.raises(SourceError) as caught:
        ImageFolderSource(tmp_path / name)
    assert caught.value.what == f"folder {str(tmp_path / name)!r} {found}"
    assert caught.value.where.startswith("read_images, in the working directory ")
    assert "check the path" in caught.value.fix


def test_the_fingerprint_tells_a_renamed_class(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/1.jpg")
    before = ImageFolderSource(tmp_path).fingerprint()
    assert ImageFolderSource(tmp_path).fingerprint() == before
    (tmp_path / "b").rename(tmp_path / "c")
    assert ImageFolderSource(tmp_path).fingerprint() != before
