from __future__ import annotations

import pytest
from _workers import acting

from penstock._workers.child import Child

pytestmark = pytest.mark.usefixtures("fork_server")


def test_a_function_that_cannot_be_read_in_the_child_is_its_error() -> None:
    child = Child.start(acting.take, (acting.Vanishing(),), name="worker 0")
    with pytest.raises(LookupError, match="nothing here") as caught:
        child.receive()
    child.stop(10.0)
    assert "worker 0" in caught.value.__notes__[0]


def test_an_error_of_cleaning_up_after_the_stop_is_said_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child.start(acting.fail_at_cleanup, name="worker 0", method="fork")
    child.receive()
    child.stop(10.0)
    assert "RuntimeError: the disk is full" in capfd.readouterr().err
