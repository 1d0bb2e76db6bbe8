"""A query of a session of Spark Connect whose source was registered automatically, such as a flow of a declarative pipeline.

``formats.unregistered`` creates it for ``source.readers``. Spark repeats a failed flow after seconds, and a scheduler repeats a
killed run: so the query waits for the end of the killed one. Two flows of one group are rejected, because the second one starts at
the positions of the first one. Source: SEMANTICS S13.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroups.checkpoints.offset import decode
from streamgroups.errors import InvalidOption
from streamgroups.groups.description import REMOVED_WITHIN_S
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Cluster
from streamgroups.retry import comes_true
from streamgroups_spark.bridge.session_positions import QueryStart, SessionPositions

logger = logging.getLogger(__name__)

_AGAIN_S = 0.5


class FlowOfSession:
    """A query of Spark Connect, such as a flow of a declarative pipeline. It waits for a killed run, and rejects a second flow.

    Args:
        application: the key of the application.
        connect_session: the id of the session of Spark Connect.
        group_id: the group.
    """

    def __init__(self, application: str, connect_session: str, group_id: str) -> None:
        self._place, self._group_id, self._is_checked = (application, connect_session, group_id), group_id, False

    def wait_for_earlier_run(self, cluster: Cluster) -> None:
        """Waits until the group has no member: a scheduler repeats a killed run before its session timeout has expired.

        A live member is rejected later, when the query joins.
        """

        def is_empty() -> bool:
            return not cluster.describe(self._group_id).members

        if not is_empty():
            logger.warning("Group '%s' has a member: waiting until it has ended", self._group_id)
            comes_true(is_empty, REMOVED_WITHIN_S, every_s=_AGAIN_S)

    def check_start(self, checkpoint: Mapping[str, Any], positions: Mapping[TopicPartition, int]) -> None:
        """Rejects the query if it or another one of its session and group lacks records that the other one has read.

        Only the first call with positions has an effect.

        Args:
            checkpoint: Spark's offset before the next batch.
            positions: the positions of the query.

        Raises:
            InvalidOption: naming the partition.
        """
        if self._is_checked or not positions:
            return
        last = decode(checkpoint)
        read = {**last.resting, **{it.topic_partition: it.next_offset for it in last.ranges}}
        start = QueryStart(last.number == 0, positions if last.number == 0 else read)
        session = SessionPositions(*self._place)
        check_starts(self._group_id, session.starts(), start)
        session.record(start)
        self._is_checked = True


def check_starts(group_id: str, earlier: Iterable[QueryStart], start: QueryStart) -> None:
    """Rejects a query that lacks records which another one of its session and group has read, or that has read more than a new one.

    A query that was repeated after a failure starts where it has started before, or later with its checkpoint.

    Args:
        group_id: the group of all.
        earlier: the starts of the earlier queries.
        start: the start of the query.

    Raises:
        InvalidOption: naming a partition.

    >>> p0 = TopicPartition("flights", 0)
    >>> check_starts("board", [QueryStart(True, {p0: 5})], QueryStart(False, {p0: 7}))
    >>> check_starts("board", [QueryStart(True, {p0: 5})], QueryStart(True, {p0: 7}))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Two queries of this session read flights-0 for group 'board', one from offset 5 or before, \
and a new one from offset 7: it lacks the records before. Set another group.id: each flow of a declarative pipeline needs its own \
group. To replace a query that was stopped, use a new session.
    """
    for other in earlier:
        if start.is_new:
            first, new = other, start
        elif other.is_new:
            first, new = start, other
        else:
            continue
        for tp, offset in sorted(new.first_offsets.items()):
            if first.first_offsets.get(tp, offset) < offset:
                raise _second_query(group_id, tp, first.first_offsets[tp], offset)


def _second_query(group_id: str, tp: TopicPartition, first_offset: int, offset: int) -> InvalidOption:
    return InvalidOption(
        f"Two queries of this session read {tp} for group '{group_id}', one from offset {first_offset} or before, and a new one "
        f"from offset {offset}: it lacks the records before.",
        remedy="Set another group.id: each flow of a declarative pipeline needs its own group. To replace a query that was stopped, "
        "use a new session.",
        group=group_id,
        topic=tp.topic,
        partition=tp.partition,
    )
