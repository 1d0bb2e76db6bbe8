"""Looks at Java and at the embedded broker's jars for ``streamgroups doctor``.

Called by ``streamgroups_cli.doctor``; judged by :mod:`streamgroups.doctor.machine`. Java is found as ``spark-class`` finds it:
``JAVA_HOME``, else ``PATH``.
"""

from __future__ import annotations

import subprocess

from streamgroups.doctor.machine import EmbeddedKafka, JavaFound, JavaUnusable
from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._cache import DEFAULT_KAFKA_VERSION, cache_root, damage
from streamgroups_broker._java import find_java, release


def probe_java() -> JavaFound | JavaUnusable:
    """The Java that Spark and the embedded broker will run on."""
    try:
        java = find_java()
    except EmbeddedBrokerError as e:
        return JavaUnusable(e.what, e.remedy)
    return JavaFound(java.executable, java.version, release(java.version), _modules(java.executable))


def probe_embedded_kafka() -> EmbeddedKafka:
    """Whether the embedded broker's jars are in the cache, and whole: every file is compared with its checksum."""
    version = DEFAULT_KAFKA_VERSION
    directory = cache_root() / f"kafka-{version}"
    cached = directory.is_dir()
    return EmbeddedKafka(version, str(directory), cached, damage(directory, version) if cached else None)


def _modules(executable: str) -> frozenset[str] | None:
    """What ``java --list-modules`` prints, ``name@version`` a line; None if it would not say."""
    try:
        answer = subprocess.run([executable, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return frozenset(line.split("@")[0].strip() for line in answer.stdout.splitlines())
