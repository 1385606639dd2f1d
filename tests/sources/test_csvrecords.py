"""CSV files: text as Python's csv module reads it, numbers exactly or not at all."""

from __future__ import annotations

import csv
import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources.gathering import gathered

import penstock as ps
from penstock._contracts.source import ColumnSource
from penstock.errors import LengthMismatch, PlanError, RecordError
from penstock.sources.csvrecords import csv_source
from penstock.testing import check_source


def records_of(path: Path, text: str, **options: Any) -> Any:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return csv_source(path, **options)


def test_fields_are_text_by_the_names_of_the_header(tmp_path: Path) -> None:
    text = '\ufeffx,"the ""y""",z\r\n1, 2 ,\r\n\r\n"a,b","c\r\nd","é"'
    source = records_of(tmp_path / "a.csv", text)
    assert gathered(source) == [{"x": "1", 'the "y"': " 2 ", "z": ""}, {"x": "a,b", 'the "y"': "c\r\nd", "z": "é"}]
    assert [source.describe(index) for index in (0, 1)] == [f"line {n} of {str(tmp_path / 'a.csv')!r}" for n in (2, 4)]
    assert not isinstance(source, ColumnSource)


FIELDS = st.text(st.sampled_from('a1,"\n é\t'), max_size=6)


@given(st.lists(st.lists(FIELDS, min_size=3, max_size=3), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_what_pythons_csv_module_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str) -> None:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator=end)
    writer.writerow(["p", "q", "r"])
    writer.writerows(rows)
    source = records_of(tmp_path_factory.mktemp("csv") / "a.csv", file.getvalue())
    assert [list(row.values()) for row in gathered(source)] == rows


def test_declared_numbers_are_columns_of_a_batch(tmp_path: Path) -> None:
    text = "x,t,n,ok\n" + "".join(f"{k}.5,text,{k},{'true' if k % 2 else '0'}\n" for k in range(50))
    columns = {"n": np.int16, "x": np.float32, "ok": bool}
    source = records_of(tmp_path / "a.csv", text, columns=columns)
    assert isinstance(source, ColumnSource)
    check_source(source, again=lambda: csv_source(tmp_path / "a.csv", columns=columns))
    assert len(pickle.loads(pickle.dumps(source))) == 50
    batch = next(iter(ps.read_csv(tmp_path / "a.csv", columns=columns).batch(50)))
    assert {name: array.dtype for name, array in batch.items()} == {"n": np.int16, "x": np.float32, "ok": np.bool_}
    assert (batch["n"].tolist(), batch["ok"].tolist()) == (list(range(50)), [bool(k % 2) for k in range(50)])
    assert batch["x"].tolist() == [k + 0.5 for k in range(50)]
    with pytest.raises(LengthMismatch, match="there are 50 records, and indices from 50 to 50"):
        source.gather_columns(np.array([50]), None)


@pytest.mark.parametrize("kinds", [(np.float64, None), (None, float), (np.float64, np.float64), (np.float32, None), (None, None)])
def test_columns_in_the_order_of_the_file_are_what_they_are_declared_as(tmp_path: Path, kinds: tuple[Any, Any]) -> None:
    columns = dict(zip(("x", "y"), kinds, strict=True))
    (row,) = gathered(records_of(tmp_path / "a.csv", "x,y\n1,2\n", columns=columns))
    assert row == {name: value if kind is None else kind(value) for (name, kind), value in zip(columns.items(), "12", strict=True)}
    assert [isinstance(value, str) for value in row.values()] == [kind is None for kind in kinds]


def test_a_missing_text_has_its_default_in_the_order_of_the_file_too(tmp_path: Path) -> None:
    assert gathered(records_of(tmp_path / "a.csv", "x,y\n1,\n", missing={"y": "?"})) == [{"x": "1", "y": "?"}]


def test_files_without_a_header_get_names_and_other_delimiters_are_known(tmp_path: Path) -> None:
    source = records_of(
        tmp_path / "a.tsv", "1\t'a\tb'\n2\tc\n", names=["n", "t"], delimiter="\t", quote="'", columns={"t": str, "n": np.int64}
    )
    assert gathered(source) == [{"t": "a\tb", "n": 1}, {"t": "c", "n": 2}]


def test_several_files_need_one_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,y\n3,4\n")
    assert [row["y"] for row in gathered(csv_source(tmp_path / "*.csv"))] == ["2", "4"]
    (tmp_path / "b.csv").write_text("x,z\n3,4\n")
    with pytest.raises(RecordError, match=r"the header of .*b.csv' is 'x,z', and that of .*a.csv' is 'x,y'"):
        csv_source(tmp_path / "*.csv")


