"""The environment: what is never said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.doctor import environment


def test_nothing_of_the_environment_variables_and_no_folder_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET", "hunter2-secret")
    facts = environment()
    text = "\n".join(facts.lines()) + json.dumps(facts.as_json(), allow_nan=False)
    assert "hunter2-secret" not in text
    assert os.path.expanduser("~") + "/" not in text
    assert str(Path.cwd()) not in text
    assert f"{facts.cpus_usable} usable" in text
