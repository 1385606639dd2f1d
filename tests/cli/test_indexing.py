from __future__ import annotations

from pathlib import Path

from cli.running import Cli


def test_indices_are_built_counted_and_built_again_with_a_reason(cli: Cli, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("one\ntwo\n")
    command = "index", tmp_path / "{a,b}.txt"
    told = cli(*command)
    assert told.code == 0
    for words in ("2 files, 4 lines", "built 2 in", "(2 missing)"):
        assert words in told.out
    assert "nothing was built" in cli(*command).out
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    told = cli(*command)
    assert "a.txt: built again, the file has 14 bytes and had 8" in told.out
    assert "built 1 in" in told.out
    assert "(2 asked for)" in cli(*command, "--rebuild").out


def test_a_name_that_does_not_say_the_format_needs_it_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x\n")
    told = cli("index", tmp_path / "data")
    assert told.code == 1
    assert "--format" in told.err
    assert cli("index", tmp_path / "data", "--format", "text").code == 0
    assert (tmp_path / ".penstock" / "data.psidx").exists()


def test_indices_that_cannot_stand_beside_their_data_go_to_the_folder_that_is_given(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / ".penstock").write_bytes(b"")
    told = cli("index", tmp_path / "a.txt", "--index-folder", tmp_path / "there")
    assert told.code == 0
    assert "built 1" in told.out
    assert len(list((tmp_path / "there").rglob("*.psidx"))) == 1


def test_a_pattern_that_finds_nothing_is_an_error(cli: Cli, tmp_path: Path) -> None:
    told = cli("index", tmp_path / "*.txt")
    assert told.code == 1
    assert "no file matches" in told.err
