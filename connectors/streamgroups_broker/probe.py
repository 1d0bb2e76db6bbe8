"""Inspects Java and the jars of the embedded broker for ``streamgroups doctor``.

Called by ``streamgroups_cli.doctor``. :mod:`streamgroups.doctor.machine` evaluates the results. Source: ``spark-class``
(Java is that of ``JAVA_HOME``, else the one on ``PATH``).
"""

from __future__ import annotations

import subprocess

from streamgroups.doctor.machine import EmbeddedKafka, JavaFound, JavaUnusable
from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._cache import cache_root, damage
from streamgroups_broker._java import find_java, release
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION


def probe_java() -> JavaFound | JavaUnusable:
    """Returns the Java of Spark and of the embedded broker."""
    try:
        java = find_java()
    except EmbeddedBrokerError as e:
        return JavaUnusable(e.what, e.remedy)
    return JavaFound(java.executable, java.version, release(java.version), _modules(java.executable))


def probe_embedded_kafka() -> EmbeddedKafka:
    """Returns whether the jars of the embedded broker are cached and undamaged. Compares all files with checksums."""
    version = DEFAULT_KAFKA_VERSION
    directory = cache_root() / f"kafka-{version}"
    cached = directory.is_dir()
    return EmbeddedKafka(version, str(directory), cached, damage(directory, version) if cached else None)


def _modules(executable: str) -> frozenset[str] | None:
    """Returns the modules of ``java --list-modules``, without their versions. ``None`` if the command fails."""
    try:
        answer = subprocess.run([executable, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return frozenset(line.split("@")[0].strip() for line in answer.stdout.splitlines())
