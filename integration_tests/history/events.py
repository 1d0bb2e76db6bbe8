"""The events of a history.

Recorded by all processes of a campaign (:mod:`~integration_tests.history.files`), and read by
:mod:`~integration_tests.history.checker`. All times are milliseconds since the
epoch by the clock of one machine: the processes of a campaign share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from streamgroups.partitions import OffsetRange, TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Event:
    """An action of a process, or an observation.

    Args:
        time_ms: when.
        process: the name of the process: ``producer``, ``observer``, ``injector``, or the name of a member of the group.
    """

    time_ms: int
    process: str


@dataclass(frozen=True, slots=True)
class Workload(Event):
    """The program of the queries, and the events that the history records.

    Args:
        group: the group of the queries.
        topic: their topic.
        is_ordered: whether the output of each partition has the order of its input.
        is_atomic: whether the sink commits the offsets of the group together with its output.
        delay_ms: the delay of the watermark of each partition; ``None`` without event time.
        max_lag_ms: the longest permitted time from the last fault and the last record until the group has read all records.
        recorded: the names of the events that the history records completely.
    """

    group: str
    topic: str
    is_ordered: bool
    is_atomic: bool
    delay_ms: int | None
    max_lag_ms: int
    recorded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """The broker has acknowledged records of the input.

    Args:
        topic_partition: their partition.
        offsets: their offsets.
        times_ms: their event times, in the same order.
    """

    topic_partition: TopicPartition
    offsets: tuple[int, ...]
    times_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProcessStarted(Event):
    """A query was started.

    Args:
        pid: the id of its driver.
    """

    pid: int


@dataclass(frozen=True, slots=True)
class ProcessEnded(Event):
    """A query has ended.

    Args:
        pid: the id of its driver.
        cause: ``stopped``, ``killed`` or ``ended``.
    """

    pid: int
    cause: str


@dataclass(frozen=True, slots=True)
class FaultInjected(Event):
    """A fault began.

    Args:
        point: the point that a process had reached.
        fault: the fault.
        target: the member whose process had reached the point; empty if none had.
    """

    point: str
    fault: str
    target: str


@dataclass(frozen=True, slots=True)
class FaultHealed(Event):
    """A fault ended: frozen processes run, a killed broker is started. A killed query is started again by its next check.

    Args:
        point: see :class:`FaultInjected`.
        fault: see :class:`FaultInjected`.
    """

    point: str
    fault: str


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """Partitions were assigned to a member.

    Args:
        group: its group.
        offsets: where it begins to read.
        generation: the generation of the group, or the member epoch of KIP-848; ``None`` if it is unknown.
    """

    group: str
    offsets: Offsets
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class AssignmentBegun(Event):
    """A member receives an assignment. The recorder has its generation, and :class:`Assigned` the partitions.

    Args:
        group: its group.
        generation: see :class:`Assigned`.
    """

    group: str
    generation: int | None


@dataclass(frozen=True, slots=True)
class Revoked(Event):
    """A member does not own partitions any more.

    Args:
        group: its group.
        offsets: their next offsets.
        cause: ``released``, ``lost`` or ``lease_expired``.
    """

    group: str
    offsets: Offsets
    cause: str


@dataclass(frozen=True, slots=True)
class Read(Event):
    """A member has planned a batch, and reads its records from now on.

    Args:
        group: its group.
        batch: the number of the batch.
        ranges: what the batch reads.
        generation: the generation of the last assignment of the member; ``None`` if it is unknown.
    """

    group: str
    batch: int
    ranges: tuple[OffsetRange, ...]
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Commit(Event):
    """A sink commits output together with positions. Its begin and its end are two events.

    Args:
        group: the group of the positions.
        generation: the generation of the member, or the ownership epoch of its first partition; ``None`` without one.
        offsets: the positions after the batch.
        phase: ``begun``; ``accepted``; ``rejected``: none of the output is visible; ``unchanged``: an earlier attempt has
            written the batch; ``unknown``: it may have taken effect. A commit of a killed process has no end.
    """

    group: str
    generation: int | None
    offsets: Offsets
    phase: str


@dataclass(frozen=True, slots=True)
class Reset(Event):
    """A tool resets partitions of the group.

    Args:
        group: the group.
        number: the number of the reset in this history.
        offsets: its targets.
        phase: ``requested``, or ``applied`` by all members.
    """

    group: str
    number: int
    offsets: Offsets
    phase: str


@dataclass(frozen=True, slots=True)
class Moved(Event):
    """A member has applied a reset request.

    Args:
        group: its group.
        offsets: where it continues.
        ranges: skipped ranges, or ranges to read again.
    """

    group: str
    offsets: Offsets
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class Gap(Event):
    """A member has recorded that records do not exist any more.

    Args:
        group: its group.
        ranges: their offsets.
    """

    group: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class Position(Event):
    """An observer has read the committed offsets of the group.

    Args:
        group: the group.
        offsets: the committed offsets.
    """

    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class HighWater(Event):
    """An observer begins to read how far the output is written, also by open transactions.

    Args:
        offsets: by partition of the input, the offset after the last record in the output.
    """

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Written(Event):
    """The independent reader has found records in the output, in the order of their commits.

    Args:
        sink: ``output`` or ``letters``: the dead letters.
        topic_partition: the partition of their input.
        offsets: the offsets of their input.
    """

    sink: str
    topic_partition: TopicPartition
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnknownWritten(Event):
    """The independent reader has found a record without an acknowledged input.

    Args:
        sink: see :class:`Written`.
        value: its value.
    """

    sink: str
    value: str


@dataclass(frozen=True, slots=True)
class Delivered(Event):
    """An instance with a cursor has received the messages of a request. Its time is the begin of the request.

    Args:
        group: its group.
        session: the use of a cursor. The next request of it commits the messages of this one.
        request: the number of the request in its session.
        ranges: the offsets of the messages, in their order.
    """

    group: str
    session: str
    request: int
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class ExpectedRow(Event):
    """A row that a plain program computes from the acknowledged records.

    Args:
        topic_partition: the partition of its input.
        offset: the record that completes it.
        row: its name.
        result: its content.
        is_last: whether the output must contain it. An update replaces the others.
    """

    topic_partition: TopicPartition
    offset: int
    row: str
    result: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class WrittenRow(Event):
    """The independent reader has found a row in the output.

    Args:
        row: its name.
        result: its content.
    """

    row: str
    result: str


@dataclass(frozen=True, slots=True)
class StateLoaded(Event):
    """A task continues with a state.

    Args:
        topic_partition: the partition.
        next_offset: the position of the batch.
        named_offset: the offset of the state that the position names; ``None`` if it names none.
        loaded_offset: the offset of the state.
    """

    topic_partition: TopicPartition
    next_offset: int
    named_offset: int | None
    loaded_offset: int


@dataclass(frozen=True, slots=True)
class StateWritten(Event):
    """A task has written a state.

    Args:
        topic_partition: the partition.
        next_offset: the offset of the state.
        watermark_ms: the watermark in it, by the records of the partition; ``None`` without one.
    """

    topic_partition: TopicPartition
    next_offset: int
    watermark_ms: int | None


@dataclass(frozen=True, slots=True)
class StateError(Event):
    """A query has ended with an error of a state.

    Args:
        error: the error, with its partition.
    """

    error: str


@dataclass(frozen=True, slots=True)
class LogsSearched(Event):
    """All files of a campaign were searched for the secrets that it has planted: logs, plans, checkpoints, states, histories.

    Args:
        n_files: the number of files.
        n_bytes: their size.
        findings: the files that contain a secret, with its name and form. They do not contain the secret.
    """

    n_files: int
    n_bytes: int
    findings: tuple[str, ...]


_CLASSES: tuple[type[Event], ...] = (
    *(
        Workload,
        Acknowledged,
        ProcessStarted,
        ProcessEnded,
        FaultInjected,
        FaultHealed,
        Assigned,
        Revoked,
        Read,
        Commit,
    ),
    *(Reset, Moved, Gap, Position, HighWater, Written, UnknownWritten, ExpectedRow, WrittenRow, StateLoaded),
    *(StateWritten, StateError, LogsSearched, AssignmentBegun, Delivered),
)


def name_of(event_class: type[Event]) -> str:
    """The name of an event in a line.

    >>> name_of(StateLoaded)
    'state_loaded'
    """
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in event_class.__name__).lstrip("_")


#: The events by their names.
EVENTS: Mapping[str, type[Event]] = MappingProxyType({name_of(it): it for it in _CLASSES})
