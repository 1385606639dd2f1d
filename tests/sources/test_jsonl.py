"""JSON lines: values as they are, declared fields as arrays, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.gathering import gathered

import penstock as ps
from penstock.errors import PlanError, RecordError
from penstock.sources.text import JsonLines, jsonl_source
from penstock.testing import check_source


def lines_of(path: Path, text: str | bytes, **options: Any) -> Any:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return jsonl_source(path, **options)


def refused(path: Path, line: str | bytes, match: str, **options: Any) -> RecordError:
    """Read a file whose fourth line is wrong."""
    data = line if isinstance(line, bytes) else line.encode()
    source = lines_of(path, b'{"a": 1}\n\n{"a": 2}\n' + data + b"\n", **options)
    rows: list[Any] = []
    with pytest.raises(RecordError, match=match) as caught:
        source.gather([0, 1, 2], rows)
    assert len(rows) == 2
    assert caught.value.where == f"line 4 of {str(path)!r}, offset 19"
    return caught.value


def test_each_line_is_a_value_with_pythons_numbers(tmp_path: Path) -> None:
    text = '\ufeff{"a": 1, "b": [1.5, null, "é"]}\r\n\n \t\n[true]\n"text"\n12345678901234567890\n{}'
    source = lines_of(tmp_path / "a.jsonl", text)
    assert gathered(source) == [{"a": 1, "b": [1.5, None, "é"]}, [True], "text", 12345678901234567890, {}]
    assert source.describe(1) == f"line 4 of {str(tmp_path / 'a.jsonl')!r}"


def test_the_laws_of_a_source_hold(tmp_path: Path) -> None:
    text = "".join(f'{{"id": {n}, "v": [{n}.5, 2]}}\n' for n in range(40))
    source = lines_of(tmp_path / "a.jsonl", text, fields={"id": np.int32, "v": np.float32})
    check_source(source, again=lambda: jsonl_source(tmp_path / "a.jsonl", fields={"id": np.int32, "v": np.float32}))
    assert len(pickle.loads(pickle.dumps(source))) == 40


def test_declared_fields_become_arrays_and_the_others_are_left_out(tmp_path: Path) -> None:
    text = '{"id": 7, "v": [[1, 2], [3, 4.5]], "more": 1, "ok": true, "t": "x"}\n'
    fields = {"v": np.float32, "id": np.uint8, "ok": bool, "t": None}
    (element,) = gathered(lines_of(tmp_path / "a.jsonl", text, fields=fields))
    assert list(element) == ["v", "id", "ok", "t"]
    assert element["v"].dtype == np.float32
    assert element["v"].tolist() == [[1, 2], [3, 4.5]]
    assert isinstance(element["id"], np.uint8)
    assert isinstance(element["ok"], np.bool_)
    assert element["t"] == "x"
    (batch,) = ps.read_jsonl(tmp_path / "a.jsonl", fields={"v": np.float32, "id": np.int64}).batch(1)
    assert (batch["v"].shape, batch["id"].tolist()) == ((1, 2, 2), [7])
    assert gathered(jsonl_source(tmp_path / "a.jsonl", fields=["t", "id"])) == [{"t": "x", "id": 7}]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"a": 1', "the line is no JSON: Expecting ',' delimiter at character 7"),
        ("{'a': 1}", "the line is no JSON: Expecting property name"),
        ('{"a": 1} {"a": 2}', "the line is no JSON: Extra data at character 9"),
        ("nan", "the line is no JSON: Expecting value"),
        ('{"a": NaN}', "NaN is no JSON"),
        ("[-Infinity]", "-Infinity is no JSON"),
        ('{"x": {"a": 1, "b": 2, "a": 3}}', "the key 'a' stands twice in one object"),
        ('{"a": "\udcff"}'.encode("utf-8", "surrogateescape"), "byte 7 of the line is 0xff, which is no UTF-8"),
        ("[" * 100_000, "the line is nested too deep"),
        ('{"a":' * 100_000, "the line is nested too deep"),
        ("9" * 5000, "Exceeds the limit"),
    ],
)
def test_what_is_no_json_is_an_error_with_file_and_line(tmp_path: Path, line: str | bytes, match: str) -> None:
    refused(tmp_path / "a.jsonl", line, match)


@pytest.mark.parametrize(
    ("line", "dtype", "match"),
    [
        ('{"b": 1}', np.int64, "there is no field 'a'; there are 'b'"),
        ("[1]", np.int64, "the line is of type list, not an object with fields"),
        ("null", np.int64, "the line is null, not an object with fields"),
        ('{"a": null}', np.int64, "field 'a' is null, which is no int64"),
        ('{"a": "7"}', np.int64, "field 'a' is \"7\", which is no int64"),
        ('{"a": 1.5}', np.int64, "field 'a' is 1.5, which is no int64"),
        ('{"a": true}', np.int64, "field 'a' is true, which is no int64"),
        ('{"a": 1}', bool, "field 'a' is 1, which is no bool"),
        ('{"a": 300}', np.uint8, "only 0 to 255 fit"),
        ('{"a": 1e39}', np.float32, "field 'a' is 1e.39, which is no float32: the number is too large"),
        ('{"a": [[1], [2, 3]]}', np.float32, "which is no float32: "),
        ('{"a": {"b": 1}}', np.float32, "which is no float32"),
        (f'{{"a": {"9" * 100}}}', np.int64, "which is no int64: only -9223372036854775808 to 9223372036854775807 fit"),
        (f'{{"a": [1, {2**64}]}}', np.uint64, f"which is no uint64: only 0 to {2**64 - 1} fit"),
    ],
)
def test_a_field_that_does_not_fit_is_never_bent(tmp_path: Path, line: str, dtype: Any, match: str) -> None:
    good = {bool: "true"}.get(dtype, "1")
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": {good}}}\n{line}\n')
    source = jsonl_source(path, fields={"a": dtype})
    rows: list[Any] = []
    with pytest.raises(RecordError, match=match) as caught:
        source.gather([0, 1], rows)
    assert len(rows) == 1
    assert caught.value.where.startswith("line 2 of ")


def test_formats_of_other_fields_are_never_taken_for_equal() -> None:
    assert JsonLines((("a", None),)) != JsonLines((("a", np.dtype(np.float64)),))  # to NumPy None is float64


def test_what_pythons_json_writes_of_nan_is_taken_when_asked_for(tmp_path: Path) -> None:
    source = lines_of(tmp_path / "a.jsonl", '{"a": [NaN, -Infinity, 1]}\n', allow_nan=True, fields={"a": np.float32})
    np.testing.assert_array_equal(gathered(source)[0]["a"], np.array([np.nan, -np.inf, 1], np.float32))
    assert gathered(lines_of(tmp_path / "b.jsonl", "1e400\n", allow_nan=True)) == [float("inf")]


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("{", "one value over many lines"),
        ("[", "one array over many lines"),
        ('[{"a": 1},', "one array over many lines"),
        ('{"a": NaN}', "allow_nan=True"),
    ],
)
def test_the_error_says_how_to_mend_what_many_files_have(tmp_path: Path, line: str, fix: str) -> None:
    assert fix in refused(tmp_path / "a.jsonl", line, "no JSON").fix


def test_a_number_beyond_the_floats_is_not_made_infinite(tmp_path: Path) -> None:
    error = refused(tmp_path / "a.jsonl", '{"a": [1, -1e400]}', "-1e400 is too large for a float")
    assert "allow_nan=True" in error.fix


@pytest.mark.parametrize("fields", ["text", [], {}, [1], ["a", "a"], 3])
def test_fields_that_declare_nothing_are_refused(tmp_path: Path, fields: Any) -> None:
    with pytest.raises(PlanError, match="declares nothing"):
        lines_of(tmp_path / "a.jsonl", "{}\n", fields=fields)


def test_a_dtype_that_is_none_is_refused(tmp_path: Path) -> None:
    for dtype in ("U3", object, "nonsense", ">f4"):
        with pytest.raises(PlanError, match="is declared for 'a'"):
            lines_of(tmp_path / "a.jsonl", "{}\n", fields={"a": dtype})