def test_an_empty_field_is_an_error_or_what_stands_for_it(tmp_path: Path) -> None:
    text = "x,n,t\n1,,\n,2,b\n"
    columns = {"x": np.float32, "n": np.int32, "t": None}
    source = records_of(tmp_path / "a.csv", text, columns=columns, missing={"x": float("nan"), "n": -1, "t": "?"})
    first, second = gathered(source)
    assert (first["n"], first["t"]) == (-1, "?")
    assert first["n"].dtype == np.int32
    assert np.isnan(second["x"])
    with pytest.raises(RecordError, match="column 'n' is empty, and is declared as int32") as caught:
        gathered(csv_source(tmp_path / "a.csv", columns=columns))
    assert caught.value.where == f"line 2 of {str(tmp_path / 'a.csv')!r}, offset 6"
    with pytest.raises(PlanError, match=r"missing=\{'t': None\} gives no value for empty fields"):
        csv_source(tmp_path / "a.csv", columns=columns, missing={"t": None})
    for value, why in ((1.5, "ragged lists"), ([1, 2], "a field holds one"), (2**31, "only ")):
        with pytest.raises(PlanError, match=rf"missing=\{{'n': {re.escape(str(value))}\}} is no int32: {why}"):
            csv_source(tmp_path / "a.csv", columns=columns, missing={"n": value})


WORDS = ["", "NA", "N/A", "#N/A", "NULL", "null", "None", "<NA>"]


@pytest.mark.parametrize("columns", [{"n": np.int32}, {"n": np.float32}, {"n": bool}, {"n": np.float32, "t": None}])
def test_words_that_mean_nothing_are_missing_numbers_and_texts_like_others(tmp_path: Path, columns: dict[str, Any]) -> None:
    text = "t,n\n" + "".join(f"{word},{word}\n" for word in [*WORDS, "1"])
    missing = {"n": True if columns["n"] is bool else 7}
    (tmp_path / "a.csv").write_text(text)
    source = csv_source(tmp_path / "a.csv", columns=columns, missing=missing)
    (batch,) = ps.read_csv(tmp_path / "a.csv", columns=columns, missing=missing).batch(9)
    assert batch["n"].tolist() == [row["n"] for row in gathered(source)] == [missing["n"]] * 8 + [1]
    if "t" in columns:
        assert batch["t"].tolist() == [*WORDS, "1"]
    with pytest.raises(RecordError, match="column 'n' is 'NA', which is no") as caught:
        gathered(records_of(tmp_path / "b.csv", "n\n1\nNA\n", columns={"n": columns["n"]}))
    assert caught.value.fix == "give missing={'n': value} for it"


def test_nan_is_a_float_and_no_integer_and_the_words_can_be_given(tmp_path: Path) -> None:
    text = "x,n,t\nnan,nan,-\nNA,-999,NA\n-999,1,-999\n"
    columns = {"x": np.float64, "n": np.int64, "t": None}
    missing = {"x": 0.5, "n": -1, "t": "?"}
    source = records_of(tmp_path / "a.csv", text.replace("-999", "2"), columns=columns, missing=missing)
    assert [list(row.values()) for row in gathered(source)][1:] == [[0.5, 2, "NA"], [2.0, 1, "2"]]
    assert gathered(source)[0]["n"] == -1
    assert np.isnan(gathered(source)[0]["x"])
    given = {"null_values": ["-999", "nan", "NA"], "missing": missing, "columns": columns}
    source = records_of(tmp_path / "b.csv", text, **given)
    assert [list(row.values()) for row in gathered(source)] == [[0.5, -1, "-"], [0.5, -1, "?"], [0.5, 1, "?"]]
    numbers = ps.read_csv(tmp_path / "b.csv", **(given | {"columns": {"x": float, "n": int}, "missing": {"x": 0.5, "n": -1}}))
    assert [batch["n"].tolist() for batch in numbers.batch(3)] == [[-1, -1, 1]]
    with pytest.raises(PlanError, match="null_values= says which fields are missing, and nothing says what stands for them"):
        ps.read_csv(tmp_path / "b.csv", null_values=["NA"])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "gb18030", "shift_jis"])
