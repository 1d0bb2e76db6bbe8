"""The packages of this process for ``streamgroups doctor``.

``streamgroups_cli.doctor`` calls this module, and :mod:`streamgroups.doctor.installation_checks` checks the facts. The required
packages are in the metadata of the installed streamgroups. Source: PEP 566 (metadata).
"""

from __future__ import annotations

import importlib.metadata
from contextlib import suppress

from packaging.requirements import Requirement

from streamgroups.doctor.installation_checks import Package
from streamgroups.extras import EXTRAS

_NAME = "streamgroups"


def packages() -> list[Package]:
    """The required and the installed packages. Of the extras, it includes PySpark and packages that are installed.

    Empty if streamgroups runs from a directory without an installation.
    """
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
