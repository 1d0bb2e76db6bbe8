"""What a sink finds out about the batch that it writes: from the query's checkpoint and from the query's sources.

Used by ``kafka_sink`` and ``ledger_sink`` on the driver, and by ``foreach_ledger``. Spark logs where each source ends
before it runs a batch; whoever runs up to there in this session is the source, and knows what is read and by which claim.
Source: Spark's ``OffsetSeqLog``; SEMANTICS X1-X3; DESIGN "Exactly once".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from streamgroups.errors import FencedBatch, FencedMember, InvalidOption, SinkUnreachable
from streamgroups.groups.joining import MembershipMode
from streamgroups.partitions import OffsetRange
from streamgroups.waiting import comes_true
from streamgroups_spark.batch_facts import BatchFacts, BatchQuestion
from streamgroups_spark.commit_log import CommitLog
from streamgroups_spark.rendezvous import ask

#: For how long a source that has been silent may find out whether the group still knows it.
_PATIENCE_S = 10.0
_AGAIN_S = 0.05
_AT_LEAST_ONCE = "Or set delivery=at-least-once on the sink."


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch that Spark runs.

    Args:
        sources: what each of the query's sources says of it.
        batch_id: Spark's number.
    """

    sources: tuple[BatchFacts, ...]
    batch_id: int

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """All that it reads."""
        return tuple(r for source in self.sources for r in source.ranges)

    @property
    def is_written(self) -> bool:
        """Whether the sink has committed it already, before a restart.

        Raises:
            FencedBatch: if that is so for a part of it: somebody has moved the group in between.
        """
        ranges = set(self.ranges)
        written = {r for source in self.sources for r in source.written}
        if written and written != ranges:
            raise FencedBatch(
                f"Batch {self.batch_id} is written in part: {_listed(written)}, but not {_listed(ranges - written)}.",
                remedy="Somebody has moved the group meanwhile. Start the query with a new checkpoint: it goes on where the group stands.",
            )
        return bool(written)


def batch_seen(checkpoint: str, session: str, batch_id: int | None = None) -> SeenBatch:
    """Finds out about a batch, and refuses what cannot be written exactly once.

    Args:
        checkpoint: the query's checkpoint.
        session: where its sources are to be found.
        batch_id: Spark's number; ``None`` for the batch that began last.

    Raises:
        InvalidOption: if the query cannot be exactly once, naming the way out.
        FencedMember: if a source is no longer in its group.
        SinkUnreachable: if the checkpoint cannot be read.
    """
    log = CommitLog(checkpoint)
    try:
        if batch_id is None and (batch_id := log.newest()) is None:
            return SeenBatch((), -1)
        ends = log.ends(batch_id)
        has_state = log.has_state()
    except (OSError, ValueError) as e:
        raise SinkUnreachable(
            f"The checkpoint '{checkpoint}' cannot be read: {e}.",
            remedy="'checkpointLocation' must be a path or a URI that the driver can read. " + _AT_LEAST_ONCE,
        ) from e
    sources = tuple(_facts(session, end, batch_id) for end in ends if end is not None)
    for source in sources:
        _refuse(source, has_state=has_state)
    return SeenBatch(sources, batch_id)


def _facts(session: str, end: object, batch_id: int) -> BatchFacts:
    if not (isinstance(end, dict) and "version" in end and "ranges" in end):
        raise InvalidOption(
            f"The query has a source that is not streamgroups (it ends at {str(end)[:80]} in batch {batch_id}): "
            "its positions cannot be committed with the output.",
            remedy='Read it with format("streamgroups"). ' + _AT_LEAST_ONCE,
        )
    found: list[BatchFacts] = []

    def is_known() -> bool:
        found[:] = ask(session, BatchQuestion(end))
        # What reads nothing commits nothing.
        return bool(found) and (found[0].claim is not None or not found[0].joins or not found[0].ranges)

    known = comes_true(is_known, _PATIENCE_S, every_s=_AGAIN_S)
    if not found:
        raise FencedMember(
            f"Nobody in this session runs batch {batch_id}: its source has gone, or is not from this session.",
            remedy="Restart the query; call sg.register(spark) once, before its source is loaded.",
        )
    if not known:
        raise FencedMember(
            f"Group '{found[0].group_id}' has not confirmed '{found[0].member}' for {_PATIENCE_S:.0f} s: "
            f"batch {batch_id} is not written.",
            remedy="The process was stopped or starved, or the broker is away. Restart the query: nothing is lost or repeated.",
        )
    return found[0]


def _refuse(source: BatchFacts, *, has_state: bool) -> None:
    if not source.joins:
        raise InvalidOption(
            f"The source of group '{source.group_id}' uses 'assign' and so is no member: nothing keeps an old run from writing.",
            remedy="Use 'subscribe'. " + _AT_LEAST_ONCE,
        )
    if has_state and source.mode is MembershipMode.SHARED:
        raise InvalidOption(
            f"The query keeps state, and its source shares group '{source.group_id}': "
            "state does not move with a partition, so its output would be wrong after a rebalance.",
            remedy="Set membership=exclusive on the source. " + _AT_LEAST_ONCE,
        )
    if missing := set(source.ranges) - set(source.held):
        raise FencedBatch(
            f"Group '{source.group_id}' has taken {_listed(missing)} from '{source.member}' while a batch read it.",
            remedy="Nothing of the batch is written; others read it again. Restart the query. "
            "If batches often take this long, read less at once (maxOffsetsPerTrigger).",
        )


def _listed(ranges: Collection[OffsetRange]) -> str:
    return ", ".join(map(str, sorted(ranges)))