def test_records_of_other_encodings_are_text_numbers_and_names(tmp_path: Path, encoding: str) -> None:
    letter = {"latin-1": "é", "cp1251": "ж", "gb18030": "表", "shift_jis": "ソ"}[encoding]
    (tmp_path / "a.csv").write_bytes(f'{letter},x\n"{letter}, {letter}",1\n{letter},2\n'.encode(encoding))
    rows = gathered(csv_source(tmp_path / "a.csv", encoding=encoding))
    assert rows == [{letter: f"{letter}, {letter}", "x": "1"}, {letter: letter, "x": "2"}]
    (batch,) = ps.read_csv(tmp_path / "a.csv", columns={"x": np.int8}, encoding=encoding).batch(2)
    assert batch["x"].tolist() == [1, 2]
    with pytest.raises(RecordError, match="the header cannot be read: 'utf-8' codec"):
        csv_source(tmp_path / "a.csv")
    if encoding == "shift_jis":
        with pytest.raises(PlanError, match="encoding='shift_jis' is none in which lines and fields end with bytes of ASCII"):
            csv_source(tmp_path / "a.csv", encoding=encoding, delimiter="|")


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("1", "the record has 1 fields, not 2: '1'"),
        ("1,2,3", "the record has 3 fields, not 2"),
        ('1,"2"3', "the record cannot be split: ',' expected after"),
        ("1,2\r3", "the record cannot be split: CR stands outside quotes, and CR alone ends no line"),
        ("x,2", "column 'x' is 'x', which is no float32"),
        ("1_0,2", "column 'x' is '1_0', which is no float32"),
        ("1e39,2", "column 'x' is '1e39', which is no float32: it is too large"),
        ("1,2.0", "column 'n' is '2.0', which is no uint8"),
        ("1,256", "column 'n' is '256', which is no uint8: only 0 to 255 fit"),
        ("1,-1", "only 0 to 255 fit"),
        ("1,٣", "column 'n' is '٣', which is no uint8"),
        ("1,\udcff", "byte 2 of the line is 0xff, which is no UTF-8"),
    ],
)
def test_a_record_that_does_not_fit_names_file_line_column_and_text(tmp_path: Path, line: str, match: str) -> None:
    source = records_of(tmp_path / "a.csv", f"x,n\n0.5,1\n\n{line}\n2,2\n", columns={"x": np.float32, "n": np.uint8})
    rows: list[Any] = []
    with pytest.raises(RecordError, match=match) as caught:
        source.gather([0, 1, 2], rows)
    assert len(rows) == 1
    assert caught.value.where == f"line 4 of {str(tmp_path / 'a.csv')!r}, offset 11"
    with ps.read_csv(tmp_path / "a.csv", columns={"x": np.float32, "n": np.uint8}).batch(3).feed(on_error=ps.Skip(limit=1)) as feed:
        assert [batch["n"].tolist() for batch in feed] == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "the file has no header"),
        ("\n\r\n", "the file has no header"),
        ("x,y,x\n", "the header has 'x' twice"),
        ('x,"y\n1,2\n', "inside quotes"),
        ("x,y\r1,2\r3,4\r", "the header cannot be read: CR stands outside quotes, and CR alone ends no line"),
        ('x,"y"z\n1,2\n', "the header cannot be read: ',' expected after '\"'"),
        ("x,\udcff\n1,2\n", "the header cannot be read: 'utf-8' codec"),
    ],
)
def test_a_file_without_a_good_header_is_refused(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(RecordError, match=match):
        records_of(tmp_path / "a.csv", text)


@pytest.mark.parametrize(
    ("text", "fix"),
    [("x,y\r1,2\r", "end the lines with LF or CRLF"), ('x,"y"z\n', "double the quotes"), ("x,\udcff\n", "give encoding='latin-1'")],
)
def test_the_error_says_how_to_mend_the_file(tmp_path: Path, text: str, fix: str) -> None:
    for options in ({}, {"names": ["x", "y"]}):
        with pytest.raises(RecordError) as caught:
            gathered(records_of(tmp_path / "a.csv", text, **options))
        assert fix in caught.value.fix


@pytest.mark.parametrize("limit", [None, 3])
def test_a_field_may_be_as_long_as_a_line_whatever_others_set_for_the_csv_module(tmp_path: Path, limit: int | None) -> None:
    before = csv.field_size_limit(*([] if limit is None else [limit]))
    try:
        size = max(csv.field_size_limit() + 1, 30)
        head, text = "h" * size, 'a, "b"\r\n' * (size // 8 + 1)
        quoted = text.replace('"', '""')
        (row,) = gathered(records_of(tmp_path / "a.csv", f'x,"{head}"\n1,"{quoted}"\n'))
        assert row == {"x": "1", head: text}
        (batch,) = ps.read_csv(tmp_path / "a.csv", columns={"x": np.int64}).batch(1)
        assert batch["x"].tolist() == [1]
        with pytest.raises(RecordError, match="the record cannot be split: ',' expected after"):
            gathered(records_of(tmp_path / "b.csv", f'x,y\n1,"{quoted}"z\n'))
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"columns": []}, "columns=\\[\\] declares nothing"),
        ({"columns": "x"}, "columns='x' declares nothing"),
        ({"columns": ["z"]}, "there is no column 'z'"),
        ({"missing": {"z": 1}}, "there is no column 'z'"),
        ({"columns": {"x": "U3"}}, "'U3' is declared for 'x'"),
        ({"delimiter": ",,"}, "delimiter=',,' and quote="),
        ({"delimiter": '"'}, "delimiter="),
        ({"delimiter": "é"}, "delimiter="),
        ({"names": "xy"}, "names='xy' names no fields"),
        ({"names": ["x", "x"]}, "names no fields, or one twice"),
    ],
)
def test_arguments_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        records_of(tmp_path / "a.csv", "x,y\n1,2\n", **options)
