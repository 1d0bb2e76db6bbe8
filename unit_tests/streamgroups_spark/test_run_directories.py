"""P1: each run of a processor has a new checkpoint, and the checkpoints of ended processes are deleted."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_operators.locations import open_location
from streamgroups_spark.processors import run_directories
from streamgroups_spark.processors.run_directories import (
    new_checkpoint,
    processors_directory,
    run_checkpoint,
    state_directory,
)
from unit_tests.no_home import remove_home

_HELD = """
import sys
from pathlib import Path
from streamgroups_spark.processors.run_directories import run_checkpoint
with run_checkpoint("board.late") as checkpoint:
    path = Path(checkpoint.removeprefix("file://"))
    path.mkdir()
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path))
    return tmp_path


def _path(checkpoint: str) -> Path:
    """The local directory of a checkpoint, as this library reads it."""
    return Path(open_location(checkpoint)[1])


def _begin() -> tuple[subprocess.Popen[str], Path]:
    """Starts a run in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", _HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_P1_a_killed_run_leaves_a_checkpoint_for_the_next_one_to_delete() -> None:
    killed, old = _begin()
    live, kept = _begin()
    try:
        assert old.is_dir()
        killed.kill()
        killed.wait(30)
        with run_checkpoint("board.late") as checkpoint:
            _path(checkpoint).mkdir()
            assert (old.exists(), kept.exists()) == (False, True)
            assert _path(checkpoint) not in (old, kept)
        assert not _path(checkpoint).exists()
        assert sorted(it.name for it in kept.parent.iterdir()) == [kept.name, f"{kept.name}.lock"]
    finally:
        for process in (killed, live):
            process.kill()
            process.communicate(timeout=30)


def test_P1_a_run_that_cleans_up_meets_the_new_file_of_another_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It locks the file after its creation and before its lock, and deletes it."""
    flock, created = fcntl.flock, list[Path]()

    def clean_up_first(number: int, operation: int) -> None:
        if not created:
            created.extend((directory / "board.late" / "runs").glob("*.lock"))
            run_directories._delete_ended(directory / "board.late" / "runs")
        flock(number, operation)

    monkeypatch.setattr(run_directories.fcntl, "flock", clean_up_first)
    with run_checkpoint("board.late") as checkpoint:
        assert len(created) == 1
        assert not created[0].exists()
        assert _path(f"{checkpoint}.lock").exists()
    assert not list((directory / "board.late" / "runs").iterdir())


def test_the_directories_of_a_group_are_its_own(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_directory("board.late") == str(directory / "board.late" / "state")
    assert new_checkpoint("board.late") != new_checkpoint("board.late")
    monkeypatch.delenv("STREAMGROUPS_PROCESSORS")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert state_directory("board.late") == "/var/state/streamgroups/processors/board.late/state"


def test_P1_a_checkpoint_is_local_with_any_default_file_system(directory: Path) -> None:
    """Spark resolves a path without scheme on ``fs.defaultFS``."""
    for checkpoint in (new_checkpoint("board.late"), _entered()):
        assert checkpoint.startswith(f"file://{directory}/board.late/runs/")
        assert _path(checkpoint).parent == directory / "board.late" / "runs"


def _entered() -> str:
    with run_checkpoint("board.late") as checkpoint:
        return checkpoint


@pytest.mark.parametrize("uri", ["s3://key:hunter2@bucket/runs", "hdfs:///runs", "file:///runs", "file:/runs"])
def test_P1_a_uri_is_not_the_directory_of_processors(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", uri)
    with pytest.raises(InvalidOption, match=r"STREAMGROUPS_PROCESSORS contains a URI .* local directory") as raised:
        processors_directory()
    assert "hunter2" not in str(raised.value)


def test_a_directory_can_have_a_colon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", "/var/a:b")
    assert processors_directory() == Path("/var/a:b")


def test_P1_a_user_without_a_home_directory_sets_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_home(monkeypatch)
    with pytest.raises(InvalidOption, match=r"no home directory\. Set STREAMGROUPS_PROCESSORS to a local directory"):
        processors_directory()
