"""What a user gets from `pip install .` in a clone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "tag"), [("/bin/false", "any"), (None, "linux_x86_64")])
def test_a_wheel_without_the_library_is_for_any_machine(compiler: str | None, tag: str, tmp_path: Path) -> None:
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.[ch]"),
        *(ROOT / name for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE")),
    ]
    for path in sources:  # a copy: what another build left would be taken
        (tmp_path / "clone" / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / path.relative_to(ROOT)).write_bytes(path.read_bytes())
    environment = {**os.environ, **({} if compiler is None else {"CC": compiler})}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(tmp_path / "clone")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("penstock-*.whl")
    has_library = any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    assert has_library == (compiler is None)
    assert wheel.stem.rpartition("-")[2] == tag if compiler is not None else wheel.stem.rpartition("-")[2] != "any"


@pytest.mark.slow
def test_the_wheel_has_the_types_the_c_sources_and_every_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("penstock-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "penstock"
    wanted = {path.relative_to(package.parent).as_posix() for pattern in ("*.py", "*.c", "py.typed") for path in package.rglob(pattern)}
    assert "penstock/py.typed" in wanted
    assert wanted - names == set()
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("ziglang", "lief"):
        pytest.importorskip(name, reason=f"{name} (extra wheels) is not installed")
    import wheels

    monkeypatch.setattr(wheels, "DIST", tmp_path / "dist")
    return wheels


@pytest.mark.slow
# For Windows and musl the compiler would first make their C libraries: half a minute each, once.
@pytest.mark.parametrize("tag", ["manylinux_2_17_aarch64", "macosx_11_0_arm64"])
def test_a_wheel_for_another_machine_has_every_kernel(wheels: Any, tag: str, tmp_path: Path) -> None:
    wheel = wheels.build(tag, wheels.sdist(tmp_path))
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    wheels.check(tag, wheel, tmp_path)
    library = wheels.library_of(wheel, tmp_path)
    library.write_bytes(library.read_bytes().replace(b"penstock_crc32c\0", b"penstock_crc32d\0"))
    with zipfile.ZipFile(wheel.with_name(f"penstock-0-py3-none-{tag}.whl"), "w") as other:
        other.write(library, f"penstock/kernels/{library.name}")
    with pytest.raises(wheels.Failure, match="penstock_crc32c"):
        wheels.check_library(tag, Path(other.filename or ""), tmp_path)


@pytest.mark.slow
def test_a_wheel_whose_library_cannot_be_compiled_gets_no_tag_of_a_platform(
    wheels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "ZIG", "false")
    with pytest.raises(wheels.Failure, match=r"for 'win_amd64' became .*-py3-none-any\.whl"):
        wheels.build("win_amd64", wheels.sdist(tmp_path))


@pytest.mark.slow
def test_a_library_that_needs_a_newer_system_than_its_tag_says_is_refused(
    wheels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = wheels.Target("x86_64-linux-gnu.2.17", (2, 10))
    monkeypatch.setitem(wheels.TARGETS, "manylinux_2_17_x86_64", target)
    wheel = wheels.build("manylinux_2_17_x86_64", wheels.sdist(tmp_path))
    with pytest.raises(wheels.Failure, match=r"needs version \(2, 17\), and its tag says \(2, 10\)"):
        wheels.check_library("manylinux_2_17_x86_64", wheel, tmp_path)


@pytest.mark.slow
def test_recorded_calls_tell_a_wrong_byte(tmp_path: Path) -> None:
    calls, program = tmp_path / "calls", tmp_path / "replay"
    subprocess.run([sys.executable, ROOT / "tools/replay.py", calls], check=True, capture_output=True)
    subprocess.run(["cc", "-O1", ROOT / "tools/replay.c", "-o", program, "-ldl"], check=True)
    command = [program, ROOT / "src/penstock/kernels/_penstock.so", calls]
    assert "calls, 0 of them wrong" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    data = bytearray(calls.read_bytes())
    data[-1] ^= 1  # of what the last call wrote
    calls.write_bytes(data)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 of them wrong" in done.stdout
