"""The cache of Kafka's jars: finds, verifies and fills it.

Used by ``embedded``. ``_ivy`` downloads the jars. The directory is
``(XDG_CACHE_HOME or ~/.cache)/streamgroups/kafka-<version>``. A rename creates it with its complete content, and a file
lock prevents two processes from filling it concurrently. ``manifest.json`` contains the size and SHA-256 of every file
after the download. The jars of the default release are compared with the SHA-256 in this package
(``kafka-<version>.json``), before any of them is executed. Those of other releases are trusted at the first download. Source: KIP-631 (bootstrap
checkpoint), JEP 350 (class archive).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from streamgroups.errors import EmbeddedBrokerError
from streamgroups.home_paths import expanded
from streamgroups.printable import listed
from streamgroups.private_directories import make_private
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION, check_version

logger = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
#: The features of a new cluster. Kafka's StorageTool writes this file when the cache is filled.
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A verified directory with all files of one Kafka release.

    Args:
        version: the release.
        directory: the directory of jars, manifest and bootstrap checkpoint.
        jars: the names of the jars, sorted.
    """

    version: str
    directory: Path
    jars: tuple[str, ...]

    @property
    def classpath(self) -> str:
        """The classpath of all jars in a stable order, for Java's option ``-cp``."""
        return os.pathsep.join(str(self.directory / name) for name in self.jars)

    @property
    def bootstrap_checkpoint(self) -> Path:
        """The file to copy into the log directory of a new node."""
        return self.directory / BOOTSTRAP_CHECKPOINT


