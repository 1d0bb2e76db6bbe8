"""S13: a query of a session of Spark Connect does not start behind another one of its group."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroups import CONNECT_SESSION, AutomaticSource
from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition
from streamgroups_spark.bridge.session_positions import SessionPositions
from streamgroups_spark.formats.unregistered import _StartInSession
from streamgroups_spark.source.readers import StreamReader

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
NEW, LATER = encode(BatchOffset(0)), encode(BatchOffset(3))


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def query(group: str = "board", session: str = "run-1") -> _StartInSession:
    return _StartInSession("application", session, group)


def test_a_new_query_behind_the_records_of_another_one_is_rejected() -> None:
    query()(NEW, {P0: 0, P1: 0})
    with pytest.raises(
        InvalidOption, match=r"has read flights-1 from offset 0 for group 'board'.*at offset 7"
    ) as rejected:
        query()(NEW, {P0: 0, P1: 7})
    assert (rejected.value.topic, rejected.value.partition) == ("flights", 1)


@pytest.mark.parametrize("other", [query("table"), query(session="run-2")])
def test_another_group_and_another_run_of_the_pipeline_are_accepted(other: _StartInSession) -> None:
    query()(NEW, {P0: 0})
    other(NEW, {P0: 7})


def test_a_query_continues_its_checkpoint() -> None:
    query()(NEW, {P0: 0})
    query()(LATER, {P0: 7})


def test_the_same_positions_lack_nothing() -> None:
    query()(NEW, {P0: 5})
    query()(NEW, {P0: 5})
    query()(NEW, {P0: 2})


def test_a_query_is_checked_at_its_start_only() -> None:
    first = query()
    first(NEW, {})
    first(NEW, {P0: 0})
    first(NEW, {P0: 7})
    assert SessionPositions("application", "run-1", "board").earliest() == {P0: 0}


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
    assert (reader.check_start is None) == (session is None)
