from __future__ import annotations

import glob
import itertools
import os
from pathlib import Path

import pytest
from sources.gathering import fill

from penstock._storage.listing import find_local, patterns_of
from penstock.errors import PlanError, SourceError


def found(folder: Path, *patterns: str) -> list[str]:
    return [os.path.relpath(path, folder) for path in find_local([str(folder / pattern) for pattern in patterns], "read_x")]


def refused(folder: Path, *patterns: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        found(folder, *patterns)
    assert "read_x" in caught.value.where
    return caught.value


def test_globs_find_files_sorted_by_bytes_each_once_without_folders_hidden_files_and_indices(tmp_path: Path) -> None:
    fill(tmp_path, "b", "B", "é", ".h", "b.psidx", "sub/c")
    assert found(tmp_path, "*", "b") == ["B", "b", "é"]
    assert found(tmp_path, "**") == ["B", "b", "sub/c", "é"]
    assert found(tmp_path, "b.psidx") == ["b.psidx"]


def test_the_very_name_of_a_file_comes_before_what_the_name_could_mean(tmp_path: Path) -> None:
    fill(tmp_path, "[1]", "{a,b}", "x@2", "1", "a", "b")
    assert found(tmp_path, "[1]") == ["[1]"]
    assert found(tmp_path, "{a,b}") == ["{a,b}"]
    assert found(tmp_path, "x@2") == ["x@2"]
    os.unlink(tmp_path / "{a,b}")
    assert found(tmp_path, "{a,b}") == ["a", "b"]


def test_every_name_of_braces_and_shards_must_be_there(tmp_path: Path) -> None:
    fill(tmp_path, "t-0.tar", "t-1.tar", "n-00000-of-00002", "n-00001-of-00002", "m-00000-of-00002")
    assert found(tmp_path, "t-{0..1}.tar") == ["t-0.tar", "t-1.tar"]
    assert found(tmp_path, "n@2") == found(tmp_path, "n@*") == ["n-00000-of-00002", "n-00001-of-00002"]
    assert "t-2.tar" in refused(tmp_path, "t-{0..2}.tar").what
    assert "m-00001-of-00002" in refused(tmp_path, "m@2").what


@pytest.mark.parametrize("pattern", ["m-*", "m-?????-of-00003", "m-*-of-00003", "m@*", "*"])
def test_a_glob_that_finds_a_part_of_a_set_of_shards_names_the_missing_one(tmp_path: Path, pattern: str) -> None:
    fill(tmp_path, "m-00000-of-00003", "m-00002-of-00003")
    error = refused(tmp_path, pattern)
    assert "m-00001-of-00003" in error.what
    assert "is missing" in error.what


def test_a_glob_for_a_part_of_a_set_and_a_single_shard_are_taken_as_they_are(tmp_path: Path) -> None:
    fill(tmp_path, *(f"m-0000{number}-of-00010" for number in range(5)))
    assert len(found(tmp_path, "m-0000[0-4]-of-00010")) == 5
    assert found(tmp_path, "m-00003-of-00010") == ["m-00003-of-00010"]


def test_nothing_found_says_where_and_what_to_try(tmp_path: Path) -> None:
    assert "no file matches" in refused(tmp_path, "x*").what
    (tmp_path / "sub").mkdir()
    assert "which is a folder" in refused(tmp_path, "sub").what
    with pytest.raises(SourceError) as caught:
        find_local("~/nothing-of-this-name", "read_x")
    assert "expanduser" in caught.value.fix


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "ftp://a/b", "file:///etc/passwd", "pipe:cat /etc/passwd"])
def test_urls_and_commands_are_refused(url: str) -> None:
    with pytest.raises(PlanError):
        find_local(url, "read_x")


def test_no_shell_is_asked(tmp_path: Path) -> None:
    for pattern in ("$(touch {0}/out)", "`touch {0}/out`", "; touch {0}/out", "| touch {0}/out"):
        with pytest.raises((SourceError, PlanError)):
            find_local(pattern.replace("{0}", str(tmp_path)), "read_x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", [None, [], 5, ["a", 5]])
def test_what_is_no_pattern_is_refused(given: object) -> None:
    with pytest.raises(PlanError, match="is no pattern"):
        patterns_of(given, "read_x")


def test_a_link_that_leads_nowhere_is_found_and_a_nul_byte_is_not(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert found(tmp_path, "link") == ["link"]
    assert "no file matches" in refused(tmp_path, "a\0b").what


@pytest.mark.parametrize(
    "pattern", ["https://bob:hunter2@h/*.jpg", "https://bob:hunter2@h/{1..2}.jpg?sig=hunter2", ["s3://bob:hunter2@h/x", 3]]
)
def test_no_error_repeats_the_password_of_a_url(pattern: object) -> None:
    with pytest.raises(PlanError) as caught:
        find_local(pattern, "read_x")
    assert "://[removed]@h/" in caught.value.what
    assert "hunter2" not in str(caught.value)


def test_a_file_may_have_a_name_like_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "http:").mkdir()
    (tmp_path / "http:" / "a").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert find_local("http://a", "read_x") == ["http://a"]


def test_a_file_comes_once_however_its_path_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "in/c"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    assert find_local(["a", "./a", str(tmp_path / "a")], "read_x") == ["./a"]
    assert find_local(["*", f"{tmp_path}/[ab]", "in//c", "in/c", "in/./c"], "read_x") == [
        f"{tmp_path}/a",
        f"{tmp_path}/b",
        "in/./c",
        "link",
    ]
    assert find_local(["in/../a", "a"], "read_x") == ["a", "in/../a"], "a link may stand before the dots"
    assert find_local([".//in/c", "a"], "read_x") == [".//in/c", "a"]


PATTERNS = ["*", "?*", ".*", "*.x", "[a-c]*", "[!a]*", "*[[]*", "a*/", "nothing*", "é*", "*\n*", ".", "[", "a[", "[]]*", "*.X", "x?y*"]


def test_a_pattern_in_one_folder_finds_what_glob_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for base in (tmp_path, tmp_path / "sub", tmp_path / ".hidden"):
        base.mkdir(exist_ok=True)
        for name in ("a.x", "b.X", "c", ".d.x", "a.x.psidx", "[e].x", "é.x", "f\ng", "x-y", "]"):
            (base / name).write_text("")
        (base / "folder.x").mkdir()
        (base / "to_folder.x").symlink_to("folder.x")
        (base / "to_file.x").symlink_to("a.x")
        (base / "to_nothing.x").symlink_to("nowhere")
        (base / "to_itself.x").symlink_to("to_itself.x")
    monkeypatch.chdir(tmp_path)
    for folder, pattern in itertools.product(["", "./", "sub/", "sub//", "absent/", "a.x/", ".hidden/"], PATTERNS):
        expected = [path for path in glob.glob(folder + pattern) if not os.path.isdir(path) and not path.endswith(".psidx")]
        if expected:
            assert find_local(folder + pattern, "read_x") == sorted(expected, key=os.fsencode)
        else:
            with pytest.raises(SourceError):
                find_local(folder + pattern, "read_x")
