"""`python -m penstock`."""

from __future__ import annotations

from programs import output_of

import penstock as ps


def test_the_command_also_runs_as_a_module() -> None:
    assert output_of("-m", "penstock", "--version") == f"penstock {ps.__version__}\n"
