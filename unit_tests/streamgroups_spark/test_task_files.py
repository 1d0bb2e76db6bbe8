"""S10: the files that the reader of a task passes to its operator are removed when both have ended."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow as pa
import pytest

from streamgroups.partitions import OffsetRange
from streamgroups_spark.bridge import handoff, task_files
from streamgroups_spark.bridge.handoff import Handoff, RecordsToOperator
from streamgroups_spark.bridge.rpc import task_directory_of
from streamgroups_spark.session import new_session
from unit_tests.streamgroups_spark.test_state_stage import APPLICATION, P0, plan

RECORDS = pa.record_batch({"key": [b"a"]})
HOUR_S, WEEK_S = 3600, 7 * 24 * 3600


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session whose processes have not run a task."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(handoff, "attempt_id", lambda: 42)
    monkeypatch.setattr(handoff, "_has_swept", threading.Event())
    return new_session()


def passed(tmp_path: Path, session: str) -> RecordsToOperator:
    """The reader of a task, which has passed a plan and a batch of records."""
    handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P0, 5, 8)))
    reader = RecordsToOperator(session, APPLICATION)
    reader.write_records(RECORDS)
    return reader


def killed(tmp_path: Path) -> Path:
    """The directory of a session whose reader was killed. The operating system has unlocked its files."""
    session = new_session()
    passed(tmp_path, session).close()
    return task_directory_of(session)


def age(directory: Path, seconds: float) -> None:
    """Sets the times of a directory and its files."""
    changed_s = time.time() - seconds
    for path in (*directory.iterdir(), directory):
        os.utime(path, (changed_s, changed_s))


def names(directory: Path) -> list[str]:
    return sorted(it.name for it in directory.iterdir())


PLAN = f"task-{APPLICATION}-42"
FILE = f"records-{APPLICATION}-42.0"


def test_S10_the_first_task_of_a_process_removes_the_records_of_killed_tasks(tmp_path: Path, session: str) -> None:
    """The session of a killed application has ended, so no process of it removes them."""
    hour, week, just_now = killed(tmp_path), killed(tmp_path), killed(tmp_path)
    (week / f"records-{APPLICATION}-43.new").touch()
    handoff._has_swept.clear()
    age(hour, HOUR_S)
    age(week, WEEK_S + 1)
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    assert names(hour) == [PLAN], "a plan has no records"
    assert not week.exists()
    assert names(just_now) == [FILE, PLAN]
    assert names(task_directory_of(session)) == [PLAN]


def test_S10_later_tasks_of_a_process_remove_them_rarely(
    tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    left = killed(tmp_path)
    age(left, HOUR_S)
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    assert names(left) == [FILE, PLAN]
    monkeypatch.setattr(handoff, "attempt_id", lambda: 1_000)
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    assert names(left) == [PLAN]


def test_S10_the_records_of_a_task_that_runs_are_kept(tmp_path: Path, session: str) -> None:
    """Its reader waits for the operator, and the operator for its sink or for the end of a suspension."""
    running = new_session()
    directory = task_directory_of(running)
    with ExitStack() as task:
        reader = passed(tmp_path, running)
        for age_s in (HOUR_S, 2 * WEEK_S):
            age(directory, age_s)
            task_files.sweep(session)
            assert names(directory) == [FILE, PLAN], "a clock can be set forward"
        operator = task.enter_context(closing(Handoff(running, APPLICATION, 42)))
        assert len(operator.take_plans()) == 1
        reader.close()
        age(directory, HOUR_S)
        task_files.sweep(session)
        assert names(directory) == [FILE, PLAN]
        assert list(operator.take_records()) == [RECORDS]
    assert names(directory) == []
    task_files.sweep(running)
    assert directory.exists(), "it belongs to the calling process"


def test_S10_without_locks_a_week_decides(tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_: object, how: int) -> None:
        raise OSError(errno.ENOTSUP, "the file system has no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    hour, week = killed(tmp_path), killed(tmp_path)
    age(hour, HOUR_S)
    age(week, WEEK_S + 1)
    task_files.sweep(session)
    assert names(hour) == [FILE, PLAN]
    assert not week.exists()


def test_S10_the_reader_of_an_operator_that_has_ended_leaves_no_records(tmp_path: Path, session: str) -> None:
    """The operator of a failed task ends before its reader."""
    reader = passed(tmp_path, session)
    Handoff(session, APPLICATION, 42).close()
    assert names(task_directory_of(session)) == [], "the operator has not opened its plan"
    reader.write_records(RECORDS)
    reader.end()
    reader.close()
    assert names(task_directory_of(session)) == []


def test_S10_the_reader_of_an_operator_that_ends_meanwhile_leaves_no_records(
    tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = passed(tmp_path, session)
    operator = Handoff(session, APPLICATION, 42)
    rename: Callable[[Path, Path], Path] = Path.rename

    def end_and_rename(path: Path, target: Path) -> Path:
        operator.close()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", end_and_rename)
    reader.write_records(RECORDS)
    reader.close()
    assert names(task_directory_of(session)) == []


def test_S10_another_process_can_remove_the_directory_of_a_session_meanwhile(
    tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task of the session has run for a long time."""
    of_plan = task_files.plan_file
    found: list[Path] = []

    def removed(*arguments: str | int) -> Path:
        path = of_plan(*arguments)  # type: ignore[arg-type]
        if not found:
            path.parent.rmdir()
        found.append(path)
        return path

    monkeypatch.setattr(handoff, "plan_file", removed)
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    assert names(task_directory_of(session)) == [PLAN]


def test_S10_a_sweep_ignores_what_it_cannot_remove(tmp_path: Path, session: str) -> None:
    others = task_directory_of(session).parent
    (others / "file").touch()
    (others / "ended").mkdir()
    (others / "ended" / FILE).mkdir()
    (others / "link").symlink_to(tmp_path / "missing")
    age(others / "ended", WEEK_S + 1)
    task_files.sweep(session)
    assert (others / "ended" / FILE).is_dir()
    assert (others / "file").exists()
