"""The number of partitions of a row's topic, before any call of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamgroups.errors import RecordRejected, UnknownTopic
from streamgroups_spark.sinks.output_partitions import counts_of_rows

COUNTS = {"departures": 12, "arrivals": 3}


def test_each_row_has_its_topics_number() -> None:
    topics = pa.array(["arrivals", "departures", "arrivals"])
    assert counts_of_rows(pa.array([b"a", b"b", b"c"]), topics, COUNTS).to_pylist() == [3, 12, 3]
    assert counts_of_rows(pa.array([], pa.binary()), pa.array([], pa.string()), COUNTS).to_pylist() == []


def test_a_row_without_a_key_needs_no_number() -> None:
    topics = pa.array(["elsewhere", None, "arrivals"])
    assert counts_of_rows(pa.array([None, None, b"c"]), topics, COUNTS).to_pylist() == [None, None, 3]


def test_a_missing_topic_is_reported() -> None:
    with pytest.raises(UnknownTopic, match="'elsewhere'"):
        counts_of_rows(pa.array([b"a", b"b"]), pa.array(["arrivals", "elsewhere"]), COUNTS)


def test_a_key_without_a_topic_is_reported() -> None:
    with pytest.raises(RecordRejected, match="A row has no topic"):
        counts_of_rows(pa.array([b"a", None]), pa.array([None, None], pa.string()), COUNTS)
