from __future__ import annotations

import gc

import pytest

from penstock.queues.stopping import attach_others, tell_when_dropped


def test_others_are_notes_but_not_the_error_itself_nor_its_cause() -> None:
    first, cause = ValueError("first"), ValueError("cause")
    first.__cause__ = cause
    assert attach_others(first, [first, cause, OSError("other")]) is first
    assert first.__notes__ == ["penstock: also failed: OSError: other"]


class Owner:
    """Something that can be dropped."""


def test_an_error_that_nobody_raised_is_told_when_its_owner_goes_and_not_when_it_was_raised() -> None:
    kept, raised = Owner(), Owner()
    tell_when_dropped(kept, "a thing", OSError("disk"), "raise it")
    tell_when_dropped(raised, "another thing", OSError("net"), "raise it").detach()
    with pytest.warns(RuntimeWarning) as caught:  # noqa: PT031
        del kept, raised
        gc.collect()
    assert [str(warning.message) for warning in caught] == [
        "a thing was dropped with an error that nobody has raised: OSError: disk; raise it"
    ]
