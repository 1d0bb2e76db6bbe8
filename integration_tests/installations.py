"""Wheel and source distribution of the library, and new virtual environments to install them into.

Used by the tests of installations. Nothing is downloaded: the dependencies are those of this environment. Source: the
target ``wheel`` of the Makefile, docs/deploy.rst.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from unit_tests.bare_python import packages_without_us

_ROOT = Path(__file__).parent.parent
#: What ``setup.py`` reads. A build writes beside these files, so it has a copy of them.
_SOURCES = ("setup.py", "setup.cfg", "pyproject.toml", "constraints.txt", "MANIFEST.in", "README.rst", "LICENSE")
_PACKAGES = ("streamgroups", "connectors")
_COMPILERS = ("cc", "gcc", "clang", "c99", "tcc")


@dataclass(frozen=True, slots=True)
class Distributions:
    """The files that a release consists of.

    Args:
        wheel: the wheel, which contains the extension.
        sdist: the source distribution.
    """

    wheel: Path
    sdist: Path


def build_distributions(directory: Path) -> Distributions:
    """Builds the source distribution and, from it, the wheel, as ``make wheel`` does.

    Args:
        directory: an empty directory for a copy of the sources and for the results.

    Raises:
        subprocess.CalledProcessError: if the extension cannot be built.
    """
    source, out = directory / "source", directory / "dist"
    source.mkdir()
    for name in _SOURCES:
        shutil.copy(_ROOT / name, source)
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "native_build_error.txt")
    for name in _PACKAGES:
        shutil.copytree(_ROOT / name, source / name, ignore=built)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        env={**outside_environment(), "STREAMGROUPS_BUILD": "native"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distributions(wheel, sdist)


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment in which a distribution is installed.

    Args:
        directory: its directory.
        log: the output of pip.
    """

    directory: Path
    log: str

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment.

        Args:
            command: the name of a program in its directory ``bin``, and arguments.
            environment: further environment variables.
        """
        program = [str(self.directory / "bin" / command[0]), *command[1:]]
        settings = {"PYSPARK_PYTHON": str(self.python), **environment}
        # The working directory is on the path of Python's modules, so it must not be that of the sources.
        return subprocess.run(
            program,
            env={**outside_environment(), **settings},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=180,
        )


def install_without_compiler(file: Path, directory: Path) -> Installation:
    """Installs a distribution into a new virtual environment. No program on ``PATH`` is a compiler.

    Args:
        file: a wheel or a source distribution.
        directory: the new virtual environment.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    path = str(directory / "bin")
    assert not any(shutil.which(compiler, path=path) for compiler in _COMPILERS)
    packages = packages_without_us(directory)
    site = sysconfig.get_path("purelib", vars={"base": str(directory)})
    Path(site, "dependencies.pth").write_text(f"{packages}\n")
    return _install(file, directory, {**outside_environment(), "PATH": path, "CC": "/bin/false"})


def install_with_dependencies(wheel: Path, directory: Path, *extras: str) -> Installation:
    """Installs a wheel and copies of its dependencies into a new virtual environment, which can be packed.

    PySpark is left out, as in an environment for a Spark distribution; pandas is added.

    Args:
        wheel: the wheel.
        directory: the new virtual environment.
        extras: the extras whose dependencies are copied.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    for name in _dependencies("pandas", *_requirements("streamgroups", extras)):
        found = distribution(name)
        for part in {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            source = Path(str(found.locate_file(part)))
            if source.is_dir():
                shutil.copytree(source, site / part, ignore=shutil.ignore_patterns("tests"), dirs_exist_ok=True)
            else:
                shutil.copy(source, site)
    return _install(wheel, directory, outside_environment())


def _install(file: Path, directory: Path, environment: Mapping[str, str]) -> Installation:
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python"), "install", "--verbose"]
    done = subprocess.run(
        [*pip, "--no-index", "--no-deps", "--no-build-isolation", str(file)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Installation(directory, done.stdout + done.stderr)


def _dependencies(*names: str) -> set[str]:
    """These distributions and all that they require."""
    found: set[str] = set()
    required = list(names)
    while required:
        name = required.pop()
        if name not in found:
            found.add(name)
            required += _requirements(name)
    return found


def _requirements(name: str, extras: Iterable[str] = ()) -> list[str]:
    required = [Requirement(it) for it in distribution(name).requires or ()]
    applies = [{"extra": extra} for extra in ("", *extras)]
    return [canonicalize_name(it.name) for it in required if it.marker is None or any(map(it.marker.evaluate, applies))]


def outside_environment() -> dict[str, str]:
    """The environment variables of this process without those that lead to the library of the tests or to another Spark."""
    own = ("PYTHONPATH", "SPARK_HOME", "VIRTUAL_ENV", "PIP_FIND_LINKS", "STREAMGROUPS_READER", "STREAMGROUPS_ENCODER")
    return {name: value for name, value in os.environ.items() if name not in own}
