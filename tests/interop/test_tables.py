"""Tables of other libraries: a value in a block is the value alone and the stored value, dtype included.

Frames, columns and Arrow tables in front of from_arrays; Hugging Face datasets of any format in front of from_source.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PlanError, RecordError
from penstock.sources.arrays import indexed_source
from penstock.testing.runs import exact, plain

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

BEYOND = 2**53 + 1
ROWS = [{"x": 1, "word": "a"}, {"x": 2, "word": "b"}, {"x": 3, "word": "c"}]
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 2},
    {"executor": "processes", "num_workers": 2},
)


def require_stored(ds: ps.Dataset, stored: Sequence[Any]) -> None:
    wanted = [exact(value) for value in stored]
    assert [exact(ds[index]) for index in range(len(ds))] == wanted
    for options in WAYS:
        with ds.feed(**options) as feed:
            assert [exact(element) for element in feed] == wanted, options


def dates(*numbers: int, unit: str) -> list[Any]:
    return list(np.array(numbers, f"M8[{unit}]"))


def arrays(dtype: str, *rows: Any) -> list[Any]:
    return [None if row is None else np.array(row, dtype) for row in rows]


COLUMNS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "int64": (pa.int64(), [BEYOND, -(2**63), 7], list(np.array([BEYOND, -(2**63), 7]))),
    "uint64": (pa.uint64(), [2**64 - 1, 0, 7], list(np.array([2**64 - 1, 0, 7], np.uint64))),
    "int8": (pa.int8(), [-128, 127, 0], list(np.array([-128, 127, 0], np.int8))),
    "float32": (pa.float32(), [0.1, float("nan"), -0.0], list(np.array([0.1, np.nan, -0.0], np.float32))),
    "float64": (pa.float64(), [0.1, float("nan"), 1e300], list(np.array([0.1, np.nan, 1e300]))),
    "bool": (pa.bool_(), [True, False, True], list(np.array([True, False, True]))),
    "string": (pa.string(), ["a\0", None, ""], ["a\0", None, ""]),
    "large string": (pa.large_string(), ["\0", "é", None], ["\0", "é", None]),
    "string view": (pa.string_view(), ["a\0", None, "more than twelve bytes"], ["a\0", None, "more than twelve bytes"]),
    "category": (pa.dictionary(pa.int8(), pa.string()), ["a\0", None, ""], ["a\0", None, ""]),
    "binary": (pa.binary(), [b"a\0\0", b"", None], [b"a\0\0", b"", None]),
    "binary of one size": (pa.binary(2), [b"a\0", b"\0\0", b"bc"], [b"a\0", b"\0\0", b"bc"]),
    "timestamp in s": (pa.timestamp("s"), [10**12, -(10**12), 0], dates(10**12, -(10**12), 0, unit="s")),
    "timestamp in ns": (pa.timestamp("ns"), [2**62 + 1, -(2**62), 0], dates(2**62 + 1, -(2**62), 0, unit="ns")),
    "timestamp of a zone": (pa.timestamp("us", "Asia/Tokyo"), [2**60, -(2**60), 0], dates(2**60, -(2**60), 0, unit="us")),
    "date": (pa.date32(), [2**31 - 1, -(2**31), 0], dates(2**31 - 1, -(2**31), 0, unit="D")),
    "duration": (pa.duration("ms"), [2**62, -1, 0], list(np.array([2**62, -1, 0], "m8[ms]"))),
    "time": (pa.time64("ns"), [2**46 + 1, 2, 3], list(np.array([2**46 + 1, 2, 3], "m8[ns]"))),
    "time in ms": (pa.time32("ms"), [1, 2, 3], list(np.array([1, 2, 3], "m8[ms]"))),
    "decimal": (pa.decimal128(20, 3), *[[Decimal("12345678901234567.123"), None, Decimal("0.000")]] * 2),
    "null": (pa.null(), [None, None, None], [None, None, None]),
    "list": (pa.list_(pa.int32()), [[2**31 - 1, 1], [], [5]], arrays("i4", [2**31 - 1, 1], [], [5])),
    "large list": (pa.large_list(pa.float32()), [[0.1], [], [1, 2]], arrays("f4", [0.1], [], [1, 2])),
    "list of one size": (pa.list_(pa.float64(), 2), [[0.1, BEYOND - 1], [3, 4], [1, 2]], arrays("f8", [0.1, BEYOND - 1], [3, 4], [1, 2])),
    "list of bools": (pa.list_(pa.bool_()), [[True], [], [False, True]], arrays("?", [True], [], [False, True])),
    "list of dates": (pa.list_(pa.timestamp("s")), [[10**12], [], [0, 1]], arrays("M8[s]", [10**12], [], [0, 1])),
    "list of strings": (pa.list_(pa.string()), [["a\0"], [None, ""], []], [["a\0"], [None, ""], []]),
    "lists of one length": (
        pa.list_(pa.list_(pa.int64())),
        [[[1, 2], [BEYOND, 4]], [], None],
        [arrays("i8", [1, 2], [BEYOND, 4]), [], None],
    ),
    "matrix": (pa.list_(pa.list_(pa.int8(), 2), 1), [[[1, 2]], [[3, 4]], [[5, 6]]], arrays("i1", [[1, 2]], [[3, 4]], [[5, 6]])),
    "lists of lists": (
        pa.list_(pa.list_(pa.int16())),
        [[[1], [2, 3]], [[1], None], [[4, 5]]],
        [arrays("i2", [1], [2, 3]), arrays("i2", [1], None), arrays("i2", [4, 5])],
    ),
    "struct": (
        pa.struct({"a": pa.int64(), "b": pa.string()}),
        [{"a": BEYOND, "b": "x\0"}, None, {"a": None, "b": None}],
        [{"a": np.int64(BEYOND), "b": "x\0"}, None, {"a": None, "b": None}],
    ),
    "list of structs": (
        pa.list_(pa.struct({"a": pa.float32(), "l": pa.list_(pa.int16())})),
        [[{"a": 0.5, "l": [1]}, {"a": 2, "l": None}], [], None],
        [[{"a": np.float32(0.5), "l": np.array([1], np.int16)}, {"a": np.float32(2), "l": None}], [], None],
    ),
    "map": (
        pa.map_(pa.string(), pa.int8()),
        [[("a", 1), ("b", None)], [], None],
        [[("a", np.int8(1)), ("b", None)], [], None],
    ),
}

OF_HUGGING_FACE = [name for name in COLUMNS if name != "map"]


@pytest.fixture(scope="module")
def datasets() -> Any:
    found = pytest.importorskip("datasets", reason="datasets is not installed")
    tqdm = pytest.importorskip("tqdm", reason="tqdm is not installed").tqdm
    found.disable_progress_bars()
    tqdm.monitor_interval = 0  # its thread and its semaphore outlive every test otherwise
    tqdm.get_lock()
    return found


def in_pieces(values: Any) -> Any:
    """Return the same in several pieces, each a part of something longer."""
    around = pa.concat_arrays([values, values, values])
    return pa.chunked_array([around.slice(3, 1), around.slice(0, 0), around.slice(4, 2)], values.type)


@pytest.mark.slow
def test_a_hugging_face_dataset_gives_what_is_stored_for_every_executor(datasets: Any) -> None:
    table = pa.table({name: in_pieces(pa.array(COLUMNS[name][1], COLUMNS[name][0])) for name in OF_HUGGING_FACE})
    rows = [{name: COLUMNS[name][2][row] for name in OF_HUGGING_FACE} for row in range(3)]
    require_stored(ps.from_source(datasets.Dataset(table).with_format("numpy")), rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_HUGGING_FACE)
def test_a_view_of_a_hugging_face_dataset_in_any_format_gives_what_is_stored(datasets: Any, name: str) -> None:
    kind, values, stored = COLUMNS[name]
    made = datasets.Dataset(pa.table({"value": in_pieces(pa.array(values, kind)), "number": pa.array([0, 1, 2])}))
    rows = [{"value": value, "number": np.int64(number)} for number, value in enumerate(stored)]
    for form in ("numpy", "arrow", "pandas", "polars"):
        assert exact(list(ps.from_source(made.with_format(form)))) == exact(rows)
    assert exact(list(ps.from_source(made.select([2, 0, 0]).with_format("numpy")))) == exact([rows[2], rows[0], rows[0]])
    both = datasets.concatenate_datasets([made, made.select([1])]).shuffle(seed=3).with_format("numpy")
    assert exact(list(ps.from_source(both))) == exact([rows[number] for number in both["number"]])
    only = ps.from_source(made.with_format("numpy", columns=["value"]))
    assert exact(list(only)) == exact([{"value": value} for value in stored])


@pytest.mark.slow
def test_a_format_of_torch_gives_tensors_of_the_stored_dtype(datasets: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    made = datasets.Dataset.from_dict({"x": [0.1, 0.2], "ids": [[BEYOND], [1, 2]], "word": ["a\0", None]}).with_format("torch")
    first, second = ps.from_source(made)
    assert (first["x"].dtype, second["ids"].dtype) == (torch.float64, torch.int64)
    assert (first["x"].item(), first["ids"].tolist(), second["ids"].tolist()) == (0.1, [BEYOND], [1, 2])
    assert [first["word"], second["word"]] == ["a\0", None]
    nested = datasets.Dataset.from_dict({"lists": [[[1], []], []], "tree": [{"a": 1, "b": ["x"]}, {"a": None, "b": []}]}).with_format(
        "torch"
    )
    first, second = ps.from_source(nested)
    assert ([part.tolist() for part in first["lists"]], second["lists"]) == ([[1], []], [])
    assert (first["tree"]["a"].dtype, first["tree"]["b"], second["tree"]) == (torch.int64, ["x"], {"a": None, "b": []})


@pytest.mark.slow
def test_a_null_number_is_an_error_of_its_row_in_a_format_of_numpy_and_none_without_a_format(datasets: Any) -> None:
    made = datasets.Dataset.from_dict({"id": [2**24 + 1, 2**24 + 3, None, 7]})
    ds = ps.from_source(made.with_format("numpy"))
    with pytest.raises(RecordError) as caught:
        ds[2]
    assert caught.value.what == "the column 'id' is null in row 2, or holds a null, and NumPy has no null number"
    assert "d.with_format(None)" in caught.value.fix
    for options in WAYS:
        with ds.feed(on_error=ps.Skip(), **options) as feed:
            assert exact(list(feed)) == exact([{"id": np.int64(number)} for number in (2**24 + 1, 2**24 + 3, 7)])
    assert list(ps.from_source(made)) == [{"id": number} for number in (2**24 + 1, 2**24 + 3, None, 7)]
    inner = datasets.Dataset.from_dict({"ids": [[1], [2, None]]}).with_format("numpy")
    with pytest.raises(RecordError, match="the column 'ids' is null in row 1"):
        list(ps.from_source(inner))


@pytest.mark.slow
def test_decoded_features_are_those_of_the_dataset_and_the_columns_beside_them_are_as_stored(datasets: Any) -> None:
    pytest.importorskip("PIL", reason="pillow is not installed")
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "x": datasets.Value("float64"),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "m": datasets.Array2D((2, 2), "float32"),
        }
    )
    made = datasets.Dataset.from_dict(
        {"image": [pixels] * 3, "x": [0.1] * 3, "label": [1, 0, 1], "m": [[[0.1, 2], [3, 4]]] * 3}, features=features
    )
    wanted = {"image": pixels, "x": np.float64(0.1), "label": np.int64(1), "m": np.array([[0.1, 2], [3, 4]], np.float32)}
    found = list(ps.from_source(made.with_format("numpy")))
    assert [exact(found[place]) for place in (0, 2)] == [exact(wanted)] * 2
    assert np.array_equal(np.asarray(ps.from_source(made)[1]["image"]), pixels)
    assert ps.from_source(made.with_format("arrow"))[1]["image"].size == (4, 4)
    assert ps.from_source(made.select_columns("image").with_format("numpy"))[0]["image"].shape == (4, 4, 3)


@pytest.mark.slow
def test_an_array_has_the_shape_of_its_feature_and_the_stored_numbers(datasets: Any) -> None:
    features = datasets.Features({"fixed": datasets.Array2D((2, 1), "float64"), "any": datasets.Array2D((None, 2), "int64")})
    rows = {"fixed": [[[0.1], [2]], [[1], [2]], [[1, 2], [3, 4]], None], "any": [[[BEYOND, 2]], [], [[1, 2], [3, 4]], [[1, 2]]]}
    made = datasets.Dataset.from_dict(rows, features=features)
    ds = ps.from_source(made.with_format("numpy"))
    wanted = [
        {"fixed": np.array([[0.1], [2]]), "any": np.array([[BEYOND, 2]])},
        {"fixed": np.array([[1.0], [2]]), "any": np.zeros((0, 2), np.int64)},
    ]
    assert exact([ds[0], ds[1]]) == exact(wanted)
    assert exact(list(ps.from_source(made.select([1, 0]).with_format("numpy")))) == exact(wanted[::-1])
    with pytest.raises(RecordError) as caught:
        ds[2]
    assert caught.value.what.startswith("the column 'fixed' holds an array that has another shape than its feature says: ")
    assert caught.value.where == "from_source(Dataset)"
    assert caught.value.fix.startswith("correct the shape of the feature, such as Array2D((2, 2), 'float32'), or ")
    with pytest.raises(RecordError, match="the column 'fixed' is null in row 3"):
        ds[3]


@pytest.mark.slow
def test_the_arguments_of_a_format_are_kept(datasets: Any) -> None:
    made = datasets.Dataset.from_dict({"x": [[0.1], [2.0, 3.0]]}).with_format("numpy", dtype=np.float16)
    assert exact(list(ps.from_source(made))) == exact([{"x": row} for row in arrays("f2", [0.1], [2, 3])])


@given(
    rows=st.lists(st.none() | st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=2), max_size=3), min_size=1, max_size=6),
    data=st.data(),
)
def test_nested_lists_are_the_same_in_a_block_and_alone(rows: list[Any], data: st.DataObject) -> None:
    found = pytest.importorskip("datasets", reason="datasets is not installed")
    values = pa.array([*rows, None], pa.list_(pa.list_(pa.int8())))
    source = indexed_source(found.Dataset(pa.table({"value": values})).with_format("numpy"))
    block = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
    together: list[Any] = []
    alone: list[Any] = []
    source.gather(block, together)
    for index in block:
        source.gather([index], alone)
    assert exact(together) == exact(alone)
    assert plain(together) == [{"value": rows[index]} for index in block]


# -- frames and columns -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["pandas", "polars"])
def frame(request: pytest.FixtureRequest) -> Any:
    package = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return package.DataFrame({"x": [1, 2, 3], "word": ["a", "b", "c"]})


def test_a_frame_is_refused_by_from_source_and_the_ways_that_the_words_name_read_its_rows(frame: Any) -> None:
    with pytest.raises(PlanError) as caught:
        ps.from_source(frame)
    assert caught.value.what == "a DataFrame has no elements numbered from 0"
    assert caught.value.fix.startswith("give from_arrays(df), or ")
    assert plain(list(ps.from_arrays(frame))) == ROWS
    assert plain(list(ps.from_source(pa.table(frame)))) == ROWS


def test_a_frame_gives_its_columns_each_with_its_dtype() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    values = {"id": [BEYOND, 1], "x": [0.5, float("nan")], "word": ["a\0", "b"]}
    rows: list[Any] = [
        {"id": np.int64(BEYOND), "x": np.float64(0.5), "word": "a\0"},
        {"id": np.int64(1), "x": np.float64("nan"), "word": "b"},
    ]
    for made in (pandas.DataFrame(values), polars.DataFrame(values), pa.table(values), pa.RecordBatch.from_pydict(values)):
        require_stored(ps.from_arrays(made), rows)


def test_a_frame_with_two_columns_of_one_name_is_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(PlanError) as caught:
        ps.from_arrays(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
    assert caught.value.what == "two columns have one name"
    assert caught.value.fix == "rename them: df.columns = [...]"


def pandas_columns() -> dict[str, tuple[Any, list[Any]]]:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    series, big = pandas.Series, list(np.array([BEYOND, 1]))
    ones = dates(1577836800000000, 0, unit="us")
    zone = pandas.to_datetime(["2020-01-01", "1970-01-01"]).tz_localize("UTC").tz_convert("Asia/Tokyo").as_unit("us")
    return {
        "int64": (series([BEYOND, 1]), big),
        "another index": (series([BEYOND, 1], index=[1, 0]), big),
        "Int64": (series([BEYOND, 1], dtype="Int64"), big),
        "object": (series([None, "a\0"], dtype=object), [None, "a\0"]),
        "string": (series(["a\0", "b"], dtype="string"), ["a\0", "b"]),
        "category of strings": (series(["x", "y"], dtype="category"), ["x", "y"]),
        "zone": (series(zone), ones),
        "Arrow strings": (series(["a\0", "b"], dtype=pandas.ArrowDtype(pa.string())), ["a\0", "b"]),
        "Arrow dates": (
            series([datetime.date(1970, 1, 6), datetime.date(1970, 1, 7)], dtype=pandas.ArrowDtype(pa.date32())),
            dates(5, 6, unit="D"),
        ),
        "index": (pandas.Index([BEYOND, 1]), big),
    }


def test_a_column_of_pandas_gives_its_values() -> None:
    for name, (column, stored) in pandas_columns().items():
        ds = ps.from_arrays({"value": column})
        assert exact(list(ds)) == exact([{"value": value} for value in stored]), name
        assert exact(ps.from_arrays(column)[1]) == exact(stored[1]), name


def test_a_column_of_polars_gives_its_values() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    for column, stored in (
        (polars.Series([BEYOND, 1]), list(np.array([BEYOND, 1]))),
        (polars.Series(["a\0", None]), ["a\0", None]),
        (polars.Series(["x", "y"], dtype=polars.Categorical), ["x", "y"]),
        (polars.Series([[1.5], [2, 3]]), arrays("f8", [1.5], [2, 3])),
        (polars.Series([[1, 2], [3, 4]], dtype=polars.Array(polars.Int8, 2)), arrays("i1", [1, 2], [3, 4])),
        (polars.Series([{"a": BEYOND}, {"a": 1}]), [{"a": np.int64(BEYOND)}, {"a": np.int64(1)}]),
        (polars.Series([2**46 + 1]).cast(polars.Time), list(np.array([2**46 + 1], "m8[ns]"))),
        (polars.Series(["1.5"]).cast(polars.Decimal(20, 3)), [Decimal("1.500")]),
    ):
        assert exact(list(ps.from_arrays(column))) == exact(stored)
    words = [f"word {number}" for number in range(5000)]  # more than are kept as Python strings
    frame = polars.DataFrame({"word": polars.Series(words, dtype=polars.Categorical)})
    assert exact(list(ps.from_arrays(frame))) == exact([{"word": word} for word in words])
    objects = polars.DataFrame({"x": polars.Series([object()])})
    for made in (objects, {"x": objects["x"]}):
        with pytest.raises(PlanError) as caught:
            ps.from_arrays(made)
        assert caught.value.what == "it holds objects of Python"
        assert caught.value.fix == "give them as a list to from_source"
    wide = polars.DataFrame({"x": polars.Series([1], dtype=polars.Int128)})
    for name, made in (("DataFrame", wide), ("Series", wide["x"])):
        with pytest.raises(PlanError, match=f"a {name} cannot be read as it is: "):
            ps.from_arrays(made)


@pytest.mark.parametrize("name", COLUMNS)
def test_an_arrow_array_gives_its_values(name: str) -> None:
    kind, values, stored = COLUMNS[name]
    column = pa.array(values, kind)
    for leaf in (column, in_pieces(column), column.dictionary_encode() if name in ("int64", "string") else column):
        ds = ps.from_arrays({"value": leaf, "tree": (leaf, [leaf])})
        assert exact(list(ds)) == exact([{"value": value, "tree": (value, [value])} for value in stored])


def test_a_null_number_in_a_column_is_a_plan_error_that_names_its_row() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    for column in (
        pandas.Series([BEYOND, None], dtype="Int64"),
        pandas.Series([BEYOND, None], dtype="int64[pyarrow]"),
        polars.Series([BEYOND, None]),
        pa.array([BEYOND, None]),
        pa.chunked_array([[BEYOND], [None]]),
        pa.array([[1], [2, None]]),
    ):
        with pytest.raises(PlanError) as caught:
            ps.from_arrays({"id": column})
        assert caught.value.what == "row 1 is null, or holds a null, and NumPy has no null number"
        assert caught.value.where == "from_arrays, leaf ['id']"
        assert caught.value.fix == "fill it, leave such rows out, or give the values and a column that says which are null"


def test_a_column_that_arrow_would_change_is_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(PlanError, match="it holds objects of Python"):
        ps.from_arrays({"x": pandas.Series(pandas.period_range("2020", periods=2, freq="M"))})
    with pytest.raises(PlanError) as caught:
        ps.from_arrays({"x": pandas.Series(pandas.arrays.SparseArray([1, 0]))})
    assert caught.value.what.startswith("a Series cannot be read as it is: ")
    assert caught.value.fix == "give an array of NumPy, or a list to from_source"
    with pytest.raises(PlanError, match="is of the type month_day_nano_interval, which has no conversion to arrays and Python objects"):
        ps.from_arrays({"x": pa.array([pa.MonthDayNano([1, 2, 3])])})
