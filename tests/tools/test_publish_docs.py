from __future__ import annotations

import json
from pathlib import Path

import pytest

import publish_docs
from publish_docs import publish


def site_of(folder: Path, text: str, *more: str) -> Path:
    folder.mkdir()
    for name in ("index.html", *more):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_versions_stand_side_by_side_and_latest_is_the_newest(tmp_path: Path) -> None:
    first, second, third = (site_of(tmp_path / name, name) for name in ("first", "second", "third"))
    out = tmp_path / "out"
    assert publish(first, out, "0.9") == ["0.9"]
    assert publish(second, out, "0.10") == ["0.10", "0.9"]
    assert publish(third, out, "0.2.1") == ["0.10", "0.9", "0.2.1"], "an older version may be published later"
    texts = {name: (out / name / "index.html").read_text("utf-8") for name in ("0.9", "0.10", "0.2.1", "latest")}
    assert texts == {"0.9": "first", "0.10": "second", "0.2.1": "third", "latest": "second"}
    listed = json.loads((out / "versions.json").read_text("utf-8"))
    assert [(entry["version"], entry["title"], entry["aliases"]) for entry in listed] == [
        ("0.10", "0.10", ["latest"]),
        ("0.9", "0.9", []),
        ("0.2.1", "0.2.1", []),
    ]
    assert "url=latest/index.html" in (out / "index.html").read_text("utf-8")


def test_a_version_that_is_published_again_is_replaced_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(site_of(tmp_path / "old", "old", "gone.html"), out, "1.0")
    publish(site_of(tmp_path / "new", "new"), out, "1.0")
    for name in ("1.0", "latest"):
        assert [path.name for path in (out / name).iterdir()] == ["index.html"]
    assert sorted(path.name for path in out.iterdir()) == ["1.0", "index.html", "latest", "versions.json"]


@pytest.mark.parametrize("version", ["latest", "../up", "v1", "1.0.part", ""])
def test_what_is_no_version_is_refused_and_nothing_is_written(version: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is no version: give numbers with points"):
        publish(site_of(tmp_path / "site", "text"), tmp_path / "out", version)
    assert not (tmp_path / "out").exists()


def test_without_a_site_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no index\.html: run `make docs` first"):
        publish(tmp_path, tmp_path / "out", "1.0")


def test_the_version_is_that_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    (root / "build").mkdir(parents=True)
    site_of(root / "build" / "site", "text")
    (root / "pyproject.toml").write_text('[project]\nversion = "3.1"\n', encoding="utf-8")
    monkeypatch.setattr(publish_docs, "ROOT", root)
    assert publish_docs.main([str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "3.1" / "index.html").is_file()
    assert "3.1; latest is 3.1" in capsys.readouterr().out
    assert publish_docs.main([]) == 2
