from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from penstock._engine.completion import Recorder, read_recording
from penstock._order.runs import Recording
from penstock.errors import StateDamaged, StateMismatch

PLAN = ["from_source", "batch(4)"]


def order(recording: Recording, length: int = 12) -> list[int]:
    out: list[int] = []
    recording.start(())
    while (run := recording.next(0, length)) != (length, length):
        recording.take(*run)
        out += range(*run)
    return out


def record(path: Path, *writes: list[tuple[int, int, int]], resumed: Any = None) -> None:
    recorder = Recorder(path, PLAN, resumed=resumed)
    for runs in writes:
        recorder.write(runs)
    recorder.close()
    recorder.close()


def test_what_is_recorded_is_read_and_the_rest_follows(tmp_path: Path) -> None:
    record(tmp_path / "order", [(0, 4, 6)], [], [(0, 0, 2), (0, 8, 9)])
    assert order(read_recording(tmp_path / "order", PLAN)) == [4, 5, 0, 1, 8, 2, 3, 6, 7, 9, 10, 11]
    assert (tmp_path / "order").read_text().splitlines()[1:] == ["[0, 4, 6]", "[0, 0, 2]", "[0, 8, 9]"]


def test_it_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "order", PLAN, resumed=None)
    recorder.write([(0, 4, 6)])
    assert order(read_recording(tmp_path / "order", PLAN))[:2] == [4, 5]
    recorder.close()


def test_a_new_run_replaces_the_file(tmp_path: Path) -> None:
    record(tmp_path / "order", [(0, 4, 6)])
    record(tmp_path / "order", [(0, 2, 3)])
    assert order(read_recording(tmp_path / "order", PLAN))[:3] == [2, 0, 1]


@pytest.mark.parametrize("left", [0, 1, 5, 9])
def test_a_last_line_that_was_cut_counts_as_not_written_and_a_resumed_run_goes_on_behind_the_whole_ones(tmp_path: Path, left: int) -> None:
    path = tmp_path / "order"
    record(path, [(0, 4, 6)] + [(0, 4, 5)] * 1000, [(0, 10, 12)])
    text = path.read_text()
    path.write_text(text[: len(text) - len("[0, 10, 12]\n") + left])
    assert order(read_recording(path, PLAN))[:4] == [4, 5, 0, 1]
    record(path, [(0, 9, 10)], resumed=(0, ((0, 0), (4, 6))))
    assert order(read_recording(path, PLAN))[:4] == [4, 5, 9, 0]


def test_what_was_recorded_but_not_delivered_when_the_run_stopped_comes_as_the_resumed_run_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "order"
    record(path, [(0, 4, 8), (0, 0, 4), (1, 0, 2)])
    record(path, [(0, 8, 12), (0, 1, 4)], resumed=(0, ((0, 1), (4, 8))))
    assert order(read_recording(path, PLAN)) == [4, 5, 6, 7, 0, 8, 9, 10, 11, 1, 2, 3]


def test_a_resumed_run_without_its_file_begins_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for name in ("gone", "empty"):
        record(tmp_path / name, [(0, 8, 9)], resumed=(0, ((0, 3),)))
        assert order(read_recording(tmp_path / name, PLAN))[:2] == [8, 0]


@pytest.mark.parametrize("text", ["", "x", "x\n", "[]\n", '{"penstock_order": 2, "plan": []}\n', '{"penstock_order": 1', "\x00\xff\n"])
def test_another_file_is_no_recording_for_reading_and_for_going_on(tmp_path: Path, text: str) -> None:
    path = tmp_path / "order"
    path.write_text(text, encoding="latin-1")
    ways = [lambda: read_recording(path, PLAN)] + ([lambda: Recorder(path, PLAN, resumed=(0, ()))] if text else [])
    for way in ways:
        with pytest.raises(StateDamaged) as refusal:
            way()
        assert refusal.value.what == f"{str(path)!r} is no recording of an order"
        assert refusal.value.where == f"line 1 of {str(path)!r}"
        assert refusal.value.fix == "give a file that record= wrote"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (["from_source", "batch(5)"], "it has 'batch(4)' where this one has 'batch(5)'"),
        (["from_source"], "it has 2 operators, this one 1"),
    ],
)
def test_a_recording_of_another_plan_names_the_first_difference(tmp_path: Path, plan: list[str], words: str) -> None:
    path = tmp_path / "order"
    record(path)
    with pytest.raises(StateMismatch) as refusal:
        read_recording(path, plan)
    assert refusal.value.what == f"the recording is of another plan: {words}"
    assert refusal.value.where == f"replay={str(path)!r}"
    assert refusal.value.fix == "replay with the pipeline that was recorded"
    with pytest.raises(StateMismatch) as refusal:
        Recorder(path, plan, resumed=(0, ()))
    assert refusal.value.where == f"record={str(path)!r}"
    assert refusal.value.fix == "give another file, or take this one away"
    assert order(read_recording(path, PLAN)) == list(range(12))


@pytest.mark.parametrize(
    "line",
    [
        "x", "7", "[0, 1]", "[0, 1, -2]", "[0, 1, true]", "[0, 1, 2, 3]", '["0", 1, 2]', "{}", '{"resumed": 3}', '{"resumed": [0]}',
        '{"resumed": [0, [[1]]]}', '{"resumed": [-1, []]}', '{"resumed": [0, 7]}', "",
    ],
)  # fmt: skip
def test_a_line_that_was_changed_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "order"
    record(path, [(0, 1, 2)])
    path.write_text(path.read_text() + line + "\n[0, 3, 4]\n")
    with pytest.raises(StateDamaged) as refusal:
        read_recording(path, PLAN)
    assert refusal.value.what == f"line 3 is {line!r}, not [pass, begin, end]"
    assert refusal.value.where == f"line 3 of {str(path)!r}"
    assert refusal.value.fix == "use another recording; this one was changed"


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_recording(tmp_path / "none", PLAN)
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "none" / "order", PLAN, resumed=None)


def test_an_endless_plan_can_be_replayed(tmp_path: Path) -> None:
    record(tmp_path / "order", [(0, 4, 6)])
    assert read_recording(tmp_path / "order", PLAN).next(0, math.inf) == (4, 6)
