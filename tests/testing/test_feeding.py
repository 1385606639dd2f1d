from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from testing.breaking import assert_broken

from penstock.sources import ArraySource, GeneratorSource, IndexableSource
from penstock.testing import FailingSource
from penstock.testing.source import check_feeds


def test_sources_of_all_kinds_feed_alike() -> None:
    check_feeds(IndexableSource(range(20)), lambda: range(20), 15, False)
    check_feeds(ArraySource({"x": np.arange(20)}), None, 15, False)
    check_feeds(GeneratorSource(lambda: iter(range(20)), fast_forward=True), None, 15, False)
    check_feeds(GeneratorSource(lambda: iter(range(20))), None, 15, False)


class ThreadBound(IndexableSource):
    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        rows.extend([threading.current_thread() is threading.main_thread()] * len(indices))


def test_a_source_that_looks_at_its_thread_is_named() -> None:
    assert_broken(
        lambda: check_feeds(ThreadBound([1]), None, 5, False),
        "depend on how the feed runs: element 0 is False, not True",
        "num_workers",
        "whichever thread",
    )


def test_a_source_that_fails_is_named_unless_that_is_known() -> None:
    source = FailingSource(range(5), 3, OSError)
    assert_broken(lambda: check_feeds(source, None, 5, False), "a feed failed: OSError", "check_source", "mend the source")
    check_feeds(source, None, 5, True)


class FailsInThreads(IndexableSource):
    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        raise (KeyError if threading.current_thread() is threading.main_thread() else OSError)("gone")


def test_another_error_in_threads_is_named() -> None:
    assert_broken(
        lambda: check_feeds(FailsInThreads([1]), None, 5, True), "OSError: gone came instead of KeyError", "num_workers", "whichever thread"
    )


class WorksInMain(IndexableSource):
    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise OSError("gone")
        super().gather(indices, rows)


def test_an_error_in_threads_alone_is_named_rather_than_the_elements_that_it_cost() -> None:
    assert_broken(
        lambda: check_feeds(WorksInMain([1, 2]), None, 5, True), "OSError: gone came instead of no error", "num_workers", "whichever"
    )


class Alike(IndexableSource):
    def fingerprint(self) -> dict[str, Any]:
        return {}


def test_a_source_made_again_with_other_elements_is_named() -> None:
    assert_broken(
        lambda: check_feeds(Alike([1, 2, 3]), lambda: Alike([1, 2, 4]), 5, False),
        "element 2 is 4, not 3",
        "resumed behind element 0",
        "depend on its index",
    )


class OtherColumns(ArraySource):
    def gather_columns(self, indices: Any, out: Any) -> Any:
        columns = super().gather_columns(indices, out)
        columns[0][...] += 1
        return columns


def test_columns_that_batch_otherwise_than_rows_are_named() -> None:
    assert_broken(
        lambda: check_feeds(OtherColumns(np.arange(9)), None, 9, False),
        "element 0 is array([0, 1, 2]), not array([1, 2, 3])",
        "row by row",
        "",
    )


class NoState(GeneratorSource):
    asked = 0

    def can_fast_forward(self) -> bool:
        self.asked += 1
        return self.asked > 1


def test_a_stream_that_has_a_state_only_now_and_then_is_named() -> None:
    assert_broken(
        lambda: check_feeds(NoState(lambda: iter(range(3))), None, 5, False), "a state could not be saved", "check_source", "see the cause"
    )
