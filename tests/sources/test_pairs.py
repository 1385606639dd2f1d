from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sources.gathering import fill

import penstock as ps
from penstock.errors import PlanError, SourceError
from penstock.sources.files import PairsSource
from penstock.testing import check_source


def test_files_belong_together_by_sub_folder_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "images/b.jpg", "images/in/a.v2.jpg", "masks/in/a.v2.png", "masks/b.png")
    monkeypatch.chdir(tmp_path)
    ds = ps.read_pairs(image="images/**/*.jpg", mask="./masks//**/*.png")
    assert [(Path(e["path"]).as_posix(), e["image"], e["mask"]) for e in ds] == [
        ("images/b.jpg", b"images/b.jpg", b"masks/b.png"),
        ("images/in/a.v2.jpg", b"images/in/a.v2.jpg", b"masks/in/a.v2.png"),
    ]
    assert "read_pairs(image, mask, 2 elements)" in repr(ds)


@pytest.mark.parametrize(
    "fields",
    [
        [("x/*_rgb.png", "x/1_rgb.png"), ("y/*_ids.png", "y/1_ids.png"), ("z/*", "z/1.npy")],
        [("k/*/rgb/*.jpg", "k/1/rgb/7.jpg"), ("k/*/ids/*.*", "k/1/ids/7.png"), ("k/[0-9]/z/?.png", "k/1/z/7.png")],
        [(["v/*.jpg", "t/*.JPG"], "t/a.JPG", "v/b.jpg"), ("m/**", "m/a.gif", "m/b.gif"), ("{n,o}/*.png", "n/a.png", "o/b.png")],
    ],
)
def test_the_text_of_the_wildcards_is_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: Any) -> None:
    monkeypatch.chdir(tmp_path)
    patterns, *rows = zip(*fields, strict=True)
    fill(tmp_path, *(name for row in rows for name in row))
    if patterns[2] == "{n,o}/*.png":  # the folder is part of the name
        with pytest.raises(SourceError, match="6 files have no partner"):
            ps.read_pairs(rgb=patterns[0], ids=patterns[1], depth=patterns[2])
        patterns = (*patterns[:2], ["n/*.png", "o/*.png"])
    ds = ps.read_pairs(rgb=patterns[0], ids=patterns[1], depth=patterns[2])
    assert [tuple(e[field].decode() for field in ("rgb", "ids", "depth")) for e in ds] == rows


def test_a_file_without_its_partner_is_an_error_that_names_three_or_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, *(f"i/{name}.jpg" for name in "abcde"), "m/b.png", "m/f.png")
    patterns = {"image": str(tmp_path / "i/*.jpg"), "mask": tmp_path / "m/*.png"}
    with pytest.raises(SourceError) as caught:
        ps.read_pairs(**patterns)
    named = ", ".join(repr(str(tmp_path / "i" / f"{name}.jpg")) for name in "acd")
    assert caught.value.what == f"5 files have no partner: {named}, ..."
    assert caught.value.where == "read_pairs, 1 pairs"
    ds = ps.read_pairs(**patterns, missing="drop")
    assert [e["mask"] for e in ds] == [b"m/b.png"]
    assert "read_pairs(image, mask, 1 elements, 5 files left out)" in repr(ds)
    os.unlink(tmp_path / "m/b.png")
    with pytest.raises(SourceError, match="6 files have no partner"):
        ps.read_pairs(**patterns, missing="drop")
    with pytest.raises(FileNotFoundError) as missing:
        ds[0]
    assert any("b.jpg" in note and "b.png" in note for note in missing.value.__notes__)
    fill(tmp_path, "m/b.png", "m/b.PNG2")
    with pytest.raises(SourceError, match=r"have the same name, 'b'"):
        ps.read_pairs(image=patterns["image"], mask=str(tmp_path / "m/*"))


@pytest.mark.parametrize("wrong", [{}, {"image": "*"}, {"path": "*", "mask": "*"}, {"image": "*", "mask": "*", "missing": "warn"}])
def test_wrong_arguments_are_errors(wrong: Any) -> None:
    with pytest.raises(PlanError, match="name two fields or more"):
        ps.read_pairs(**wrong)


def test_the_source_keeps_the_laws_and_knows_its_files(tmp_path: Path) -> None:
    def made(folder: str) -> PairsSource:
        return PairsSource({"image": str(tmp_path / folder / "i/*"), "mask": str(tmp_path / folder / "m/*")}, "error")

    fill(tmp_path, *(f"{folder}/{kind}/{name}.jpg" for folder in ("one", "two") for kind in "im" for name in ("a", "b")))
    for path in (tmp_path / "two").rglob("*.jpg"):
        path.write_bytes(path.read_bytes().replace(b"two", b"one"))
    check_source(made("one"), again=lambda: made("one"))
    assert made("one").fingerprint() == made("two").fingerprint()
    (tmp_path / "two/m/b.jpg").write_bytes(b"other")
    assert made("one").fingerprint() != made("two").fingerprint()
    assert [Path(name).relative_to(tmp_path / "one").as_posix() for name in made("one").input_files()] == [
        "i/a.jpg", "i/b.jpg", "m/a.jpg", "m/b.jpg",
    ]  # fmt: skip
