"""What `penstock bench` can open, and what it says about the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.cli.bench_source import Opened, open_source
from penstock.errors import PenstockError, PlanError

cv2 = pytest.importorskip("cv2")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "cat").mkdir()
    for number in range(4):
        pixels = np.full((40, 60, 3), 50 * number, np.uint8)
        (tmp_path / "cat" / f"{number}.jpg").write_bytes(bytes(cv2.imencode(".jpg", pixels)[1]))
    (tmp_path / "train.txt").write_text("".join(f"cat/{number}.jpg {number}\n" for number in range(4)))
    return tmp_path


def opened(source: object, **options: Any) -> Opened:
    return open_source(str(source), **{"root": None, "function": None, "crop": None, "resize": None, **options})


def refused(source: object, **options: Any) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        opened(source, **options)
    return caught.value


def test_a_list_file_is_cropped_at_random_and_normalised(images: Path) -> None:
    found = opened(images / "train.txt", crop=16)
    assert (found.kind, found.side, len(found.dataset)) == ("a list of images", 16, 4)
    assert list(found.operators) == ["decode", "random_resized_crop", "random_flip", "normalize"]
    assert found.pipeline()[0]["data"].shape == (3, 16, 16)


def test_a_list_file_may_have_its_root_elsewhere(images: Path, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "train.txt").write_text("0.jpg 3\n")
    found = opened(lists / "train.txt", root=str(images / "cat"), resize=20)
    element = found.pipeline()[0]
    assert element["data"].shape == (3, 20, 20)
    assert element["label"] == 3


def test_a_folder_and_a_glob_of_images_open_as_well(images: Path) -> None:
    assert opened(images).kind == "a folder of images"
    assert len(opened(images / "cat" / "*.jpg").dataset) == 4


def test_array_files_are_read_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12).reshape(6, 2))
    np.savez(tmp_path / "b.npz", x=np.arange(5), y=np.arange(5))
    assert opened(tmp_path / "a.npy").pipeline()[0]["data"].shape == (2,)
    found = opened(tmp_path / "b.npz")
    assert (len(found.dataset), found.operators) == (5, {})
    assert set(found.pipeline()[0]) == {"x", "y"}


def test_an_own_function_replaces_the_image_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_steps_for_bench.py").write_text("def twice(element):\n    return {'data': element['data'] * 2}\n")
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "my_steps_for_bench", raising=False)
    found = opened("a.npy", function="my_steps_for_bench:twice")
    assert list(found.operators) == ["twice"]
    assert found.pipeline()[0]["data"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY", b"hello"])
@pytest.mark.parametrize("name", ["broken.npy", "broken.npz"])
def test_a_broken_array_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name)
    assert f"'{name}' is not an array file that can be read" in error.what
    assert str(tmp_path / name) in error.where
    assert "numpy.save or numpy.savez" in error.fix


@pytest.mark.parametrize("source", ["a/*.tfrecord", "a.tfrecord-00000-of-00002", "a.tar", "a.parquet", "s3://bucket/x.jpg"])
def test_files_of_records_and_urls_are_no_images(source: str) -> None:
    error = refused(source)
    assert "is no list, folder or glob of images" in error.what
    assert "read_tfrecord" in error.fix


@pytest.mark.parametrize(
    ("reference", "what", "fix"),
    [
        ("justaname", "'justaname' does not name a function", "write it as module:function"),
        (":f", "':f' does not name a function", "write it as module:function"),
        ("no_such_module_anywhere:f", "module 'no_such_module_anywhere' cannot be imported", "run from the folder that holds it"),
        ("os.path:no_such_function", "module 'os.path' has no function 'no_such_function'", "takes an element and returns one"),
        ("os.path:sep", "module 'os.path' has no function 'sep'", "takes an element and returns one"),
    ],
)
def test_a_function_that_cannot_be_had_is_named(tmp_path: Path, reference: str, what: str, fix: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    error = refused(tmp_path / "a.npy", function=reference)
    assert what in error.what
    assert f"penstock bench --map {reference}" in error.where
    assert fix in error.fix


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("def f(x)\n    return x\n", "SyntaxError: expected ':'", 1),
        ("import os\n\nundefined\n", "NameError: name 'undefined' is not defined", 3),
        ("def f(x):\n    return 1 / x\n\n\nzero = f(0)\n", "ZeroDivisionError", 2),
        ("\nimport no_such_module_anywhere\n", "ModuleNotFoundError: No module named 'no_such_module_anywhere'", 2),
        ("import json\njson.loads('{')\n", "JSONDecodeError", 2),
        ("open('/nowhere/at/all')\n", "FileNotFoundError", 1),
    ],
)
@pytest.mark.parametrize("through", [False, True], ids=["itself", "imported"])
def test_a_module_that_cannot_be_imported_is_told_with_the_line_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: str, line: int, through: bool
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    (tmp_path / "bad_for_bench.py").write_text(text)
    (tmp_path / "good_for_bench.py").write_text("import bad_for_bench\n")
    name = "good_for_bench" if through else "bad_for_bench"
    error = refused(tmp_path / "a.npy", function=f"{name}:f")
    assert isinstance(error, PlanError)
    assert error.what.startswith(f"module {name!r} cannot be imported: ")
    assert what in error.what
    assert error.where == f"{tmp_path / 'bad_for_bench.py'}, line {line}; penstock bench --map {name}:f"
    assert error.fix == "mend that line, or install what it imports"


def test_what_a_module_gets_from_penstock_while_it_is_imported_is_raised_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    (tmp_path / "data_for_bench.py").write_text("import penstock as ps\nds = ps.read_list('/nowhere/list.txt')\n")
    error = refused(tmp_path / "a.npy", function="data_for_bench:f")
    assert "cannot be imported" not in str(error)
    assert "/nowhere/list.txt" in str(error)


@pytest.mark.parametrize(
    ("name", "options", "what", "where", "fix"),
    [
        ("nowhere", {}, "nowhere' does not exist", "penstock bench SOURCE", "a list file of `path label` lines, a folder of images"),
        ("empty.npy", {}, "empty.npy' holds no elements", "penstock bench SOURCE", "at least one element"),
        ("objects.npy", {}, "'objects.npy' is not an array file", "objects.npy", "arrays of Python objects are not supported"),
        ("one.npz", {}, "array 'seed' is a single number", "one.npz", "first axis counts the elements"),
        ("cat", {"root": "there"}, "--root='there' is for list files", "penstock bench --root", "leave --root out"),
        ("a.npy", {"crop": 8}, "--crop and --resize are for image files", "penstock bench SOURCE", "--map module:function"),
        ("a.npy", {"function": "os:sep", "crop": 8}, "for image files without --map", "penstock bench", "leave them out"),
    ],
)
def test_what_cannot_be_measured_is_refused(images: Path, name: str, options: dict[str, Any], what: str, where: str, fix: str) -> None:
    for array, values in {"a": np.ones((3, 2)), "empty": np.zeros((0, 3)), "objects": np.array([{}, {}])}.items():
        np.save(images / f"{array}.npy", values, allow_pickle=True)
    np.savez(images / "one.npz", x=np.arange(3), seed=7)
    error = refused(images / name, **options)
    assert what in error.what
    assert where in error.where
    assert fix in error.fix
