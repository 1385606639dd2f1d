"""What is checked before a release. Everything from building on is run by `make release-check`; here are its parts that need no network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import release_check
from release_check import FAILED, MISSING, OK, WARNING, CheckFailed, Environment, Row

ROOT = Path(__file__).resolve().parents[2]
TWICE = "\n### Added\n\n- One.\n\n### Fixed\n\n- Two.\n\n### Added\n\n- Three.\n\n### Fixed\n\n- Four.\n\n### Changed"
README = 'Text.\n\n```python\nprint("one")\n```\n\n```text\none\n```\n'


def tree(root: Path, *, top: str = "## [2.0.0] - 2026-11-27", package: str = "2.0.0", urls: str = 'Source = "https://example.org"') -> Path:
    """Write what the checks of files read."""
    files = {
        "pyproject.toml": f'[project]\nname = "penstock"\nversion = "2.0.0"\n[project.urls]\n{urls}\n',
        "CITATION.cff": "cff-version: 1.2.0\nversion: 2.0.0\n",
        "CHANGELOG.md": f"# Changelog\n\n{top}\n\n- A change.\n\n## [1.0.0] - 2025-01-01\n",
        "src/penstock/_contracts/version.py": f'VERSION = "{package}"\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    subprocess.run(["git", "init", "--quiet", "."], cwd=root, check=True)
    return root


def quick(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, list[str]]]:
    """Run the checks of files; return the exit status and the rows of the table."""
    status = release_check.main(["--quick", str(root)])
    table = capsys.readouterr().out.splitlines()[-5:-1]
    return status, {line[:19].strip(): line[19:].split(maxsplit=1) for line in table}


def test_a_tree_that_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, rows = quick(tree(tmp_path), capsys)
    assert status == 0
    assert rows.pop("working tree")[0] == WARNING  # nothing is committed
    assert rows == {"version": [OK, "2.0.0"], "top of CHANGELOG.md": [OK, "2.0.0 - 2026-11-27"], "addresses": [OK, "no placeholders"]}


@pytest.mark.parametrize(
    ("top", "outcome", "note"),
    [
        ("## [Unreleased]", WARNING, "it is Unreleased: make it `## [2.0.0] - YYYY-MM-DD` before an upload"),
        ("## [1.9.0] - 2026-01-01", FAILED, "it is 1.9.0, and pyproject.toml says 2.0.0"),
        ("## [2.0.0]", FAILED, "2.0.0 has no date: `## [2.0.0] - YYYY-MM-DD`"),
        (f"## [Unreleased]\n{TWICE}", FAILED, "Unreleased has more than one heading `### Added`, `### Fixed`: merge them"),
        (f"## [2.0.0] - 2026-11-27\n\n### Fixed\n\n- A fix.\n\n## [1.9.0] - 2026-01-01\n{TWICE}", OK, "2.0.0 - 2026-11-27"),
    ],
)
def test_the_top_of_the_changelog(tmp_path: Path, capsys: pytest.CaptureFixture[str], top: str, outcome: str, note: str) -> None:
    status, rows = quick(tree(tmp_path, top=top), capsys)
    assert rows["top of CHANGELOG.md"] == [outcome, note]
    assert status == (outcome == FAILED)


def test_versions_that_differ_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, rows = quick(tree(tmp_path, package="2.0.1"), capsys)
    assert (status, rows["version"]) == (1, [FAILED, "src/penstock/_contracts/version.py says 2.0.1, and pyproject.toml 2.0.0"])


def test_placeholders_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, rows = quick(
        tree(tmp_path, urls='Source = "https://x.example/a"\nIssues = "https://x.invalid"\nOther = "https://a.org"'), capsys
    )
    said = "x.example in pyproject.toml, x.invalid in pyproject.toml: placeholders, to be replaced before an upload"
    assert (status, rows["addresses"]) == (0, [WARNING, said])


def test_the_version_of_this_repository_is_the_same_everywhere() -> None:
    assert release_check.version_in_all_places(ROOT) == release_check.version_of(ROOT)


def test_the_program_of_the_readme_is_found_with_what_it_prints() -> None:
    program, printed = release_check.program_of_readme((ROOT / "README.md").read_text("utf-8"))
    compile(program, "train.py", "exec")
    assert "import penstock as ps" in program
    assert printed
    with pytest.raises(CheckFailed, match=r"README\.md has no program with what it prints"):
        release_check.program_of_readme("Text.\n")


def test_a_program_that_prints_something_else_fails(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README.replace("\none\n", "\ntwo\n"), "utf-8")
    here = Environment(Path(sys.prefix))
    with pytest.raises(CheckFailed, match="one\n\nit printed something else than the README says"):
        release_check.program_runs(tmp_path, tmp_path, here, Path("penstock-2.0.0-py3-none-any.whl"), "c")


def test_a_program_on_other_kernels_or_of_another_wheel_fails(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README, "utf-8")
    with pytest.raises(CheckFailed, match="`penstock doctor` does not say 'kernels:    fortran \\('"):
        release_check.program_runs(tmp_path, tmp_path, Environment(Path(sys.prefix)), Path("penstock-2.0.0-py3-none-any.whl"), "fortran")
    with pytest.raises(CheckFailed, match=r"does not say 'py3-none-lynx'|does not say 'kernels:    c"):
        release_check.program_runs(tmp_path, tmp_path, Environment(Path(sys.prefix)), Path("penstock-2.0.0-py3-none-lynx.whl"), "c")


def test_a_command_that_fails_is_a_row_with_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> str:
        return release_check.said_by([sys.executable, "-c", "print('why'); raise SystemExit(3)"], ROOT)

    (row,) = release_check.checked("some check", run)
    assert (row.outcome, row.note.rpartition(": ")[2]) == (FAILED, "exit status 3")
    assert "why" in capsys.readouterr().out


def test_a_wheel_is_listed_under_each_platform_that_it_is_for(tmp_path: Path) -> None:
    names = ("manylinux_2_17_x86_64.manylinux2014_x86_64", "musllinux_1_2_aarch64", "macosx_11_0_universal2", "any")
    for name in names:
        (tmp_path / f"penstock-2.0.0-py3-none-{name}.whl").touch()
    (tmp_path / "penstock-1.0.0-py3-none-win_amd64.whl").touch()  # of another version
    wheels = release_check.platform_wheels(tmp_path, "2.0.0")
    assert [path.stem.rpartition("-")[2] for path in wheels] == sorted(names[:3])
    fitting = [path for path in wheels if "manylinux" in path.name]
    rows = [release_check.row_of_platform(*one, tmp_path, "2.0.0", fitting) for one in release_check.PLATFORMS.items()]
    found = {row.check.removeprefix("wheel for "): row for row in rows}
    there = {"Linux, x86-64", "Alpine, ARM", "macOS, Intel", "macOS, ARM"}
    assert {name for name, row in found.items() if row.outcome == OK} == there
    assert {name for name, row in found.items() if row.outcome == MISSING} == set(found) - there
    assert "not used" not in found["Linux, x86-64"].note
    assert found["Alpine, ARM"].note.endswith("(not used: it is for another machine)")


def test_only_what_failed_makes_the_run_fail(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(check="a", outcome=OK), Row(check="longer", outcome=MISSING, note="no wheel"), Row(check="c", outcome=WARNING)]
    assert release_check.finish(rows) == 0
    assert release_check.finish([*rows, Row(check="d", outcome=FAILED, note="why")]) == 1
    table = ["a       OK", "longer  MISSING  no wheel", "c       WARNING"]
    ends = ["release-check: 0 of 3 checks failed", *table, "d       FAILED   why", "release-check: 1 of 4 checks failed"]
    assert capsys.readouterr().out.splitlines() == [*table, *ends]


def test_the_extras_that_are_resolved_are_those_that_all_brings_and_itself() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'all = ["penstock[{",".join(release_check.EXTRAS[:-1])}]"]' in text
    assert release_check.EXTRAS[-1] == "all"
