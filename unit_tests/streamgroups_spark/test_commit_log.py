"""S2: what Spark's checkpoint proves about a batch, and that nothing else proves anything."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from streamgroups.checkpoints.offset import decode
from streamgroups.checkpoints.spark_logs import ends_in, parse_offsets
from streamgroups.errors import OffsetFormat, QueryUnknown, StateUnreachable
from streamgroups.query.query_ports import CommitLog as CommitLogPort
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.source.last_batch import LastBatch
from unit_tests.streamgroups.query.spark_model import Checkpoint

BEGUN = {"version": 2, "n": 3, "ranges": {"flights": {"0": [5, 9]}}, "resting": {}}
#: As Spark writes it: compact, keys in an order of its own.
LINE = '{"n":3,"version":2,"resting":{},"ranges":{"flights":{"0":[5,9]}}}'
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
    finished = logged.log.has_finished
    assert not finished(first)
    logged.begin(first)
    assert not finished(first)
    logged.finish()
    assert (finished(first), finished(second)) == (True, False)
    logged.begin(second)
    assert (finished(first), finished(second)) == (True, False)
    logged.finish()
    assert (finished(first), finished(second)) == (False, True)


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


def finish(checkpoint: Path, batch_id: int) -> None:
    (checkpoint / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_batch_begins_and_is_done(checkpoint: Path) -> None:
    log = CommitLog(str(checkpoint))
    assert log.newest() == 10
    assert not log.is_done(10)
    assert not log.has_finished(BEGUN)
    finish(checkpoint, 10)
    assert log.is_done(10)
    assert log.has_finished(BEGUN)
    assert not log.has_finished(BEGUN | {"n": 2}), "what a newer batch is behind of is not its end"


def test_S2_a_batch_without_data_follows(checkpoint: Path) -> None:
    """Spark runs it for state that time has closed: it ends where the one before ended, done or not."""
    finish(checkpoint, 10)
    (checkpoint / "offsets" / "11").write_text(METADATA.replace('Ms":0', 'Ms":7') + LINE)
    log = CommitLog(str(checkpoint))
    assert log.has_finished(BEGUN)
    finish(checkpoint, 11)
    assert log.has_finished(BEGUN)


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_location_may_be_relative_or_a_uri(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Spark resolves a path to ``file:/...``, with whatever is in it as it is."""
    assert CommitLog(f"{scheme}{checkpoint}").newest() == 10
    monkeypatch.chdir(checkpoint.parent)
    assert CommitLog(f"./{checkpoint.name}/").newest() == 10


def test_a_query_may_have_other_sources(checkpoint: Path) -> None:
    finish(checkpoint, 10)
    (checkpoint / "offsets" / "10").write_text(METADATA + '-\n17\nrow 5\n{"logOffset":3}\n' + LINE)
    log = CommitLog(str(checkpoint))
    assert log.ends(10) == {"0": None, "1": 17, "2": "row 5", "3": {"logOffset": 3}, "4": BEGUN}
    assert log.has_finished(BEGUN)


