"""Check that what lies here can be released: `make release-check`. RELEASING.md says what comes before and after.

    python tools/release_check.py           all checks; some minutes
    python tools/release_check.py --quick   those that build and install nothing

It builds the source distribution and the wheel for any machine from a clean copy, and puts both into dist/. Wheels for platforms are those
that lie in dist/: the ones that fit this machine are installed and used, the others are listed. It prints a table, and exits with 1 where
something failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from findings import root_of

OK, FAILED, WARNING, MISSING = "OK", "FAILED", "WARNING", "MISSING"
EXTRAS = ("image", "parquet", "cloud", "zstd", "live", "all")
"""The extras that are resolved, each alone in an empty environment: those that programs use at run time, without the frameworks."""
PLATFORMS = {
    "Linux, x86-64": "manylinux.*_x86_64",
    "Linux, ARM": "manylinux.*_aarch64",
    "Alpine, x86-64": "musllinux.*_x86_64",
    "Alpine, ARM": "musllinux.*_aarch64",
    "macOS, Intel": "macosx.*_(x86_64|universal2)",
    "macOS, ARM": "macosx.*_(arm64|universal2)",
    "Windows, x86-64": "win_amd64",
    "Windows, ARM": "win_arm64",
}
"""The platforms that a release should have a wheel for, with what its tag matches."""
IMPORTS = "import cv2, obstore, penstock, pyarrow, rich, simplejpeg; print(penstock.__version__)"
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one check found.

    Attributes:
        check: what was checked.
        outcome: OK, FAILED, WARNING or MISSING. Only FAILED is an error.
        note: why.
    """

    check: str
    outcome: str
    note: str = ""


class CheckFailed(Exception):
    """A check did not pass; the text says why."""


def main(arguments: Sequence[str]) -> int:
    """Run the checks, print the table and return the exit status."""
    options = [argument for argument in arguments if argument.startswith("--")]
    root = root_of([argument for argument in arguments if argument not in options])
    rows = list(checked_files(root))
    if "--quick" not in options:
        rows += checked("documentation", lambda: said_by(["make", "docs"], root) and "build/site")
        with tempfile.TemporaryDirectory() as folder:
            rows += checked_packages(root, Path(folder))
    return finish(rows)


def finish(rows: Sequence[Row]) -> int:
    """Print the table and return the exit status."""
    width = max(len(row.check) for row in rows)
    for row in rows:
        print(f"{row.check:{width}}  {row.outcome:7}  {row.note}".rstrip())
    num_failed = sum(row.outcome == FAILED for row in rows)
    print(f"release-check: {num_failed} of {len(rows)} checks failed")
    return 1 if num_failed else 0


def checked(check: str, run: Callable[[], str | Row]) -> list[Row]:
    """Run one check, which returns a note or a row, or raises; in a list, so that others can be added."""
    print(f"== {check}", flush=True)
    try:
        found = run()
    except (CheckFailed, OSError, subprocess.TimeoutExpired) as error:
        print(error, flush=True)
        return [Row(check=check, outcome=FAILED, note=str(error).strip().splitlines()[-1])]
    return [found if isinstance(found, Row) else Row(check=check, outcome=OK, note=found)]


