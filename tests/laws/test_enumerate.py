from __future__ import annotations

from typing import Any

import pytest

import penstock as ps


@pytest.mark.parametrize(
    "options", [{"executor": "inline"}, {"executor": "threads", "num_workers": 1}, {"executor": "threads", "num_workers": 3}], ids=str
)
@pytest.mark.parametrize("bad", [(), (1,), (0, 9)], ids=str)
def test_batches_keep_their_numbers_beside_skip(bad: tuple[int, ...], options: dict[str, Any]) -> None:
    def check(value: int) -> int:
        if value in bad:
            raise ValueError(f"cannot use {value}")
        return value

    with ps.from_source(range(10)).map(check).batch(3).enumerate().feed(on_error=ps.Skip(), **options) as feed:
        found = [(number, batch.tolist()) for number, batch in feed]
    batches = [[value for value in range(start, min(start + 3, 10)) if value not in bad] for start in range(0, 10, 3)]
    assert found == [(number, batch) for number, batch in enumerate(batches) if batch]
