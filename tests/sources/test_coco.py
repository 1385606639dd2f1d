from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feeds import resumed
from sources.gathering import fill, gathered

import penstock as ps
from penstock.errors import RecordError, SourceError
from penstock.testing import check_source

CATEGORIES = [{"id": 44, "name": "bottle"}, {"id": 7, "name": "train"}]
MASKS: list[tuple[Any, str]] = [
    ([[2, 1, 6, 1, 6, 4, 2, 4]], "........ ..####.. ..####.. ..####.. ........ ........"),
    ([[0.5, 0.5, 7.3, 2.2, 3.1, 5.9]], "........ .####... ..#####. ..####.. ...##... ...#...."),
    ([[-2, -2, 3, -2, 3, 3, -2, 3], [2.4, 2.6, 8, 2.6, 8, 7, 2.4, 7.0]], "###..... ###..... ###..... ..###### ..###### ..######"),
    ({"size": [6, 8], "counts": "7240?OD5"}, ".......# .##....# .##....# .......# .....#.# .......#"),
    ({"size": [6, 8], "counts": [7, 2, 4, 2, 19, 1, 7, 6]}, ".......# .##....# .##....# .......# .....#.# .......#"),
]
"""Segmentations of an image of 6 x 8 pixels, and the rows of what pycocotools 2.0 draws."""


