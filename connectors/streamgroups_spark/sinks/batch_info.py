"""The facts about a batch for its sink, from the checkpoint and the sources of the query.

Used by ``sinks.base`` on the driver, and by ``sinks.foreach_ledger`` and ``stable_input.batches``. Spark logs the end offset
of each source before it runs a batch. The source that runs to this offset in the session returns its ranges and
consumer group metadata. The log of a batch never changes, so a sink reads it once (:class:`LoggedBatch`). The facts of a
source change, so a sink requests them for each decision. Sources without new offsets in the batch receive no request, because Spark has not called them
yet after a restart. Without any new offsets it is a no-data batch (``streamgroups.ledgers.no_data_batch``). Source:
Spark's ``OffsetSeqLog``; SEMANTICS X1-X3; docs/architecture.rst, "Communication between source and sink".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamgroups.checkpoints.offset import decode
from streamgroups.checkpoints.spark_kafka import punctuation_group
from streamgroups.checkpoints.spark_logs import ends_in, parse_offsets
from streamgroups.connections.redaction import redacted
from streamgroups.errors import FencedBatch, FencedMember, InvalidOption, SinkUnreachable
from streamgroups.groups.membership import InFlight, States
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.no_data_batch import NoDataBatch, QueryBatch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups.query.operator_states import states_after
from streamgroups.retry import comes_true
from streamgroups_operators.locations import remedy_at
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.bridge.rpc import request_source
from streamgroups_spark.bridge.task_reports import request_reports
from streamgroups_spark.messages.batch import BatchFacts, BatchRequest

#: How long a source may take to confirm its membership after a pause.
_RETRY_TIMEOUT_S = 10.0
_AGAIN_S = 0.05
_AT_LEAST_ONCE = "Or set delivery=at-least-once on the sink."
_READABLE = "'checkpointLocation' must be a path or URI that the driver can read."


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch as Spark has logged it before it runs. Pickled with the writer of the batch.

    Args:
        batch_id: Spark's batch id.
        ends: the end offset of each source that has new offsets in the batch.
        no_data_batch: the no-data batch, if no source has new offsets and the query is stateful. Otherwise ``None``, also
            before the first batch.
        partitions: the partitions that the sources had when they planned their last batches.
        time_ms: when Spark has planned the batch, in milliseconds since the epoch. A replay has the same time.
    """

    batch_id: int
    ends: tuple[Mapping[str, Any], ...] = ()
    no_data_batch: NoDataBatch | None = None
    partitions: tuple[TopicPartition, ...] = ()
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch that Spark runs.

    Args:
        sources: the facts of each source of the query that has new offsets in the batch.
        batch_id: see :class:`LoggedBatch`, also for the other fields.
    """

    sources: tuple[BatchFacts, ...]
    batch_id: int
    no_data_batch: NoDataBatch | None = None
    partitions: tuple[TopicPartition, ...] = ()
    time_ms: int = 0

    @property
    def query_id(self) -> str | None:
        """Spark's id of the query. ``None`` if its sources do not have it."""
        known = (source.query_id for source in self.sources)
        return next(known, None) if self.no_data_batch is None else self.no_data_batch.query_id

    @property
    def tasks(self) -> int | None:
        """The usual number of tasks of a batch. ``None`` if its sources do not report it."""
        return max((source.tasks for source in self.sources if source.tasks is not None), default=None)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """All ranges that the batch reads."""
        return tuple(r for source in self.sources for r in source.ranges)

    @property
    def reads(self) -> dict[str, tuple[OffsetRange, ...]]:
        """All ranges that the batch reads, by group."""
        groups = {source.group_id for source in self.sources}
        return {g: tuple(r for s in self.sources if s.group_id == g for r in s.ranges) for g in groups}

    @property
    def first_group(self) -> str | None:
        """The first group by name from which the batch reads records. ``None`` for a no-data batch."""
        return min((group_id for group_id, ranges in self.reads.items() if ranges), default=None)

    @property
    def identities(self) -> dict[str, dict[TopicPartition, TopicIdentity]]:
        """The identities of the topics that the batch reads, by group."""
        found: dict[str, dict[TopicPartition, TopicIdentity]] = {}
        for source in self.sources:
            end = decode(source.end)
            of_group = found.setdefault(source.group_id, {})
            of_group |= {r.topic_partition: end.identity(r.topic_partition.topic) for r in source.ranges}
        return found

    @property
    def epochs(self) -> dict[str, dict[TopicPartition, int]]:
        """The ownership epochs of the partitions that the batch reads, by group."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for source in self.sources:
            found.setdefault(source.group_id, {}).update(source.epochs)
        return found

    @property
    def is_written(self) -> bool:
        """Whether the sink had committed the batch before a restart.

        Raises:
            FencedBatch: if it had committed only a part of it, because the group was reset during the batch.
        """
        ranges = {(source.group_id, r) for source in self.sources for r in source.ranges}
        written = {(source.group_id, r) for source in self.sources for r in source.written}
        if written and written != ranges:
            missing = {r for _, r in ranges - written}
            raise FencedBatch(
                f"Batch {self.batch_id} is partly written: {listed(sorted({r for _, r in written}))}, but not "
                f"{listed(sorted(missing))}.",
                remedy=(
                    "The group's offsets were reset during the batch. Start the query with a new checkpoint: "
                    "it continues at the committed offsets of the group."
                ),
            )
        return bool(written)


def logged_batch(checkpoint: str, batch_id: int | None = None) -> LoggedBatch:
    """Reads a batch from the checkpoint of its query: one file for the batch, and one for the batch before it.

    Args:
        checkpoint: the checkpoint of the query.
        batch_id: Spark's batch id. ``None``: the batch that started last, which needs one more request.

    Raises:
        InvalidOption: if the query has a source of another format.
        SinkUnreachable: if the checkpoint cannot be read.
    """
    log = CommitLog(checkpoint)
    with _reading(checkpoint):
        if batch_id is None and (batch_id := log.newest()) is None:
            return LoggedBatch(-1)
        text, previous = log.offsets_with_previous(batch_id)
        entry = parse_offsets(text)
        # Without an earlier entry, all sources count as advanced.
        before = {} if previous is None else ends_in(previous)
    reads = {name: end for name, end in entry.ends.items() if end is not None and punctuation_group(end) is None}
    for end in reads.values():
        _reject_other(end, batch_id)
    offsets = {name: decode(end) for name, end in reads.items()}
    moved = [
        reads[name]
        for name, offset in offsets.items()
        if (old := before.get(name)) is None or decode(old).number != offset.number
    ]
    # Spark logs a source once for each branch of a union that reads it.
    moved = [end for i, end in enumerate(moved) if end not in moved[:i]]
    with _reading(checkpoint):
        # A stateless query has no output without input.
        no_data_batch = None if moved or not log.has_state() else NoDataBatch.logged(_query_id(log), batch_id, text)
    partitions = {tp for offset in offsets.values() for tp in offset.next_offsets}
    return LoggedBatch(batch_id, tuple(moved), no_data_batch, tuple(sorted(partitions)), entry.time_ms)


def batch_info(batch: LoggedBatch, session: str, *, to_commit: bool = False, confirmed: bool = False) -> BatchInfo:
    """Requests the facts about a batch, and rejects a batch that cannot be written exactly once.

    Args:
        batch: the batch.
        session: the session in which its sources run.
        to_commit: whether the caller then commits the offsets of the sources.
        confirmed: whether the broker must confirm that the members of the sources are still in their groups.

    Raises:
        InvalidOption: if the query does not support exactly once. The error contains the remedy.
        FencedMember: if a source is no longer in its group.
    """
    sources = tuple(_facts(session, BatchRequest(end, to_commit, confirmed), batch.batch_id) for end in batch.ends)
    for source in sources:
        check_source(source)
    return BatchInfo(sources, batch.batch_id, batch.no_data_batch, batch.partitions, batch.time_ms)


def number_of(batch: BatchInfo, checkpoint: str) -> QueryBatch | None:
    """Returns the number of a batch that a sink compares with its last no-data batch.

    ``None`` for a no-data batch, and for a batch that cannot repeat one.

    Args:
        batch: the batch.
        checkpoint: the checkpoint of the query.

    Raises:
        SinkUnreachable: if the checkpoint cannot be read. It is read only if no source has the id of the query.
    """
    if batch.no_data_batch is not None or not any(source.may_repeat_no_data for source in batch.sources):
        return None
    query_id = batch.query_id or query_id_of(checkpoint)
    return None if query_id is None else QueryBatch(query_id, batch.batch_id)


def reported_states(session: str, source: BatchFacts) -> States:
    """Returns the states after a batch, from the reports of its tasks. Empty without an operator with state.

    Args:
        session: the session in which the sources of the query run.
        source: the facts of the source.

    Raises:
        StateMissing: if no task has reported the state of a range.
    """
    if source.states_run_id is None:
        return {}
    batch = InFlight(decode(source.end).number, source.ranges)
    reports = request_reports(session, source.states_run_id, batch.number)
    return states_after(batch, reports, source.group_id)


def query_id_of(checkpoint: str) -> str | None:
    """Returns the id of the query that Spark has stored in a checkpoint. ``None`` if no query has started on it.

    Args:
        checkpoint: the checkpoint of the query.

    Raises:
        SinkUnreachable: if the checkpoint cannot be read.
    """
    with _reading(checkpoint):
        return CommitLog(checkpoint).query_id()


@contextmanager
def _reading(checkpoint: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as e:
        raise SinkUnreachable(
            redacted(f"The checkpoint '{checkpoint}' cannot be read: {e}.", ()),
            remedy=f"{remedy_at(checkpoint, _READABLE)} {_AT_LEAST_ONCE}",
        ) from None


def _query_id(log: CommitLog) -> str:
    query_id = log.query_id()
    if query_id is None:
        raise ValueError("it has no metadata")
    return query_id


def _reject_other(end: object, batch_id: int) -> None:
    if not (isinstance(end, dict) and "version" in end and "ranges" in end):
        raise InvalidOption(
            f"The query has a source of another format (it ends at {str(end)[:80]} in batch {batch_id}): "
            "its positions cannot be committed with the output.",
            remedy='Read it with format("streamgroups"). ' + _AT_LEAST_ONCE,
        )


def _facts(session: str, question: BatchRequest, batch_id: int) -> BatchFacts:
    found: BatchFacts | None = None

    def is_known() -> bool:
        nonlocal found
        found = request_source(session, question.end, question)
        # A source without ranges commits nothing. A batch with revoked ranges is not written, whatever the group
        # reports.
        return found is not None and (
            found.group_metadata is not None or not found.joins or not found.ranges or bool(_gone(found))
        )

    known = comes_true(is_known, _RETRY_TIMEOUT_S, every_s=_AGAIN_S)
    if found is None:
        raise FencedMember(
            f"No source in this session runs batch {batch_id}: it has stopped, does not respond, or belongs to another session.",
            remedy=(
                "Restart the query: no record is lost or duplicated. Call sg.register(spark) once, before its source is loaded."
            ),
        )
    if not known:
        raise FencedMember(
            f"Group '{found.group_id}' has not confirmed member '{found.member}' for "
            f"{_RETRY_TIMEOUT_S:.0f} s: batch {batch_id} is not written.",
            remedy=(
                "The process was paused or overloaded, or the broker is unavailable. Restart the query: no "
                "record is lost or duplicated."
            ),
        )
    return found


def check_source(source: BatchFacts) -> None:
    """Rejects a batch of a source that cannot be written exactly once.

    Args:
        source: the facts of the source about the batch.

    Raises:
        InvalidOption: if the query does not support exactly once. The error contains the remedy.
        FencedBatch: if the group has revoked partitions while the batch read them.
    """
    if not source.joins:
        raise InvalidOption(
            f"The source of group '{source.group_id}' uses 'assign' and is not a member: no fencing stops "
            "an old run from writing.",
            remedy="Use 'subscribe'. " + _AT_LEAST_ONCE,
        )
    if missing := _gone(source):
        raise FencedBatch(
            f"Group '{source.group_id}' revoked {listed(sorted(missing))} from '{source.member}' while a batch "
            "read these offsets.",
            remedy="No output of the batch is written; other members read it again. Restart the query. If batches "
            "often take this long, reduce maxOffsetsPerTrigger, or raise 'leaseTimeout' and "
            "'kafka.max.poll.interval.ms'.",
        )


def _gone(source: BatchFacts) -> frozenset[OffsetRange]:
    """The ranges of the batch whose partitions the member no longer owns."""
    return frozenset(source.ranges) - frozenset(source.held)
