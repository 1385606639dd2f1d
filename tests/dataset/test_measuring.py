"""Numbers of the elements of a dataset, computed once and kept in a folder."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset.measured import (
    COUNT,
    bad_tens,
    inline,
    is_even,
    is_even_or_number,
    life,
    life_of_names,
    noted,
    noting,
    numbers,
    tripled,
    values,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from packing.small import exit_code_of

import penstock as ps
from penstock.dataset.measuring import measure
from penstock.errors import LengthUnknown, PlanError, SourceError, SpecError, TooManySkipped
from penstock.sources.measures import RECORD, WORK, read_measures


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_any_workers_measure_the_same(tmp_path: Path, executor: Any) -> None:
    functions = {"length": tripled, "even": is_even, "mixed": is_even_or_number}
    found = inline(tmp_path / executor, functions=functions, num_workers=2, executor=executor)
    assert values(found.columns["length"]) == [3 * number for number in range(COUNT)]
    assert values(found.columns["even"]) == [number % 2 == 0 for number in range(COUNT)]
    assert values(found.columns["mixed"])[18:22] == [1, 0, 20, 0]
    assert [column.kind for column in found.columns.values()] == ["i4", "bits", "i4"]
    assert (found.num_failed, found.failed) == (0, None)
    alone = inline(tmp_path / "alone", functions=functions)
    assert [column.fingerprint() for column in alone.columns.values()] == [column.fingerprint() for column in found.columns.values()]
    assert sorted(os.listdir(tmp_path / executor)) == [".lock", "even.bits", "length.i4", RECORD, "mixed.i4"]


def same(element: Any) -> Any:
    return element


@settings(max_examples=30)
@given(st.lists(st.one_of(st.booleans(), st.integers(0, 2**46 - 1), st.integers(0, 9)), max_size=40) | st.lists(st.booleans(), max_size=40))
def test_what_is_read_is_what_was_computed(given: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        column = inline(folder, ps.from_source(given), {"same": same}, chunk_size=8).columns["same"]
        assert values(column) == given
        assert column.is_bool == (bool(given) and all(isinstance(value, bool) for value in given))
        assert (column.kind == "i8") == any(value >= 2**31 for value in given)


def test_a_complete_folder_is_returned_without_computing_or_writing(tmp_path: Path) -> None:
    functions = {"length": partial(noting, calls=str(tmp_path / "calls"))}
    first = inline(tmp_path / "out", functions=functions)
    assert noted(tmp_path / "calls") == list(range(COUNT))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert inline(tmp_path / "out", functions=functions, num_workers=2, executor="threads") == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "executor": "threads"}, {"num_workers": 2}])
def test_a_job_that_was_killed_goes_on_behind_its_last_finished_chunk(tmp_path: Path, options: dict[str, Any]) -> None:
    calls = str(tmp_path / "calls")
    assert exit_code_of(life, str(tmp_path / "out"), calls, 290, options) == -9
    assert noted(calls)
    finished = len(list((tmp_path / "out" / WORK).glob("*.npz")))
    assert not (tmp_path / "out" / RECORD).exists()
    if not options:
        assert finished >= 2  # of five: the fourth batch shows that the third chunk is complete
    found = inline(tmp_path / "out", functions={"length": partial(noting, calls=calls)}, chunk_size=1024, **options)
    assert sorted(set(noted(calls))) == list(range(finished * 64, COUNT))  # workers of the first may have ended after it
    assert values(found.columns["length"]) == [3 * number for number in range(COUNT)]
    assert not (tmp_path / "out" / WORK).exists()


def test_a_job_that_is_killed_at_any_file_leaves_a_folder_that_the_next_completes(tmp_path: Path) -> None:
    ds, functions = numbers(20), {"length": tripled, "even": is_even}
    names = ["run", "chunk", "chunk", "chunk", "length", "even", "record"]
    for at in range(1, len(names) + 1):
        folder = tmp_path / str(at)
        assert exit_code_of(life_of_names, str(folder), at) == -9
        with pytest.raises(SourceError, match="not complete: measuring was begun"):
            read_measures(folder, {}, 20)
        found = inline(folder, ds, functions, chunk_size=8)
        assert values(found.columns["length"]) == [3 * number for number in range(20)]
        assert sorted(os.listdir(folder)) == [".lock", "even.bits", "length.i4", RECORD]
    assert exit_code_of(life_of_names, str(tmp_path / "all"), len(names) + 1) == 0


_INSIDE, _GO_ON, _COUNTED = threading.Event(), threading.Event(), list[int]()


def held_at_5(element: int) -> int:
    _COUNTED.append(element)
    if element == 5:
        _INSIDE.set()
        assert _GO_ON.wait(60)
    return element


def test_of_two_jobs_in_a_folder_the_second_uses_what_the_first_has_made(tmp_path: Path) -> None:
    found = []
    jobs = [threading.Thread(target=lambda: found.append(inline(tmp_path / "out", functions={"n": held_at_5}))) for _ in range(2)]
    jobs[0].start()
    assert _INSIDE.wait(60)
    jobs[1].start()
    _GO_ON.set()
    for job in jobs:
        job.join()
    assert found[0] == found[1]
    assert sorted(_COUNTED) == list(range(COUNT))


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "executor": "processes"}])
def test_elements_that_fail_are_left_out_marked_counted_and_in_the_quarantine(tmp_path: Path, workers: dict[str, Any]) -> None:
    file = tmp_path / "bad.jsonl"
    found = inline(
        tmp_path / "out", numbers(100), {"more": bad_tens, "even": is_even}, on_error=ps.Skip(10, quarantine=file), chunk_size=8, **workers
    )
    assert found.num_failed == 10
    assert values(found.failed) == [number % 10 == 0 for number in range(100)]
    assert values(found.columns["more"]) == [0 if number % 10 == 0 else number + 1 for number in range(100)]
    assert values(found.columns["even"]) == [number % 2 == 0 and number % 10 > 0 for number in range(100)]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["keys"] for line in lines] == [[[0, number, 0]] for number in range(0, 100, 10)]
    assert lines[1]["notes"][0] == "penstock: measuring 'more' of element 10, with bad_tens"
    assert inline(tmp_path / "out", numbers(100), {"more": bad_tens}) == found


def always_bad(element: int) -> int:
    raise ValueError(element)


def test_a_dataset_of_which_every_element_fails_has_columns_of_zeros(tmp_path: Path) -> None:
    found = inline(tmp_path, functions={"n": always_bad}, on_error=ps.Skip())
    assert (found.num_failed, found.columns["n"].kind) == (COUNT, "i4")
    assert (values(found.columns["n"]), values(found.failed)) == ([0] * COUNT, [1] * COUNT)


def test_a_limit_is_for_all_runs_and_a_rate_is_judged_at_the_end(tmp_path: Path) -> None:
    functions = {"more": bad_tens}
    with pytest.raises(TooManySkipped, match="limit"):
        inline(tmp_path / "count", functions=functions, on_error=ps.Skip(29))
    assert list((tmp_path / "count" / WORK).glob("*.npz"))
    with pytest.raises(TooManySkipped):  # the rest alone has no more than 29
        inline(tmp_path / "count", functions=functions, on_error=ps.Skip(29))
    with pytest.raises(TooManySkipped, match=r"30 of 300 elements failed, limit 0\.09"):
        inline(tmp_path / "rate", functions=functions, on_error=ps.Skip(0.09))
    assert inline(tmp_path / "rate", functions=functions, on_error=ps.Skip(0.1)).num_failed == 30


@pytest.mark.parametrize(("value", "words"), [(-1, "-1, of type int"), (2**46, "int"), (1.0, "float"), ("a", "str"), (None, "NoneType")])
def test_a_value_that_is_no_whole_number_is_an_error_that_names_element_and_function(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        inline(tmp_path, ps.from_source([5, np.uint8(7), value, 3]), {"same": same})
    assert caught.value.what.startswith(f"same returned {value!r}")
    assert words in caught.value.what
    assert caught.value.where == "measure(same=...), element 2"


def test_the_elements_are_those_at_the_positions_of_the_dataset(tmp_path: Path) -> None:
    ds = numbers(50).shuffle(seed=3, reshuffle_each_epoch=False).shard(2, 1)
    assert values(inline(tmp_path, ds, chunk_size=8).columns["length"]) == [3 * ds[place] for place in range(25)]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    inline(tmp_path / "done")
    with pytest.raises(ValueError, match="is bad"):
        inline(tmp_path / "begun", functions={"length": bad_tens})
    for folder, ds, functions, words in (
        ("done", numbers(10), {"length": tripled}, "measured for another dataset: other dataset"),
        ("done", None, {"length": is_even}, "measured with another function: tripled, now is_even"),
        ("done", None, {"even": is_even}, "there is no column 'even', only length"),
        ("begun", None, {"length": tripled}, "unfinished measuring of something else: other functions"),
    ):
        with pytest.raises(PlanError) as caught:
            inline(tmp_path / folder, ds, functions)
        assert words in caught.value.what


def test_a_lambda_is_known_again_by_its_source_text(tmp_path: Path) -> None:
    first = inline(tmp_path, functions={"n": lambda element: element + 1})
    assert values(first.columns["n"])[-1] == COUNT
    with pytest.raises(PlanError, match="measured with another function"):
        inline(tmp_path, functions={"n": lambda element: element + 2})
    with pytest.raises(PlanError, match="nothing tells in another run whether"):
        inline(tmp_path, functions={"n": partial(is_even, threading.Lock())})


def longer(element: dict[str, Any], path: Path) -> int:
    if element["text"] == "19":
        with path.open("a") as file:
            file.write("more\n")
    return len(element["text"])


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number}\n" for number in range(20)))
    ds = ps.read_text(path)
    with pytest.raises(SourceError, match="changed"):
        inline(tmp_path / "out", ds, {"n": partial(longer, path=path)})
    assert not (tmp_path / "out" / RECORD).exists()


async def waiting(element: int) -> int:
    return element


@pytest.mark.parametrize(
    ("ds", "functions", "options", "words"),
    [
        (numbers().filter(is_even), None, {}, "measure needs positions that are known before reading"),
        (numbers().repeat(), None, {}, "the length of this dataset is endless"),
        (numbers().shard_by_rank(), None, {}, "each rank would measure its own part"),
        ([1], None, {}, "[1] is not a Dataset"),
        (None, {"a b": tripled}, {}, "'a b' is no name of a column"),
        (None, {"failed": tripled}, {}, "'failed' is no name of a column"),
        (None, {"n": 3}, {}, "3"),
        (None, {"n": waiting}, {}, "waiting"),
        (None, None, {"on_error": ps.Replace()}, "Replace() would give an element the numbers of another"),
        (numbers().map(same, on_error=ps.Replace()), None, {}, "Replace() would give an element the numbers of another"),
        (None, None, {"executor": "magic", "num_workers": 2}, "executor='magic'"),
    ],
)
def test_arguments_that_cannot_be_are_errors(
    tmp_path: Path, ds: Any, functions: dict[str, Any] | None, options: dict[str, Any], words: str
) -> None:
    with pytest.raises((PlanError, LengthUnknown)) as caught:
        inline(tmp_path / "out", ds, functions, **options)
    assert words in str(caught.value)


def test_no_functions_and_a_folder_that_is_none_are_errors(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no function is given"):
        measure(numbers(), tmp_path / "out", {})
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", "s3://bucket/folder"):
        with pytest.raises(PlanError, match="is no folder of this machine"):
            inline(folder)