@pytest.mark.parametrize("change", ["nowhere", "another", "scheme", "garbage", "part", "newer", "nothing"])
def test_what_does_not_fit_proves_nothing(checkpoint: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
    location, offsets = str(checkpoint), checkpoint / "offsets" / "10"
    finish(checkpoint, 10)
    if change == "nowhere":
        location += "-not"
    elif change == "another":
        offsets.write_text(METADATA + LINE.replace("9", "8"))
    elif change == "scheme":
        location = f"nowhere://{checkpoint}"
    elif change == "garbage":
        offsets.write_bytes(b"v1\n{}\n{\xff")
    elif change == "part":
        offsets.write_text(METADATA + LINE[:20])
    elif change == "newer":
        offsets.write_text((METADATA + LINE).replace("v1", "v3"))
    elif change == "nothing":
        for path in (checkpoint / "commits").iterdir():
            path.unlink()
    log = CommitLog(location)
    with caplog.at_level(logging.WARNING):
        assert not log.has_finished(BEGUN)
    if change == "nowhere":
        assert not log.is_done(10)
    elif change == "scheme":
        with pytest.raises(ValueError, match="nowhere"):
            log.is_done(10)
    assert (f"checkpoint '{location}' cannot be read" in caplog.text) == (change not in ("another", "nothing"))


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize(
    ("version", "names"), [("v1", ("0", "1")), ("v2", ("0", "1")), ("v2-named", ("flights", "weather"))]
)
def test_what_spark_4_2_writes_is_read(version: str, names: tuple[str, str]) -> None:
    """Files of Spark 4.2.1: the second batch of a query of two streams. The second stream had nothing more to read."""
    ends = ends_in((GOLDEN / f"spark_offsets_4.2_{version}").read_text())
    assert {name: decode(end).number for name, end in ends.items()} == dict(zip(names, (2, 1), strict=True))


def test_a_newer_version_is_named_and_tried_no_more(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "10").write_text((METADATA + LINE).replace("v1", "v3"))
    with pytest.raises(OffsetFormat, match="Version 3 of Spark's offset log is not supported") as rejected:
        CommitLog(str(checkpoint)).ends(10)
    assert not rejected.value.retriable


def test_a_login_in_the_location_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert CommitLog("nosuch://key:hunter2@bucket/board").has_finished(BEGUN) is False
    assert "nosuch://***@bucket/board" in caplog.text
    assert "hunter2" not in caplog.text


class TestTheWatermarkForLateRows:
    def test_X8_it_is_that_of_the_batch_before(self, checkpoint: Path) -> None:
        """Also if the batch runs again, and if no-data batches precede it."""
        (checkpoint / "offsets" / "9").write_text(METADATA.replace('Ms":0', 'Ms":7000') + LINE)
        (checkpoint / "offsets" / "10").write_text(METADATA.replace('Ms":0', 'Ms":9000') + LINE)
        log = CommitLog(str(checkpoint))
        assert log.late_watermark_ms(BEGUN) == 7_000
        (checkpoint / "offsets" / "11").write_text(METADATA.replace('Ms":0', 'Ms":12000') + LINE.replace("3", "4"))
        (checkpoint / "offsets" / "10").unlink()  # The entry of the last batch is not read again.
        assert log.late_watermark_ms(BEGUN | {"n": 4}) == 9_000

    def test_the_first_batch_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "offsets").mkdir()
        (tmp_path / "offsets" / "0").write_text(METADATA + LINE)
        assert CommitLog(str(tmp_path)).late_watermark_ms(BEGUN) == 0

    def test_another_batch_is_not_used(self, checkpoint: Path) -> None:
        with pytest.raises(ValueError, match="its newest batch is 10, which has other offsets"):
            CommitLog(str(checkpoint)).late_watermark_ms(BEGUN | {"n": 4})

    @pytest.mark.parametrize("metadata", ["", "7", "{}", '{"batchWatermarkMs":null}', '{"batchWatermarkMs":true}'])
    def test_another_format_is_rejected(self, checkpoint: Path, metadata: str) -> None:
        (checkpoint / "offsets" / "9").write_text(f"v1\n{metadata}\n{LINE}")
        with pytest.raises(StateUnreachable, match=r"group 'board' cannot be read .* includeWatermark"):
            LastBatch("", frozenset(), str(checkpoint)).late_watermark_ms("board", BEGUN)

    @pytest.mark.parametrize("version", ["v1", "v2", "v2-named"])
    def test_spark_4_2_writes_it(self, version: str) -> None:
        assert parse_offsets((GOLDEN / f"spark_offsets_4.2_{version}").read_text()).watermark_ms == 0

    def test_an_unknown_checkpoint_is_an_error(self) -> None:
        with pytest.raises(QueryUnknown, match=r"group 'board' is unknown.*sg.register"):
            LastBatch("", frozenset(), None).late_watermark_ms("board", BEGUN)
