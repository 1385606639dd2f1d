from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testing.breaking import assert_broken

from penstock._contracts.transform import Scratch
from penstock.errors import PlanError
from penstock.kernels.library import load_library
from penstock.sources.arrays import ArraySource
from penstock.sources.files import FilesSource
from penstock.sources.stream import GeneratorSource
from penstock.testing import check_source


class Squares:
    """An indexed source written by hand; each wrong one below changes one method."""

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> Any:
        if not 0 <= index < 10:
            raise IndexError(f"no {index}")
        return index * index

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        for index in indices:
            rows.append(self.read(index))  # noqa: PERF401

    def describe(self, index: int) -> str:
        return f"square of {index}"

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "squares", "count": 10}

    def label(self) -> str:
        return "squares(10 elements)"


def test_sources_that_keep_the_laws_pass() -> None:
    check_source(Squares(), expected=[n * n for n in range(10)], again=Squares)
    check_source([], expected=[])
    check_source([np.arange(3), {"x": float("nan")}, None, (1, "a", b"b")])
    check_source(range(5000), expected=range(5000), most_elements=20)


class Shrinking(Squares):
    left = 10

    def __len__(self) -> int:
        return self.left

    def fingerprint(self) -> dict[str, Any]:
        self.left = 9
        return {}


class Returning(Squares):
    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        rows[:] = [self.read(index) for index in indices]


class Short(Squares):
    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        rows.extend({index: self.read(index) for index in indices}.values())


class Counting(Squares):
    calls = 0

    def read(self, index: int) -> Any:
        self.calls += 1
        return super().read(index) + self.calls // 11


class ThreadBound(Squares):
    def read(self, index: int) -> Any:
        return super().read(index) + (threading.current_thread() is not threading.main_thread())


class Endless(Squares):
    def read(self, index: int) -> Any:
        return index


class Broken(Squares):
    def read(self, index: int) -> Any:
        return super().read(index) // (index - 4)


class Unnamed(Squares):
    label = None  # type: ignore[assignment]


class Failing(Squares):
    """Cannot read elements 0 and 4."""

    def read(self, index: int) -> Any:
        if index in (0, 4):
            raise OSError("gone")
        return super().read(index)


class FailingBlocks(Failing):
    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        rows.extend([self.read(index) for index in indices])


def test_elements_that_fail_are_told_by_the_rows_before_them() -> None:
    check_source(Failing(), failing={0, 4}, again=Failing)
    with pytest.raises(PlanError, match="a stream has no indices"):
        check_source(GeneratorSource(lambda: iter(range(3))), failing=[1])


class Named(Squares):
    """Says of itself what it is told to."""

    def __init__(self, **says: Any) -> None:
        self.says = says

    def label(self) -> Any:
        return self.says.get("label", "label")

    def describe(self, index: int) -> Any:
        return self.says.get("describe", "element")

    def fingerprint(self) -> Any:
        said = self.says.get("fingerprint", {})
        return said() if callable(said) else said


class SharesItsRow(Squares):
    row = np.zeros(2)

    def read(self, index: int) -> Any:
        self.row[:] = super().read(index)
        return self.row


# -- columns ----------------------------------------------------------------------------------------------------------------------

TREE = {"x": np.arange(60).reshape(20, 3), "y": np.arange(20.0)}


def test_column_sources_that_keep_the_laws_pass() -> None:
    for tree in (TREE, np.arange(20), np.arange(60).reshape(3, 20).T, np.array(["a", None, 3], object), np.zeros((0, 2))):
        check_source(ArraySource(tree))


class ShiftedColumns(ArraySource):
    def gather_columns(self, indices: Any, out: Any) -> Any:
        return super().gather_columns((indices + 1) % len(self), out)


class Views(ArraySource):
    def gather_columns(self, indices: Any, out: Any) -> Any:
        if out is None and np.array_equal(indices, np.arange(len(self))):
            return [array.base for array in self._arrays]
        return super().gather_columns(indices, out)


class NewArrays(ArraySource):
    def gather_columns(self, indices: Any, out: Any) -> Any:
        return super().gather_columns(indices, None)


