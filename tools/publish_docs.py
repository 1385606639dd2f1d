"""Put the site of `make docs` beside those of earlier versions: `python tools/publish_docs.py FOLDER [VERSION]`.

FOLDER/VERSION/ becomes a copy of build/site, FOLDER/latest/ a copy of the newest version, FOLDER/versions.json the list that the version
selector of the pages reads, and FOLDER/index.html a redirect to latest/. Any web server of files serves FOLDER. Without VERSION it is that
of pyproject.toml. A version that is there already is replaced; the others are not touched.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from findings import ROOT

LATEST = "latest"
NUMBERS = re.compile(r"\d+(\.\d+)*")
REDIRECT = f"""<!doctype html>
<meta charset="utf-8">
<title>Penstock</title>
<meta http-equiv="refresh" content="0; url={LATEST}/index.html">
<a href="{LATEST}/index.html">Penstock</a>
"""


def main(arguments: Sequence[str]) -> int:
    """Publish build/site and return the exit status."""
    if len(arguments) not in (1, 2):
        print(f"usage: publish_docs.py FOLDER [VERSION]\n\n{__doc__}")
        return 2
    version = arguments[1] if len(arguments) == 2 else tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    versions = publish(ROOT / "build" / "site", Path(arguments[0]), version)
    print(f"{arguments[0]} has {', '.join(versions)}; {LATEST} is {versions[0]}")
    return 0


def publish(site: Path, folder: Path, version: str) -> list[str]:
    """Copy a site into the folder as one version and return all versions, the newest first.

    Raises:
        SystemExit: The version is not numbers with points, or there is no site.
    """
    if not NUMBERS.fullmatch(version):
        sys.exit(f"{version!r} is no version: give numbers with points, such as 0.2 or 0.2.1")
    if not (site / "index.html").is_file():
        sys.exit(f"{site} has no index.html: run `make docs` first")
    _replace(site, folder / version)
    versions = sorted((path.name for path in folder.iterdir() if NUMBERS.fullmatch(path.name)), key=_numbers, reverse=True)
    _replace(folder / versions[0], folder / LATEST)
    entries = [{"version": name, "title": name, "aliases": [LATEST] if name == versions[0] else []} for name in versions]
    (folder / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(REDIRECT, encoding="utf-8")
    return versions


def _replace(source: Path, target: Path) -> None:
    """Make the target a copy of the source, without files that were there before."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
