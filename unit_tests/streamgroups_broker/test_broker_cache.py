"""The cache is filled once, appears complete or not at all, and heals itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_broker._cache import cache_root, check_version, class_archive, kafka_jars


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamgroups" / "kafka-4.1.2"


class Filler:
    """Stands for the network: counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0
        self.offline = False

    def __call__(self, directory: Path, version: str) -> None:
        self.calls += 1
        (directory / "partial.jar").write_bytes(b"p")
        if self.offline:
            raise EmbeddedBrokerError("Kafka could not be fetched.", remedy="Set a mirror.")
        (directory / f"kafka_2.13-{version}.jar").write_bytes(b"broker")
        (directory / "bootstrap.checkpoint").write_bytes(b"features")


def test_it_is_filled_once(cache: Path) -> None:
    fill = Filler()
    first, second = kafka_jars("4.1.2", fill), kafka_jars("4.1.2", fill)
    assert first == second
    assert fill.calls == 1
    assert first.jars == ("kafka_2.13-4.1.2.jar", "partial.jar")
    assert first.classpath.startswith(str(cache / "kafka_2.13-4.1.2.jar"))
    assert first.bootstrap_checkpoint.read_bytes() == b"features"


def test_nothing_appears_when_filling_fails(cache: Path) -> None:
    fill = Filler()
    fill.offline = True
    with pytest.raises(EmbeddedBrokerError, match="Set a mirror"):
        kafka_jars("4.1.2", fill)
    assert [path.name for path in cache.parent.iterdir()] == ["kafka-4.1.2.lock"]


@pytest.mark.parametrize("damage", [b"xroker", b"short", None])
def test_a_damaged_jar_is_fetched_again(cache: Path, damage: bytes | None) -> None:
    fill = Filler()
    kafka_jars("4.1.2", fill)
    jar = cache / "kafka_2.13-4.1.2.jar"
    jar.unlink() if damage is None else jar.write_bytes(damage)
    kafka_jars("4.1.2", fill)
    assert fill.calls == 2
    assert jar.read_bytes() == b"broker"
    assert sorted(path.name for path in cache.parent.iterdir()) == ["kafka-4.1.2", "kafka-4.1.2.lock"]


def test_a_damaged_jar_without_network_is_named(cache: Path) -> None:
    fill = Filler()
    kafka_jars("4.1.2", fill)
    (cache / "kafka_2.13-4.1.2.jar").write_bytes(b"xroker")
    fill.offline = True
    with pytest.raises(
        EmbeddedBrokerError, match=r"kafka_2\.13-4\.1\.2\.jar does not match its SHA-256.*again.*mirror"
    ):
        kafka_jars("4.1.2", fill)


def test_an_unreadable_manifest_counts_as_damage(cache: Path) -> None:
    fill = Filler()
    kafka_jars("4.1.2", fill)
    (cache / "manifest.json").write_text("{")
    kafka_jars("4.1.2", fill)
    assert fill.calls == 2


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert cache_root() == file / "streamgroups"
    with pytest.raises(EmbeddedBrokerError, match="XDG_CACHE_HOME"):
        kafka_jars("4.1.2", Filler())


@pytest.mark.parametrize("version", ["3.9.1", "latest", "4.1", "../4.1.2"])
def test_versions_that_cannot_be_embedded(version: str) -> None:
    with pytest.raises(InvalidOption, match=r"4\.0\.0 or newer"):
        check_version(version)


def test_the_class_archive_is_recorded_once_per_java(cache: Path) -> None:
    jars = kafka_jars("4.1.2", Filler())
    recorded: list[Path] = []

    def record(path: Path) -> None:
        recorded.append(path)
        path.write_bytes(b"classes")

    archive = class_archive(jars, "17.0.15", record)
    assert archive == class_archive(jars, "17.0.15", record) == cache / "classes-java-17.0.15.jsa"
    assert len(recorded) == 1
    assert class_archive(jars, "21.0.2", record) != archive


def test_a_java_that_records_no_archive_is_asked_once(cache: Path) -> None:
    jars = kafka_jars("4.1.2", Filler())
    asked: list[Path] = []

    def fail(path: Path) -> None:
        asked.append(path)
        raise EmbeddedBrokerError("died")

    assert class_archive(jars, "17.0.15", fail) is None
    assert class_archive(jars, "17.0.15", fail) is None
    assert len(asked) == 1
