"""Build the wheels of a release on one Linux machine, check each, and run those that can run here.

    python tools/wheels.py                    # into dist/; what `make wheels` does
    python tools/wheels.py --only win_amd64   # one of them
    python tools/wheels.py --no-roots         # without foreign machines

The compiler is clang, out of the package ziglang, which has the libraries of all targets. Each wheel is built from the unpacked sdist.

Run are: the x86-64 wheel on each Python found; the arm64 wheel under qemu, and the newest Python, in roots of Debian's packages; the
libraries for musl and for Windows (under wine) without a Python, by `replay.c`. The table says what did not run, and why; it is printed and
kept in build/wheels.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
ZIG = f"{sys.executable} -m ziglang cc -target"
SUITES = {"x86_64": ("amd64", "sid", "python3.14"), "aarch64": ("arm64", "bookworm", "python3.11")}


class Target(NamedTuple):
    """One kind of machine: what clang calls it, and the newest version of its C library or system that a symbol may need."""

    zig: str
    newest: tuple[int, ...]


TARGETS = {
    "manylinux_2_17_x86_64": Target("x86_64-linux-gnu.2.17", (2, 17)),
    "manylinux_2_17_aarch64": Target("aarch64-linux-gnu.2.17", (2, 17)),
    "musllinux_1_2_x86_64": Target("x86_64-linux-musl", ()),
    "musllinux_1_2_aarch64": Target("aarch64-linux-musl", ()),
    "macosx_11_0_x86_64": Target("x86_64-macos.11.0", (11, 0)),
    "macosx_11_0_arm64": Target("aarch64-macos.11.0", (11, 0)),
    "win_amd64": Target("x86_64-windows-gnu", (10, 0)),
    "win_arm64": Target("aarch64-windows-gnu", (10, 0)),
    "any": Target("", ()),
}


class Failure(Exception):
    """A wheel is not what it says, or does not run."""


def run(*command: str | Path, where: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it printed.

    Raises:
        Failure: it ended with an error.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=where, env={**inherited, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def sdist(folder: Path) -> Path:
    """Build the sdist from the files that git knows, and return the folder that it was unpacked to."""
    clone = folder / "clone"
    for name in run("git", "ls-files", "-z", "src", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE").split("\0"):
        if name:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", DIST, where=clone)
    (archive,) = DIST.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def build(tag: str, unpacked: Path) -> Path:
    """Build the wheel of one tag from the unpacked sdist.

    Raises:
        Failure: it got another tag, which is `any` where the library could not be compiled.
    """
    compiler = f"{ZIG} {TARGETS[tag].zig}" if TARGETS[tag].zig else "false"
    linker = f"{compiler} -shared -s"
    if tag.startswith("win"):
        linker += f" -Wl,--out-implib={unpacked / 'unused.lib'}"  # or the import library would be packed into the wheel
    shutil.rmtree(unpacked / "build", ignore_errors=True)
    command = ["setup.py", "-q", "bdist_wheel", "--plat-name", tag, "--dist-dir", str(DIST)]
    run(sys.executable, *command, where=unpacked, CC=compiler, LDSHARED=linker, CFLAGS="", LDFLAGS="")
    newest = max(DIST.glob("*.whl"), key=lambda path: path.stat().st_mtime_ns)
    if not newest.name.endswith(f"-py3-none-{tag}.whl"):
        raise Failure(f"the wheel for {tag!r} became {newest.name}: its library was not compiled")
    return newest


def library_of(wheel: Path, folder: Path) -> Path | None:
    """Unpack the library of a wheel and return its path; None where it has none.

    Raises:
        Failure: there is something beside it that no user needs.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith((".py", ".c", ".h", "py.typed")) and ".dist-info/" not in name]
        if len(names) > 1:
            raise Failure(f"{wheel.name} has {', '.join(names)}, of which one can be its library")
        return Path(archive.extract(names[0], folder / wheel.stem)) if names else None


def check(tag: str, wheel: Path, folder: Path) -> None:
    """Check the form of a wheel, and its library.

    Raises:
        Failure: something is wrong with them.
    """
    run(sys.executable, "-m", "twine", "check", "--strict", wheel)
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel)
    check_library(tag, wheel, folder)


