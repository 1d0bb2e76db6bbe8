"""Downloads Kafka's jars with the Ivy in PySpark's wheel, and creates the bootstrap checkpoint of new clusters.

Used by ``embedded`` to fill the cache, once per Kafka release. Source: Apache Ivy's standalone mode
(``org.apache.ivy.Main``); Kafka's ``StorageTool`` (KIP-631) for the bootstrap checkpoint.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups.url_logins import without_logins
from streamgroups_broker._cache import BOOTSTRAP_CHECKPOINT, KafkaJars, cache_root, kafka_jars
from streamgroups_broker._java import Java
from streamgroups_broker._properties import as_file, node_properties
from streamgroups_broker._releases import is_kafka_3, release_properties

#: URL (``https://`` or ``file://``) of a Maven repository that replaces Maven Central.
MIRROR_VARIABLE = "STREAMGROUPS_MAVEN_REPOSITORY"

_LOG4J_BRIDGE = "2.25.3"
_RESOLVE_TIMEOUT_S = 900.0
_FORMAT_TIMEOUT_S = 120.0

# Kafka's tools depend on Kafka Connect with a web server, which is unused here. It is half of the download.
_EXCLUDED = (
    ("org\\.apache\\.kafka", "connect-.*"),
    ("com\\.fasterxml\\.jackson\\.jakarta\\.rs", ".*"),
    ("org\\.glassfish.*", ".*"),
    ("org\\.eclipse\\.jetty.*", ".*"),
    ("org\\.apache\\.maven", ".*"),
    ("io\\.github\\.classgraph", ".*"),
    ("io\\.swagger.*", ".*"),
    ("(javax|jakarta)\\..*", ".*"),
)
# Kafka 3 logs through log4j 1. Bridges replace it, so that all releases have the same logging configuration.
_LOG4J_1 = (("ch\\.qos\\.reload4j", ".*"), ("org\\.slf4j", "slf4j-(reload4j|log4j12)"))


def release_jars(version: str, java: Callable[[], Java]) -> KafkaJars:
    """Returns the jars of a Kafka release and its bootstrap checkpoint. They are downloaded once into the cache.

    Args:
        version: the release.
        java: finds the Java for Ivy and Kafka's StorageTool, if the cache does not contain the release.

    Raises:
        EmbeddedBrokerError: if PySpark has no Ivy, the repository is unreachable, or it does not contain the release. Also
            if its jars are not those that this package expects.
        InvalidOption: if the version is not supported.
    """
    return kafka_jars(
        version,
        lambda directory, version: _fetch_release(directory, version, java()),
        lambda jars: write_bootstrap_checkpoint(jars, java()),
    )


def _fetch_release(directory: Path, version: str, java: Java) -> None:
    files = [f"{name}-{version}.jar" for name in ("kafka_2.13", "kafka-tools")]
    _retrieve(directory, ivy_module(version), java, files, f"Kafka {version}")


def fetch_exactly(directory: Path, coordinates: Sequence[str], java: Java) -> None:
    """Downloads exactly these jars into a directory, without their dependencies.

    Args:
        directory: an empty directory.
        coordinates: Maven coordinates, as ``group:artifact:version``.
        java: the Java for Ivy.

    Raises:
        EmbeddedBrokerError: if PySpark has no Ivy, the repository is unreachable, or it does not contain a jar.
    """
    _fetch(directory, coordinates, java, "default->master", transitive=False)


def fetch_with_dependencies(directory: Path, coordinates: Sequence[str], java: Java) -> None:
    """Downloads these jars and their dependencies into a directory. Arguments and errors are those of :func:`fetch_exactly`."""
    _fetch(directory, coordinates, java, "default->default", transitive=True)


def _fetch(directory: Path, coordinates: Sequence[str], java: Java, conf: str, *, transitive: bool) -> None:
    required = [coordinate.split(":") for coordinate in coordinates]
    files = [f"{name}-{version}.jar" for _, name, version in required]
    document = _ivy_document(required, conf, transitive=transitive)
    _retrieve(directory, document, java, files, ", ".join(coordinates))


def retrieve_archive(directory: Path, coordinate: str, java: Java) -> Path:
    """Downloads an archive into a directory. Returns its file.

    Args:
        directory: an empty directory.
        coordinate: its Maven coordinate, as ``group:artifact:version:type:classifier``.
        java: the Java for Ivy.

    Raises:
        EmbeddedBrokerError: if PySpark has no Ivy, the repository is unreachable, or it does not contain the archive.
    """
    org, name, revision, type_, classifier = coordinate.split(":")
    document = (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="streamgroups" module="archive"/><configurations><conf name="default"/></configurations>'
        f'<dependencies><dependency org="{org}" name="{name}" rev="{revision}" conf="default->*" transitive="false">'
        f'<artifact name="{name}" type="{type_}" ext="{type_}" m:classifier="{classifier}"/>'
        "</dependency></dependencies></ivy-module>\n"
    )
    archive = directory / f"{name}-{revision}-{classifier}.{type_}"
    _retrieve(directory, document, java, [archive.name], coordinate, types=(type_,))
    return archive


def _retrieve(
    directory: Path,
    document: str,
    java: Java,
    files: Iterable[str],
    what: str,
    *,
    types: tuple[str, ...] = ("jar", "bundle"),
) -> None:
    """Runs Ivy, which downloads the dependencies of an Ivy file into the directory. Checks that these files exist."""
    with tempfile.TemporaryDirectory(prefix="streamgroups-ivy-") as work:
        settings, module = Path(work, "ivysettings.xml"), Path(work, "ivy.xml")
        mirror, has_poms = os.environ.get(MIRROR_VARIABLE), "jar" in types
        settings.write_text(ivy_settings(mirror, Path(work, "cache"), has_poms=has_poms), encoding="utf-8")
        module.write_text(document, encoding="utf-8")
        pattern = f"{directory}/[artifact]-[revision](-[classifier]).[ext]"
        ivy = [java.executable, "-jar", str(_ivy_jar()), "-settings", str(settings), "-ivy", str(module)]
        printed = _run([*ivy, "-retrieve", pattern, "-types", *types], _RESOLVE_TIMEOUT_S)
    if printed.returncode != 0 or not all((directory / name).is_file() for name in files):
        raise could_not_fetch(what, printed.stdout + printed.stderr)


def ivy_settings(mirror: str | None, ivy_cache: Path, *, has_poms: bool = True) -> str:
    """Returns Ivy's settings with one Maven repository: Ivy's default or the user's mirror.

    Raises:
        InvalidOption: if another host on the path to the mirror could modify its responses.

    >>> 'root="https://mirror.example/maven"' in ivy_settings("https://mirror.example/maven", Path("/tmp/c"))
    True
    >>> "root=" in ivy_settings(None, Path("/tmp/c"))
    False
    """
    if mirror and not mirror.lower().startswith(("https://", "file:")):
        raise InvalidOption(
            f"{MIRROR_VARIABLE} is neither an https:// nor a file:// URL, so its jars could be modified in transit.",
            remedy="Give the mirror a certificate, or copy the jars and name their directory with file://.",
        )
    root = f" root={quoteattr(mirror)}" if mirror else ""
    # The POM of an archive can refer to a parent that no repository needs for it.
    root += "" if has_poms else ' usepoms="false"'
    return (
        f'<ivysettings><settings defaultResolver="maven"/><caches defaultCacheDir={quoteattr(str(ivy_cache))}/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>\n'
    )


def ivy_module(version: str) -> str:
    """Returns the Ivy file for the broker, its command line tools, and the bridges from its logging to log4j 2.

    >>> "log4j-1.2-api" in ivy_module("3.9.2"), "log4j-1.2-api" in ivy_module("4.1.2")
    (True, False)
    """
    is_old = is_kafka_3(version)
    bridges = ("log4j-core", "log4j-slf4j-impl", *(("log4j-1.2-api",) if is_old else ()))
    required = (
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        *(("org.apache.logging.log4j", bridge, _LOG4J_BRIDGE) for bridge in bridges),
    )
    return _ivy_document(required, "default->default", transitive=True, excluded=_LOG4J_1 if is_old else ())


def _ivy_document(
    required: Iterable[Sequence[str]], conf: str, *, transitive: bool, excluded: Sequence[tuple[str, str]] = ()
) -> str:
    """Returns an Ivy file with dependencies, each given by group, name and version."""
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{revision}" conf="{conf}" transitive="{str(transitive).lower()}"/>'
        for org, name, revision in required
    )
    excludes = "".join(
        f'<exclude org="{org}" module="{name}" matcher="regexp"/>' for org, name in (*_EXCLUDED, *excluded)
    )
    return (
        '<ivy-module version="2.0"><info organisation="streamgroups" module="embedded-kafka"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}{excludes}</dependencies></ivy-module>\n"
    )


def could_not_fetch(what: str, printed: str) -> EmbeddedBrokerError:
    """Creates the error of a failed resolution, with the missing modules.

    >>> error = could_not_fetch("Kafka 4.1.2", ":: org.apache.kafka#kafka_2.13;4.1.2: not found")
    >>> error.what
    'Kafka 4.1.2 could not be fetched: org.apache.kafka#kafka_2.13;4.1.2: not found.'
    """
    return EmbeddedBrokerError(
        f"{what} could not be fetched: {_problems(printed)}.",
        remedy=(
            f"The first use needs a Maven repository: set {MIRROR_VARIABLE} to the URL of one you can reach, "
            f"or copy {cache_root()} from a machine that has it."
        ),
    )


def _problems(printed: str) -> str:
    """Returns the missing modules, as Ivy printed them. Ivy prints the URL of the mirror, which can contain a login."""
    printed = without_logins(printed)
    problems = re.findall(r":: (\S+#\S+;\S+: .+?)\s*(?:::)?$", printed, re.MULTILINE)
    problems += re.findall(
        r"^\s*(?:Server access error.*|\S*(?:Host|Connect|Http|SSL)\w*Exception.*)$", printed, re.MULTILINE
    )
    named = "; ".join(dict.fromkeys(problem.strip() for problem in problems[:4]))
    return named or " | ".join(printed.strip().splitlines()[-5:]) or "Ivy printed nothing"


def _ivy_jar() -> Path:
    """Returns the Ivy jar in PySpark's wheel, without an import of PySpark."""
    spec = importlib.util.find_spec("pyspark")
    jars = (
        sorted(Path(spec.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
        if (spec is not None and spec.submodule_search_locations)
        else []
    )
    if not jars:
        raise EmbeddedBrokerError(
            "PySpark's jars have no Ivy to fetch Kafka with.",
            remedy="Install pyspark from its wheel: pip install pyspark.",
        )
    return jars[-1]


def write_bootstrap_checkpoint(jars: KafkaJars, java: Java) -> None:
    """Formats a temporary directory with Kafka's StorageTool, and keeps the file that is equal for all clusters.

    A formatted directory contains two files: ``meta.properties`` (ids, plain text) and ``bootstrap.checkpoint`` (the
    features of the release, binary). With the latter in the cache, a node starts without a separate JVM for the format.

    Args:
        jars: the release. Only its jars are executed, and no other file in their directory.
        java: the Java for the tool.

    Raises:
        EmbeddedBrokerError: if the tool fails.
    """
    with tempfile.TemporaryDirectory(prefix="streamgroups-format-") as work:
        log_dir, config = Path(work, "data"), Path(work, "server.properties")
        properties = node_properties(1, [9092], [9093], log_dir, release_properties(jars.version))
        config.write_text(as_file(properties), encoding="utf-8")
        printed = _run(
            [
                java.executable,
                "-cp",
                jars.classpath,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "AAAAAAAAAAAAAAAAAAAAAQ",
                "-c",
                str(config),
            ],
            _FORMAT_TIMEOUT_S,
        )
        made = log_dir / BOOTSTRAP_CHECKPOINT
        if printed.returncode != 0 or not made.is_file():
            raise EmbeddedBrokerError(
                f"Kafka's StorageTool failed: {without_logins(printed.stdout + printed.stderr).strip()[-500:]}.",
                remedy="Try another Kafka version.",
            )
        shutil.copyfile(made, jars.bootstrap_checkpoint)


def _run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise EmbeddedBrokerError(
            f"{' '.join(command[:4])} … took longer than {timeout_s:.0f} s.", remedy="Check the network and try again."
        ) from error
    except OSError as error:
        raise EmbeddedBrokerError(f"{command[0]} could not be run: {error}.", remedy="Check JAVA_HOME.") from error
