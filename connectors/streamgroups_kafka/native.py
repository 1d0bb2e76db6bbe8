"""Whether the native reader and encoder are available and used, with the reason if they are not.

Called by ``range_reader`` and ``record_batches`` in Spark's workers, and by ``streamgroups doctor``. Both are in one C
extension, which is missing if the build had no compiler. The encoder has no other dependency. The reader uses the
librdkafka in the wheel of confluent-kafka, so that both readers have the same version of the client. If confluent-kafka
was built from source, it uses librdkafka of the system. Source: docs/reader.rst; the layout of wheels by auditwheel and
delocate.
"""

from __future__ import annotations

import ctypes.util
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal

import confluent_kafka

from streamgroups.errors import InvalidOption

logger = logging.getLogger(__name__)

#: An environment variable of the workers: ``plain`` or ``native``. By default, the native reader is used if it is
#: available.
READER_VARIABLE = "STREAMGROUPS_READER"
#: The same variable for the encoder.
ENCODER_VARIABLE = "STREAMGROUPS_ENCODER"

_BUILD = (
    "Install streamgroups again from a wheel, or on a machine with a C compiler and Python's headers. "
    "STREAMGROUPS_BUILD=native pip install -v then shows the error of the compiler."
)
_WHEEL = "Install confluent-kafka again from its wheel, which contains librdkafka."

#: The file in which ``setup.py`` stores why the build of the extension has failed.
_ERROR_FILE = "native_build_error.txt"
_MAX_REASON = 500

_ENTRY_OF_MAPS = 5
#: The version of the interface of the extension. In a checkout the extension may be older than this file.
_INTERFACE = 6


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """Whether the native reader, or encoder, is available.

    Args:
        available: whether it is available.
        reason: why it is not available; empty if it is.
        remedy: how to make it available; empty if it is.
        librdkafka_version: the version of librdkafka, for example ``"2.12.1"``; ``None`` for the encoder.
        librdkafka_path: the path of librdkafka.
    """

    available: bool
    reason: str = ""
    remedy: str = ""
    librdkafka_version: str | None = None
    librdkafka_path: str | None = None


@cache
def status() -> NativeStatus:
    """Returns whether the native reader works in this process. Loads it; the result does not change.

    >>> found = status()
    >>> found.available == (not found.reason)
    True
    """
    native = _extension()
    if isinstance(native, NativeStatus):
        return native
    required = confluent_kafka.libversion()[0]
    reasons = []
    for path in _candidates():
        try:
            version = native.load(path)
        except OSError as e:
            reasons.append(f"{path}: {e}.")
            continue
        if version.split("-")[0] != required.split("-")[0]:
            differ = f"{path} is librdkafka {version}, but confluent-kafka uses {required}."
            return NativeStatus(False, differ, _WHEEL, version, path)
        return NativeStatus(True, "", "", version, path)
    return NativeStatus(False, " ".join(["librdkafka cannot be loaded.", *reasons]), _WHEEL)


@cache
def encoder_status() -> NativeStatus:
    """Returns whether the native encoder works in this process.

    >>> found = encoder_status()
    >>> found.available == (not found.reason)
    True
    """
    native = _extension()
    return native if isinstance(native, NativeStatus) else NativeStatus(True)


def uses_native(part: Literal["reader", "encoder"]) -> bool:
    """Returns whether the native reader or encoder is used. A missing one is logged once per process.

    Args:
        part: the reader or the encoder. Its variable contains ``native`` or ``plain``. If it is empty, the native one is
            used if it is available.

    Raises:
        InvalidOption: for another value, or if ``native`` is required and not available.
    """
    return _uses_native(part, os.environ.get(READER_VARIABLE if part == "reader" else ENCODER_VARIABLE, ""))


@cache
def _uses_native(part: str, required: str) -> bool:
    variable, found = (READER_VARIABLE, status) if part == "reader" else (ENCODER_VARIABLE, encoder_status)
    if required == "plain":
        return False
    if required not in ("", "native"):
        raise InvalidOption(f"{variable} is '{required}'.", remedy="Set it to native or plain, or unset it.")
    native = found()
    if native.available:
        return True
    if required:
        raise InvalidOption(
            f"{variable} requires the native {part}, which cannot be used. {native.reason}",
            remedy=f"{native.remedy} Or unset the variable, to use the plain {part}.",
        )
    logger.warning(
        "The plain %s is used, which is several times slower than the native one. %s %s",
        part,
        native.reason,
        native.remedy,
    )
    return False


def _extension() -> ModuleType | NativeStatus:
    """Returns the extension, or why it cannot be used."""
    try:
        # Imported by name, because the extension may be missing.
        extension = importlib.import_module("streamgroups_kafka._native")
    except ImportError as e:
        failure = build_failure(Path(__file__).parent)
        reason = f"The extension cannot be imported ({e})." if failure is None else f"Its build has failed: {failure}."
        return NativeStatus(False, reason, _BUILD)
    if getattr(extension, "INTERFACE", 1) != _INTERFACE:
        return NativeStatus(False, "The extension belongs to another version of streamgroups.", _BUILD)
    return extension


def build_failure(package: Path) -> str | None:
    """Returns why the build of the extension has failed; ``None`` if no failure is stored.

    Args:
        package: the directory of this package.
    """
    try:
        text = (package / _ERROR_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.strip().rstrip(".")[:_MAX_REASON] or None


@cache
def warn_if_plain() -> None:
    """Logs a warning, once per process, if the native reader or encoder cannot be used here.

    Called on the driver, because a user seldom reads the logs of executors, where :func:`uses_native` logs the same.
    """
    parts = [
        (part, found)
        for part, variable, found in (
            ("reader", READER_VARIABLE, status()),
            ("encoder", ENCODER_VARIABLE, encoder_status()),
        )
        if not found.available and os.environ.get(variable) != "plain"
    ]
    if parts:
        _, found = parts[0]
        logger.warning(
            "The plain %s will be used in this environment, which is several times slower than the native one. %s %s "
            "'streamgroups doctor' and 'streamgroups doctor --executors' show the state.",
            " and ".join(part for part, _ in parts),
            found.reason,
            found.remedy,
        )


def _candidates() -> Iterator[str]:
    """Returns paths of librdkafka: the one that confluent-kafka has loaded, that of its wheel, that of the system."""
    yield from _mapped()
    package = Path(confluent_kafka.__file__).parent
    for directory, names in (
        (package.parent / "confluent_kafka.libs", "librdkafka*.so*"),
        (package / ".dylibs", "librdkafka*.dylib"),
    ):
        yield from (str(path) for path in sorted(directory.glob(names)))
    system = ctypes.util.find_library("rdkafka")
    if system is not None:
        yield system


def _mapped() -> Iterator[str]:
    if not sys.platform.startswith("linux"):
        return
    for line in (
        Path("/proc/self/maps").read_text(encoding=sys.getfilesystemencoding(), errors="surrogateescape").splitlines()
    ):
        fields = line.split(maxsplit=_ENTRY_OF_MAPS)
        if len(fields) > _ENTRY_OF_MAPS and Path(fields[_ENTRY_OF_MAPS]).name.startswith("librdkafka"):
            yield fields[_ENTRY_OF_MAPS]
            return
