from __future__ import annotations

import pytest
from programs import output_of

import penstock as ps


def test_all_names_are_there_and_no_others() -> None:
    for name in ps.queues.__all__:
        assert getattr(ps.queues, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'LIFOQueue'"):
        _ = ps.queues.LIFOQueue


def test_a_feed_loads_the_parking_and_not_the_runners() -> None:
    program = (
        "import sys, penstock.feed.feed\n"
        "assert 'penstock.queues.stopping' in sys.modules\n"
        "assert 'penstock.queues.runner' not in sys.modules\n"
        "import penstock\n"
        "assert penstock.queues.FIFOQueue(2).capacity == 2\n"
    )
    output_of("-W", "error", "-c", program)
