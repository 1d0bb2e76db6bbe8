"""Assembles the states of a query with an operator with state in the stage that reads.

Called by ``source.running_query`` before the first batch. Source: SEMANTICS S10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.groups.commit_metadata import position_of
from streamgroups.groups.membership import Owned
from streamgroups.groups.subscription import partitions_of
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster
from streamgroups.query.available_offsets import Start
from streamgroups.query.group_time import GroupTime
from streamgroups.query.imported_time import ImportedTime, LaterTime
from streamgroups.query.joined_states import JoinedStates
from streamgroups.query.operator_states import OperatorStates, StateReport
from streamgroups.query.query_ports import BatchStates
from streamgroups.query.state_options import default_location
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups.state.state_lookup import Position
from streamgroups.state.state_retention import Retention
from streamgroups_kafka.client.clock import awake_ms
from streamgroups_operators.batch_search import BatchSearch
from streamgroups_operators.collection import Collector
from streamgroups_operators.locations import files_below
from streamgroups_operators.shared_files import collect_all
from streamgroups_operators.store import StoredStates
from streamgroups_spark.bridge.stage_name import StageName
from streamgroups_spark.bridge.task_reports import request_reports
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.source.source_options import SourceOptions

logger = logging.getLogger(__name__)
#: A collection lists all files, and reads the manifests of new ones.
_EVERY_MS = 60_000
#: A collection of this duration can be slower than the tasks that write the files.
_SLOW_MS = 10 * _EVERY_MS


def batch_states(
    options: SourceOptions,
    facts: QueryFacts,
    session: str,
    run_id: str,
    cluster: Cluster,
    start: Start,
    now_ms: Clock,
    imported: ImportedTime | None = None,
) -> BatchStates:
    """Returns the states of a query.

    Args:
        options: the options of the stream.
        facts: the facts about the query, which has an operator with state.
        session: the session in which tasks report.
        run_id: the id of the run.
        cluster: the topics and groups of the cluster.
        start: runs a job in the background.
        now_ms: the time in milliseconds since the epoch.
        imported: the watermark of another group; ``None`` if the stream imports no watermark.

    Raises:
        InvalidOption: if the query or an option does not support states. See :func:`check_stages`.
        StateUnreachable: if the storage does not answer.
    """
    stages, location = check_stages(options, facts)
    stage, operators = stages[-1], tuple(it.operator for it in stages)
    group_id, states = str(options.group_id), options.states
    files_of = [files_below(location, group_id, it) for it in operators]

    def stored() -> StoredStates:
        beside = [StoredStates(group_id, *it) for it in zip(operators[:-1], files_of[:-1], strict=True)]
        return StoredStates(group_id, stage.operator, files_of[-1], states.on_missing, beside)

    def take_reports(run_id: str, batch: int) -> list[StateReport]:
        return request_reports(session, run_id, batch)

    def partitions() -> Collection[TopicPartition]:
        return partitions_of(options.subscription, cluster.topics())

    def committed(partitions: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        found = cluster.committed(group_id, partitions)
        return {tp: Owned.committed(it.next_offset, it.metadata) for tp, it in found.items()}

    search = BatchSearch(stored, keeps_on_reset=stage.keeps_on_reset)
    collect = StateCollection(
        [Collector(it, Retention(states.retention_ms), awake_ms) for it in files_of],
        group_id,
        cluster,
        partitions,
        awake_ms,
        start,
    )
    if stage.topics is not None:
        return JoinedStates(
            stage.topics,
            location,
            group_id,
            run_id,
            search,
            take_reports,
            now_ms,
            states.on_missing,
            collect,
            operators,
        )
    ends = cluster.high_watermarks
    group_time = GroupTime(partitions, committed, cluster.identities, ends, now_ms, options.partition_idle_timeout_ms)
    return OperatorStates(
        location,
        group_id,
        run_id,
        search,
        take_reports,
        now_ms,
        states.on_missing,
        collect,
        ends,
        group_time if imported is None else LaterTime(group_time, imported),
        flushes=stage.flushes,
        operators=operators,
        with_idle_timeout=tuple(it.operator for it in stages if it.has_idle_timeout),
    )


def check_stages(source: SourceOptions, facts: QueryFacts) -> tuple[tuple[StageName, ...], str]:
    """Returns the operators of a query, in the order in which they process the records, and the location of their states.

    Args:
        source: the options of the stream.
        facts: the facts about the query, which has such operators.

    Raises:
        InvalidOption: if branches of the query have different operators, if an option splits partitions, if the location is unknown, or
            if the group can assign the partitions of a join to different queries.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092"}
    >>> facts = QueryFacts("file:/data/checkpoints/board", frozenset(), stages=frozenset({("windows",)}))
    >>> [stage], location = check_stages(parse(options, streaming=True), facts)
    >>> stage.operator, location
    ('windows', 'file:/data/checkpoints/streamgroups-state')
    """
    branches = [tuple(map(StageName.parse, it)) for it in sorted(facts.stages)]
    if len(branches) > 1:
        names = ", ".join(sorted({it.operator for branch in branches for it in branch}))
        raise InvalidOption(
            f"The query has several operators with state over one stream, in different branches: {names}.",
            remedy="Use one operator in each query, or operators one after the other without a second output. The others "
            "can run in queries with other groups, or read the output of this one from a topic.",
        )
    stages = branches[0]
    if source.splitting is not None:
        raise InvalidOption(
            f"Option '{source.splitting}' splits partitions, but the state of a partition belongs to one task.",
            remedy=f"Leave '{source.splitting}' out.",
        )
    location = source.states.location or (None if facts.checkpoint is None else default_location(facts.checkpoint))
    if location is None:
        raise InvalidOption(
            f"The checkpoint of the query of group '{source.group_id}' is unknown, so its states have no location.",
            remedy="Set 'stateLocation' to a path or URI that all queries of the group can use.",
        )
    if stages[-1].topics is not None:
        _check_assignor(source, stages[-1].topics)
    return stages, location


def _check_assignor(source: SourceOptions, topics: JoinedTopics) -> None:
    """Only the assignor ``range`` of the broker assigns both partitions of a pair to the same member."""
    if not source.is_shared:
        return
    protocol, assignor = source.client.group_protocol, source.client.get("group.remote.assignor") or "none"
    if protocol == "consumer" and assignor.lower() == "range":
        return
    raise InvalidOption(
        f"sg.join over a shared stream reads the partitions of '{topics.left}' and '{topics.right}' with the same number "
        f"together, but group '{source.group_id}' can assign them to different queries (protocol {protocol}, remote "
        f"assignor {assignor}).",
        remedy="Set kafka.group.protocol=consumer and kafka.group.remote.assignor=range for all queries of the group; or "
        "set membership=exclusive, for one query.",
    )


class StateCollection:
    """Deletes old state files in the background, from time to time. Of all members, the owner of the first partition does.

    Args:
        collectors: the files of each operator of the query.
        group_id: the group of the query.
        cluster: the committed offsets of the group.
        partitions: returns all partitions that the group reads.
        clock: a monotonic clock in milliseconds.
        start: runs a job in the background.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        group_id: str,
        cluster: Cluster,
        partitions: Callable[[], Collection[TopicPartition]],
        clock: Clock,
        start: Start,
    ) -> None:
        self._collectors, self._group_id, self._cluster = collectors, group_id, cluster
        self._partitions, self._clock, self._start = partitions, clock, start
        self._next_ms = clock() + _EVERY_MS

    def __call__(self, owned: Collection[TopicPartition]) -> None:
        """Starts a collection if one is due.

        Args:
            owned: the partitions of the member.
        """
        if self._clock() < self._next_ms:
            return
        # Not before this one has ended.
        self._next_ms = self._clock() + 1_000 * _EVERY_MS
        mine = frozenset(owned)
        self._start(lambda: self._run(mine))

    def _run(self, owned: frozenset[TopicPartition]) -> None:
        try:
            partitions = self._partitions()
            if partitions and min(partitions) in owned:
                began_ms = self._clock()
                gone = collect_all(self._collectors, partitions, self._read)
                duration_ms = self._clock() - began_ms
                logger.debug("Group '%s': %d state files deleted in %d ms", self._group_id, len(gone), duration_ms)
                if duration_ms > _SLOW_MS:
                    logger.warning(
                        "A collection of old state files of group '%s' took %d s, and deleted %d. If the number of files grows, "
                        "set a longer trigger, or a shorter stateRetention",
                        self._group_id,
                        duration_ms // 1_000,
                        len(gone),
                    )
        except StreamGroupsError as e:
            logger.warning("Old state files of group '%s' are not deleted: %s", self._group_id, e)
        finally:
            self._next_ms = self._clock() + _EVERY_MS

    def _read(self, partitions: Collection[TopicPartition]) -> list[Position]:
        committed = self._cluster.committed(self._group_id, partitions)
        return [position_of(tp, it.next_offset, it.metadata) for tp, it in committed.items()]
