"""Whether the native reader and encoder can be used here, and why not.

Called by ``range_reader`` and ``record_batches`` in Spark's workers and by ``streamgroups doctor``. Both are one C extension that may
be missing: no compiler was there when it was built. The encoder needs nothing else. The reader works through the librdkafka that confluent-kafka's wheel carries, so that both
readers are one version of one client; where confluent-kafka was built from source, that is the system's. Source: DESIGN
"Speed"; the layout that auditwheel and delocate give to wheels.
"""

from __future__ import annotations

import ctypes.util
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import confluent_kafka

#: Environment variable of the workers: ``plain`` or ``native`` instead of the better one that works.
READER_VARIABLE = "STREAMGROUPS_READER"
#: The same for what writes.
ENCODER_VARIABLE = "STREAMGROUPS_ENCODER"

_BUILD = "Install streamgroups again from a wheel, or on a machine with a C compiler and Python's headers."
_WHEEL = "Install confluent-kafka again from its wheel, which contains librdkafka."

_ENTRY_OF_MAPS = 5
#: What ``Client`` takes and returns; in a checkout the extension may be older than this file.
_INTERFACE = 2


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """Whether the native reader, or encoder, works here.

    Args:
        available: whether it does.
        reason: why not; empty if it does.
        remedy: what to do about that; empty if it works.
        librdkafka_version: of the library it uses, e.g. ``"2.12.1"``; the encoder uses none.
        librdkafka_path: where that library is.
    """

    available: bool
    reason: str = ""
    remedy: str = ""
    librdkafka_version: str | None = None
    librdkafka_path: str | None = None


@cache
def status() -> NativeStatus:
    """Whether the native reader works in this process. Loads it; the answer does not change.

    >>> found = status()
    >>> found.available == (not found.reason)
    True
    """
    try:
        native = _module()
    except ImportError as e:
        return NativeStatus(False, f"The extension cannot be imported ({e}).", _BUILD)
    if getattr(native, "INTERFACE", 1) != _INTERFACE:
        return NativeStatus(False, "The extension belongs to another version of streamgroups.", _BUILD)
    wanted = confluent_kafka.libversion()[0]
    reasons = []
    for path in _candidates():
        try:
            version = native.load(path)
        except OSError as e:
            reasons.append(f"{path}: {e}.")
            continue
        if version.split("-")[0] != wanted.split("-")[0]:
            differ = f"{path} is librdkafka {version}, but confluent-kafka uses {wanted}."
            return NativeStatus(False, differ, _WHEEL, version, path)
        return NativeStatus(True, "", "", version, path)
    return NativeStatus(False, " ".join(["librdkafka cannot be loaded.", *reasons]), _WHEEL)


@cache
def encoder_status() -> NativeStatus:
    """Whether the native encoder works in this process.

    >>> found = encoder_status()
    >>> found.available == (not found.reason)
    True
    """
    try:
        native = _module()
    except ImportError as e:
        return NativeStatus(False, f"The extension cannot be imported ({e}).", _BUILD)
    if not hasattr(native, "murmur2_of_keys"):
        return NativeStatus(False, "The extension belongs to an older version of streamgroups.", _BUILD)
    return NativeStatus(True)


def _module() -> ModuleType:
    # By name: where the extension was not built there is nothing to import.
    return importlib.import_module("streamgroups_kafka._native")


def _candidates() -> Iterator[str]:
    """Paths of librdkafka: the one this process has loaded already with confluent-kafka, its wheel's, the system's."""
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
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=_ENTRY_OF_MAPS)
        if len(fields) > _ENTRY_OF_MAPS and Path(fields[_ENTRY_OF_MAPS]).name.startswith("librdkafka"):
            yield fields[_ENTRY_OF_MAPS]
            return
