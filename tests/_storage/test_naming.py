from __future__ import annotations

from penstock._storage.naming import shown


def test_names_are_quoted_escaped_and_cut() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown(b"\xff") == "'\\udcff'"
    assert len(shown("x" * 1000)) == 162
    assert shown("x" * 1000).endswith("...'")
