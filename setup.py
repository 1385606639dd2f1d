"""Build the optional C kernels as a plain shared library; everything else is in pyproject.toml.

The library includes no Python.h and is opened with ctypes, so one build serves every Python version: the wheel is tagged
py3-none-<platform>. Without a compiler, or where it fails, one line says so and the install goes on: the NumPy twins give the same bytes,
and the wheel, which has no library, is tagged py3-none-any.

The environment may name another compiler in CC and LDSHARED, and `bdist_wheel --plat-name` the platform that it builds for: tools/wheels.py
builds the wheels of a release so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

FLAGS = ["-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-fPIC", "-std=c11", "-Wall", "-Wextra"]
FOLDER = Path("src/penstock/kernels")
KERNELS = Extension(
    "penstock.kernels._penstock",
    sorted(map(str, FOLDER.glob("*.c"))),
    depends=sorted(map(str, FOLDER.glob("*.h"))),
    extra_compile_args=FLAGS,
    optional=True,
)


class BuildKernels(build_ext):
    """Compile the kernels without Python's libraries, under a name that fits every Python version."""

    def finalize_options(self) -> None:
        """Take the platform that the wheel is for."""
        super().finalize_options()
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        self.plat_name = getattr(wheel, "plat_name", None) or self.plat_name

    def get_ext_filename(self, fullname: str) -> str:
        """Name the library without the tag of a Python version."""
        return fullname.replace(".", "/") + (".dll" if self.plat_name.startswith("win") else ".so")

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Ask for no PyInit function: the library has none."""
        return []

    def get_libraries(self, ext: Extension) -> list[str]:
        """Link nothing, not even libpython."""
        return []

    def run(self) -> None:
        """Build, or say in one line why not."""
        if sys.platform == "win32":
            self._give_up("on Windows they come with the wheel")
            return
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            self._give_up(error)

    def build_extension(self, ext: Extension) -> None:
        """Build, or say in one line why not; here as well, because setuptools takes an error of an optional extension for itself."""
        # What lies there comes from an earlier build or from beside the sources: of unknown flags, perhaps of another machine.
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError) as error:
            self._give_up(error)

    def _give_up(self, reason: object) -> None:
        sys.stderr.write(f"penstock: the C kernels were not built ({reason}); the slower NumPy kernels will be used\n")


class PlatformWheel(bdist_wheel):
    """Tag the wheel for no Python version in particular, and for the platform if it has the library."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return py3-none-<platform>, or py3-none-any; called when all is built."""
        built = Path(self.get_finalized_command("build_ext").get_ext_fullpath(KERNELS.name)).exists()
        return "py3", "none", super().get_tag()[2] if built else "any"


setup(ext_modules=[KERNELS], cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel})
