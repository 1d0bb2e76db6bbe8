"""The rows that a killed task has written to check them are removed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamgroups_sinks.delta.check_directory import check_directory

HOUR_S = 3600

_KILLED = """
import os, signal
from pathlib import Path
from streamgroups_sinks.delta.check_directory import check_directory
with check_directory() as directory:
    Path(directory, "part-0.parquet").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_the_rows_of_a_killed_task_are_removed(temporary: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", _KILLED], env=environment, check=False, timeout=60)
    [left] = temporary.iterdir()
    with check_directory():
        assert (left / "part-0.parquet").exists(), "another process may be about to lock it"
    age(left, HOUR_S)
    with check_directory() as directory:
        assert not left.exists()
        assert Path(directory).stat().st_mode & 0o077 == 0
    assert list(temporary.iterdir()) == []


def test_the_rows_of_a_task_that_runs_are_kept(temporary: Path) -> None:
    with check_directory() as directory:
        age(Path(directory), HOUR_S)
        with check_directory():
            assert Path(directory).exists()
    assert list(temporary.iterdir()) == []


def test_nothing_but_a_directory_of_this_user_is_removed(temporary: Path) -> None:
    """Another user of the machine can create the path."""
    (temporary / "kept").mkdir()
    prefix = f"streamgroups-checks-{os.getuid()}-"
    (temporary / f"{prefix}link").symlink_to(temporary / "kept")
    (temporary / f"{prefix}file").touch()
    for path in temporary.iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    with check_directory():
        pass
    assert sorted(it.name for it in temporary.iterdir()) == sorted(["kept", f"{prefix}file", f"{prefix}link"])
