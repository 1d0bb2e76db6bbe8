"""The handovers of single partitions are found in the histories of members, with their causes and phases."""

from __future__ import annotations

from benchmarks.handover_load import Result, Settings, table
from benchmarks.moves import JOIN, LEAVE, Move, Read, moves
from benchmarks.paced_producer import batch_records, produce_request
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import TopicPartition


def event(at_s: float, member: str, kind: Kind, *partitions: int) -> Event:
    return Event(int(at_s * 1_000), "g", member, "1", kind, {TopicPartition("t", p): 5 for p in partitions})


HISTORY = [
    event(1, "ann", Kind.ASSIGNED, 0, 1),
    event(5, "ann", Kind.REVOKING, 1),
    event(5.25, "ann", Kind.RELEASED, 1),
    event(5.5, "bob", Kind.ASSIGNED, 1),
    event(8.25, "bob", Kind.REVOKING, 1),
    event(8.5, "bob", Kind.RELEASED, 1),
    event(9, "ann", Kind.ASSIGNED, 1),
]
READS = [Read(1.5, "ann", 1), Read(6.25, "bob", 1), Read(6.5, "bob", 1), Read(9.75, "ann", 1), Read(9.5, "ann", 0)]


def test_each_handover_has_its_cause_and_its_phases() -> None:
    assert moves(HISTORY, READS, {"bob": 8.0}) == [
        Move(JOIN, 1, 5, 5.25, 5.5, 6.25),
        Move(LEAVE, 1, 8, 8.5, 9, 9.75),
    ]
    assert Move(LEAVE, 1, 8, 8.5, 9, 9.75).phases == (0.5, 0.5, 0.75)


def test_a_partition_that_returns_to_its_owner_is_no_handover() -> None:
    returned = [*HISTORY[:3], event(6, "ann", Kind.ASSIGNED, 1)]
    assert moves(returned, READS, {}) == []


def test_a_partition_that_moves_again_before_it_is_read_counts_once() -> None:
    read_late = [READS[0], Read(9.75, "ann", 1)]
    assert moves(HISTORY, read_late, {}) == []
    to_another = [*HISTORY[:6], event(9, "cem", Kind.ASSIGNED, 1)]
    assert moves(to_another, [READS[0], Read(9.5, "cem", 1)], {}) == [Move(JOIN, 1, 5, 8.5, 9, 9.5)]


def test_a_read_of_the_former_owner_ends_nothing() -> None:
    assert moves(HISTORY[:4], [Read(5.125, "ann", 1), Read(5.75, "ann", 1)], {}) == []


def test_the_limit_is_that_of_p99() -> None:
    found = [Move(LEAVE, p, 0, 0.25, 0.5, 1.0) for p in range(98)] + [Move(JOIN, p, 0, 1, 1, 1.75) for p in range(2)]
    shown = table([Result(1_000, 990.0, 980.0, tuple(found))], Settings())
    columns = {str(column.header): list(column.cells) for column in shown.columns}
    assert columns["cause"] == [LEAVE, JOIN, "both"]
    assert columns["n"] == ["98", "2", "100"]
    assert columns["max"] == ["1.00", "1.75", "1.75"]
    assert columns["limit"] == ["met", "missed", "missed"]


def test_a_request_has_a_batch_for_each_partition() -> None:
    assert (batch_records(1_000, 32), batch_records(1_000_000, 32)) == (2, 1_562)
    [topic] = produce_request("t", 4, 10).topic_data
    assert [it.index for it in topic.partition_data] == [0, 1, 2, 3]