def check_library(tag: str, wheel: Path, folder: Path) -> None:
    """Check that the library of a wheel has every kernel, and asks for nothing newer than the tag says.

    Raises:
        Failure: it is not so, or there is a library where there should be none.
    """
    library = library_of(wheel, folder)
    if (library is None) != (tag == "any"):
        raise Failure(f"{wheel.name}: {'it has no library' if library is None else 'it has a library'}")
    if library is None:
        return
    import lief  # only `make wheels` has it

    lief.logging.disable()
    binary: Any = lief.parse(str(library))
    if binary is None:
        raise Failure(f"{wheel.name}: {library.name} is in no format that is known")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/penstock/kernels").glob("*.c"))
    wanted = set(re.findall(r"^API \S+ \**(penstock_\w+)\(", source, re.MULTILINE))
    there = {str(function.name).removeprefix("_") for function in binary.exported_functions}
    if not wanted or wanted - there:
        raise Failure(f"{wheel.name}: its library lacks {sorted(wanted - there)}")
    newest = max(asked_for(binary), default=())
    if newest > TARGETS[tag].newest:
        raise Failure(f"{wheel.name}: its library needs version {newest}, and its tag says {TARGETS[tag].newest}")


def asked_for(binary: Any) -> Iterator[tuple[int, ...]]:
    """Yield the versions of the C library, or of the system, that a library asks for."""
    import lief

    if isinstance(binary, lief.ELF.Binary):
        for symbol in binary.imported_symbols:
            needed = symbol.symbol_version.symbol_version_auxiliary if symbol.symbol_version else None
            if needed is not None and needed.name:
                yield tuple(map(int, re.findall(r"\d+", str(needed.name))))
    elif isinstance(binary, lief.MachO.Binary):
        version: Any = binary.build_version
        yield tuple(version.minos[:2])
    elif isinstance(binary, lief.PE.Binary):
        yield (binary.optional_header.major_operating_system_version, 0)


def compared(*python: str | Path, tools: Path = TOOLS, **environment: str) -> str:
    """Run `same_bytes.py` with both kinds of kernels, and return in words what was the same.

    Raises:
        Failure: something was not.
    """
    printed = [run(*python, tools / "same_bytes.py", backend, where=DIST, **environment) for backend in ("numpy", "c")]
    if printed[0] != printed[1]:
        raise Failure(f"{python[0]}: the kernels gave other bytes than their twins:\n{printed[0]}\n{printed[1]}")
    return f"ran, the bytes of {len(printed[0].splitlines())} pipelines are those of the twins"


