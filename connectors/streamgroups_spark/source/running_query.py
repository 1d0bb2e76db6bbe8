"""Assembles the parts of a running query on the driver.

Created by ``source.readers`` when Spark first calls its reader. It builds the cluster, the metadata store, the
member and ``streamgroups.query.micro_batches`` from the options. It also returns the facts of a batch to the sink that
writes it (``bridge.rpc``). Source: SEMANTICS S1, S9, X2.

The start of a query waits for this import. Imports that only some queries need are therefore local.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamgroups.coordination.no_metadata import NoMetadata
from streamgroups.coordination.reset_protocol import members_group_of, resets_group_of
from streamgroups.errors import QueryUnknown, StreamGroupsError
from streamgroups.event_time.observations import TaskObservation
from streamgroups.groups.added_partitions import OnAddedPartitions
from streamgroups.groups.batch_lease import DEFAULT_REBALANCE_TIMEOUT_MS, LeaseLimits, lease_limits
from streamgroups.groups.exclusive_membership import deleted_partitions
from streamgroups.groups.history import no_history
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Owned
from streamgroups.groups.subscription import Partitions
from streamgroups.monitoring.member_reports import BatchFlight, QueryStates, WaitingPartitions
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, FirstPositions, Member, MetadataStore, Recorder
from streamgroups.query.continuity import REFRESH_MS
from streamgroups.query.micro_batches import MicroBatches
from streamgroups.query.missing_partitions import missing_partitions
from streamgroups.query.packing import Packing
from streamgroups.query.query_parts import QueryParts, QueryRun, QueryWaits
from streamgroups.query.query_ports import BatchStates, CheckPositions, Resets, Times
from streamgroups.query.reset_participation import ResetParticipation
from streamgroups.query.skipped_range_store import SkippedRangeStore
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.gap_records import GapRecords
from streamgroups_kafka.admin.group_limit import GroupLimit
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.clock import SteadyClock, now_ms
from streamgroups_kafka.membership.history_file import HistoryFile
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberSnapshot
from streamgroups_operators.locations import shown
from streamgroups_spark.bridge.pickled_ledger import unpickled_ledger
from streamgroups_spark.bridge.rpc import SessionServer, request_user, why_unknown
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_spark.messages.batch import (
    BatchFacts,
    BatchRequest,
    BatchWritten,
    CommittedReply,
    CommittedRequest,
    Figures,
    FiguresRequest,
    LedgerReply,
    LedgerRequest,
    confirmed_by,
    facts_of,
)
from streamgroups_spark.messages.query import QueryFacts, QueryRequest
from streamgroups_spark.messages.time import (
    ClusterRequest,
    ExplanationRequest,
    ObservationsRequest,
    StreamTime,
    TimeRequest,
)
from streamgroups_spark.messages.unions import Reply
from streamgroups_spark.source.background import SerialJobs, import_partition_sizes, in_background
from streamgroups_spark.source.last_batch import LastBatch, LoggedBatch
from streamgroups_spark.source.query_checks import (
    check_batch_time,
    check_drift,
    check_ledger,
    check_state,
    direct_columns,
    form_of_query,
)
from streamgroups_spark.source.source_options import SourceOptions
from streamgroups_spark.source.source_watermark import imported_time

if TYPE_CHECKING:
    from streamgroups_spark.source.source_watermark import QueryTime

#: librdkafka's default for ``session.timeout.ms``, and the broker's under KIP-848.
_SESSION_TIMEOUT_MS = 45_000
_JOIN_SLACK_MS = 15_000
#: How long a query waits for the metadata groups of its group. A query also runs without them.
_METADATA_TIMEOUT_S = 5.0


class RunningQuery:
    """One running query, from the first call by Spark to its stop.

    Args:
        options: the options of the user.
        packing: the limits for tasks.
        cluster: the cluster that the options name.
        session: the session in which sinks request the facts of their batch.
        clock: the clock of event time; ``None`` for that of the machine.

    Raises:
        InvalidOption: if the query keeps state of a stream that it shares (SEMANTICS S9), or an option needs event times
            that the query does not have (SEMANTICS W16).
        QueryUnknown: if the process that started it does not respond, does not find the query, or does not return the ledger of
            its sink. Also if the query shares the stream, and its session is not registered.
    """

    def __init__(
        self,
        options: SourceOptions,
        packing: Packing,
        cluster: KafkaCluster,
        session: str,
        clock: Clock | None = None,
    ) -> None:
        assert options.group_id is not None, "parse(streaming=True) demands it"
        self._options, self._group_id, self._session = options, options.group_id, session
        self._tasks = packing.cores
        self._clock = clock or SteadyClock()
        self._process_ids = frozenset((os.getpid(), os.getppid()))
        #: The name of the member, as group descriptions show it.
        self.name = options.client.get("client.id") or (
            f"streamgroups-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:4]}"
        )
        facts = self._query_facts()
        #: The facts about the query. ``None`` if the session is not registered.
        self.facts = facts
        self._checkpoint = None if facts is None else facts.checkpoint
        self._sink = self._ledger_sink()
        self._form = form_of_query(facts, self._sink)
        self._sees_done = facts is not None and facts.checkpoint is not None
        self._cluster = cluster
        self._member: KafkaMember | None = None
        #: Whether a Kafka sink has committed a batch of this run.
        self._has_written = False
        metadata_store, resets = self._metadata_store(), Resets()
        record: Recorder = no_history
        if options.history_dir:
            record = HistoryFile(options.history_dir, group_id=self._group_id, member=self.name)
        if not isinstance(options.subscription, Partitions):
            resets = ResetParticipation(
                metadata_store, cluster, self._group_id, self.name, SerialJobs(), record, _now_ms, now_ms
            )
        self._record = resets.listen(record)
        run_id = uuid.uuid4().hex[:12]
        self._states_run_id = run_id if facts is not None and facts.stages else None
        #: The columns that readers pass on; ``None`` if Spark passes the records to their operator.
        self.direct_columns = direct_columns(facts)
        self._imported = imported_time(options, facts, self._cluster, in_background)
        self._states = self._batch_states(facts, run_id)
        self._stream = None if facts is None else facts.time
        self._time = None if self._stream is None else self._query_time(self._stream, metadata_store, run_id)
        self._refresh_ms = int(options.client.get("topic.metadata.refresh.interval.ms") or REFRESH_MS)
        self._rebalance_timeout_ms = int(options.client.get("max.poll.interval.ms") or DEFAULT_REBALANCE_TIMEOUT_MS)
        self.last_batch = LastBatch(session, self._process_ids, self._checkpoint)
        run = QueryRun(
            run_id,
            self._form,
            "CHECKPOINT" if self._checkpoint is None else shown(self._checkpoint),
            commits_offsets=facts is not None and facts.commits_offsets,
        )
        parts = self._parts(metadata_store, resets)
        self.micro_batches = MicroBatches(options, packing, parts, run, self._waits())
        self._rpc_server = SessionServer(session, run_id, self._answer, concurrent=(FiguresRequest,))
        in_background(import_partition_sizes)

    def _metadata_store(self) -> MetadataStore:
        """The metadata groups of the group. A query of ``assign`` has none."""
        if isinstance(self._options.subscription, Partitions):
            return NoMetadata()
        store = KafkaMetadataStore(self._options.client, retry_timeout_s=_METADATA_TIMEOUT_S)
        store.connect(resets_group_of(self._group_id), members_group_of(self._group_id))
        return store

    def _parts(self, metadata_store: MetadataStore, resets: Resets) -> QueryParts:
        options, last_batch = self._options, self.last_batch
        return QueryParts(
            cluster=self._cluster,
            new_member=self._new_member,
            clock=_now_ms,
            record=self._record,
            commit_log=last_batch,
            left=SkippedRangeStore(metadata_store, self._group_id),
            gaps=GapRecords(
                lambda: KafkaMetadataStore(options.client, retry_timeout_s=_METADATA_TIMEOUT_S),
                self._group_id,
                now_ms,
            ),
            resets=resets,
            times=self._time or Times(),
            states=self._states,
            start=in_background,
            duration_ms=last_batch.duration_ms,
            group_limit=GroupLimit(self._cluster, options.client, self._group_id, options.max_groups_per_topic),
        )

    def _waits(self) -> QueryWaits:
        session_timeout_ms = int(self._options.client.get("session.timeout.ms") or _SESSION_TIMEOUT_MS)
        join_timeout_ms = self._rebalance_timeout_ms + session_timeout_ms + _JOIN_SLACK_MS
        return QueryWaits(join_timeout_ms, refresh_ms=self._refresh_ms)

    @property
    def member_id(self) -> str:
        """The id that the group has assigned to the member; empty without one."""
        return "" if self._member is None else self._member.member_id

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that the query owns, before the batch that it plans."""
        member = self._member
        return {} if member is None else {tp: it.next_offset for tp, it in member.membership.owned.items()}

    @property
    def time_report(self) -> tuple[str, str | None] | None:
        """The name under which tasks report event times, and the column of those that they read.

        ``None`` if nothing is reported.
        """
        stream = self._stream
        return None if stream is None else (stream.reported_as, stream.read_column)

    @property
    def direct_records(self) -> int | None:
        """The records of the last batch that operators with state received directly. ``None`` without such an operator."""
        if self._states_run_id is None:
            return None
        figures = self._states.figures
        return 0 if figures is None else figures.work.direct_records

    def last_logged(self) -> LoggedBatch | None:
        """See :meth:`LastBatch.logged`."""
        return self.last_batch.logged(self._group_id)

    def late_watermark_ms(self, end: Mapping[str, Any]) -> int | None:
        """Returns the value of the column ``watermark`` in the batch with this end offset.

        ``None`` without this column.
        """
        if not self._options.include_watermark:
            return None
        return self.last_batch.late_watermark_ms(self._group_id, end)

    def _query_facts(self) -> QueryFacts | None:
        """Returns the facts about the query after a check of its state.

        ``None`` for a query that may start without them: it is exclusive, and its session is not registered. A registered session
        must report them: they decide about event time, states, and the protection of its output (SEMANTICS F5, S14).
        """
        request = QueryRequest(self._process_ids, self._group_id)
        try:
            facts: QueryFacts | None = request_user(self._session, request, is_needed=True)
        except StreamGroupsError as e:
            if type(e) is not StreamGroupsError:
                raise
            # An error of Spark's JVM, which can pass.
            raise QueryUnknown(
                f"The process that started the query of group '{self._group_id}' does not report its facts: {e.what}",
                remedy=f"Start the query again. {e.remedy}",
                group=self._group_id,
            ) from e
        if facts is not None:
            check_state(self._options, facts.operators, facts.unknown_operators)
        elif (why := why_unknown(self._session)) is not None:
            raise QueryUnknown(
                f"The process that started the query of group '{self._group_id}' does not report its facts: {why}.",
                remedy="Start the query again. If that fails too, restart the program.",
                group=self._group_id,
            )
        elif not FEATURES.passes_start:
            raise QueryUnknown(
                f"The process that started the query of group '{self._group_id}' does not report its trigger, which is "
                f"necessary with PySpark {FEATURES.version}.",
                remedy="Call sg.register(spark) in that process, and start the query again; or use PySpark 4.2 or newer.",
            )
        elif self._options.is_shared:
            raise QueryUnknown(
                f"The process that started the query of group '{self._group_id}' does not report whether "
                "the query is stateful. A shared query must not use Spark's stateful operators.",
                remedy=(
                    "Call sg.register(spark) in that process, and start the query again; or set "
                    "membership=exclusive on its source."
                ),
            )
        check_drift(self._options, facts)
        check_batch_time(self._options, facts)
        return facts

    def _batch_states(self, facts: QueryFacts | None, run_id: str) -> BatchStates:
        if facts is None or not facts.stages:
            return BatchStates()
        from streamgroups_spark.source.stage_states import batch_states

        states = batch_states(
            self._options,
            facts,
            self._session,
            run_id,
            self._cluster,
            in_background,
            self._clock,
            self._imported,
        )
        states.rejects_added = self._options.states.on_added_partitions is OnAddedPartitions.FAIL
        return states

    def _query_time(self, stream: StreamTime, metadata_store: MetadataStore, run_id: str) -> QueryTime:
        from streamgroups_spark.bridge.task_reports import request_observations
        from streamgroups_spark.source.source_watermark import QueryTime

        def seen(batch: InFlight) -> Sequence[TaskObservation]:
            return request_observations(
                self._session, ObservationsRequest(stream.reported_as, batch.ranges, run_id, batch.number)
            )

        log = self._cluster if self._options.client.isolation_level == "read_committed" else None
        return QueryTime(
            self.name, self._group_id, stream.settings, seen, metadata_store, log, self._clock, self._imported
        )

    def stop(self) -> None:
        """Leaves the group. Idempotent."""
        # The next run of the query can start already. A source that leaves the group must not answer for it.
        try:
            self._rpc_server.close()
        finally:
            self.micro_batches.stop()
            if self._imported is not None:
                imported, self._imported = self._imported, None
                imported.close()

    def _new_member(
        self, topics: Callable[[], Collection[str]], first_positions: FirstPositions, check_positions: CheckPositions
    ) -> Member:
        options, subscription = self._options, self._options.subscription
        settings = MemberSettings(
            group_id=self._group_id,
            name=self.name,
            consumer=options.client.for_member(self._group_id, client_id=self.name),
            topics=topics,
            assign=subscription.topic_partitions if isinstance(subscription, Partitions) else None,
            exclusive=options.mode is MembershipMode.EXCLUSIVE,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            refresh_ms=self._refresh_ms,
            redact=options.client.redact,
            login_rejection=lambda: self._cluster.login_rejection(),
            is_standby=lambda: self._cluster.describe(self._group_id).has_nothing_for(self.name),
            lease=None if isinstance(subscription, Partitions) else self._lease,
            has_others=lambda: len(self._cluster.describe(self._group_id).members) > 1,
            deleted=self._deleted,
            is_done=lambda number: self.micro_batches.is_done(number),
            is_owner=self._is_owner,
            form=self._form,
            check_positions=check_positions,
        )
        if self._sink is not None:
            from streamgroups.query.ledger_positions import LedgerPositions

            has_states = self._states_run_id is not None
            ledger = LedgerPositions(self._sink, self._group_id, options.on_restart, has_states=has_states)
            settings = replace(
                settings, take_over=ledger.take_over, next_reset=ledger.next_reset, move_ledger=ledger.move
            )
        self._member = KafkaMember(settings, first_positions, self._record)
        return self._member

    def _deleted(self, owned: Mapping[TopicPartition, Owned]) -> Collection[TopicPartition]:
        identities = self._cluster.identities({tp.topic for tp in owned})
        return deleted_partitions(owned, missing_partitions(self._cluster, owned), identities)

    def _is_owner(self, member_id: str, partitions: Collection[TopicPartition]) -> bool:
        if isinstance(self._options.subscription, Partitions):
            return True
        return self._cluster.describe(self._group_id).owns(member_id, partitions)

    def _ledger_sink(self) -> Any:
        sink = None if self.facts is None else self.facts.sink
        request = LedgerRequest(self._group_id, self._checkpoint, sink)
        reply: LedgerReply | None = request_user(self._session, request, is_needed=True)
        check_ledger(self.facts, reply, self._group_id)
        return None if reply is None else unpickled_ledger(reply)

    @property
    def _lease(self) -> LeaseLimits:
        return lease_limits(
            self._options.lease_timeout_ms,
            self._rebalance_timeout_ms,
            is_exclusive=self._options.mode is MembershipMode.EXCLUSIVE,
            sees_done=self._sees_done,
        )

    def _snapshot(self, *, to_commit: bool, confirmed: bool = False) -> MemberSnapshot:
        if self._member is None:
            return MemberSnapshot(None, None)
        snapshot = self._member.snapshot_to_commit() if to_commit else self._member.snapshot
        return confirmed_by(self._cluster.describe(self._group_id), snapshot) if confirmed else snapshot

    @cached_property
    def _cluster_id(self) -> str:
        return self._cluster.cluster_id()

    def _is_for(self, question: TimeRequest | ExplanationRequest) -> bool:
        """Whether a request about a group is for that of this source: a group of another cluster can have the same name."""
        return question.group_id == self._group_id and question.cluster_id in (None, self._cluster_id)

    def _committed(self, question: CommittedRequest) -> CommittedReply:
        committed = self._cluster.committed(self._group_id, question.partitions)
        return CommittedReply({tp: it.next_offset for tp, it in committed.items()})

    def _figures(self) -> Figures:
        flight, states, waiting = None, self._states.figures, None
        # The thread of the query can leave the group meanwhile.
        member = self._member
        if member is not None and not isinstance(self._options.subscription, Partitions):
            lease = self._lease
            flight = BatchFlight(self._group_id, self.name, member.batch_ms, lease.handover_ms, lease.lease_timeout_ms)
        if self._options.limits.max_drift_ms is not None:
            waiting = WaitingPartitions(self._group_id, self.name, self.micro_batches.waiting)
        return Figures(flight, None if states is None else QueryStates(self._group_id, self.name, states), waiting)

    def _answer(self, question: Any) -> Reply | None:
        if isinstance(question, FiguresRequest):
            return self._figures()
        if isinstance(question, ClusterRequest):
            stream = self._stream
            return None if stream is None or stream.reported_as != question.reported_as else self._cluster_id
        if isinstance(question, ExplanationRequest):
            return self._states.explain(self.name) if self._is_for(question) else None
        if isinstance(question, TimeRequest):
            return None if self._time is None or not self._is_for(question) else self._time.reply_to(question)
        if not isinstance(question, BatchRequest | BatchWritten | CommittedRequest):
            return None
        run = self.micro_batches.run(question.end)
        if run is None:
            return None
        if isinstance(question, CommittedRequest):
            return self._committed(question)
        if isinstance(question, BatchWritten):
            self._has_written = True
            if self._member is not None:
                self._member.written(run.number)
            return True
        source = BatchFacts(
            question.end,
            self._group_id,
            self.name,
            ranges=(),
            held=(),
            written=(),
            group_metadata=None,
            mode=self._options.mode,
            joins=not isinstance(self._options.subscription, Partitions),
            states_run_id=self._states_run_id,
            form=self._form,
            tasks=self._tasks,
            query_id=None if self.facts is None else self.facts.query_id,
            # The first batch is compared. Later ones of the same run have greater numbers.
            may_repeat_no_data=not self._has_written
            and (self.facts is None or bool(self.facts.operators or self.facts.unknown_operators)),
        )
        # While it warms up, a query has no member yet and reads nothing.
        snapshot = self._snapshot(to_commit=question.to_commit, confirmed=question.confirmed)
        return facts_of(source, run, snapshot, self.micro_batches.written, self.micro_batches.owned_before)


def _now_ms() -> int:
    # Monotonic: limits measure durations, and a clock that is set back must not stop a query.
    return time.monotonic_ns() // 1_000_000