def said_by(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Return what a command prints.

    Raises:
        CheckFailed: it fails; with its output.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env={**inherited, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise CheckFailed(f"{done.stdout}{done.stderr}\n{' '.join(words)[:200]}: exit status {done.returncode}")
    return done.stdout


# -- what stands in files ---------------------------------------------------------------------------------------------------------


def checked_files(root: Path) -> Iterator[Row]:
    """Give a row for each check of what stands in files."""
    yield from checked("version", lambda: version_in_all_places(root))
    yield from checked("top of CHANGELOG.md", lambda: top_of_changelog(root))
    yield from checked("addresses", lambda: addresses(root))
    yield from checked("working tree", lambda: working_tree(root))


def version_of(root: Path) -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def version_in_all_places(root: Path) -> str:
    """Compare the versions of pyproject.toml, the package and CITATION.cff.

    Raises:
        CheckFailed: they differ.
    """
    version = version_of(root)
    places = {"src/penstock/_contracts/version.py": r'^VERSION = "(.*)"$', "CITATION.cff": r"^version: (.*)$"}
    for name, pattern in places.items():
        found = re.findall(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        if found != [version]:
            raise CheckFailed(f"{name} says {', '.join(found) or 'no version'}, and pyproject.toml {version}")
    return version


def top_of_changelog(root: Path) -> str | Row:
    """Say whether the newest release in CHANGELOG.md is that of pyproject.toml, and has each heading once.

    Raises:
        CheckFailed: it is another one, or a heading comes twice in it.
    """
    version = version_of(root)
    found = re.search(r"^## \[(.*?)\](.*)$((?:\n(?!## ).*)*)", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise CheckFailed("no heading such as `## [Unreleased]` was found")
    name, rest, entries = found.groups()
    headings = re.findall(r"^### (.*?) *$", entries, re.MULTILINE)
    twice = sorted({heading for heading in headings if headings.count(heading) > 1})
    if twice:
        raise CheckFailed(f"{name} has more than one heading {', '.join(f'`### {heading}`' for heading in twice)}: merge them")
    if name == "Unreleased":
        note = f"it is Unreleased: make it `## [{version}] - YYYY-MM-DD` before an upload"
        return Row(check="top of CHANGELOG.md", outcome=WARNING, note=note)
    if name != version:
        raise CheckFailed(f"it is {name}, and pyproject.toml says {version}")
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", rest):
        raise CheckFailed(f"{name} has no date: `## [{version}] - YYYY-MM-DD`")
    return f"{name}{rest}"


def addresses(root: Path) -> str | Row:
    """Warn of addresses of the project that are placeholders."""
    names = ("pyproject.toml", "CITATION.cff", "SECURITY.md")
    texts = {name: (root / name).read_text("utf-8") for name in names if (root / name).exists()}
    found = sorted(
        {f"{address} in {name}" for name, text in texts.items() for address in re.findall(r"[\w.-]+\.(?:example|invalid)\b", text)}
    )
    if found:
        note = f"{', '.join(found)}: placeholders, to be replaced before an upload"
        return Row(check="addresses", outcome=WARNING, note=note)
    return "no placeholders"


def working_tree(root: Path) -> str | Row:
    """Warn of files that differ from what is committed, for they are built all the same."""
    changed = [line[3:] for line in said_by(["git", "status", "--porcelain"], root).splitlines()]
    if changed:
        return Row(check="working tree", outcome=WARNING, note=f"not committed: {', '.join(changed)[:100]}")
    return "as committed"


# -- what is built and installed --------------------------------------------------------------------------------------------------


def checked_packages(root: Path, folder: Path) -> list[Row]:
    """Build, install and use; everything but dist/ lies in `folder`."""
    version, dist = version_of(root), root / "dist"
    builder = Environment(folder / "builder")
    rows = checked("source distribution and wheel for any machine", lambda: build(root, folder, builder))
    if rows[0].outcome == FAILED:
        return rows
    wheel = dist / f"penstock-{version}-py3-none-any.whl"
    rows += checked("install [image] in an empty environment", lambda: installed(folder / "image", f"{wheel}[image]"))
    users = Environment(folder / "image")
    rows += checked(f"README's program, {wheel.name}", lambda: program_runs(root, folder, users, wheel, "numpy"))
    rows += checked("install [all] in an empty environment", lambda: installed(folder / "everything", f"{wheel}[all]", IMPORTS))
    for extra in EXTRAS:
        rows += checked(f"extra {extra} alone", partial(resolved, folder / "empty", f"{wheel}[{extra}]"))
    fitting = fitting_wheels(dist, version, builder)
    for other in fitting:
        rows += checked(f"README's program, {other.name}", partial(installed_and_runs, root, folder, users, other))
    newest = fitting[0] if fitting else wheel
    for python in other_pythons(root):
        there = Environment(folder / python.strip("/").replace("/", "-"), python)
        rows += checked(f"README's program, {python}", partial(installed_and_runs, root, folder, there, newest, "[image]"))
    return rows + [row_of_platform(title, pattern, dist, version, fitting) for title, pattern in PLATFORMS.items()]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of an interpreter, made at the first use."""

    folder: Path
    interpreter: str = sys.executable

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    def run(self, *arguments: str | Path, **environment: str) -> str:
        """Run its interpreter; return what it prints.

        Raises:
            CheckFailed: it fails.
        """
        if not self.python.exists():
            said_by([self.interpreter, "-m", "venv", self.folder], self.folder.parent)
        return said_by([self.python, *arguments], self.folder, **environment)

    def pip_install(self, *arguments: str | Path) -> None:
        """Install with pip."""
        self.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def build(root: Path, folder: Path, builder: Environment) -> str:
    """Take both from dist/, or build them into it from a clean copy, the wheel from the source distribution and without a compiler.

    Raises:
        CheckFailed: it cannot be built, or something is missing in it.
    """
    version, dist = version_of(root), root / "dist"
    sources, wheel = dist / f"penstock-{version}.tar.gz", dist / f"penstock-{version}-py3-none-any.whl"
    if not (sources.exists() and wheel.exists()):  # `make wheels` has built the platform wheels from the same sources
        clone, built = folder / "clone", folder / "dist"
        for name in said_by(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], root).split("\0"):
            if name and (root / name).is_file():
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, clone / name)
        builder.pip_install("build")
        builder.run("-m", "build", "--outdir", built, clone, CC="/bin/false")
        if {path.name for path in built.iterdir()} != {sources.name, wheel.name}:
            raise CheckFailed(f"built were {', '.join(sorted(path.name for path in built.iterdir()))}, not {sources.name} and {wheel.name}")
        dist.mkdir(exist_ok=True)
        for path in (sources, wheel):
            shutil.copyfile(built / path.name, path)
    with tarfile.open(sources) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    lost = sorted(name for name in needed_to_build(root) if name not in there)
    if lost:
        raise CheckFailed(f"{sources.name} has no {', '.join(lost)}")
    return f"dist/{sources.name}, dist/{wheel.name}"


def needed_to_build(root: Path) -> list[str]:
    """Name the files without which an installation from the source distribution would lack something."""
    package = root / "src" / "penstock"
    found = [path.relative_to(root).as_posix() for pattern in ("*.py", "*.c", "*.h", "py.typed") for path in package.rglob(pattern)]
    return [*found, "LICENSE", "README.md", "pyproject.toml", "setup.py"]


def installed(folder: Path, what: str, program: str = "import penstock; print(penstock.__version__)") -> str:
    """Install into an empty environment, check that what is there goes together, and run a program.

    Raises:
        CheckFailed: one of them fails.
    """
    environment = Environment(folder)
    environment.pip_install(what)
    environment.run("-m", "pip", "check", "--disable-pip-version-check")
    return environment.run("-c", program).strip()


def resolved(folder: Path, what: str) -> str:
    """Ask pip what it would install into an empty environment; nothing is.

    Raises:
        CheckFailed: pip finds no releases that go together.
    """
    options = ("--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check")
    names = re.findall(r'"name": ?"([^"]+)"', Environment(folder).run("-m", "pip", "install", *options, "--report", "-", what))
    return ", ".join(sorted({name for name in names if name != "penstock"}))


def other_pythons(root: Path) -> list[str]:
    """Return the interpreters found here of the Pythons that Penstock supports, but for this one's version."""
    versions = re.findall(r"Programming Language :: Python :: (3\.\d+)", (root / "pyproject.toml").read_text("utf-8"))
    others = [version for version in versions if version != f"{sys.version_info.major}.{sys.version_info.minor}"]
    found = [subprocess.run([root / "tools/find_python", version], capture_output=True, text=True, check=False) for version in others]
    return [done.stdout.strip() for done in found if done.returncode == 0]


def installed_and_runs(root: Path, folder: Path, users: Environment, wheel: Path, extras: str = "") -> str:
    """Put a wheel into the environment of a user, alone or with extras and what they need, and run the README's program there.

    Raises:
        CheckFailed: it cannot be installed or used.
    """
    users.pip_install(*([f"{wheel}{extras}"] if extras else ["--no-deps", "--force-reinstall", wheel]))
    return program_runs(root, folder, users, wheel, "numpy" if wheel.stem.endswith("-any") else "c")


def program_runs(root: Path, folder: Path, users: Environment, wheel: Path, kernels: str) -> str:
    """Run the README's program with the Penstock of an environment, and compare what it prints.

    Raises:
        CheckFailed: it fails, prints something else, is of another wheel, or runs on other kernels.
    """
    program, wanted = program_of_readme((root / "README.md").read_text("utf-8"))
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        Path(empty, "train.py").write_text(program, "utf-8")
        printed = said_by([users.python, "train.py"], Path(empty))
    if printed.split() != wanted.split():
        raise CheckFailed(f"{printed}\nit printed something else than the README says")
    facts = users.run("-m", "penstock", "doctor")
    for line in (f"kernels:    {kernels} (", *(f"py3-none-{platform}" for platform in platforms_of(wheel))):
        if line not in facts:
            raise CheckFailed(f"{facts}\n`penstock doctor` does not say {line!r}")
    return f"kernels: {kernels}"


def program_of_readme(text: str) -> tuple[str, str]:
    """Return the first program of a page, and what it prints.

    Raises:
        CheckFailed: there is none.
    """
    found = re.search(r"^```python\n(.*?)^```\n\s*^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise CheckFailed("README.md has no program with what it prints")
    return found[1], found[2]


def platforms_of(wheel: Path) -> list[str]:
    """Return the platforms in the name of a wheel."""
    return wheel.stem.rpartition("-")[2].split(".")


def fitting_wheels(dist: Path, version: str, builder: Environment) -> list[Path]:
    """Return the platform wheels in dist/ that can be installed on this machine."""
    wheels = platform_wheels(dist, version)
    builder.pip_install("packaging")
    tags = builder.run("-c", "from packaging.tags import sys_tags; print(*sys_tags())").split()
    return [path for path in wheels if any(f"py3-none-{platform}" in tags for platform in platforms_of(path))]


def platform_wheels(dist: Path, version: str) -> list[Path]:
    """Return the wheels of this version in dist/ that are for one platform."""
    return [path for path in sorted(dist.glob(f"penstock-{version}-py3-none-*.whl")) if not path.stem.endswith("-any")]


def row_of_platform(title: str, pattern: str, dist: Path, version: str, fitting: Sequence[Path]) -> Row:
    """Say whether there is a wheel for a platform, and whether it was used here."""
    found = [path for path in platform_wheels(dist, version) if any(re.fullmatch(pattern, one) for one in platforms_of(path))]
    if not found:
        return Row(check=f"wheel for {title}", outcome=MISSING, note="not in dist/: `make wheels` builds wheels")
    used = "" if set(found) & set(fitting) else " (not used: it is for another machine)"
    return Row(check=f"wheel for {title}", outcome=OK, note=", ".join(path.name for path in found) + used)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
