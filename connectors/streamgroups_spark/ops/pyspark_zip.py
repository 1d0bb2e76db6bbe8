"""The bytecode in ``pyspark.zip``, from which each Python process of Spark imports PySpark.

Called by ``streamgroups precompile`` and ``streamgroups doctor``. Spark puts ``python/lib/pyspark.zip`` of its home before
all other packages. Python writes no bytecode into a zip file, so each process compiles PySpark again, unless the file
contains the bytecode. Sources: Spark's ``PythonUtils.sparkPythonPath``; PEP 273 (``module.pyc`` beside ``module.py``, and
bytecode of another Python is ignored), PEP 552 (bytecode that is not compared with its source).
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import shutil
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from py_compile import PycInvalidationMode

from streamgroups.errors import InvalidOption

_ANY_MODULE = "pyspark/__init__.pyc"


def pyspark_zip(home: Path | None = None) -> Path | None:
    """Returns ``pyspark.zip`` of a Spark home; ``None`` if it is not a file.

    Args:
        home: the Spark home. ``None``: ``SPARK_HOME``, or else the installed package.
    """
    if home is None:
        home = _default_home()
    file = home and home / "python" / "lib" / "pyspark.zip"
    return file if file and file.is_file() else None


def has_bytecode(file: Path) -> bool:
    """Returns whether the zip file contains the bytecode of this Python.

    Args:
        file: ``pyspark.zip``.
    """
    with suppress(KeyError, OSError, zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
        return archive.read(_ANY_MODULE).startswith(importlib.util.MAGIC_NUMBER)
    return False


def add_bytecode(file: Path) -> int:
    """Adds the bytecode of all modules to the zip file, and replaces the file.

    Running processes keep the old file. Bytecode of another Python is removed.

    Args:
        file: ``pyspark.zip``.

    Returns:
        The number of modules.

    Raises:
        InvalidOption: if the file is damaged or cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=file.parent) as directory:
            modules = Path(directory, "modules")
            with zipfile.ZipFile(file) as archive:
                archive.extractall(modules, [name for name in archive.namelist() if not name.endswith(".pyc")])
            compileall.compile_dir(
                modules,
                quiet=2,
                legacy=True,
                stripdir=str(modules),
                prependdir=str(file),
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )
            replacement = Path(directory, file.name)
            count = _write(replacement, modules)
            shutil.copymode(file, replacement)
            os.replace(replacement, file)
    except (OSError, zipfile.BadZipFile) as e:
        raise InvalidOption(
            f"The bytecode cannot be added to {file}: {e}.",
            remedy="Run the command as the owner of the file. If the file is damaged, install Spark again.",
        ) from e
    return count


def _write(replacement: Path, modules: Path) -> int:
    files = sorted(path for path in modules.rglob("*") if path.is_file())
    with zipfile.ZipFile(replacement, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(modules))
    return sum(path.suffix == ".pyc" for path in files)


def _default_home() -> Path | None:
    if "SPARK_HOME" in os.environ:
        return Path(os.environ["SPARK_HOME"])
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin is not None else None
