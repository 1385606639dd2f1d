from __future__ import annotations

import pytest
from cli.running import Cli, Told

from penstock.cli import main


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs a command with its arguments."""

    def run(*arguments: object) -> Told:
        try:
            code: object = main([*map(str, arguments)])
        except SystemExit as end:  # of wrong arguments
            code = end.code
        return Told(code, *capsys.readouterr())

    return run
