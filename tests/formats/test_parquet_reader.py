from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from formats.tables import numbers, opened, write

from penstock._contracts.transform import Scratch
from penstock.errors import RecordError
from penstock.formats.arrow import columns_of
from penstock.formats.parquet import ParquetReader, _joined, read_footer


def reader_of(path: Path, columns: list[str] | None = None, coded: frozenset[int] = frozenset()) -> ParquetReader:
    storage = opened(path)
    footer = read_footer(storage, 0)
    return ParquetReader(storage, 0, footer, columns_of(footer.metadata.schema.to_arrow_schema(), columns, "a"), coded)


def test_spans_with_short_gaps_are_read_as_one() -> None:
    assert _joined([(200_000, 300_000), (4, 90), (90, 100), (70_000, 70_001), (65_636, 65_637)]) == [(4, 70_001), (200_000, 300_000)]


def test_columns_of_strings_with_a_dictionary_are_read_as_numbers(tmp_path: Path) -> None:
    table = pa.table({"word": ["a", "b"] * 50, "number": [1, 2] * 50})
    assert reader_of(write(tmp_path / "a.parquet", table)).layout(0).coded == {0}
    assert reader_of(write(tmp_path / "b.parquet", table, use_dictionary=False)).layout(0).coded == frozenset()
    reader = reader_of(tmp_path / "a.parquet", None, frozenset({0}))
    assert str(reader.table(0).schema.field("word").type).startswith("dictionary")


class Lying:
    """Metadata with one false number."""

    def __init__(self, true: Any, **false: Any) -> None:
        self._true, self._false = true, false

    def __getattr__(self, name: str) -> Any:
        return self._false[name] if name in self._false else getattr(self._true, name)


@pytest.mark.parametrize(
    "false", [{"data_page_offset": 0}, {"total_compressed_size": 10**9}, {"total_compressed_size": -1}, {"num_values": -1}]
)
def test_a_column_that_would_lie_outside_its_file_is_an_error(tmp_path: Path, false: dict[str, int]) -> None:
    reader = reader_of(write(tmp_path / "a.parquet", numbers(25)))
    true = reader.footer.metadata.row_group(1)
    lying = Lying(None, row_group=lambda group: Lying(true, column=lambda leaf: Lying(true.column(leaf), **false)))
    reader.footer = reader.footer._replace(metadata=lying)
    with pytest.raises(RecordError, match="the column 'number' of row group 1 would lie at") as caught:
        reader.layout(1)
    assert "row group 1" in caught.value.where


def test_nested_columns_beside_those_wanted_do_not_move_them(tmp_path: Path) -> None:
    nested = pa.array([{"a": 1, "b": {"c": [2], "d": "x"}}] * 30)
    pairs = pa.array([[("k", 1)]] * 30, pa.map_(pa.string(), pa.int32()))
    table = pa.table({"s": nested, "m": pairs, "deep": [[[1.0]]] * 30, "x": np.arange(30)})
    reader = reader_of(write(tmp_path / "a.parquet", table, group=30), ["x"])
    reader.fetch(reader.layout(0).spans, Scratch())
    assert reader.table(0).column("x").to_pylist() == list(range(30))
    assert reader.layout(0).num_bytes == 30 * 8
