"""Positions in checkpoints of Spark's ``kafka`` source, and the options for that source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.checkpoints.offset import BatchOffset, decode, encode
from streamgroups.checkpoints.spark_kafka import (
    LoggedBatch,
    ReadRange,
    SparkCheckpoint,
    is_own_offset,
    kafka_offset,
    kafka_positions,
    spark_options,
)
from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups.partitions import TopicPartition
from unit_tests.streamgroups.strategies import OFFSETS, TOPIC_PARTITIONS

F0, F1, F2 = (TopicPartition("flights", p) for p in range(3))
W0 = TopicPartition("weather", 0)
FLIGHTS, WEATHER = {"flights": {"0": 4, "1": 6}}, {"weather": {"0": 9}}
POSITIONS = st.dictionaries(TOPIC_PARTITIONS, OFFSETS, min_size=1)


def as_logged(positions: dict[TopicPartition, int]) -> dict[str, dict[str, int]]:
    logged: dict[str, dict[str, int]] = {}
    for tp, n in positions.items():
        logged.setdefault(tp.topic, {})[str(tp.partition)] = n
    return logged


@given(POSITIONS)
def test_all_positions_are_read(positions: dict[TopicPartition, int]) -> None:
    logged = json.loads(json.dumps(as_logged(positions)))
    checkpoint = SparkCheckpoint("/old", LoggedBatch(3, {"0": logged}))
    assert kafka_positions(checkpoint).next_offsets == positions


@given(POSITIONS)
def test_the_options_name_the_same_positions(positions: dict[TopicPartition, int]) -> None:
    options = spark_options(positions, positions)
    assert kafka_offset(json.loads(options["startingOffsets"])) == positions
    assert options["subscribe"].split(",") == sorted({tp.topic for tp in positions})


@given(st.integers(0, 9), POSITIONS)
def test_an_offset_of_this_library_is_recognized(number: int, positions: dict[TopicPartition, int]) -> None:
    own = encode(BatchOffset(number, resting=positions, group_id="board"))
    assert is_own_offset(own)
    with pytest.raises(InvalidOption, match=r"format\('streamgroups'\): group 'board' stores its positions"):
        kafka_positions(SparkCheckpoint("/old", LoggedBatch(3, {"0": own})))


@pytest.mark.parametrize("value", [None, 5, "5", [1], {"logOffset": 3}, {"t": {"x": 3}}, {"t": {"0": -2}}], ids=str)
def test_offsets_of_other_sources_are_not_positions(value: Any) -> None:
    assert kafka_offset(value) is None
    assert not is_own_offset(value)


def test_a_planned_batch_is_after_the_positions() -> None:
    planned = LoggedBatch(4, {"0": {"flights": {"0": 8, "1": 6, "2": 5}}})
    found = kafka_positions(SparkCheckpoint("/old", LoggedBatch(3, {"0": FLIGHTS}), planned))
    assert (found.batch_id, found.next_offsets) == (3, {F0: 4, F1: 6})
    # The partition was new in the batch: the checkpoint does not contain where it begins.
    assert found.planned == {F0: ReadRange(4, 8), F2: ReadRange(None, 5)}


def test_a_planned_batch_can_have_only_new_partitions() -> None:
    planned = LoggedBatch(4, {"0": FLIGHTS | {"gates": {"0": 0, "1": 1}}, "1": WEATHER})
    found = kafka_positions(SparkCheckpoint("/old", LoggedBatch(3, {"0": FLIGHTS, "1": None}), planned))
    # No record is before offset 0.
    assert found.planned == {TopicPartition("gates", 1): ReadRange(None, 1), W0: ReadRange(None, 9)}
    assert kafka_positions(SparkCheckpoint("/old", LoggedBatch(3, {"0": FLIGHTS}), planned), ["0"]).planned.keys() == {
        TopicPartition("gates", 1)
    }


def test_before_the_first_commit_the_initial_offsets_count() -> None:
    planned = LoggedBatch(0, {"0": FLIGHTS, "1": WEATHER})
    initial = {"0": {"flights": {"0": 0, "1": 2}}, "1": {"weather": {"0": 9}}}
    found = kafka_positions(SparkCheckpoint("/old", None, planned, initial))
    assert (found.batch_id, found.next_offsets) == (None, {F0: 0, F1: 2, W0: 9})
    assert found.planned == {F0: ReadRange(0, 4), F1: ReadRange(2, 6)}


def test_a_source_without_records_yet_has_its_initial_offset() -> None:
    committed = LoggedBatch(2, {"0": FLIGHTS, "1": None})
    found = kafka_positions(SparkCheckpoint("/old", committed, initial={"1": WEATHER}))
    assert found.next_offsets == {F0: 4, F1: 6, W0: 9}


def test_sources_are_selected() -> None:
    checkpoint = SparkCheckpoint("/old", LoggedBatch(3, {"0": FLIGHTS, "1": {"logOffset": 3}, "2": WEATHER}))
    assert kafka_positions(checkpoint).other_sources == ("1",)
    found = kafka_positions(checkpoint, ["2"])
    assert (found.next_offsets, found.other_sources) == ({W0: 9}, ("0", "1"))
    with pytest.raises(
        InvalidOption, match=r"has no Kafka source '1', '7'; its sources are: 0 \(Kafka, flights\); 1 \(not"
    ):
        kafka_positions(checkpoint, ["7", "1"])


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (SparkCheckpoint("/old"), "'/old' contains no batch"),
        (
            SparkCheckpoint("/old", LoggedBatch(3, {"0": {"logOffset": 3}})),
            r"no Kafka source; its sources are: 0 \(not",
        ),
        (SparkCheckpoint("/old", LoggedBatch(3, {"0": {}})), r"no offset of a partition.*0 \(Kafka, no topic\)"),
        (SparkCheckpoint("/old", None, LoggedBatch(0, {"0": FLIGHTS})), "no offset of a partition before batch 0"),
        (
            SparkCheckpoint("/old", LoggedBatch(3, {"0": FLIGHTS, "1": FLIGHTS})),
            r"read flights-0, flights-1: .*--source 1",
        ),
        (
            SparkCheckpoint("/old", LoggedBatch(3, {"0": {"version": 2, "ranges": {}}})),
            "group of its option 'group.id'",
        ),
    ],
)
def test_checkpoints_without_positions_are_rejected(checkpoint: SparkCheckpoint, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        kafka_positions(checkpoint)


def test_a_query_that_starts_on_such_a_checkpoint_names_the_import() -> None:
    with pytest.raises(OffsetFormat) as rejected:
        decode(FLIGHTS, group_id="flight board", checkpoint="s3://bucket/old")
    assert str(rejected.value) == (
        "The checkpoint belongs to a query of format('kafka'), so format('streamgroups') cannot continue from it: its offset "
        "is {'flights': {'0': 4, '1': 6}}. Import its positions: streamgroups groups import --from-spark-checkpoint "
        "s3://bucket/old --group 'flight board' --execute. Then start this query with a new checkpointLocation."
    )


def test_a_topic_may_be_called_version() -> None:
    with pytest.raises(OffsetFormat, match="groups import --from-spark-checkpoint CHECKPOINT --group GROUP"):
        decode({"version": {"0": 23}})