class OtherTypes(ArraySource):
    def leaves(self) -> Any:
        return [(shape, np.dtype(np.float16)) for shape, _ in super().leaves()]


# -- working memory ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number in range(6):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number]) * 10)
    return str(tmp_path / "*.bin")


class SharedBuffer(FilesSource):
    mine = Scratch()

    def read_transient(self, index: int, scratch: Scratch, ahead: Any) -> Any:
        return super().read_transient(index, self.mine, ahead)


class Neighbour(FilesSource):
    def read_transient(self, index: int, scratch: Scratch, ahead: Any) -> Any:
        return super().read_transient((index + 1) % len(self), scratch, ahead)


def test_a_transient_source_that_keeps_the_laws_passes(files: str) -> None:
    check_source(FilesSource(files), again=lambda: FilesSource(files))


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        pytest.param(
            SharedBuffer,
            "after a read into another scratch",
            marks=pytest.mark.skipif(load_library() is None, reason="without the C library no file is read into a scratch"),
        ),
        (Neighbour, "read_transient()"),
    ],
)
def test_a_transient_source_with_one_fault_is_named(kind: Any, where: str, files: str) -> None:
    assert_broken(lambda: check_source(kind(files)), "in the first reading", where, "no buffer that calls share")


# -- streams ----------------------------------------------------------------------------------------------------------------------


def count() -> Iterator[int]:
    yield from range(30)


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def test_streams_that_keep_the_laws_pass() -> None:
    for kwargs in ({}, {"fast_forward": True}, {"fast_forward": True, "length": 30}):
        check_source(GeneratorSource(count, **kwargs), expected=range(30), again=lambda kwargs=kwargs: GeneratorSource(count, **kwargs))
    check_source(GeneratorSource(lambda: ()), expected=[])
    check_source(GeneratorSource(endless), expected=range(1000), most_elements=50)


def test_a_stream_that_says_that_it_has_one_pass_is_checked_for_one() -> None:
    check_source(GeneratorSource(count()), expected=range(30))


class Remembering(GeneratorSource):
    taken = 0

    def open(self, pass_number: int) -> Any:
        def rows() -> Iterator[int]:
            for number in range(self.taken, 30):
                self.taken += 1
                yield number
            self.taken = 0

        return rows()


class Leaving(GeneratorSource):
    left: list[int] = []  # noqa: RUF012

    def open(self, pass_number: int) -> Any:
        self.left.append(os.open(os.devnull, os.O_RDONLY))
        return super().open(pass_number)


class Says(GeneratorSource):
    """A stream of 30 elements that says of itself what it is told to."""

    def __init__(self, length: Any) -> None:
        super().__init__(count)
        self.length = length

    def declared_length(self) -> Any:
        return self.length


def fails() -> Iterator[int]:
    yield 1
    raise OSError("gone")


def test_a_pass_that_leaves_a_descriptor_open_is_named() -> None:
    source = Leaving(count)
    assert_broken(lambda: check_source(source), "descriptor", "check_no_leaks()", "close")
    for descriptor in source.left:
        os.close(descriptor)


# -- one fault --------------------------------------------------------------------------------------------------------------------


class Half:
    def gather(self, indices: Any, rows: Any) -> None:
        pass


class HalfStream:
    def open(self, pass_number: int) -> Any:
        return iter(())


class Shifted(Named):
    def read(self, index: int) -> Any:
        return super().read(index) + 1


ONE_LINE, AT_ONE, NUMBERS = "one line of text", "append exactly one", np.arange(20)
ADDRESS = {"x": ["<X at 0x7f0011223344>"]}


