"""The law of columns: a value in a block is the value alone is the stored value, dtype included, whatever stands beside it."""

from __future__ import annotations

import decimal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, reject
from hypothesis import strategies as st

import penstock as ps
from penstock.formats.arrow import column_values, columns_of
from penstock.testing.runs import exact

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
MOMENTS = [*(pa.timestamp(unit) for unit in ("ms", "us", "ns")), pa.timestamp("us", "Europe/Berlin"), *map(pa.duration, ("s", "us", "ns"))]
TIMES = {pa.time32("ms"): 86_400 * 10**3, pa.time64("us"): 86_400 * 10**6, pa.time64("ns"): 86_400 * 10**9}
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
DIGITS = decimal.Context(prec=60)
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def leaf() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Return types, each with a strategy of its stored values: numbers for dates."""
    kinds = [
        *((kind, st.integers(int(np.iinfo(str(kind)).min), int(np.iinfo(str(kind)).max))) for kind in INTEGERS),
        (pa.dictionary(pa.int8(), pa.int64()), st.integers(0, 2) | st.just(2**53 + 1)),
        *((kind, st.floats(width=kind.bit_width).map(np.dtype(kind.to_pandas_dtype()).type)) for kind in FLOATS),
        *((kind, st.integers(-(2**63) + 1, 2**63 - 1)) for kind in MOMENTS),
        *((kind, st.integers(0, most - 1)) for kind, most in TIMES.items()),
        *((kind, st.text(st.sampled_from("aé\0日"), max_size=4)) for kind in TEXTS),
        *((kind, st.binary(max_size=3) | st.just(b"a\0\0")) for kind in BYTES),
        (pa.binary(2), st.binary(min_size=2, max_size=2)),
        (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
        (pa.bool_(), st.booleans()),
        (pa.null(), st.none()),
        (pa.decimal128(20, 3), st.integers(-(10**20) + 1, 10**20 - 1).map(lambda value: decimal.Decimal(value).scaleb(-3, DIGITS))),
        (pa.decimal256(50, 0), st.integers(-(10**50) + 1, 10**50 - 1).map(decimal.Decimal)),
    ]
    return st.sampled_from(kinds)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return types made of one or two others."""

    def made(pair: Any) -> Any:
        (one, of_one), (two, of_two) = pair
        one_or_null, two_or_null = st.none() | of_one, st.none() | of_two
        keys = st.integers(0, 5)
        return st.sampled_from(
            [
                (pa.list_(one), st.lists(one_or_null, max_size=3)),
                (pa.large_list(one), st.lists(of_one, max_size=3)),
                (pa.list_view(one), st.lists(one_or_null, max_size=3)),
                (pa.large_list_view(one), st.lists(of_one, max_size=3)),
                (pa.list_(one, 2), st.lists(one_or_null, min_size=2, max_size=2)),
                (pa.list_(one, 2), st.lists(of_one, min_size=2, max_size=2)),
                (pa.struct([("a", one), ("b.c", two)]), st.fixed_dictionaries({"a": one_or_null, "b.c": two_or_null})),
                (pa.map_(pa.int32(), two), st.lists(st.tuples(keys, two_or_null), max_size=3)),
            ]
        )

    return st.tuples(inner, inner).flatmap(made)


COLUMNS = st.recursive(leaf(), nested, max_leaves=4).flatmap(
    lambda kind: st.tuples(st.just(kind[0]), st.lists(st.none() | kind[1], min_size=1, max_size=12))
)


def stored(kind: Any, value: Any) -> Any:
    """Return what an element has for a stored value."""
    types = pa.types
    if value is None:
        return None
    if types.is_dictionary(kind):
        return stored(kind.value_type, value)
    if types.is_struct(kind):
        return {field.name: stored(field.type, value[field.name]) for field in kind}
    if types.is_map(kind):
        return [(np.int32(key), stored(kind.item_type, item)) for key, item in value]
    if types.is_nested(kind):
        return as_list(kind, [stored(kind.value_type, item) for item in value])
    dtype = dtype_of(kind)
    return value if dtype is None else np.array(value, dtype)[()]


