from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock._contracts.event import ElementLost, Notice
from penstock.errors import SourceError
from penstock.formats.quarantine import QuarantinedLine, encoded, keep, read_lines


def event(index: int, text: str = "broken", file: Path | None = None) -> ElementLost:
    error = ValueError(text)
    error.add_note("a note")
    return ElementLost(0, "skipped", "decode", 1, f"line {index}", ((0, index, 0),), (0, index), error, 2, file)


def test_a_line_is_json_and_says_everything() -> None:
    record = json.loads(encoded(event(7, 'two\nlines "quoted" \ud800')))
    assert record == {
        "action": "skipped",
        "keys": [[0, 7, 0]],
        "place": [0, 7],
        "where": "line 7",
        "stage": "decode",
        "error": "ValueError",
        "text": 'two\nlines "quoted" \ud800',
        "notes": ["a note"],
        "retries": 2,
        "traceback": 'ValueError: two\nlines "quoted" \ud800\na note\n',
    }
    assert "\n" not in encoded(event(7, "two\nlines"))


def test_lines_are_appended_and_read_back_and_other_events_write_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    for other in (Notice(0, "kind", "text"), event(3)):
        keep(other)
    assert list(tmp_path.iterdir()) == []
    for index in (4, 9):
        keep(event(index, file=file))
    assert read_lines(file) == [QuarantinedLine(1, ((0, 4, 0),), (0, 4)), QuarantinedLine(2, ((0, 9, 0),), (0, 9))]


def test_a_file_that_cannot_be_written_says_which(tmp_path: Path) -> None:
    with pytest.raises(OSError) as failed:
        keep(event(1, file=tmp_path / "gone" / "bad.jsonl"))
    assert str(tmp_path) in str(failed.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"x"',
        "[]",
        "3",
        "{}",
        '{"keys": 1, "place": null}',
        '{"keys": [[0, 1]], "place": null}',
        '{"keys": [], "place": [0, -1]}',
        "\ufeff{}",
    ],
)
def test_a_line_that_is_none_is_named_by_its_number(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(encoded(event(1)) + "\n\n" + text, encoding="utf-8")
    with pytest.raises(SourceError) as refused:
        read_lines(file)
    assert refused.value.what == "line 3 is not a line of a quarantine file"
    assert f"line 3 of {str(file)!r}" in refused.value.where
    assert "take this line out" in refused.value.fix


def test_a_line_that_a_kill_has_cut_stands_alone_and_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    whole = encoded(event(1))
    for length in (1, 5, 40, len(whole) - 1):
        file.write_text(whole + "\n" + whole[:length], encoding="utf-8")
        keep(event(2, file=file))
        assert [line.number for line in read_lines(file)] == [1, 3]
        assert file.read_text(encoding="utf-8").splitlines()[1] == whole[:length]
