"""Kafka's jars in the user's cache: found, verified, and filled once.

Used by ``streamgroups_broker.embedded``; the filling itself is ``streamgroups_broker._ivy``. The directory is
``(XDG_CACHE_HOME or ~/.cache)/streamgroups/kafka-<version>``. It appears in one rename, complete or not at all, and a file
lock keeps two processes from filling it twice. ``manifest.json`` holds the size and SHA-256 of every jar as the resolver
got them. Of the default release the jars are compared with the SHA-256 that this package ships (``kafka-<version>.json``); those of other
releases are trusted on first use, on the word of the repository.
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

from streamgroups.errors import EmbeddedBrokerError, InvalidOption

logger = logging.getLogger(__name__)

#: The Kafka release used unless another is asked for.
DEFAULT_KAFKA_VERSION = "4.1.2"

_MANIFEST = "manifest.json"
#: Written by Kafka's own StorageTool when the cache is filled: the features that a new cluster starts with.
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A verified directory with everything one Kafka release needs to run.

    Args:
        version: the release.
        directory: holds the jars, the manifest and the bootstrap checkpoint.
        jars: file names, sorted.
    """

    version: str
    directory: Path
    jars: tuple[str, ...]

    @property
    def classpath(self) -> str:
        """All jars, in a stable order, as Java's ``-cp`` wants them."""
        return os.pathsep.join(str(self.directory / name) for name in self.jars)

    @property
    def bootstrap_checkpoint(self) -> Path:
        """The file to put into a new node's log directory."""
        return self.directory / BOOTSTRAP_CHECKPOINT


def cache_root() -> Path:
    """``streamgroups`` in the user's cache directory (``XDG_CACHE_HOME``, else ``~/.cache``)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "streamgroups"


def check_version(version: str) -> str:
    """Accept a Kafka release that the embedded broker can run.

    Raises:
        InvalidOption: not a version, or older than 4.0 (those run on ZooKeeper or log through log4j 1).

    >>> check_version("4.1.2")
    '4.1.2'
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or int(version.split(".")[0]) < 4:
        raise InvalidOption(
            f"Kafka version {version!r} cannot be embedded.",
            remedy=f"Use 4.0.0 or newer, such as {DEFAULT_KAFKA_VERSION}.",
        )
    return version


def kafka_jars(version: str, fill: Callable[[Path, str], None]) -> KafkaJars:
    """The jars of one Kafka release, from the cache or (once) from the network.

    Args:
        version: the release, such as ``4.1.2``.
        fill: puts the jars and the bootstrap checkpoint of a release into an empty directory.

    Raises:
        EmbeddedBrokerError: the cache cannot be written, or filling it failed.
        InvalidOption: the version cannot be embedded.
    """
    return cached_jars(f"kafka-{check_version(version)}", version, fill)


def cached_jars(name: str, version: str, fill: Callable[[Path, str], None]) -> KafkaJars:
    """The jars in one directory of the cache, verified; filled first if they are not there.

    Args:
        name: of the directory in the cache.
        version: what ``fill`` is told, and the manifest says.
        fill: puts the jars into an empty directory.

    Raises:
        EmbeddedBrokerError: the cache cannot be written, or filling it failed.
    """
    directory = cache_root() / name
    try:
        return verified(directory, version)
    except _Unusable:
        pass
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _locked(directory.parent / f"{name}.lock"):
            return _filled(directory, version, fill)
    except OSError as error:
        raise EmbeddedBrokerError(
            f"The cache {directory} cannot be written: {error}.",
            remedy="Set XDG_CACHE_HOME to a directory that this user can write to.",
        ) from error


def damage(directory: Path, version: str) -> str | None:
    """What is wrong with the jars in a directory of the cache; None if they are whole."""
    try:
        verified(directory, version)
    except _Unusable as why:
        return str(why)
    return None


def _filled(directory: Path, version: str, fill: Callable[[Path, str], None]) -> KafkaJars:
    """Fill the cache under the lock, unless another process just did."""
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
            fill(work, version)
        except EmbeddedBrokerError as error:
            if not directory.exists():
                raise
            raise EmbeddedBrokerError(
                f"The cache {directory} is damaged ({damage}) and could not be downloaded again. {error.what}",
                remedy=error.remedy,
            ) from error
        _check_shipped(directory.name, {path.name: _sha256(path) for path in work.glob("*.jar")})
        write_manifest(work, version)
        if directory.exists():
            os.rename(directory, work.with_name(work.name + ".damaged"))
        os.rename(work, directory)
        return verified(directory, version)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(work.with_name(work.name + ".damaged"), ignore_errors=True)


def class_archive(jars: KafkaJars, java_version: str, record: Callable[[Path], None]) -> Path | None:
    """An archive of Kafka's loaded classes for one Java release, which halves the start of a node (JEP 350).

    Made at the first start with that Java; a JVM that finds it unfitting ignores it. That is why it stands beside the
    manifest: losing it costs a second, nothing else.

    Args:
        jars: the verified cache.
        java_version: the full version; another one needs another archive.
        record: writes the archive.

    Returns:
        its path, or None if this Java cannot make one or the cache is read-only.
    """
    release = re.sub(r"[^\w.+-]", "_", java_version)
    archive = jars.directory / f"classes-java-{release}.jsa"
    return made_once(archive, jars.directory.parent / f"kafka-{jars.version}.lock", record)


def made_once(archive: Path, lock: Path, record: Callable[[Path], None]) -> Path | None:
    """An archive of classes that processes side by side want: one of them makes it, the others wait.

    Args:
        archive: where it is to be.
        lock: the file that they wait for.
        record: writes it.

    Returns:
        its path, or None if it cannot be made or the place is read-only.
    """
    with suppress(OSError):
        if not archive.exists():
            with _locked(lock):
                if not archive.exists():
                    _record(archive, record)
        return archive if archive.stat().st_size > 0 else None
    return None


def _record(archive: Path, record: Callable[[Path], None]) -> None:
    """Make the archive in one step; an empty file remembers that it could not be made."""
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
    """The directory is missing or not what its manifest says; the text says what is wrong."""


def write_manifest(directory: Path, version: str) -> None:
    """Record size and SHA-256 of every file in a freshly filled directory."""
    files = {
        path.name: {"size_bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(directory.iterdir())
    }
    (directory / _MANIFEST).write_text(
        json.dumps({"kafka": version, "files": files}, indent=1) + "\n", encoding="utf-8"
    )


def verified(directory: Path, version: str) -> KafkaJars:
    """Check every file in the cache against its manifest: size and SHA-256.

    Raises:
        _Unusable: missing or damaged; the text names the file.
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
    """The SHA-256 of each jar that belongs into a directory of the cache; ``None`` if this package does not know.

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
    """Compares jars, by their names and SHA-256, with what this package ships.

    Raises:
        EmbeddedBrokerError: names those that are others.
    """
    known = shipped_hashes(name)
    if known is None or known == found:
        return
    others = sorted(jar for jar in known.keys() | found.keys() if known.get(jar) != found.get(jar))
    raise EmbeddedBrokerError(
        f"The jars of {name} are not those that streamgroups knows: {', '.join(others[:5])}{', ...' if len(others) > 5 else ''}.",
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
    """Hold a file lock; wait for whoever has it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