def annotation(number: int, image: int, **fields: Any) -> dict[str, Any]:
    box = {"bbox": [number, 2.5, 10, 20], "category_id": 44 if number % 2 else 7}
    return {"id": number, "image_id": image, "area": 5 * number, "iscrowd": int(number == 3), **box, **fields}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Return a function that writes three images and a COCO file, and gives folder and file."""

    def run(annotations: Any, **lists: Any) -> tuple[Path, Path]:
        fill(tmp_path / "images", "b.jpg", "sub/a.jpg", "c.jpg")
        images = [{"id": 9 - at, "file_name": name, "height": 6, "width": 8} for at, name in enumerate(("b.jpg", "sub/a.jpg", "c.jpg"))]
        whole = {"annotations": annotations, "images": images, "categories": CATEGORIES, "info": {"year": 2017}, **lists}
        (tmp_path / "a.json").write_text(json.dumps(whole))
        return tmp_path / "images", tmp_path / "a.json"

    return run


def test_elements_are_the_images_in_the_order_of_the_file_with_their_annotations(write: Any) -> None:
    given = write([annotation(1, 7), annotation(2, 9), annotation(3, 7), annotation(4, 7, bbox=[0, 0, 4, 0])])
    ds = ps.read_coco(*given)
    first, second, third = ds
    assert [(e["path"], e["image"], e["image_id"]) for e in ds] == [
        ("b.jpg", b"b.jpg", 9),
        ("sub/a.jpg", b"sub/a.jpg", 8),
        ("c.jpg", b"c.jpg", 7),
    ]
    assert third["boxes"].tolist() == [[1, 2.5, 11, 22.5], [3, 2.5, 13, 22.5], [0, 0, 4, 0]]
    assert (third["labels"].tolist(), third["areas"].tolist(), third["iscrowd"].tolist()) == (
        [44, 44, 7],
        [5, 15, 20],
        [False, True, False],
    )
    shapes = {name: (second[name].shape, str(second[name].dtype)) for name in ("boxes", "labels", "areas", "iscrowd")}
    assert shapes == {"boxes": ((0, 4), "float32"), "labels": ((0,), "int64"), "areas": ((0,), "float32"), "iscrowd": ((0,), "bool")}
    assert first["labels"].tolist() == [7]
    assert "a.json', 3 elements, 4 annotations, 1 without width or height)" in repr(ds)
    first["boxes"][:] = 0  # an element is the user's
    assert ds[0]["boxes"].tolist() == [[2, 2.5, 12, 22.5]]


def test_classes_from_0_and_images_with_annotations_alone(write: Any) -> None:
    given = write([annotation(1, 7), annotation(2, 9)])
    ds = ps.read_coco(*given, contiguous_labels=True, skip_empty=True)
    assert [(e["image_id"], e["labels"].tolist()) for e in ds] == [(9, [0]), (7, [1])]
    assert ds.classes == ["train", "bottle"]
    assert not hasattr(ps.read_coco(*given), "classes")


def test_images_and_annotations_are_the_entries_of_their_lists_alone(write: Any) -> None:
    inner = annotation(5, 9, segmentation=[], file_name="d.jpg")
    folder, file = write([annotation(1, 7, attributes=inner)], videos=[{"id": 1, "file_name": "d"}], info={"file_name": "e", "image_id": 3})
    ds = ps.read_coco(folder, file)
    assert [(e["path"], len(e["boxes"])) for e in ds] == [("b.jpg", 0), ("sub/a.jpg", 0), ("c.jpg", 1)]
    text = file.read_text()
    for wrong in (text[:-1], text + "{}", text.replace("}]", "},]", 1)):
        file.write_text(wrong)
        with pytest.raises(RecordError, match="this is no COCO file of instances: JSONDecodeError"):
            ps.read_coco(folder, file)
    file.write_text(json.dumps(json.loads(text), indent=1), encoding="utf-8-sig")
    assert len(ps.read_coco(folder, file)) == 3


def test_areas_and_crowds_may_be_missing_and_points_are_zeros_where_others_have_them(write: Any) -> None:
    few = annotation(1, 7)
    del few["area"], few["iscrowd"]
    third = ps.read_coco(*write([few, annotation(2, 7, keypoints=[1, 2, 2, 3.5, 4, 1])]))[2]
    assert (third["areas"].tolist(), third["iscrowd"].tolist()) == ([200, 10], [False, False])
    assert third["points"].tolist() == [[[0, 0, 0], [0, 0, 0]], [[1, 2, 2], [3.5, 4, 1]]]


def test_masks_are_those_of_pycocotools(write: Any) -> None:
    given = write([annotation(at, 9 - at % 2, segmentation=shape) for at, (shape, _) in enumerate(MASKS)])
    even, odd, none = ps.read_coco(*given, masks=True)
    drawn = {0: even["masks"][0], 2: even["masks"][1], 4: even["masks"][2], 1: odd["masks"][0], 3: odd["masks"][1]}
    assert [" ".join("".join(".#"[pixel] for pixel in row) for row in drawn[at]) for at in range(5)] == [rows for _, rows in MASKS]
    assert (none["masks"].shape, none["masks"].dtype) == ((0, 6, 8), np.uint8)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([annotation(1, 7), annotation(1, 9)], "annotation 1: another one has this id"),
        ([annotation(1, 7), annotation(2, 70), annotation(3, 70)], "annotation 2: image 70 is not in the file; 2 such"),
        ([annotation(1, 7, category_id=45)], "annotation 1: category 45 is not in the file"),
        ([annotation(1, 7, bbox=[1, 1, -3, 5])], r"annotation 1: bbox \[1, 1, -3, 5\] has a negative size"),
        ([annotation(1, 7, bbox=[1, 1, float("nan"), 5])], "annotation 1: bbox .* no number"),
        ([annotation(1, 7, bbox=[1, 1, 3])], "annotation 1: not enough values"),
        ([{"id": 5, "image_id": 7, "caption": "a train"}], "annotation 5: no 'bbox'"),
        ([annotation(1, "7")], "annotation 1: required argument is not an integer"),
        ([annotation(1, 7, keypoints=[1, 2, 3]), annotation(2, 7, keypoints=[1, 2, 3, 4, 5, 6])], "annotation 2: 6 values of key points"),
        ([annotation(1, 7, keypoints=[1, 2, float("inf")])], "annotation 1: 3 values of key points; .* three numbers"),
        ([annotation(1, 7, keypoints=["1", "2", "3"])], "annotation 1: must be real number, not str"),
        ([annotation(1, 7, area=float("nan"))], "annotation 1: bbox .* area nan has a value that is no number"),
        ([annotation(1, 7, iscrowd="0")], "annotation 1: iscrowd is '0', and should be 0 or 1"),
        ([annotation(1, 7, segmentation=[[1, 1, 5, 5]])], "annotation 1: a polygon of segmentation has fewer than three points"),
        ([annotation(1, 7, segmentation=[[1, 1, 5, 5, 1e9, 3]])], "one beyond 100000 pixels"),
        ([annotation(1, 7, segmentation=[])], "annotation 1: segmentation is empty"),
        ([annotation(1, 7, segmentation={"size": [6, 8], "counts": [50, -2]})], "annotation 1: the run lengths"),
        ([annotation(1, 7)], "annotation 1: no 'segmentation'"),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_file_and_id(write: Any, wrong: Any, words: str) -> None:
    given = write(wrong)
    with pytest.raises(RecordError, match=words) as caught:
        ps.read_coco(*given, masks="segmentation" in f"{wrong}{words}")
    assert "a.json" in caught.value.where


def test_wrong_images_files_and_folders_are_errors(write: Any, tmp_path: Path) -> None:
    image = {"id": 1, "file_name": "b.jpg"}
    for lists, words in (
        ({"images": [image, image]}, "image 1: another one has this id"),
        ({"images": [{"id": 1, "file_name": ""}]}, "image 1: file_name is empty"),
        ({"images": []}, "there is no image"),
        ({"images": [{"id": 4}]}, "image 4: no 'file_name'"),
        ({"images": [{**image, "height": 0, "width": 8}]}, r"image 1: height and width are \[0, 8\], and should be 1 or more"),
        ({"categories": [{"id": 4}]}, "category 4: no 'name'"),
        ({"categories": None}, "this is no COCO file"),
    ):
        with pytest.raises(RecordError, match=words):
            ps.read_coco(*write([], **lists), masks="height" in words)
    folder, file = write([])
    with pytest.raises(RecordError, match="there is no image with annotations"):
        ps.read_coco(folder, file, skip_empty=True)
    with pytest.raises(SourceError, match=r"folder .* is not there"):
        ps.read_coco(tmp_path / "none", file)
    file.write_text("[1, 2")
    with pytest.raises(RecordError, match="this is no COCO file of instances: JSONDecodeError"):
        ps.read_coco(folder, file)


def test_what_only_reading_finds_names_the_image_and_a_policy_may_leave_it_out(write: Any) -> None:
    for mask, words in (
        ({"size": [8, 6], "counts": [7, 41]}, r"size \[8, 6\] and run lengths of 48 pixels; the image is \[6, 8\]"),
        ({"size": [6, 8], "counts": [7, 2]}, r"lengths of 9 pixels; the image is \[6, 8\]\n  where: image 8 of .*a.json' \('sub/a.jpg'\)"),
    ):
        folder, file = write([annotation(1, 8, segmentation=mask)])
        ds = ps.read_coco(folder, file, masks=True)
        with pytest.raises(RecordError, match=words):
            ds[1]
    os.unlink(folder / "c.jpg")
    with pytest.raises(FileNotFoundError) as caught:
        ds[2]
    assert any("image 7 of" in note for note in caught.value.__notes__)
    assert [e["image_id"] for e in ds.feed(num_workers=0, on_error=ps.Skip())] == [9]


def test_the_source_keeps_the_laws_and_its_fingerprint_tells_other_annotations(write: Any) -> None:
    def prints(**fields: Any) -> dict[str, Any]:
        return ps.read_coco(*write([annotation(1, 7, **fields)]))._root.source.fingerprint()  # type: ignore[attr-defined]

    assert prints() == prints() != prints(bbox=[1, 2.5, 10, 21])
    made = [ps.read_coco(*write([annotation(1, 7), annotation(2, 9)]))._root.source for _ in range(2)]  # type: ignore[attr-defined]
    check_source(made[0], again=lambda: made[1])
    folder, file = write([])
    assert list(map(Path, made[0].input_files())) == [folder / "b.jpg", folder / "sub/a.jpg", folder / "c.jpg", file]
    assert [row["image_id"] for row in gathered(made[0], [2, 0])] == [7, 9]


@pytest.mark.parametrize("workers", [{"executor": "threads"}, {"executor": "processes"}])
def test_workers_decode_images_and_a_resume_goes_on_behind_them(write: Any, workers: dict[str, Any]) -> None:
    cv2 = pytest.importorskip("cv2")
    folder, file = write([annotation(at, 9 - at % 3, segmentation=shape) for at, (shape, _) in enumerate(MASKS)])
    for number, name in enumerate(("b.jpg", "sub/a.jpg", "c.jpg")):
        (folder / name).write_bytes(cv2.imencode(".png", np.full((6, 8, 3), number, np.uint8))[1].tobytes())
    ds = ps.read_coco(folder, file, masks=True).map(ps.image.decode("image")).shuffle(seed=3).repeat(2)
    with ds.feed(num_workers=2, **workers) as feed:
        before = [next(feed) for _ in range(2)]
        state = json.loads(json.dumps(feed.state_dict()))
    after = resumed(ds, state, num_workers=2, **workers)
    for got, wanted in zip([*before, *after], ds, strict=True):
        assert got["image"].tolist() == np.full((6, 8, 3), 9 - got["image_id"]).tolist()
        assert all(np.array_equal(got[name], wanted[name]) for name in wanted)
