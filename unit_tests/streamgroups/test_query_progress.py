"""Spark's progress is understood as Spark really writes it: the events in ``golden/`` were recorded from real queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.monitoring.query_progress import (
    QueryProgress,
    SourceProgress,
    SourceReport,
    cause_of,
    decode_report,
    encode_report,
    read_progress,
    read_time_ms,
)
from streamgroups.partitions import TopicPartition
from unit_tests.streamgroups.strategies import OFFSETS, TOPIC_PARTITIONS

GOLDEN = Path(__file__).parent.parent / "golden" / "spark_events_4.2.jsonl"
EVENTS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
F0, F1, PLANES = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("planes", 0)


def recorded(name: str | None) -> list[QueryProgress]:
    """The batches of a recorded query."""
    written = [e["progress"] for e in EVENTS if e["kind"] == "progress"]
    return [read_progress(json.dumps(p)) for p in written if p["name"] == name]


def test_a_recorded_batch() -> None:
    first, second, *_ = recorded("flight-board")
    assert (first.name, first.batch_id, first.input_rows, first.duration_ms) == ("flight-board", 0, 10, 29_248)
    assert (first.input_rows_per_s, first.processed_rows_per_s, first.phases_ms["addBatch"]) == (0.0, 0.3, 22_886)
    assert first.trigger_ms == read_time_ms("2026-11-21T17:04:55.739Z") == 1_795_280_695_739
    assert (first.watermark_ms, first.state_rows, first.state_bytes) == (None, None, None)
    report = SourceReport("board", "carol", {F0: 20, F1: 20})
    assert first.sources == (SourceProgress(report, {F0: 0, F1: 0}, {F0: 5, F1: 5}),)
    assert second.sources == (SourceProgress(report, {F0: 5, F1: 5}, {F0: 10, F1: 10}),)


def test_recorded_sources_that_are_not_ours_are_left_out() -> None:
    _, second = recorded(None)
    flights, planes = second.sources
    assert (flights.report is not None and flights.report.group_id, flights.first_offsets) == ("g1", {F0: 5, F1: 5})
    # This one was not read from in this batch: where its last batch ended it was already.
    assert (planes.first_offsets, planes.next_offsets) == ({PLANES: 5}, {PLANES: 5})


def test_recorded_watermarks_and_state() -> None:
    first, later, empty = recorded("windows")
    assert (first.watermark_ms, first.state_rows, first.state_bytes) == (None, 1, 824)
    assert later.watermark_ms == read_time_ms("2026-11-21T17:03:42.695Z")
    # A batch without rows, made by the watermark.
    assert (first.late_records, first.closed_windows, empty.closed_windows) == (0, 0, 1)
    assert (empty.input_rows, empty.sources[0].first_offsets) == (0, empty.sources[0].next_offsets)


def test_X8_what_windows_with_a_state_of_ours_count_is_counted_once() -> None:
    progress = next(e["progress"] for e in EVENTS if e["kind"] == "progress" and e["progress"]["stateOperators"])
    observed = {
        "streamgroups-windows-1": {"late": 3, "closed": 7},
        "streamgroups-windows-2": {"late": None, "closed": None},
        "mine": {"late": 100},
    }
    reported = read_progress(json.dumps({**progress, "observedMetrics": observed}))
    assert (reported.late_records, reported.closed_windows) == (3, 7)


def test_X8_late_rows_are_counted_beside_those_of_spark() -> None:
    progress = next(e["progress"] for e in EVENTS if e["kind"] == "progress" and e["progress"]["stateOperators"])
    operators = [{**progress["stateOperators"][0], "numRowsDroppedByWatermark": 5, "numRowsRemoved": 3}]
    observed = {"streamgroups-late-1": {"late": 2, "adjusted": 4}, "streamgroups-late-2": {"late": 1, "adjusted": None}}
    reported = read_progress(json.dumps({**progress, "stateOperators": operators, "observedMetrics": observed}))
    assert (reported.late_records, reported.adjusted_records, reported.closed_windows) == (8, 4, 3)


def test_recorded_failures_have_distinct_causes() -> None:
    ended = [e for e in EVENTS if e["kind"] == "terminated"]
    causes = [cause_of(e["exception"], e["errorClassOnException"]) for e in ended]
    assert causes == [None, None, None, "unknown_topic", "FOREACH_BATCH_USER_FUNCTION_ERROR", "USER_RAISED_EXCEPTION"]


@pytest.mark.parametrize(
    ("exception", "error_class", "cause"),
    [
        ("java.lang.IllegalStateException: token=hunter2", None, "IllegalStateException"),
        ("hunter2", None, "unknown"),
        ("", None, "unknown"),
        ("x streamgroups.errors.Hunter2: y", "STREAM_FAILED", "STREAM_FAILED"),
        ("a streamgroups.errors.ReadTimedOut: b\nstreamgroups.errors.FencedMember: d", None, "unknown"),
        ("streamgroups.errors.FencedMember: d", None, "fenced_member"),
    ],
)
def test_a_cause_is_a_known_name_or_the_name_of_a_class(exception: str, error_class: str | None, cause: str) -> None:
    assert cause_of(exception, error_class) == cause


@given(st.text(), st.text(), st.dictionaries(TOPIC_PARTITIONS, OFFSETS))
def test_the_report_of_a_source_is_parsed(group: str, member: str, ends: dict[TopicPartition, int]) -> None:
    by_topic: dict[str, dict[str, int]] = {}
    for tp, end in ends.items():
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = end
    reported = json.loads(json.dumps(encode_report(group, member, by_topic)))
    assert decode_report(reported) == SourceReport(group, member, ends)
    with_id = json.loads(json.dumps(encode_report(group, member, by_topic, member_id="carol-1")))
    assert decode_report(with_id) == SourceReport(group, member, ends, "carol-1")


@pytest.mark.parametrize("foreign", [None, 7, "latest", [], {}, {"flights": {"0": 5}}, {"group": "g", "member": "m"}])
def test_the_report_of_another_source_is_ignored(foreign: Any) -> None:
    assert decode_report(foreign) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"id": "a", "runId": "b", "batchId": 1, "timestamp": "today", "sources": []}'],
)
def test_malformed_progress_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_progress(text)


def test_offsets_may_be_texts_and_rates_may_be_missing() -> None:
    """Spark leaves out rates that are not numbers."""
    offset = {"version": 2, "n": 1, "ranges": {"flights": {"0": [3, 5]}}, "resting": {"flights": {"1": 9}}}
    foreign = {"endOffset": "not json"}
    own = {"startOffset": None, "endOffset": json.dumps(offset), "latestOffset": None}
    batch = {"id": "a", "runId": "b", "batchId": 1, "timestamp": "2013-01-01T00:00:00Z", "sources": [foreign, own]}
    progress = read_progress(json.dumps(batch))
    assert (progress.input_rows_per_s, progress.duration_ms, progress.name) == (None, None, None)
    assert progress.sources == (SourceProgress(None, {F0: 3, F1: 9}, {F0: 5, F1: 9}),)


def test_a_batch_that_warmed_spark_up_has_read_nothing() -> None:
    offset = {"version": 2, "n": 4, "ranges": {"flights": {"0": [3, 5]}}, "resting": {}}
    source = {"startOffset": offset, "endOffset": {**offset, "warm_ups": 1}, "latestOffset": None}
    batch = {"id": "a", "runId": "b", "batchId": 1, "timestamp": "2013-01-01T00:00:00Z", "sources": [source]}
    assert read_progress(json.dumps(batch)).sources == (SourceProgress(None, {F0: 5}, {F0: 5}),)
