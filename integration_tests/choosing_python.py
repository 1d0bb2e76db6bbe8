"""A Python for Spark whose processes of one kind have all packages except the library.

Used by the tests of processes without the library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from unit_tests.bare_python import packages_without_us

#: Every Python process of Spark runs this script. It starts processes of one kind with another Python. Spark sets
#: PYTHONPATH and the working directory; the script replaces both.
_SCRIPT = """#!/bin/sh
case "$*" in
*{kind}*) cd "{bare}" && PYTHONPATH="{packages}" exec "{bare}/python" -S "$@" ;;
esac
exec "{python}" "$@"
"""


def choosing_python(directory: Path, kind: str) -> tuple[Path, Path]:
    """Creates the script for ``PYSPARK_PYTHON``.

    Args:
        directory: a directory for the script and its packages.
        kind: a part of the command line of the processes without the library, such as ``pyspark.worker``.

    Returns:
        The paths of the script, and of the Python without the library.
    """
    bare = directory / "bare"
    bare.mkdir()
    python = bare / "python"
    python.symlink_to(sys.executable)
    script = directory / "python"
    packages = packages_without_us(directory)
    script.write_text(_SCRIPT.format(kind=kind, bare=bare, packages=packages, python=sys.executable))
    script.chmod(0o755)
    return script, python
