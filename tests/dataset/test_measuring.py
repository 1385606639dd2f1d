"""Numbers of the elements of a dataset, computed once and kept in a folder."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
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
    is_large,
    life,
    life_of_names,
    meeting,
    noted,
    noting,
    number_in,
    numbers,
    sharing,
    tripled,
    updated,
    values,
    wait_for,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from packing.small import exit_code_of

import penstock as ps
from penstock.dataset.measuring import measure, sameness
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
        assert finished >= 2  # of 38
    found = inline(tmp_path / "out", functions={"length": partial(noting, calls=calls)}, chunk_size=1024, **options)
    assert sorted(set(noted(calls))) == list(range(finished * 8, COUNT))  # workers of the first may have ended after it
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
    assert exit_code_of(life_of_names, str(tmp_path / "all"), len(names) + 2) == 0  # behind them the folder of the chunks goes


@pytest.mark.parametrize("kills", [False, True])
def test_jobs_share_the_work_and_what_a_killed_one_had_is_taken_over(tmp_path: Path, kills: bool) -> None:
    calls, folder = tmp_path / "calls", str(tmp_path / "out")
    context = multiprocessing.get_context("forkserver")
    jobs = [context.Process(target=sharing, args=(folder, str(calls))) for _ in range(3)]
    for job in jobs:
        job.start()
    notes = [Path(f"{calls}.{job.pid}") for job in jobs]
    wait_for(lambda: all(note.exists() for note in notes))  # each has a chunk of its own
    if kills:
        jobs[0].kill()
        jobs[0].join()
    calls.touch()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [-9 if kills else 0, 0, 0]
    shares = [noted(note) for note in notes]
    assert all(shares)
    assert {element for share in shares[kills:] for element in share} == set(range(COUNT))
    assert sorted(os.listdir(folder)) == [".lock", "length.i4", RECORD]
    column = read_measures(folder, sameness(numbers()._root, ""), COUNT).columns["length"]
    assert values(column) == [3 * number for number in range(COUNT)]


def test_a_job_that_waits_for_others_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    calls, said = str(tmp_path / "calls"), list[str]()
    options = {"functions": {"length": partial(meeting, calls=calls)}, "progress": "always"}
    jobs = [threading.Thread(target=inline, args=(tmp_path / "out", numbers(8)), kwargs=options) for _ in range(2)]
    for job in jobs:
        job.start()
        wait_for(Path(f"{calls}.{os.getpid()}").exists)  # the first has the only chunk
    wait_for(lambda: said.append(capfd.readouterr().err) or "last 1 of 1 chunks; waiting" in "".join(said))
    Path(calls).touch()
    for job in jobs:
        job.join()
    assert noted(f"{calls}.{os.getpid()}") == list(range(8))


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
        (numbers().filter(is_even), None, {}, "of compressed files, ps.pack(ds, folder, measure=...)"),
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


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(PlanError, match="not complete here, and this program must not write here") as caught:
        inline("/sys/penstock-numbers")
    assert "a complete folder is only read" in caught.value.fix


# -- update ---------------------------------------------------------------------------------------------------------------------------


def texts(folder: Path, files: dict[str, list[int]]) -> ps.Dataset:
    """Make the folder hold these files of numbers, one a line, and read it; a file that is as it should be is not touched."""
    for path in folder.glob("*.txt"):
        if path.name not in files:
            path.unlink()
    for name, lines in files.items():
        text, path = "".join(f"{number}\n" for number in lines), folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return ps.read_text(folder / "*.txt")


def tables(folder: Path, files: dict[str, list[int]]) -> ps.Dataset:
    """Do what `texts` does, with Parquet files of two rows a group."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for path in folder.glob("*.parquet"):
        if path.stem not in files or parquet.read_table(path)["text"].to_pylist() != list(map(str, files[path.stem])):
            path.unlink()
    for name, rows in files.items():
        if not (folder / f"{name}.parquet").exists():
            parquet.write_table(pyarrow.table({"text": list(map(str, rows))}), folder / f"{name}.parquet", row_group_size=2)
    return ps.read_parquet(folder / "*.parquet")


def whole(folder: Path, files: dict[str, list[int]]) -> ps.Dataset:
    """Do what `texts` does; each file is an element, and has one number."""
    texts(folder, {name: numbers[:1] for name, numbers in files.items()})
    return ps.read_files(folder / "*.txt")