def on_python(version: str, wheel: Path, folder: Path) -> str:
    """Install a wheel into an empty environment of a Python, without a compiler, and run it there."""
    found = subprocess.run([TOOLS / "find_python", version], capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        return "not run: no such Python here"
    home = folder / f"python{version}"
    run(found, "-m", "venv", home)
    run(home / "bin/python", "-m", "pip", "install", "-q", wheel, CC="false")
    return compared(home / "bin/python")


def root_of(machine: str, folder: Path) -> Path:
    """Make a root of Debian's packages with a Python and musl, or of another machine's.

    Raises:
        LookupError: this machine cannot.
    """
    arch, suite, _ = SUITES[machine]
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise LookupError("debootstrap is not installed, or this is not root")
    lists = [*Path("/etc/apt").glob("sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(path.read_text() for path in lists if path.is_file())
    mirrors = re.findall(r"^(?:URIs:|deb)\s+(?:\[.*\]\s+)?(\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
    root = folder / f"root-{machine}"
    packages = "--include=python3-minimal,libpython3-stdlib,musl"
    run("debootstrap", "--foreign", "--variant=minbase", f"--arch={arch}", packages, suite, root, *mirrors[:1])
    for package in sorted(root.glob("var/cache/apt/archives/*.deb")):
        run("dpkg-deb", "-x", package, root)
    return root


def in_root(machine: str, root: Path, wheel: Path) -> str:
    """Run a wheel on the Python of a root, under qemu if it is that of another machine."""
    _, _, python = SUITES[machine]
    site = root / "opt/site"
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in (17, 27, 28)] + [f"--platform=manylinux2014_{machine}"]
    version = python.removeprefix("python")
    target: list[str | Path] = ["--target", site, "--python-version", version, "--only-binary=:all:", *platforms]
    run(sys.executable, "-m", "pip", "install", "-q", "--upgrade", *target, wheel)
    if machine == "x86_64":
        shutil.copytree(TOOLS, root / "opt/tools", dirs_exist_ok=True)
        return compared("chroot", root, "env", "PYTHONPATH=/opt/site", f"/usr/bin/{python}", tools=Path("/opt/tools"))
    return compared(f"qemu-{machine}-static", "-L", root, root / "usr/bin" / python, PYTHONPATH=str(site))


def replayed(tag: str, wheel: Path, folder: Path, *launch: str | Path) -> str:
    """Compile `replay.c` for a target, and make the recorded calls with the library of a wheel."""
    library, program = library_of(wheel, folder), folder / f"replay-{tag}.exe"
    assert library is not None
    linking = "-static" if "win" in tag else "-dynamic"
    run(*ZIG.split(), TARGETS[tag].zig, "-O2", "-s", linking, TOOLS / "replay.c", "-o", program)
    printed = run(*launch, program, library, folder / "calls", WINEPREFIX=str(folder / "wine"), WINEDEBUG="-all")
    return f"ran without a Python: {printed.strip().splitlines()[-1]}"


def runs(tag: str, wheel: Path, folder: Path, roots: dict[str, Path | str]) -> Iterator[tuple[str, str]]:
    """Yield (where, outcome) for each way to run a wheel that there is."""
    if tag == "manylinux_2_17_x86_64":
        for version in PYTHONS:
            yield f"Python {version}", on_python(version, wheel, folder)
    machine = tag.rpartition("_")[2] if not tag.endswith("x86_64") else "x86_64"
    root = roots.get(machine, "not run: there is no such machine here")
    emulator: list[str] = [f"qemu-{machine}-static", "-L", str(root)] if machine == "aarch64" else []
    if tag.startswith("manylinux"):
        yield f"{SUITES[machine][2]} of Debian {SUITES[machine][1]}", root if isinstance(root, str) else in_root(machine, root, wheel)
    elif tag.startswith("musllinux"):
        loader = None if isinstance(root, str) else root / f"lib/ld-musl-{machine}.so.1"
        yield f"musl of Debian {SUITES[machine][1]}", str(root) if loader is None else replayed(tag, wheel, folder, *emulator, loader)
    elif tag == "win_amd64":
        yield "wine", replayed(tag, wheel, folder, "wine") if shutil.which("wine") else "not run: wine is not installed"
    elif tag != "any":
        yield "-", "not run: there is no such machine here"


def main(words: Sequence[str]) -> int:
    """Build, check, run; return 1 when something failed. The dates in the archives are that of the commit."""
    parser = argparse.ArgumentParser(description="Build the wheels of a release, check and run them.")
    parser.add_argument("--only", action="append", choices=list(TARGETS), help="a tag; may be given several times")
    parser.add_argument("--no-roots", action="store_true", help="do not run on foreign machines")
    chosen = parser.parse_args(words)
    shutil.rmtree(DIST, ignore_errors=True)
    os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct").strip()
    rows: list[tuple[str, str, str]] = []
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("wheels: the sdist, recorded calls, and roots of other machines", flush=True)
        unpacked = sdist(folder)
        run(sys.executable, TOOLS / "replay.py", folder / "calls")
        roots: dict[str, Path | str] = {}
        for machine in [] if chosen.no_roots else SUITES:
            try:
                roots[machine] = root_of(machine, folder)
            except (LookupError, Failure) as error:
                roots[machine] = f"not run: {str(error).splitlines()[0]}"
        for tag in chosen.only or TARGETS:
            try:
                wheel = build(tag, unpacked)
                check(tag, wheel, folder)
                for where, outcome in runs(tag, wheel, folder, roots):
                    rows.append((tag, where, outcome))
            except Failure as error:
                rows.append((tag, "-", f"FAILED: {error}"))
                failed = True
            if not rows or rows[-1][0] != tag:
                rows.append((tag, "-", "checked"))
            for _, where, outcome in (row for row in rows if row[0] == tag):
                print(f"{tag:24} {where:28} {outcome}", flush=True)
    table = "".join(f"| {tag} | {where} | {outcome.splitlines()[0]} |\n" for tag, where, outcome in rows)
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/wheels.md").write_text(f"| wheel | where | outcome |\n|---|---|---|\n{table}", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