def cache_root() -> Path:
    """Returns ``streamgroups`` in the user's cache directory (``XDG_CACHE_HOME``, else ``~/.cache``).

    Raises:
        InvalidOption: if it is in the home directory of a user who has none.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else expanded("~/.cache", remedy="Set XDG_CACHE_HOME or HOME.")) / "streamgroups"


def kafka_jars(version: str, fetch: Callable[[Path, str], None], prepare: Callable[[KafkaJars], None]) -> KafkaJars:
    """Returns the jars of one Kafka release. They are downloaded once into the cache.

    Args:
        version: the release, such as ``4.1.2``.
        fetch: writes the jars of a release into an empty directory, and executes none of them.
        prepare: writes the bootstrap checkpoint beside verified jars. It can execute them.

    Raises:
        EmbeddedBrokerError: if the cache cannot be written, or the download failed.
        InvalidOption: if the version is not supported.
    """
    return cached_jars(f"kafka-{check_version(version)}", version, fetch, prepare)


def cached_jars(
    name: str,
    version: str,
    fetch: Callable[[Path, str], None],
    prepare: Callable[[KafkaJars], None] = lambda jars: None,
) -> KafkaJars:
    """Returns the verified jars of one directory of the cache. Fills it first if they are missing.

    Args:
        name: the name of the directory in the cache.
        version: the version for ``fetch`` and for the manifest.
        fetch: writes the jars into an empty directory, and executes none of them.
        prepare: writes other files beside verified jars. It can execute them.

    Raises:
        EmbeddedBrokerError: if the cache cannot be written, or the download failed.
    """
    directory = cache_root() / name
    try:
        return verified(directory, version)
    except _Unusable:
        pass
    try:
        make_private(directory.parent)
        with _locked(directory.parent / f"{name}.lock"):
            return _filled(directory, version, fetch, prepare)
    except OSError as error:
        raise EmbeddedBrokerError(
            f"The cache {directory} cannot be written: {error}.",
            remedy="Set XDG_CACHE_HOME to a directory that this user can write to.",
        ) from error


def damage(directory: Path, version: str) -> str | None:
    """Describes the damage of the jars in a directory of the cache. ``None`` if they are undamaged."""
    try:
        verified(directory, version)
    except _Unusable as why:
        return str(why)
    return None


def _filled(
    directory: Path, version: str, fetch: Callable[[Path, str], None], prepare: Callable[[KafkaJars], None]
) -> KafkaJars:
    """Fills the cache under the lock, unless another process has just filled it."""
    try:
        return verified(directory, version)
    except _Unusable as why:
        damage = str(why)
    if shipped_hashes(directory.name) is None:
        logger.warning(
            "The jars of %s are not verified: streamgroups contains SHA-256 checksums only for Kafka %s",
            directory.name,
            DEFAULT_KAFKA_VERSION,
        )
    work = Path(tempfile.mkdtemp(prefix=f".kafka-{version}-", dir=directory.parent))
    try:
        try:
            fetch(work, version)
        except EmbeddedBrokerError as error:
            if not directory.exists():
                raise
            raise EmbeddedBrokerError(
                f"The cache {directory} is damaged ({damage}) and could not be downloaded again. {error.what}",
                remedy=error.remedy,
            ) from error
        found = {path.name: _sha256(path) for path in work.glob("*.jar")}
        _check_shipped(directory.name, found)
        # Only now: a wrong mirror must not execute code.
        prepare(KafkaJars(version, work, tuple(sorted(found))))
        write_manifest(work, version)
        if directory.exists():
            os.rename(directory, work.with_name(work.name + ".damaged"))
        os.rename(work, directory)
        return verified(directory, version)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(work.with_name(work.name + ".damaged"), ignore_errors=True)


def class_archive(jars: KafkaJars, java_version: str, record: Callable[[Path], None]) -> Path | None:
    """Returns an archive of Kafka's loaded classes for one Java release, which halves the start of a node (JEP 350).

    It is created at the first start with that Java release. A JVM ignores an incompatible archive. The manifest does
    not contain it, because its loss only costs a second.

    Args:
        jars: the verified cache.
        java_version: the full version of Java. Each version needs its own archive.
        record: writes the archive.

    Returns:
        its path. ``None`` if this Java cannot create an archive or the cache is read-only.
    """
    release = re.sub(r"[^\w.+-]", "_", java_version)
    archive = jars.directory / f"classes-java-{release}.jsa"
    return made_once(archive, jars.directory.parent / f"kafka-{jars.version}.lock", record)


def made_once(archive: Path, lock: Path, record: Callable[[Path], None]) -> Path | None:
    """Returns an archive of classes. One of several processes creates it, and the others wait.

    Args:
        archive: the path of the archive.
        lock: the lock file.
        record: writes the archive.

    Returns:
        its path. ``None`` if it cannot be created or its directory is read-only.
    """
    with suppress(OSError):
        if not archive.exists():
            with _locked(lock):
                if not archive.exists():
                    _record(archive, record)
        return archive if archive.stat().st_size > 0 else None
    return None


def _record(archive: Path, record: Callable[[Path], None]) -> None:
    """Creates the archive atomically. An empty file records that it could not be created."""
    new = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with suppress(EmbeddedBrokerError):
            record(new)
        if not new.exists():
            new.touch()
        os.replace(new, archive)
    finally:
        new.unlink(missing_ok=True)


class _Unusable(Exception):
    """The directory is missing or does not match its manifest. The text contains the damage."""


def write_manifest(directory: Path, version: str) -> None:
    """Writes the size and SHA-256 of every file in a newly filled directory."""
    files = {
        path.name: {"size_bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(directory.iterdir())
    }
    (directory / _MANIFEST).write_text(
        json.dumps({"kafka": version, "files": files}, indent=1) + "\n", encoding="utf-8"
    )


def verified(directory: Path, version: str) -> KafkaJars:
    """Checks the size and SHA-256 of every file in the cache against its manifest.

    Raises:
        _Unusable: if a file is missing or damaged. The text contains its name.
    """
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        files = manifest["files"].items()
    except FileNotFoundError as error:
        raise _Unusable("it has no manifest") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise _Unusable(f"its manifest is unreadable: {error}") from error
    for name, recorded in files:
        path = directory / name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != recorded["size_bytes"]:
                raise _Unusable(f"{name} has {size_bytes} bytes instead of {recorded['size_bytes']}")
            if _sha256(path) != recorded["sha256"]:
                raise _Unusable(f"{name} does not match its SHA-256")
        except OSError as error:
            raise _Unusable(f"{name} is missing or unreadable: {error}") from error
    try:
        _check_shipped(directory.name, {name: it["sha256"] for name, it in files if name.endswith(".jar")})
    except EmbeddedBrokerError as error:
        raise _Unusable(error.what) from error
    return KafkaJars(version, directory, tuple(name for name in sorted(manifest["files"]) if name.endswith(".jar")))


def shipped_hashes(name: str) -> dict[str, str] | None:
    """Returns the SHA-256 of each jar of a directory of the cache. ``None`` if this package does not contain them.

    >>> shipped_hashes("kafka-4.1.2")["kafka_2.13-4.1.2.jar"][:8]
    '965af2d9'
    >>> shipped_hashes("kafka-9.9.9") is None
    True
    """
    try:
        known: dict[str, str] = json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return known


def _check_shipped(name: str, found: Mapping[str, str]) -> None:
    """Compares jars with the names and SHA-256 in this package.

    Raises:
        EmbeddedBrokerError: if jars differ. The error contains their names.
    """
    known = shipped_hashes(name)
    if known is None or known == found:
        return
    others = sorted(jar for jar in known.keys() | found.keys() if known.get(jar) != found.get(jar))
    raise EmbeddedBrokerError(
        f"The jars of {name} are not those that streamgroups expects: {listed(others)}.",
        remedy=("Check the Maven repository or the mirror in STREAMGROUPS_MAVEN_REPOSITORY: it returned other files."),
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a file lock. Waits while another process holds it."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
