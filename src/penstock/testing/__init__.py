"""Laws for classes of yours: call one of these in a test of any framework; it raises LawBroken, an AssertionError, with what to mend.

Import it by name (`import penstock.testing`): `import penstock` leaves it out. Needs no test framework.
"""

from __future__ import annotations

from penstock.errors import LawBroken
from penstock.testing.leaks import check_no_leaks
from penstock.testing.operator import check_operator
from penstock.testing.source import check_source

__all__ = ["LawBroken", "check_no_leaks", "check_operator", "check_source"]
