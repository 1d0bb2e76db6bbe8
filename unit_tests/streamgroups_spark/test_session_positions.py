"""S13: two flows of a declarative pipeline with one group are rejected, and a repeated flow is not."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroups import CONNECT_SESSION, AutomaticSource
from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.errors import InvalidOption
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.source.flow_of_session import FlowOfSession
from streamgroups_spark.source.readers import StreamReader

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def start_new(positions: Mapping[TopicPartition, int], group: str = "board", session: str = "run-1") -> None:
    FlowOfSession("application", session, group).check_start(encode(BatchOffset(0)), positions)


def continue_after(batch: OffsetRange, resting: Mapping[TopicPartition, int] | None = None) -> None:
    """A query whose checkpoint ends with a batch."""
    checkpoint = BatchOffset(3, (batch,), resting or {})
    FlowOfSession("application", "run-1", "board").check_start(encode(checkpoint), checkpoint.next_offsets)


def test_a_new_query_behind_the_records_of_another_one_is_rejected() -> None:
    start_new({P0: 0, P1: 0})
    with pytest.raises(
        InvalidOption, match=r"read flights-1 for group 'board', one from offset 0 .* offset 7"
    ) as rejected:
        start_new({P0: 0, P1: 7})
    assert (rejected.value.topic, rejected.value.partition) == ("flights", 1)


def test_a_new_query_after_one_that_continues_is_rejected() -> None:
    continue_after(OffsetRange(P0, 90, 100))
    with pytest.raises(InvalidOption, match="one from offset 90 or before, and a new one from offset 100"):
        start_new({P0: 100})


def test_a_query_that_continues_after_a_new_one_is_rejected() -> None:
    start_new({P0: 100, P1: 5})
    with pytest.raises(InvalidOption, match="one from offset 4 or before, and a new one from offset 5"):
        continue_after(OffsetRange(P0, 100, 120), {P1: 4})


def test_another_group_and_another_run_of_the_pipeline_are_accepted() -> None:
    start_new({P0: 0})
    start_new({P0: 7}, group="table")
    start_new({P0: 7}, session="run-2")


def test_a_repeated_query_continues_its_checkpoint() -> None:
    start_new({P0: 5})
    start_new({P0: 5})
    continue_after(OffsetRange(P0, 5, 7))
    continue_after(OffsetRange(P0, 7, 9))


def test_a_query_is_checked_at_its_start_only() -> None:
    flow = FlowOfSession("application", "run-1", "board")
    for positions in ({}, {P0: 0}, {P0: 7}):
        flow.check_start(encode(BatchOffset(0)), positions)
    start_new({P0: 0})


@pytest.mark.parametrize("session", [None, "run-1"])
def test_only_a_session_of_spark_connect_is_checked(monkeypatch: pytest.MonkeyPatch, session: str | None) -> None:
    monkeypatch.delenv(CONNECT_SESSION, raising=False)
    if session is not None:
        monkeypatch.setenv(CONNECT_SESSION, session)

    class Source(AutomaticSource):
        session = uuid.uuid4().hex

    options = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}
    source: Any = Source({**options, "membership": "exclusive"})
    monkeypatch.delenv(CONNECT_SESSION, raising=False)
    reader = source.streamReader(StructType([StructField("value", BinaryType())]))
    assert isinstance(reader, StreamReader)
    assert (reader.flow is None) == (session is None)
