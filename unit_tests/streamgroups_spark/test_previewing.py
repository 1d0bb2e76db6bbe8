"""P2: the records that a preview reads are those after the committed offsets of the group, and no group is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.partitions import TopicPartition
from streamgroups.processors.processor import Processor
from streamgroups.processors.reading import processor_of
from streamgroups_spark.processors import previewing

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    config = tmp_path / "config.toml"
    config.write_text('[connections.prod]\ntype = "kafka"\nbootstrap-servers = "broker:9092"\n')
    config.chmod(0o600)
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(config))
    found = FakeCluster(FakeClock(1_000))
    found.create_topic("flights", 2)
    for tp in (P0, P1):
        found.produce(tp, 10)
    monkeypatch.setattr(previewing, "cluster_of", lambda _: found)
    return found


def _late(**source: object) -> Processor:
    return processor_of({"name": "late", "source": {"connection": "prod", "subscribe": "flights", **source}})


def _next(declared: Processor, records: int) -> list[str]:
    return [str(it) for it in previewing.next_ranges(declared, records, instance="board")]


def test_P2_the_next_records_follow_the_committed_offsets(cluster: FakeCluster) -> None:
    cluster.commit("board.late", {P0: 4, P1: 9})
    assert _next(_late(), 4) == ["flights-0[4,7)", "flights-1[9,10)"]
    assert cluster.committed("board.late", [P0, P1])[P0].next_offset == 4


def test_P2_a_partition_without_a_committed_offset_has_the_starting_position(cluster: FakeCluster) -> None:
    cluster.commit("board.late", {P0: 8})
    assert _next(_late(), 4) == ["flights-0[8,10)", "flights-1[10,10)"]
    assert _next(_late(startingOffsets="earliest"), 4) == ["flights-0[8,10)", "flights-1[0,2)"]


def test_P2_expired_records_are_left_out(cluster: FakeCluster) -> None:
    cluster.commit("board.late", {P0: 2, P1: 10})
    cluster.delete_records(P0, 6)
    assert _next(_late(), 20) == ["flights-0[6,10)", "flights-1[10,10)"]


def test_P1_the_last_records_need_no_group(cluster: FakeCluster) -> None:
    cluster.commit("board.late", {P0: 10, P1: 10})
    ranges = previewing.last_ranges(_late(), 4, instance="board")
    assert [str(it) for it in ranges] == ["flights-0[8,10)", "flights-1[8,10)"]


def test_P1_a_repartitioned_topic_has_no_preview() -> None:
    read = {"topic": "by-carrier", "by": ["carrier"], "columns": "carrier string"}
    declared = processor_of({"name": "late", "source": {"connection": "prod", "read_repartitioned": read}})
    with pytest.raises(InvalidOption, match="Preview the processor that writes the topic"):
        previewing.next_ranges(declared, 4)


_JOIN = {
    "left": "orders",
    "right": "payments",
    "by": ["key"],
    "on": "timestamp",
    "within": "10m",
}
_WINDOWS = {"on": "timestamp", "by": ["key"], "window": {"tumbling": "5m"}, "aggregate": {"n": "count(*)"}}
_SOURCE = {"connection": "prod", "subscribe": "flights", "membership": "exclusive"}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"steps": [{"join": _JOIN}]}, "the step 'join' needs a stream"),
        (
            {"steps": [{"windows": {**_WINDOWS, "time": "query"}}], "checkpoint": "/mnt/c"},
            "'time: query' of the step 'windows' needs a stream",
        ),
        (
            {"steps": [{"windows": {**_WINDOWS, "boundary": "processingTime"}}]},
            "'boundary: processingTime' of the step",
        ),
        (
            {"source": {"connection": "prod", "subscribe": "flights", "watermarkHeader": "w"}},
            "option 'watermarkHeader'",
        ),
    ],
)
def test_P1_P2_what_needs_a_stream_is_rejected_without_a_request(changes: dict[str, object], cause: str) -> None:
    declared = processor_of({"name": "late", "source": _SOURCE, **changes})
    for ranges in (previewing.next_ranges, previewing.last_ranges):
        with pytest.raises(InvalidOption, match=cause):
            ranges(declared, 4)
