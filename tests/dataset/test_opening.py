from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset.small import Row, assert_refused, numbers, refusals

import penstock as ps


class Refusing:
    def __getitem__(self, index: int) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        return iter([1])


WRONG: list[Row] = [
    ("arrays of different lengths", lambda: ps.from_arrays({"a": np.zeros(2), "b": np.zeros(3)}), "3", "from_arrays", ""),
    ("a generator that is none", lambda: ps.from_generator(3), "neither callable nor iterable", "from_generator", "yields"),  # type: ignore[arg-type]
    ("a function as a stream", lambda: ps.from_stream(len), "cannot be iterated", "from_stream()", "use from_generator"),  # type: ignore[arg-type]
    ("a generator with a word", lambda: ps.from_generator(list, fast_forward="no"), "fast_forward='no'", "from_generator()", "True or"),  # type: ignore[arg-type]
    ("a stream with a word", lambda: ps.from_stream([1], fast_forward="no"), "fast_forward='no'", "from_stream()", "True or False"),  # type: ignore[arg-type]
    ("a list with a word", lambda: ps.read_list("absent", label="no"), "label='no'", "read_list()", "True or False"),  # type: ignore[arg-type]
    ("a source without length", lambda: ps.from_source(iter([])), "", "from_source", ""),
    ("a stream with an index that raises, as PyTorch's have", lambda: ps.from_source(Refusing()), "", "from_source", "from_stream(obj)"),
]


@refusals(WRONG)
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    assert_refused(call, what, where, fix)


def test_a_source_of_our_protocol_is_used_as_it_is() -> None:
    class Squares:
        def __len__(self) -> int:
            return 5

        def gather(self, indices: Any, rows: list[Any]) -> None:
            rows.extend(index * index for index in indices)

        def describe(self, index: int) -> str:
            return f"square {index}"

        def fingerprint(self) -> dict[str, Any]:
            return {"kind": "squares"}

        def label(self) -> str:
            return "squares()"

    ds = ps.from_source(Squares())
    assert list(ds) == [0, 1, 4, 9, 16]
    assert "squares()" in repr(ds)


def test_files_lists_and_folders_are_read(tmp_path: Any) -> None:
    for name in ("cat/one.jpg", "dog/two.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "train.txt").write_text("cat/one.jpg 4\ndog/two.jpg 5\n")
    assert [(item["data"], item["label"]) for item in ps.read_list(tmp_path / "train.txt")] == [(b"cat/one.jpg", 4), (b"dog/two.jpg", 5)]
    assert [(item["data"], item["label"]) for item in ps.read_images(tmp_path)] == [(b"cat/one.jpg", 0), (b"dog/two.jpg", 1)]
    assert [item["data"] for item in ps.read_files(str(tmp_path / "**" / "*.jpg"))] == [b"cat/one.jpg", b"dog/two.jpg"]


def test_a_length_may_be_of_numpy() -> None:
    assert len(ps.from_generator(lambda: iter([1, 2]), length=np.int64(2))) == 2  # type: ignore[arg-type]
    assert len(ps.from_stream([1, 2], length=np.uint8(2))) == 2  # type: ignore[arg-type]


def test_the_classes_of_a_folder_of_images_are_its_sub_folders_by_label_also_behind_operators(tmp_path: Path) -> None:
    for name in ("cat", "Dog", "ant"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"")
    images = ps.read_images(tmp_path)
    assert images.classes == ["Dog", "ant", "cat"]  # in the order of the bytes
    assert [images.classes[element["label"]] for element in images] == ["Dog", "ant", "cat"]
    train, val = images.split(0.5, seed=1)
    assert train.map(dict).shuffle().batch(2).classes == val.classes == images.classes
    assert train.concatenate(val).classes == images.classes
    images.classes.clear()
    assert len(images.classes) == 3


def test_other_datasets_have_no_classes(tmp_path: Path) -> None:
    for name in ("a/x", "b/y"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.jpg").write_bytes(b"")
    one, other = ps.read_images(tmp_path / "a"), ps.read_images(tmp_path / "b")
    for ds in (numbers(3), one.concatenate(other), one.zip(numbers(1))):
        assert not hasattr(ds, "classes")
        with pytest.raises(AttributeError, match="'Dataset' object has no attribute 'classes': only datasets of read_images, and"):
            _ = ds.classes
