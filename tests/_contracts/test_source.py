from __future__ import annotations

from penstock._contracts.source import RowFailed


def test_a_failed_row_has_its_number_and_what_is_raised_for_it() -> None:
    error = OSError("gone")
    failed = RowFailed(3, error)
    assert (failed.row, failed.error) == (3, error)
