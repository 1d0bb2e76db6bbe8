"""Finds a Java that can run Kafka.

Used by ``_ivy`` (Ivy runs on Java) and for each node and tool. Source: Kafka 4 brokers need Java 17 (KIP-1013).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from streamgroups.errors import EmbeddedBrokerError

#: The minimum Java release of Kafka 4 brokers (and of Spark 4).
MINIMUM_JAVA = 17

_INSTALL = f"Install Java {MINIMUM_JAVA} or newer (Spark needs it too), or point JAVA_HOME at one."


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher and its version.

    Args:
        executable: the path of the ``java`` command.
        version: the full version, such as ``17.0.15``.
    """

    executable: str
    version: str


def parse_version(text: str) -> str | None:
    """Parses the version in the output of ``java -version``. Returns ``None`` without a version.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    >>> parse_version('java version "1.8.0_392"')
    '1.8.0_392'
    >>> parse_version('no such command') is None
    True
    """
    found = re.search(r'version "([^"]+)"', text)
    return found.group(1) if found else None


def release(version: str) -> int:
    """Returns the feature release of a version: 8 for ``1.8.0_392``, 21 for ``21.0.2``, 22 for ``22-ea``.

    >>> [release(v) for v in ("1.8.0_392", "17.0.15", "21", "22-ea")]
    [8, 17, 21, 22]
    """
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java() -> Java:
    """Returns the Java of ``JAVA_HOME``, else the one on ``PATH``.

    Raises:
        EmbeddedBrokerError: if it is missing, does not run, or is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME", "")
    if home:
        executable = Path(home) / "bin" / "java"
        if not executable.is_file():
            raise EmbeddedBrokerError(f"JAVA_HOME is {home!r}, but there is no {executable}.", remedy=_INSTALL)
        return _checked(str(executable))
    on_path = shutil.which("java")
    if on_path is None:
        raise EmbeddedBrokerError("Java was not found: JAVA_HOME is not set, PATH has no java.", remedy=_INSTALL)
    return _checked(on_path)


@functools.lru_cache(maxsize=8)
def _checked(executable: str) -> Java:
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedBrokerError(f"{executable} -version failed: {error}.", remedy=_INSTALL) from error
    return judge(executable, answer.stderr + answer.stdout)


def judge(executable: str, printed: str) -> Java:
    """Accepts or rejects a Java by the output of ``java -version``.

    Raises:
        EmbeddedBrokerError: if the output contains no version, or one older than 17.

    >>> judge("/usr/bin/java", 'openjdk version "17.0.15" 2025-04-15').version
    '17.0.15'
    """
    version = parse_version(printed)
    if version is None:
        raise EmbeddedBrokerError(f"{executable} -version printed no version: {printed.strip()!r}.", remedy=_INSTALL)
    if release(version) < MINIMUM_JAVA:
        raise EmbeddedBrokerError(f"{executable} is Java {version}, too old for Kafka.", remedy=_INSTALL)
    return Java(executable, version)
