"""JAVA_HOME first, then PATH; what is missing or too old is named with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._java import find_java, judge, parse_version, release


def fake_java(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = fake_java(tmp_path / "home" / "bin", "21.0.2")
    on_path = fake_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert (find_java().executable, find_java().version) == (str(at_home), "21.0.2")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java().executable == str(on_path)


def test_a_java_home_without_java_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedBrokerError, match=r"JAVA_HOME is .* there is no .*Install Java 17"):
        find_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedBrokerError, match=r"Java was not found.*Install Java 17 or newer"):
        find_java()


def test_a_java_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedBrokerError, match=r"-version failed"):
        find_java()


@pytest.mark.parametrize(
    ("printed", "version", "number"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', "17.0.15", 17),
        ('java version "1.8.0_392"', "1.8.0_392", 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "25" 2025-09-16', "25", 25),
        ('openjdk version "22-ea" 2024-03-19', "22-ea", 22),
    ],
)
def test_versions(printed: str, version: str, number: int) -> None:
    assert parse_version(printed) == version
    assert release(version) == number


@pytest.mark.parametrize(
    ("printed", "message"),
    [('java version "1.8.0_392"', r"Java 1\.8\.0_392, too old"), ("command not found", "printed no version")],
)
def test_rejections(printed: str, message: str) -> None:
    with pytest.raises(EmbeddedBrokerError, match=message):
        judge("/usr/bin/java", printed)
