"""How a broken law is asserted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.testing import LawBroken


def assert_broken(call: Callable[[], Any], what: str, where: str, fix: str) -> LawBroken:
    with pytest.raises(LawBroken) as caught:
        call()
    broken: LawBroken = caught.value
    assert isinstance(broken, AssertionError)
    assert what in broken.what
    assert where in broken.where
    assert fix in broken.fix
    return broken
