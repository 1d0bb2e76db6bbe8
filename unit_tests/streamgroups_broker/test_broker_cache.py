"""The cache is filled once, appears complete or not at all, and heals itself."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_broker import _cache
from streamgroups_broker._cache import KafkaJars, cache_root, class_archive, kafka_jars
from streamgroups_broker._ivy import ivy_settings, release_jars
from streamgroups_broker._java import Java
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION, check_version
from unit_tests.no_home import remove_home


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamgroups" / "kafka-4.9.9"


class Filler:
    """Stands for the network and for Kafka's StorageTool: counts the requests."""

    def __init__(self) -> None:
        self.calls = 0
        self.offline = False

    def __call__(self, directory: Path, version: str) -> None:
        self.calls += 1
        (directory / "partial.jar").write_bytes(b"p")
        if self.offline:
            raise EmbeddedBrokerError("Kafka could not be fetched.", remedy="Set a mirror.")
        (directory / f"kafka_2.13-{version}.jar").write_bytes(b"broker")

    def prepare(self, jars: KafkaJars) -> None:
        jars.bootstrap_checkpoint.write_bytes(b"features")


def _filled(fill: Filler) -> KafkaJars:
    return kafka_jars("4.9.9", fill, fill.prepare)


def test_it_is_filled_once(cache: Path) -> None:
    fill = Filler()
    first, second = _filled(fill), _filled(fill)
    assert first == second
    assert fill.calls == 1
    assert first.jars == ("kafka_2.13-4.9.9.jar", "partial.jar")
    assert first.classpath.startswith(str(cache / "kafka_2.13-4.9.9.jar"))
    assert first.bootstrap_checkpoint.read_bytes() == b"features"


def test_nothing_appears_when_filling_fails(cache: Path) -> None:
    fill = Filler()
    fill.offline = True
    with pytest.raises(EmbeddedBrokerError, match="Set a mirror"):
        _filled(fill)
    assert [path.name for path in cache.parent.iterdir()] == ["kafka-4.9.9.lock"]


@pytest.mark.parametrize("damage", [b"xroker", b"short", None])
def test_a_damaged_jar_is_fetched_again(cache: Path, damage: bytes | None) -> None:
    fill = Filler()
    _filled(fill)
    jar = cache / "kafka_2.13-4.9.9.jar"
    jar.unlink() if damage is None else jar.write_bytes(damage)
    _filled(fill)
    assert fill.calls == 2
    assert jar.read_bytes() == b"broker"
    assert sorted(path.name for path in cache.parent.iterdir()) == ["kafka-4.9.9", "kafka-4.9.9.lock"]


def test_a_damaged_jar_without_network_is_named(cache: Path) -> None:
    fill = Filler()
    _filled(fill)
    (cache / "kafka_2.13-4.9.9.jar").write_bytes(b"xroker")
    fill.offline = True
    with pytest.raises(
        EmbeddedBrokerError, match=r"kafka_2\.13-4\.9\.9\.jar does not match its SHA-256.*again.*mirror"
    ):
        _filled(fill)


def test_an_unreadable_manifest_counts_as_damage(cache: Path) -> None:
    fill = Filler()
    _filled(fill)
    (cache / "manifest.json").write_text("{")
    _filled(fill)
    assert fill.calls == 2


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert cache_root() == file / "streamgroups"
    with pytest.raises(EmbeddedBrokerError, match="XDG_CACHE_HOME"):
        _filled(Filler())


@pytest.mark.parametrize("version", ["3.6.2", "latest", "4.1", "../4.9.9"])
def test_versions_that_cannot_be_embedded(version: str) -> None:
    with pytest.raises(InvalidOption, match=r"3\.7\.0 or newer"):
        check_version(version)


def test_the_class_archive_is_recorded_once_per_java(cache: Path) -> None:
    jars = _filled(Filler())
    recorded: list[Path] = []

    def record(path: Path) -> None:
        recorded.append(path)
        path.write_bytes(b"classes")

    archive = class_archive(jars, "17.0.15", record)
    assert archive == class_archive(jars, "17.0.15", record) == cache / "classes-java-17.0.15.jsa"
    assert len(recorded) == 1
    assert class_archive(jars, "21.0.2", record) != archive


def test_a_java_that_records_no_archive_is_run_once(cache: Path) -> None:
    jars = _filled(Filler())
    requested: list[Path] = []

    def fail(path: Path) -> None:
        requested.append(path)
        raise EmbeddedBrokerError("died")

    assert class_archive(jars, "17.0.15", fail) is None
    assert class_archive(jars, "17.0.15", fail) is None
    assert len(requested) == 1


