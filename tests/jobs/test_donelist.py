from __future__ import annotations

import json
import pickle
import resource
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError, PlanError, StateDamaged, StateMismatch
from penstock.jobs.donelist import NOT_KEPT, DoneList, as_json, from_json
from penstock.testing.runs import same

JOBS = ["a", "b", "c", ("d", 4)]
CARRIED = "values (defaults, closure, arguments of a partial, self, attributes)"


@contextmanager
def opened(path: Path, function: str = "m.f", jobs: Any = JOBS, **told_by: str) -> Iterator[DoneList]:
    notes = DoneList(str(path), function, jobs, {"source": "12ab"} | told_by)
    try:
        yield notes
    finally:
        notes.close()
        notes.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a done-list with three lines: jobs 2, 0 and 1."""
    path = tmp_path / "done.jsonl"
    with opened(path) as notes:
        assert notes.done == {}
        notes.add(2, {"size": (1, 2)})
        notes.add(0, None)
        notes.add(1, object())
    return path


RESULTS = {2: {"size": (1, 2)}, 0: None, 1: NOT_KEPT}


def test_what_was_noted_is_read_again_and_what_follows_is_added(path: Path) -> None:
    with opened(path) as notes:
        assert notes.done == RESULTS
        notes.add(3, np.float32(1.5))
    with opened(path) as notes:
        assert notes.done == {**RESULTS, 3: np.float32(1.5)}
        assert type(notes.done[3]) is np.float32


def test_each_line_is_json_with_index_and_result(path: Path) -> None:
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {key: head[key] for key in ("penstock_jobs", "function", "count")} == {"penstock_jobs": 2, "function": "m.f", "count": 4}
    assert [(line["index"], "result" in line) for line in lines] == [(2, True), (0, True), (1, False)]


def test_a_large_result_is_noted_as_done_and_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "done") as notes:
        notes.add(0, "x" * 17_000)
        notes.add(1, "x" * 16_000)
    with opened(tmp_path / "done") as notes:
        assert notes.done == {0: NOT_KEPT, 1: "x" * 16_000}
    assert (tmp_path / "done").stat().st_size < 20_000


def test_the_mark_of_a_result_that_was_not_kept_is_one_object() -> None:
    assert pickle.loads(pickle.dumps(NOT_KEPT)) is NOT_KEPT
    assert repr(NOT_KEPT) == "NOT_KEPT"


def test_a_cut_last_line_is_dropped_wherever_it_is_cut(path: Path) -> None:
    data = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data)):
        path.write_bytes(data[:size])
        num_whole = max(0, sum(end <= size for end in ends) - 1)
        with opened(path) as notes:
            assert notes.done == dict(list(RESULTS.items())[:num_whole])
            notes.add(3, size)
        with opened(path) as notes:
            assert notes.done == {**dict(list(RESULTS.items())[:num_whole]), 3: size}


@pytest.mark.parametrize("tail", [b"\n", b"\0\0\0\0\n", b"{}\n", b"null\n", b"[1]\n", b'{"index": 3}\n', b"{\n", b'{"crc32": 1}\n'])
def test_a_last_line_that_means_nothing_is_dropped(path: Path, tail: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data + tail)
    with opened(path) as notes:
        assert notes.done == RESULTS
    assert path.read_bytes() == data


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(path: Path) -> None:
    data = path.read_bytes()
    second = data.index(b"\n") + 1
    for place in range(second, data.index(b"\n", second) + 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(StateDamaged) as caught, opened(path):
            pass
        assert caught.value.what.startswith("line 2 of ")
        assert caught.value.where == f"done-list '{path}'"
        assert "take the line out" in caught.value.fix


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"jobs": [*JOBS, "e"]}, "the done-list is of another number of jobs: 4, and now it is 5"),
        ({"jobs": ["a", "c", "b", JOBS[3]]}, "the done-list is of another job list, also of 4 jobs"),
        ({"function": "m.g"}, "the done-list is of another function: 'm.f', and now it is 'm.g'"),
        ({"source": "34cd"}, f"the done-list is of 'm.f' with another source text or other {CARRIED}"),
        ({"version": "3"}, "the done-list is of another version: None, and now it is '3'"),
    ],
)
def test_a_list_of_other_jobs_is_refused_and_left_alone(path: Path, changes: Any, words: str) -> None:
    data = path.read_bytes()
    with pytest.raises(StateMismatch) as caught, opened(path, **changes):
        pass
    assert caught.value.what == words
    assert "another file to begin anew" in caught.value.fix
    assert path.read_bytes() == data


def test_a_list_of_an_earlier_version_is_refused_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "done"
    path.write_text('{"penstock_jobs": 1, "function": "m.f", "count": 4, "jobs": "0123456789abcdef", "carries": "0123456789abcdef"}\n')
    data = path.read_bytes()
    with pytest.raises(StateMismatch) as caught, opened(path):
        pass
    assert caught.value.what == (
        "another version of Penstock wrote this done-list, in form 1: it tells functions and jobs in another way than form 2, so nothing "
        "can be compared"
    )
    assert caught.value.fix == "finish it with that version, or give another file to begin anew"
    assert path.read_bytes() == data


@pytest.mark.parametrize("data", [b"a.jpg 1\nb.jpg 2\n", b"{}\n", b"\n", b"\0" * 10, b'{"penstock_jobs": 3}\n', b"[]"])
def test_a_file_that_is_no_done_list_is_refused_and_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(data)
    with pytest.raises(StateMismatch) as caught, opened(path):
        pass
    assert "no done-list" in caught.value.what or "in form 3" in caught.value.what
    assert path.read_bytes() == data


def test_two_runs_do_not_write_one_list(path: Path) -> None:
    with opened(path) as notes:
        with pytest.raises(PlanError) as caught, opened(path):
            pass
        assert caught.value.what == "another run is writing this done-list"
        notes.add(3, None)
    with opened(path) as notes:
        assert len(notes.done) == 4


def test_a_list_that_cannot_be_opened_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), opened(tmp_path / "no" / "done"):
        pass
    with opened(tmp_path / "done") as notes:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
        try:
            with pytest.raises(OSError) as caught:
                notes.add(0, "x" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.__notes__ == [f"penstock: writing the done-list '{tmp_path / 'done'}'"]
        assert not isinstance(caught.value, PenstockError)
        notes.add(1, "behind a line that is cut")
    with opened(tmp_path / "done") as notes:
        assert notes.done == {}
        notes.add(1, "again")
    with opened(tmp_path / "done") as notes:
        assert notes.done == {1: "again"}


Point = namedtuple("Point", ["x"])

ARRAYS = st.builds(
    lambda values, dtype: np.array(values).astype(dtype),
    st.lists(st.integers(0, 100), max_size=4) | st.integers(0, 100),
    st.sampled_from(["<f4", ">f8", "u1", "?", "<i8", "<c8"]),
)
SCALARS = st.builds(np.float32, st.floats(width=32)) | st.builds(np.int8, st.integers(-128, 127)) | st.builds(np.bool_, st.booleans())
ANY_RESULT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3) | ARRAYS | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(ANY_RESULT)
def test_a_result_comes_back_as_it_was_to_the_type(result: Any) -> None:
    assert same(from_json(json.loads(json.dumps(as_json(result)))), result)


@pytest.mark.parametrize(
    "result",
    [object(), {1, 2}, Point(1), OrderedDict(a=1), [1, {"a": {3}}], np.array([None]), np.array(["a"]), {(1, Point(2)): 3}, len, 1j],
    ids=["object", "set", "tuple with names", "ordered dict", "nested set", "objects", "strings", "key", "function", "complex"],
)
def test_what_would_come_back_as_something_else_has_no_form(result: Any) -> None:
    with pytest.raises(ValueError):
        as_json(result)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"tuple": [], "dict": []},
        {"set": []},
        {"tuple": 3},
        {"dict": [[1]]},
        {"bytes": "?"},
        {"array": ["<f4", [2], "AAAA"]},
        {"scalar": []},
    ],
    ids=str,
)
def test_what_is_no_form_is_an_error(form: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json(form)
