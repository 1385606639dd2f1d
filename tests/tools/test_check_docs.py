from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from check_docs import main, snippets


def check(root: Path, **pages: str) -> int:
    (root / "docs").mkdir(exist_ok=True)
    for name, text in pages.items():
        (root / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    return main([str(root)])


def test_the_snippets_of_a_page_share_a_namespace_and_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = "```python\nimport os\nassert os.listdir() == []\nopen('a', 'w').close()\n```\n"
    text = f"# Page\n\n{first}\n```python\nassert os.listdir() == ['a']\n```\n"
    assert check(tmp_path, one=text, two=text) == 0
    assert "check_docs: 0 problems in 4 snippets" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs"]


def test_a_snippet_that_fails_is_named_with_page_line_and_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, one="text\n\n```python\nx = 1\n```\n\n```python\n\nprint('seen')\nassert x == 2\n```\n") == 1
    out = capsys.readouterr().out
    assert "docs/one.md:10: a snippet failed" in out
    assert "seen" in out
    assert "AssertionError" in out


def test_a_snippet_that_is_no_python_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, one="```python\nx = 1\ny = = 2\n```\n") == 1
    assert "docs/one.md:3: a snippet failed" in capsys.readouterr().out


def test_temporary_files_of_others_are_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-other-") as folder:
        text = "import os, tempfile\nassert os.listdir(tempfile.gettempdir()) == []\n"
        assert check(tmp_path, one=f"```python\n{text}open(tempfile.gettempdir() + '/penstock-mine', 'w').close()\n```\n") == 0
        assert sorted(name for name in os.listdir(os.path.dirname(folder)) if "snippets" in name) == []
    assert "check_docs: 0 problems in 1 snippets" in capsys.readouterr().out


def test_a_warning_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, one="```python\nimport warnings\nwarnings.warn('careful')\n```\n") == 1
    assert "UserWarning: careful" in capsys.readouterr().out


def test_a_snippet_may_be_left_out_with_a_reason_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = "```python\nx = 1\n```\n"
    assert check(tmp_path, one=ran + "```python\n# no-run: needs a GPU\n1 / 0\n```\n") == 0
    assert "docs/one.md:5: not run: needs a GPU" in capsys.readouterr().out
    assert check(tmp_path, one=ran + "```python\n# no-run:\n1 / 0\n```\n") == 1
    assert "docs/one.md:5: `# no-run:` gives no reason" in capsys.readouterr().out


def test_a_translation_is_not_run_and_must_have_the_snippets_of_its_original(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = "```python\nopen('ran', 'x').close()\n```\n"
    marked = f"```python\nwith open({str(tmp_path / 'ran')!r}, 'x') as file:\n    pass\n```\n"
    assert check(tmp_path, one=once + marked, **{"one.zh": "译文\n\n" + once + marked}) == 0
    assert "check_docs: 0 problems in 4 snippets" in capsys.readouterr().out
    assert check(tmp_path, one=once, **{"one.zh": "译文\n\n" + once.replace("ran", "RAN") + once}) == 1
    out = capsys.readouterr().out
    assert "docs/one.zh.md:4: not the snippet of one.md:2" in out
    assert "docs/one.zh.md:1: 2 snippets, but one.md has 1" in out


def test_a_dot_in_the_name_of_a_page_without_an_original_is_no_translation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, **{"release-1.2": "```python\n1 / 0\n```\n"}) == 1
    assert "docs/release-1.2.md:2: a snippet failed" in capsys.readouterr().out


def test_only_blocks_of_python_are_snippets_and_an_indented_one_is_dedented() -> None:
    page = (
        "```\na\n```\n```bash\nb\n```\n````text\n```python\nc\n```\n````\n- d\n\n  ```python title='x'\n  e = 1\n  ```\n~~~py\nf = 1\n~~~\n"
    )
    assert [(snippet.line, snippet.text) for snippet in snippets(page)] == [(15, "e = 1"), (18, "f = 1")]


def test_pages_without_snippets_are_nothing_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, one="words\n") == 1
    assert "check_docs: found no snippets to check" in capsys.readouterr().out
