"""The environment: what is said for a bug report, and what never is."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from programs import output_of

import penstock as ps
from penstock import kernels
from penstock.observe.environment import environment, lines_of


def test_nothing_of_the_environment_variables_and_no_folder_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET", "hunter2-secret")
    facts = environment()
    text = "\n".join(lines_of(facts)) + json.dumps(facts, allow_nan=False)
    assert "hunter2-secret" not in text
    assert os.path.expanduser("~") + "/" not in text
    assert str(Path.cwd()) not in text
    assert f"{facts['cpus_usable']} usable" in text


def test_versions_kernels_and_the_cpu_are_said() -> None:
    facts = environment()
    assert facts["penstock"] == ps.__version__
    assert facts["kernels"].partition(" ")[0] == kernels.backend()
    assert facts["python"].startswith(f"{platform.python_version()} ({platform.python_implementation()}")
    assert ("free-threaded" in facts["python"]) == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert facts["libraries"]["numpy"] == np.__version__
    assert set(facts["libraries"]) >= {"simplejpeg", "opencv-python-headless", "cloudpickle"}
    assert platform.libc_ver()[0] in facts["platform"]


def test_a_free_threaded_python_on_musl_says_both(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"Py_GIL_DISABLED": 1, "SOABI": "cpython-313t-x86_64-linux-musl"}
    monkeypatch.setattr(sysconfig, "get_config_var", told.get)
    monkeypatch.setattr(platform, "libc_ver", lambda *_: ("", ""))
    facts = environment()
    assert ", free-threaded, " in facts["python"]
    assert facts["platform"].endswith(" (cpython-313t-x86_64-linux-musl)")


@pytest.mark.skipif(kernels.backend() != "c", reason="the C library was not built")
@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="only Linux tells the features of its CPU")
def test_the_features_are_some_that_the_cpu_has() -> None:
    (told,) = re.findall(r"; CPU: (.*)\)$", environment()["kernels"])
    assert told == "no features" or set(told.split()) <= set(Path("/proc/cpuinfo").read_text("utf-8").split())


def test_the_numpy_kernels_are_said_with_their_reason() -> None:
    program = "from penstock.observe.environment import environment; print(environment()['kernels'])"
    assert output_of("-c", program, PENSTOCK_KERNELS="numpy") == "numpy (PENSTOCK_KERNELS=numpy switches the C library off)\n"


def test_the_wheel_is_told_where_penstock_comes_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "penstock-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock\nVersion: 9\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-manylinux_2_17_x86_64\nTag: py3-none-manylinux2014_x86_64\n")
    found = importlib.metadata.PathDistribution(info)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda *, name: iter([found]))
    assert environment()["wheel"] == "none, run from source"
    (tmp_path / "penstock").symlink_to(Path(ps.__file__).parent)
    assert environment()["wheel"] == "py3-none-manylinux_2_17_x86_64, py3-none-manylinux2014_x86_64"
    monkeypatch.setattr(importlib.metadata, "distributions", lambda *, name: iter(()))
    assert environment()["wheel"] == "none, run from source"
    monkeypatch.setattr(importlib.metadata, "distributions", lambda *, name: iter([found]))
    (info / "WHEEL").unlink()  # as beside the sources of an editable installation
    assert environment()["wheel"] == "none, run from source"
