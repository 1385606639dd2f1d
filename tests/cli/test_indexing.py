from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import main


def test_indices_are_built_counted_and_built_again_with_a_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("one\ntwo\n")
    command = ["index", str(tmp_path / "{a,b}.txt")]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "2 files, 4 lines" in out
    assert "built 2 in" in out
    assert "(2 missing)" in out
    assert main(command) == 0
    assert "nothing was built" in capsys.readouterr().out
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "a.txt: built again, the file has 14 bytes and had 8" in out
    assert "built 1 in" in out
    assert main([*command, "--rebuild"]) == 0
    assert "(2 asked for)" in capsys.readouterr().out


def test_a_name_that_does_not_say_the_format_needs_it_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x\n")
    assert main(["index", str(tmp_path / "data")]) == 1
    assert "--format" in capsys.readouterr().err
    assert main(["index", str(tmp_path / "data"), "--format", "text"]) == 0
    assert (tmp_path / ".penstock" / "data.psidx").exists()


def test_indices_that_cannot_stand_beside_their_data_go_to_the_folder_that_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / ".penstock").write_bytes(b"")
    assert main(["index", str(tmp_path / "a.txt"), "--index-folder", str(tmp_path / "there")]) == 0
    assert len(list((tmp_path / "there").rglob("*.psidx"))) == 1
    assert "built 1" in capsys.readouterr().out


def test_a_pattern_that_finds_nothing_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["index", str(tmp_path / "*.txt")]) == 1
    assert "no file matches" in capsys.readouterr().err
