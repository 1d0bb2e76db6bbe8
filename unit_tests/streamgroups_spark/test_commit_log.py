"""S2: what Spark's checkpoint proves about a batch, and that nothing else proves anything."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from streamgroups_spark.commit_log import CommitLog
from streamgroups_spark.query_ports import CommitLog as CommitLogPort
from unit_tests.spark_model import Checkpoint

BEGUN = {"version": 1, "n": 3, "ranges": {"flights": {"0": [5, 9]}}, "resting": {}}
#: As Spark writes it: compact, keys in an order of its own.
LINE = '{"n":3,"version":1,"resting":{},"ranges":{"flights":{"0":[5,9]}}}'
METADATA = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


class Logged(Protocol):
    """A checkpoint to which Spark writes."""

    @property
    def log(self) -> CommitLogPort: ...
    def begin(self, offset: Mapping[str, Any]) -> None: ...
    def finish(self) -> None: ...


class InMemory:
    """The one of ``spark_model``, on which the queries of the unit tests run."""

    def __init__(self) -> None:
        self.log = Checkpoint()

    def begin(self, offset: Mapping[str, Any]) -> None:
        self.log.offsets.append(json.dumps(offset))

    def finish(self) -> None:
        self.log.commits += 1


class InFiles:
    """As Spark writes them."""

    def __init__(self, location: Path) -> None:
        self._location, self._batches = location, 0
        self.log = CommitLog(str(location))
        for directory in ("offsets", "commits"):
            (location / directory).mkdir(parents=True)

    def begin(self, offset: Mapping[str, Any]) -> None:
        line = json.dumps(offset, separators=(",", ":"))
        (self._location / "offsets" / str(self._batches)).write_text(METADATA + line)

    def finish(self) -> None:
        (self._location / "commits" / str(self._batches)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self._batches += 1


@pytest.fixture(params=["memory", "files"])
def logged(request: pytest.FixtureRequest, tmp_path: Path) -> Logged:
    return InMemory() if request.param == "memory" else InFiles(tmp_path / "checkpoint")


def test_a_batch_is_known_from_its_beginning_to_its_end(logged: Logged) -> None:
    """The contract of ``query_ports.CommitLog``: the small Spark of the unit tests keeps it as the files of a real one do."""
    first, second = BEGUN, BEGUN | {"n": 4}
    assert logged.log.begun(first) is None
    logged.begin(first)
    assert (logged.log.begun(first), logged.log.begun(second), logged.log.is_done(0)) == (0, None, False)
    logged.finish()
    assert (logged.log.begun(first), logged.log.is_done(0)) == (None, True)
    logged.begin(second)
    assert (logged.log.begun(second), logged.log.begun(first)) == (1, None)
    assert [logged.log.is_done(n) for n in (0, 1, 2)] == [True, False, False]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two batches are done, the third has begun."""
    location = tmp_path / "check: point"
    for directory in ("offsets", "commits"):
        (location / directory).mkdir(parents=True)
    for batch_id in (0, 9, 10):
        (location / "offsets" / str(batch_id)).write_text(METADATA + LINE.replace('"n":3', f'"n":{batch_id - 7}'))
        (location / "offsets" / f".{batch_id}.crc").write_bytes(b"crc")
    (location / "offsets" / ".11.0f3d.tmp").write_text("half")
    for batch_id in (0, 9):
        (location / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return location


def test_a_batch_begins_and_is_done(checkpoint: Path) -> None:
    log = CommitLog(str(checkpoint))
    assert log.begun(BEGUN) == 10
    assert not log.is_done(10)
    (checkpoint / "commits" / "10").touch()
    assert log.is_done(10)


def test_a_location_may_be_relative_or_a_uri(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CommitLog(checkpoint.as_uri()).begun(BEGUN) == 10
    monkeypatch.chdir(checkpoint.parent)
    assert CommitLog(f"./{checkpoint.name}/").begun(BEGUN) == 10


def test_a_query_may_have_other_sources(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "10").write_text(METADATA + '-\n17\n{"logOffset":3}\n' + LINE)
    assert CommitLog(str(checkpoint)).begun(BEGUN) == 10


@pytest.mark.parametrize("change", ["nowhere", "another", "done", "scheme", "garbage", "nothing"])
def test_what_does_not_fit_proves_nothing_and_is_told_once(
    checkpoint: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    location = str(checkpoint)
    if change == "nowhere":
        location += "-not"
    elif change == "another":
        (checkpoint / "offsets" / "10").write_text(METADATA + LINE.replace("9", "8"))
    elif change == "done":
        (checkpoint / "commits" / "10").touch()
    elif change == "scheme":
        location = f"nowhere://{checkpoint}"
    elif change == "garbage":
        (checkpoint / "offsets" / "10").write_bytes(b"v1\n{}\n{\xff")
    elif change == "nothing":
        for path in (checkpoint / "offsets").iterdir():
            path.unlink()
    log = CommitLog(location)
    with caplog.at_level(logging.WARNING):
        assert [log.begun(BEGUN) for _ in range(3)] == [None] * 3
    (told,) = caplog.messages
    assert f"checkpointLocation '{location}'" in told
    if change in ("nowhere", "scheme"):
        assert not log.is_done(10)