def as_list(kind: Any, items: list[Any]) -> Any:
    sizes: list[int | None] = []
    while pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_map(kind):
        sizes.append(kind.list_size if pa.types.is_fixed_size_list(kind) else None)
        kind = kind.value_type.value_type if pa.types.is_dictionary(kind.value_type) else kind.value_type
    dtype = dtype_of(kind)
    if dtype is None or None in sizes[1:] or not all(isinstance(item, (np.ndarray, np.generic)) for item in items):
        return items
    return np.array(items, dtype).reshape(len(items), *sizes[1:])


def dtype_of(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return f"M8[{kind.unit}]"
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return f"m8[{kind.unit}]"
    if pa.types.is_date32(kind):
        return "M8[D]"
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if number else None


def holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(holds_null, value.values()))
    return any(map(holds_null, value)) if isinstance(value, (list, tuple)) else value is None


@given(COLUMNS, st.data())
def test_a_value_in_a_block_is_the_value_alone_is_the_stored_value(column: tuple[Any, list[Any]], data: st.DataObject) -> None:
    kind, values = column
    table = pa.table({"x": pa.array(values, kind), "row": np.arange(len(values))})
    (form,) = columns_of(table.schema, ["x"], "here")
    expected = [stored(kind, value) for value in values]
    cut = data.draw(st.integers(0, len(values)))
    pieces = pa.chunked_array([table["x"].chunk(0).slice(0, cut), table["x"].chunk(0).slice(cut)])
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)), np.int64)
    for array in (table["x"].chunk(0), pieces):
        decoded = column_values(array, form)
        assert exact(decoded.take(rows)) == exact([expected[row] for row in rows])
        assert all(exact(decoded.take(np.array([row]))) == exact([expected[row]]) for row in range(len(values)))
        has_null = [decoded.null_at(np.array([row])) is not None for row in range(len(values))]
        assert has_null == [holds_null(value) for value in values]
        assert decoded.has_nulls >= any(has_null)


def test_a_part_of_a_table_costs_no_more_than_its_own_lists() -> None:
    for kind, items in ((pa.string(), ["word"] * 3), (pa.bool_(), [True] * 3), (pa.struct({"a": pa.string()}), [{"a": "word"}] * 3)):
        for lists in (pa.list_(kind), pa.list_(kind, 3), pa.map_(pa.int32(), kind)):
            value = list(enumerate(items)) if pa.types.is_map(lists) else items
            few, many = (pa.array([value] * count, lists) for count in (2, 1000))
            (form,) = columns_of(pa.schema([("x", lists)]), None, "here")
            part = column_values(many.slice(500, 2), form)
            assert part.nbytes <= column_values(few, form).nbytes + 8
            assert exact(part.take(np.arange(2))) == exact(column_values(few, form).take(np.arange(2)))


@given(st.lists(COLUMNS, min_size=1, max_size=3), st.integers(1, 7), st.booleans(), st.sampled_from(["1.0", "2.0"]))
def test_what_a_file_holds_is_what_its_elements_are(columns: list[Any], group: int, coded: bool, version: str) -> None:
    count = min(len(values) for _, values in columns)
    table = pa.table({f"{place}": pa.array(values[:count], kind) for place, (kind, values) in enumerate(columns)})
    expected = [{f"{place}": stored(kind, values[row]) for place, (kind, values) in enumerate(columns)} for row in range(count)]
    whole = [row for row in range(count) if not any(holds_null(values[row]) for _, values in columns)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        try:
            pq.write_table(table, path, row_group_size=group, use_dictionary=coded, data_page_version=version)
        except pa.ArrowException:
            reject()  # what pyarrow itself does not write, such as views in structs
        ds = ps.read_parquet(path, nulls="none")
        assert exact([ds[row] for row in range(count)]) == exact(expected)
        with ds.feed(num_workers=0) as feed:
            assert exact(list(feed)) == exact(expected)
        if whole:
            with ps.read_parquet(path).feed(num_workers=0, on_error=ps.Skip()) as feed:
                assert exact(list(feed)) == exact([expected[row] for row in whole])
