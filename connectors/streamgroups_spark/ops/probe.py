"""Inspects the Spark installation for ``streamgroups doctor``, without the slow import of PySpark.

Called by ``streamgroups_cli.doctor``. :mod:`streamgroups.doctor.machine_checks` evaluates the results. Sources:
``SparkContext`` (the Python of workers is ``PYSPARK_PYTHON``, else ``python3`` from ``PATH``) and ``find_spark_home``
(``SPARK_HOME`` has precedence).
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from streamgroups.doctor.machine_checks import SparkHome, WorkerPython

#: The modules that a worker imports to read from Kafka. PySpark itself is part of Spark.
_WORKERS_NEED = ("pyarrow", "confluent_kafka", "streamgroups", "streamgroups_kafka", "streamgroups_spark")
_SCRIPT = (
    "import importlib.util as u, json, platform, sys; "
    "print(json.dumps([platform.python_version(), [m for m in sys.argv[1:] if not u.find_spec(m)]]))"
)
_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def pyspark_without_pip() -> str | None:
    """Returns the version of an importable PySpark that pip did not install, as in a Spark distribution.

    Processes that Spark starts import it from ``pyspark.zip``, so the loader reads the file.
    """
    found = importlib.util.find_spec("pyspark")
    get_data: Any = getattr(found and found.loader, "get_data", None)
    if found is None or found.origin is None or get_data is None:
        return None
    try:
        text = get_data(str(Path(found.origin).with_name("version.py"))).decode()
    except OSError:
        return None
    version = re.search(r"""__version__\s*(?::\s*str\s*)?=\s*["']([^"']+)["']""", text)
    return version and version[1]


def probe_spark_home() -> SparkHome | None:
    """Returns ``SPARK_HOME`` and the version of Spark in it. ``None`` if it is not set."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        return None
    versions = [match[1] for jar in Path(home, "jars").glob("spark-core_*.jar") if (match := _CORE.fullmatch(jar.name))]
    return SparkHome(home, versions[0] if versions else None)


def probe_workers(setting: str | None = None) -> WorkerPython:
    """Runs the Python of workers on this machine, and returns its version and missing modules.

    Args:
        setting: the setting ``spark.pyspark.python``, which precedes ``PYSPARK_PYTHON``. ``None`` if it is not set.
    """
    given = {"spark.pyspark.python": setting, "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON"), "PATH": "python3"}
    origin, command = next((name, command) for name, command in given.items() if command)
    path = shutil.which(command)
    if path is None:
        return WorkerPython(command, origin, None)
    if _is_this_python(Path(path)):
        return WorkerPython(command, origin, platform.python_version(), same=True)
    try:
        requested = [path, "-c", _SCRIPT, *_WORKERS_NEED]
        answer = subprocess.run(requested, capture_output=True, text=True, timeout=60, check=True)
        version, missing = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return WorkerPython(path, origin, None)
    return WorkerPython(path, origin, str(version), missing=tuple(missing))


def _is_this_python(path: Path) -> bool:
    """Returns whether both are one link, or links in one directory, as ``python`` and ``python3`` in a virtualenv."""
    this = Path(sys.executable)
    return path.parent.absolute() == this.parent.absolute() and path.resolve() == this.resolve()