def test_other_jars_than_those_shipped_are_rejected(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"kafka_2.13-4.9.9.jar": "0" * 64, "missing.jar": "1" * 64}
    monkeypatch.setattr(_cache, "shipped_hashes", lambda name: known if name == "kafka-4.9.9" else None)
    with pytest.raises(
        EmbeddedBrokerError,
        match=r"kafka-4.9.9 are not those that streamgroups expects: kafka_2.13-4.9.9.jar, missing.jar, partial.jar.*STREAMGROUPS_MAVEN",
    ):
        _filled(Filler())
    assert not cache.exists()


_JARS = ("kafka_2.13", "kafka-tools", "other")
#: Ivy writes jars, and any other program its arguments.
_JAVA = """#!/bin/sh
if [ "$1" = -jar ]; then
    while [ "$1" != -retrieve ]; do shift; done
    for name in kafka_2.13 kafka-tools other; do echo "$name" > "$(dirname "$2")/$name-VERSION.jar"; done
else
    echo "$@" > "EXECUTED"
    while [ "$1" != -c ]; do shift; done
    data=$(sed -n 's/^log.dirs=//p' "$2")
    mkdir -p "$data" && touch "$data/bootstrap.checkpoint"
fi
"""


def _java(directory: Path, version: str) -> tuple[Java, Path]:
    java, executed = directory / "java", directory / "executed"
    java.write_text(_JAVA.replace("VERSION", version).replace("EXECUTED", str(executed)))
    java.chmod(0o700)
    return Java(str(java), "17.0.15"), executed


def test_jars_of_a_wrong_mirror_are_not_executed(tmp_path: Path) -> None:
    java, executed = _java(tmp_path, DEFAULT_KAFKA_VERSION)
    with pytest.raises(EmbeddedBrokerError, match=r"not those that streamgroups expects.*STREAMGROUPS_MAVEN"):
        release_jars(DEFAULT_KAFKA_VERSION, lambda: java)
    assert not executed.exists()


def test_the_storage_tool_loads_the_checked_jars_only(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, executed = _java(tmp_path, "4.9.9")
    known = {f"{it}-4.9.9.jar": hashlib.sha256(f"{it}\n".encode()).hexdigest() for it in _JARS}
    monkeypatch.setattr(_cache, "shipped_hashes", lambda name: known)
    jars = release_jars("4.9.9", lambda: java)
    assert jars.bootstrap_checkpoint.exists()
    classpath = executed.read_text().split()[1].split(os.pathsep)
    assert [Path(it).name for it in classpath] == [f"{it}-4.9.9.jar" for it in sorted(_JARS)]


def test_a_cache_with_other_jars_than_those_shipped_is_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = Filler()
    _filled(fill)
    known = {path.name: _cache._sha256(path) for path in cache.glob("*.jar")}
    (cache / "partial.jar").write_bytes(b"x")
    _cache.write_manifest(cache, "4.9.9")
    monkeypatch.setattr(_cache, "shipped_hashes", lambda name: known)
    _filled(fill)
    assert fill.calls == 2
    assert (cache / "partial.jar").read_bytes() == b"p"


def test_the_default_release_is_known_jar_by_jar() -> None:
    known = _cache.shipped_hashes(f"kafka-{DEFAULT_KAFKA_VERSION}")
    assert known is not None
    assert {
        f"{name}-{DEFAULT_KAFKA_VERSION}.jar" for name in ("kafka_2.13", "kafka-tools", "kafka-clients")
    } < known.keys()
    assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in known.values())


def test_jars_of_other_releases_are_trusted_on_first_use_which_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    fill = Filler()
    for _ in range(2):
        _filled(fill)
    assert [r.levelname for r in caplog.records if "are not verified" in r.getMessage()] == ["WARNING"]


@pytest.mark.parametrize("mirror", ["http://jars.example", "HTTP://jars.example", "jars.example"])
def test_a_mirror_that_others_could_change_on_the_way_is_rejected(mirror: str) -> None:
    with pytest.raises(InvalidOption, match="STREAMGROUPS_MAVEN_REPOSITORY is neither an https"):
        ivy_settings(mirror, Path("/tmp/c"))


def test_a_user_without_a_home_directory_sets_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_home(monkeypatch)
    with pytest.raises(InvalidOption, match=r"no home directory\. Set XDG_CACHE_HOME or HOME\."):
        cache_root()
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_root() == Path("/var/cache/streamgroups")
