"""``sg.reports.record_time`` records each batch once, and continues after errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, SourceTime
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import At
from streamgroups.partitions import TopicPartition
from streamgroups_spark.event_time.recorder import TimeRecorder
from streamgroups_spark.messages.time import TimeReply, TimeRequest

P0 = TopicPartition("flights", 0)


class Progress(dict[str, Any]):
    """A batch, as Spark reports it."""

    @property
    def json(self) -> str:
        return json.dumps(self)


def progress_of(batch_id: int, watermark: str, late: int = 0) -> Progress:
    time_offset = '{"version": 1, "kind": "streamgroups-time", "group": "board", "watermark": null}'
    offset = '{"version": 2, "n": 1, "ranges": {}, "resting": {}, "cluster": "MkU3OEVBNTc", "group": "board"}'
    state = {"numRowsTotal": 1, "memoryUsedBytes": 1, "numRowsDroppedByWatermark": late, "numRowsRemoved": 1}
    return Progress(
        id="5f2c",
        runId="1",
        batchId=batch_id,
        timestamp=f"2013-01-01T05:00:0{batch_id}.000Z",
        batchDuration=100,
        eventTime={"watermark": watermark},
        stateOperators=[state],
        sources=[{"endOffset": offset}, {"endOffset": time_offset}],
    )


class Query:
    """The part of a query that a recorder needs: it is polled three times before it ends."""

    id, name = "5f2c", "board"

    def __init__(self) -> None:
        self.polls = 0

    @property
    def recentProgress(self) -> list[Progress]:
        self.polls += 1
        if self.polls == 2:
            raise RuntimeError("Spark is busy")
        return [progress_of(0, "1970-01-01T00:00:00.000Z"), progress_of(1, "2013-01-01T04:00:00.000Z", late=3)][
            : self.polls
        ]

    @property
    def isActive(self) -> bool:
        return self.polls < 3


def answer(question: TimeRequest) -> list[TimeReply]:
    assert (question.group_id, question.cluster_id) == ("board", "MkU3OEVBNTc")
    state = SourceTime(At(300), {P0: PartitionTime(600, At(600), idle_since_ms=0, seen_ms=50)})
    return [TimeReply("alice", state, TimeSettings(Generation(), partition_idle_timeout_ms=30), 50)]


def test_batches_are_recorded_once_and_partitions_with_each_poll(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query: Any = Query()
    with TimeRecorder(query, interval_s=0.001, request_source=answer) as recorded:
        recorded._thread.join(30)
    batches = [m for m in recorded.moments if not m.event_times_ms]
    assert [(m.watermark_ms, m.late, m.closed) for m in batches] == [(None, 0, 1), (1_357_012_800_000, 3, 1)]
    seen = [m for m in recorded.moments if m.event_times_ms]
    assert len(seen) >= 2
    assert (seen[-1].event_times_ms, seen[-1].idle, seen[-1].watermark_ms) == ({P0: 600}, {P0}, 1_357_012_800_000)
    assert "The event time of query 5f2c could not be sampled: Spark is busy" in caplog.text
    recorded.write_html(tmp_path / "time.html")
    assert "Event time of board" in (tmp_path / "time.html").read_text()
    recorded.write_svg(tmp_path / "time.svg", clock="elapsed")
    words = [it.text for it in ElementTree.parse(tmp_path / "time.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "Event time of board"
    assert any((word or "").startswith("0 ") for word in words), "the axis begins at the first moment"
    assert "Event time of board" in ElementTree.fromstring(recorded._repr_html_()).attrib["srcdoc"]
    with pytest.raises(InvalidOption, match="Argument clock is 'GMT'"):
        recorded.write_html(tmp_path / "time.html", clock="GMT")


def test_never_is_not_often_enough() -> None:
    query: Any = Query()
    with pytest.raises(InvalidOption, match="interval_s must be greater than 0"):
        TimeRecorder(query, interval_s=0)
