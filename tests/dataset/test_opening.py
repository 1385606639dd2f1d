from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dataset.small import Row, assert_refused, refusals

import penstock as ps

WRONG: list[Row] = [
    ("arrays of different lengths", lambda: ps.from_arrays({"a": np.zeros(2), "b": np.zeros(3)}), "3", "from_arrays", ""),
    ("a generator that is none", lambda: ps.from_generator(3), "neither callable nor iterable", "from_generator", "yields"),  # type: ignore[arg-type]
    ("a function as a stream", lambda: ps.from_stream(len), "cannot be iterated", "from_stream()", "use from_generator"),  # type: ignore[arg-type]
    ("a generator with a word", lambda: ps.from_generator(list, fast_forward="no"), "fast_forward='no'", "from_generator()", "True or"),  # type: ignore[arg-type]
    ("a stream with a word", lambda: ps.from_stream([1], fast_forward="no"), "fast_forward='no'", "from_stream()", "True or False"),  # type: ignore[arg-type]
    ("a list with a word", lambda: ps.read_list("absent", label="no"), "label='no'", "read_list()", "True or False"),  # type: ignore[arg-type]
    ("a source without length", lambda: ps.from_source(iter([])), "", "from_source", ""),
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
