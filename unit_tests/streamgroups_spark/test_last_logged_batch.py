"""The last batch of a checkpoint, which the trigger availableNow needs before Spark reads it (before Spark 4.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileInfo, LocalFileSystem

from streamgroups.errors import QueryUnknown, StateUnreachable
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.source.last_batch import LastBatch, LoggedBatch

END = {"version": 2, "n": 4, "ranges": {"flights": {"0": [3, 9]}}, "group": "board"}
OTHER = {**END, "group": "other"}


def logged(checkpoint: Path | None) -> LoggedBatch | None:
    return LastBatch("none", frozenset(), None if checkpoint is None else str(checkpoint)).logged("board")


class Throttled:
    """A file system that answers requests for a part of the paths only.

    Args:
        part: the part of a path that is not answered.
    """

    def __init__(self, part: str) -> None:
        self._files, self._part = LocalFileSystem(), part

    def get_file_info(self, requested: Any) -> FileInfo | list[FileInfo]:
        """See :meth:`pyarrow.fs.FileSystem.get_file_info`."""
        if self._part in (requested if isinstance(requested, str) else requested.base_dir):
            raise OSError("AWS Error SLOW_DOWN during HeadObject operation")
        return self._files.get_file_info(requested)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@pytest.fixture
def throttle(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Rejects the requests for a part of all checkpoints."""

    def begin(part: str) -> None:
        monkeypatch.setattr(CommitLog, "_open", lambda log: (Throttled(part), log._location))

    return begin


def write(checkpoint: Path, batch_id: int, *ends: Any, finished: bool) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *("-" if it is None else json.dumps(it) for it in ends)]
    (checkpoint / "offsets" / str(batch_id)).write_text("\n".join(lines))
    if finished:
        (checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")


def test_a_checkpoint_without_a_batch(tmp_path: Path) -> None:
    assert logged(tmp_path / "missing") is None
    (tmp_path / "offsets").mkdir()
    assert logged(tmp_path) is None


@pytest.mark.parametrize("finished", [True, False])
def test_the_newest_batch(tmp_path: Path, finished: bool) -> None:
    write(tmp_path, 9, {**END, "n": 3}, finished=True)
    write(tmp_path, 10, OTHER, {"kind": "streamgroups-time", "group": "board"}, END, finished=finished)
    assert logged(tmp_path) == LoggedBatch(END, finished)


def test_a_source_without_an_offset(tmp_path: Path) -> None:
    write(tmp_path, 0, None, OTHER, finished=True)
    assert logged(tmp_path) is None


def test_what_cannot_be_read_is_not_taken_for_a_new_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(QueryUnknown, match="its location is unknown"):
        logged(None)
    (tmp_path / "offsets" / "3").mkdir(parents=True)
    with pytest.raises(QueryUnknown, match="cannot be read"):
        logged(tmp_path)
    (tmp_path / "offsets" / "3").rmdir()
    write(tmp_path, 0, END, END, finished=True)
    with pytest.raises(QueryUnknown, match="several of its sources"):
        logged(tmp_path)
    (tmp_path / "offsets" / "0").write_text("v9\n{}\n-")
    with pytest.raises(QueryUnknown, match=r"group 'board' cannot be read.*PySpark 4\.2"):
        logged(tmp_path)


@pytest.mark.parametrize("part", ["/offsets", "/commits"])
@pytest.mark.parametrize("finished", [True, False])
def test_S2_a_commit_log_that_does_not_answer_proves_nothing(
    tmp_path: Path, part: str, finished: bool, throttle: Callable[[str], None]
) -> None:
    """If the batch counted as unfinished, ``availableNow`` would end without reading."""
    write(tmp_path, 0, END, finished=finished)
    throttle(part)
    with pytest.raises(QueryUnknown, match=r"group 'board' cannot be read: .*SLOW_DOWN.*start the query again") as e:
        logged(tmp_path)
    assert e.value.retriable


def test_F5_a_checkpoint_that_does_not_answer_is_not_taken_for_one_without_a_batch(
    tmp_path: Path, throttle: Callable[[str], None]
) -> None:
    def has_begun(checkpoint: str | None) -> bool:
        return LastBatch("none", frozenset(), checkpoint).has_begun()

    assert not has_begun(None)
    assert not has_begun(str(tmp_path))
    write(tmp_path, 0, END, finished=False)
    assert has_begun(str(tmp_path))
    throttle("/offsets")
    with pytest.raises(
        StateUnreachable, match=r"unknown whether the query has begun.*SLOW_DOWN.*Nothing was committed"
    ) as e:
        has_begun(str(tmp_path))
    assert e.value.retriable
    with pytest.raises(StateUnreachable, match="'nosuch://\\*\\*\\*@bucket/board'"):
        has_begun("nosuch://key:hunter2@bucket/board")
