"""Facts about this process and machine for ``streamgroups doctor``: Python, packages, modules on its path, memory.

``streamgroups_cli.doctor`` calls this module, and :mod:`streamgroups.doctor` checks the facts. The required packages
are in the metadata of the installed streamgroups. Sources: PEP 566 (metadata), ``proc(5)``, the kernel's cgroup v2
documentation.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from packaging.requirements import Requirement

from streamgroups.doctor.installation import Distribution, Package
from streamgroups.doctor.machine import Machine
from streamgroups.extras import EXTRAS

_NAME = "streamgroups"
_RELEASE_CLASSIFIER = re.compile(r"Programming Language :: Python :: (\d+\.\d+)")


def distribution() -> Distribution | None:
    """The metadata of streamgroups; None if it runs from a folder without an installation."""
    try:
        metadata = importlib.metadata.metadata(_NAME)
    except importlib.metadata.PackageNotFoundError:
        return None
    matches = map(_RELEASE_CLASSIFIER.fullmatch, metadata.get_all("Classifier") or [])
    tested = tuple(match[1] for match in matches if match is not None)
    return Distribution(metadata["Version"], metadata["Requires-Python"] or "", tested)


def packages() -> list[Package]:
    """The required and the installed packages. Of the extras, it includes PySpark and packages that are installed."""
    try:
        lines = importlib.metadata.requires(_NAME) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found: dict[str, Package] = {}
    for needed in map(Requirement, lines):
        extra = _extra_of(needed)
        installed = _installed(needed.name)
        if extra is not None and needed.name not in found and (not extra or installed or needed.name == "pyspark"):
            extras = tuple(sorted(needed.extras))
            found[needed.name] = Package(needed.name, str(needed.specifier), installed, extras, extra)
    return list(found.values())


def _extra_of(needed: Requirement) -> str | None:
    """The users' extra that installs a package; empty if it is always installed, ``None`` if only developers need it."""
    for extra in ("", *sorted(set(EXTRAS.values()))):
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            return extra
    return None


def _installed(name: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def early_on_the_path(script: Path | None) -> dict[str, list[str]]:
    """The modules in directories that precede Python's own: the main script's, the current one, ``PYTHONPATH``.

    Args:
        script: the main script of a job, or None.

    Returns:
        The modules of each directory: ``grp.py`` for a file, ``grp/`` for a package.
    """
    listed = [*([script.parent] if script else []), Path(), *map(Path, _python_path())]
    return {str(directory): _modules(directory) for directory in dict.fromkeys(d.absolute() for d in listed)}


def _python_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _modules(directory: Path) -> list[str]:
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return []
    return [
        f"{entry.name}/" if entry.is_dir() else entry.name
        for entry in entries
        if entry.suffix == ".py" or (entry / "__init__.py").is_file()
    ]


def machine() -> Machine:
    """Cores, memory and temporary space of this machine or container."""
    temporary = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        free_bytes = shutil.disk_usage(temporary).free
    except OSError:
        free_bytes = 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, _available_bytes(), temporary, free_bytes)


def _available_bytes() -> int | None:
    """The minimum of the available memory of the kernel and of the container; None without ``/proc``."""
    left = []
    with suppress(OSError, ValueError):
        meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        left.append(int(meminfo["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError):  # an unlimited container has the limit "max"
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text("ascii"))
        left.append(limit - int((group / "memory.current").read_text("ascii")))
    return min(left, default=None)
