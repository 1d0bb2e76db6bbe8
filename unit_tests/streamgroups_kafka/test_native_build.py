"""A failed build of the native extension is stored, reported and logged, and can be an error."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroups.doctor.installation_checks import Reader, judge_reader
from streamgroups_kafka import native

ROOT = Path(__file__).parent.parent.parent


def build(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds the extension with a compiler that fails."""
    places = ["--build-lib", str(directory / "lib"), "--build-temp", str(directory / "objects")]
    command = [sys.executable, "setup.py", "-q", "build_ext", "--force", *places]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "CC": "false", **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def without_extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "streamgroups_kafka._native", None)
    monkeypatch.delenv(native.READER_VARIABLE, raising=False)
    caches = (native.status, native.encoder_status, native.warn_if_plain)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_a_failed_build_succeeds_without_the_extension_and_stores_the_reason(tmp_path: Path) -> None:
    result = build(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "WARNING: the native extension of streamgroups could not be built" in result.stderr
    reason = native.build_failure(tmp_path / "lib" / "streamgroups_kafka")
    assert reason is not None
    assert "false" in reason
    assert reason in result.stderr


def test_a_required_build_fails(tmp_path: Path) -> None:
    assert build(tmp_path, STREAMGROUPS_BUILD="native").returncode != 0


@pytest.mark.usefixtures("without_extension")
def test_doctor_shows_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "build_failure", lambda _package: "command 'gcc' failed: No such file")
    found = native.status()
    check = judge_reader(Reader(found.available, found.reason, found.remedy))
    assert (check.state.value, check.in_use) == ("warning", "plain")
    assert "Its build has failed: command 'gcc' failed: No such file." in check.what
    assert "STREAMGROUPS_BUILD=native pip install -v" in check.remedy


@pytest.mark.usefixtures("without_extension")
def test_the_driver_logs_one_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.WARNING):
        native.warn_if_plain()
        native.warn_if_plain()
    (record,) = caplog.records
    assert record.getMessage().startswith("The plain reader and encoder will be used in this environment")
    assert "streamgroups doctor --executors" in record.getMessage()


@pytest.mark.usefixtures("without_extension")
def test_a_plain_reader_that_the_user_has_selected_is_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.READER_VARIABLE, "plain")
    monkeypatch.setenv(native.ENCODER_VARIABLE, "plain")
    native.warn_if_plain()
    assert not caplog.records


def test_without_a_failure_there_is_no_reason(tmp_path: Path) -> None:
    assert native.build_failure(tmp_path) is None
    (tmp_path / "native_build_error.txt").write_text("")
    assert native.build_failure(tmp_path) is None