BEFORE = {"a.txt": [*range(10)], "b.txt": [11, 12, 13, 14], "c.txt": [15, 16], "d.txt": [17]}
AFTER = {"0.txt": [30, 31], "b.txt": [11, 12, 13, 14], "c.txt": [25, 26], "d.txt": [17], "e.txt": [32]}


@pytest.mark.parametrize("kind", [texts, tables, whole])
def test_an_update_measures_the_files_that_are_new_or_changed_and_no_others(tmp_path: Path, kind: Any) -> None:
    calls = tmp_path / "calls"
    functions = {"n": partial(number_in, calls=str(calls)), "large": is_large}
    updated(tmp_path, kind(tmp_path, BEFORE), functions)
    noted(calls)
    ds = kind(tmp_path, AFTER)
    with pytest.raises(PlanError, match="measured for another dataset: other dataset"):
        inline(tmp_path / "out", ds, functions, version="1")
    found = updated(tmp_path, ds, functions)
    assert noted(calls) == ([25, 30, 32] if kind is whole else [25, 26, 30, 31, 32])
    expected = [numbers[0] for numbers in AFTER.values()] if kind is whole else [n for numbers in AFTER.values() for n in numbers]
    assert values(found.columns["n"]) == [0 if number == 13 else number for number in expected]
    assert values(found.columns["large"]) == [number > 20 for number in expected]
    assert found.columns["large"].is_bool
    assert found.num_failed == expected.count(13)
    assert len(os.listdir(tmp_path / "out")) == 5 + found.num_failed  # what was there before is removed
    assert updated(tmp_path, ds, functions) == found
    assert not calls.exists()


FILES = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "c.txt", "d.txt"]), st.lists(st.integers(0, 40), max_size=20), min_size=1)


@pytest.mark.filterwarnings("ignore:.* it was cut, or written again")
@settings(max_examples=12)
@given(st.lists(FILES, min_size=2, max_size=4))
def test_after_any_changes_the_numbers_are_those_of_a_new_folder(states: list[dict[str, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name), dict[str, list[int]]()
        for files in states:
            ds, elements = texts(folder, files), [number for _, numbers in sorted(files.items()) for number in numbers]
            try:
                found = updated(folder, ds)
            except PlanError:  # no file is as it was
                assert not files.items() & before.items()
                shutil.rmtree(folder / "out")
                found = updated(folder, ds)
            before = files
            assert values(found.columns["n"]) == [number * (number != 13) for number in elements]
            assert values(found.columns["large"]) == [number > 20 for number in elements]
            assert found.num_failed == elements.count(13)


def test_an_update_that_is_killed_at_any_file_is_completed_by_the_next_also_of_other_files(tmp_path: Path) -> None:
    for at in range(1, 10):  # run, chunk, three columns, files, record, and the chunks' folder that goes
        folder = tmp_path / str(at)
        folder.mkdir()
        updated(folder, texts(folder, BEFORE))
        ds = texts(folder, AFTER)
        assert exit_code_of(life_of_names, str(folder), at, partial(updated, folder, ds)) == (-9 if at < 9 else 0)
        for now in ((AFTER, {**AFTER, "e.txt": [33]})[at % 2], BEFORE):
            found = updated(folder, texts(folder, now))
            assert values(found.columns["n"]) == [number * (number != 13) for numbers in now.values() for number in numbers]
        assert not (folder / "out" / WORK).exists()


def drawn(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"text": str(rng.integers(9))}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ds: ds.map(drawn, seed=1), "is not known of map(drawn, seed=1)"),
        (lambda ds: ds.take(16), "is not known of take(16)"),
        (lambda ds: ps.from_source([{"text": f"{number}"} for number in range(len(ds))]), "is not known of from_source(list"),
    ],
)
def test_an_update_of_elements_that_are_of_no_one_file_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    updated(tmp_path, change(texts(tmp_path, BEFORE)))
    with pytest.raises(PlanError) as caught:
        updated(tmp_path, change(texts(tmp_path, AFTER)))
    assert words in caught.value.what


def test_an_update_without_functions_or_with_another_one_is_refused(tmp_path: Path) -> None:
    ds = texts(tmp_path, BEFORE)
    updated(tmp_path, ds)
    with pytest.raises(PlanError, match="no function is given"):
        ds.measure(tmp_path / "out", update=True)
    with pytest.raises(PlanError, match="measured with another function: number_in, now is_large"):
        updated(tmp_path, texts(tmp_path, AFTER), {"n": is_large})