@pytest.mark.parametrize(
    ("source", "options", "what", "where", "fix"),
    [
        (
            Half(),
            {},
            "Half has gather() but is no IndexedSource: it lacks __len__(), describe(), fingerprint(), label()",
            "check_source",
            "add it",
        ),
        (HalfStream(), {}, "HalfStream has open() but is no StreamSource: it lacks declared_length()", "check_source", "add it"),
        (Shrinking(), {}, "the length was 10 and is now 9", "(squares(10 elements)), len()", "constant"),
        (Returning(), {}, "gather() of 10 indices left 10 rows where one stood before", "in order", AT_ONE),
        (Short(), {}, "gather() of 10 indices left", "in a random order with repeats", AT_ONE),
        (Counting(), {}, "in the first reading", "gather() backwards", "depend on i alone"),
        (ThreadBound(), {}, "in the first reading", "8 threads at once", "depend on i alone"),
        (Endless(), {}, "index 10 is beyond the end and gave an element", "gather([0, 10, 0])", "never give another one"),
        (Broken(), {}, "element 4 could not be read: ZeroDivisionError", "in order", "failing="),
        (
            SharesItsRow(),
            {},
            "element 9 is array([0., 0.]) here and array([81., 81.]) in the first reading",
            "gather() backwards",
            "no buffer that calls share",
        ),
        ([1, 2], {"expected": [1, 3]}, "not the expected ones: element 1 is 2, not 3", "gather()", "the right ones"),
        ([1, 2], {"expected": [1]}, "the length is 2, and 1 elements are expected", "len()", "count"),
        (Squares(), {"failing": [4]}, "element 4 did not fail", "gather([0, 4, 0])", "raise"),
        (
            FailingBlocks(),
            {"failing": [0, 4]},
            "element 0 failed with OSError: gone and left 0 rows, so element 1 would be blamed",
            "gather([1, 0, 1])",
            "append every element",
        ),
        (Named(label="two\nlines"), {}, "label() is 'two\\nlines'", "check_source", ONE_LINE),
        (Named(label=5), {}, "label() is 5", "check_source", ONE_LINE),
        (Named(describe="0xdeadbeef99"), {}, "describe(0) is '0xdeadbeef99'", "check_source", "without the address"),
        (Named(fingerprint={"x": {1, 2}}), {}, "{'x': {1, 2}} is no JSON record", "fingerprint()", "a dict of text"),
        (Named(fingerprint={"x": float("nan")}), {}, "{'x': nan} is no JSON record", "fingerprint()", "a dict of text"),
        (Named(fingerprint=ADDRESS), {}, "holds the address of an object", "fingerprint()", "leave out `repr`"),
        (Named(fingerprint=lambda: {"x": time.perf_counter_ns()}), {}, "and the second time", "fingerprint()", "the data alone"),
        (
            Named(fingerprint={"id": 1}),
            {"again": lambda: Named(fingerprint={"id": 2})},
            "id is 1, and of the source made again 2",
            "fingerprint()",
            "in another process",
        ),
        (Named(), {"again": Shifted}, "element 0 is 1, not 0", "resumed behind element 0", "depend on its index"),
        (
            ShiftedColumns(NUMBERS),
            {},
            "the rows of the columns are not what gather() gives",
            "gather_columns()",
            "the same rows in both",
        ),
        (Views(NUMBERS), {}, "writing into a gathered column changed the source", "gather_columns()", "return copies"),
        (NewArrays(NUMBERS), {}, "did not return the arrays of `out`", "gather_columns()", "write into `out`"),
        (OtherTypes(NUMBERS), {}, "but leaves() says", "gather_columns()", "tell the same"),
        (Says(29), {}, "29 elements are declared, and a pass has 30", "declared_length()", "the true number"),
        (
            Says(5),
            {"most_elements": 10},
            "5 elements are declared, and a pass has at least 10",
            "declared_length()",
            "the true number",
        ),
        (GeneratorSource(fails), {}, "a pass failed: OSError: gone", "open()", "mend the source"),
        (Remembering(count), {}, "the pass behind one that was closed behind", "open()", "start at the first"),
        (GeneratorSource(count), {"expected": [0, 2]}, "element 1 is 1, not 2", "open()", "the right ones"),
    ],
)
def test_a_source_with_one_fault_is_named(source: Any, options: dict[str, Any], what: str, where: str, fix: str) -> None:
    assert_broken(lambda: check_source(source, **options), what, where, fix)
