"""A minimal model of Spark's side of a streaming query: the calls of ``MicroBatchExecution`` to a source, in its order.

A :class:`Checkpoint` outlives the runs of a query; a :class:`Run` is one process of it. Offsets are converted to JSON
text and back, as in the files of a real checkpoint. Used by tests of ``streamgroups.query.micro_batches`` with
:mod:`streamgroups.fakes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.errors import QueryUnknown
from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.fakes import (
    FakeAdmin,
    FakeClock,
    FakeCluster,
    FakeExecutor,
    FakeGroup,
    FakeHistory,
    FakeLedger,
    FakeMember,
)
from streamgroups.groups.gaps import Gaps
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight
from streamgroups.groups.program import OnOtherProgram
from streamgroups.groups.subscription import Partitions, Subscription, Topics
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import FirstPositions, Member
from streamgroups.positions import Positions, TrimHorizon
from streamgroups.query.data_loss import FAIL_ON_LOSS, LossPolicies
from streamgroups.query.imported_time import ImportedTime
from streamgroups.query.ledger_positions import LedgerPositions
from streamgroups.query.micro_batches import MicroBatches
from streamgroups.query.packing import Packing
from streamgroups.query.query_parts import QueryParts, QueryRun, QueryWaits
from streamgroups.query.query_ports import BatchStates, CheckPositions, GroupLimit, Times
from streamgroups.query.reset_participation import ResetParticipation
from streamgroups.query.skipped_range_store import SkippedRangeStore
from streamgroups.query.trigger_limits import UNLIMITED, Limits
from streamgroups_kafka.admin.gap_records import GapRecords
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member_state import MemberSnapshot
from streamgroups_spark.messages.batch import BatchFacts, facts_of
from streamgroups_spark.source.source_watermark import QueryTime


@dataclass(frozen=True)
class Settings:
    """The options that :class:`MicroBatches` reads."""

    group_id: str | None = "airline"
    subscription: Subscription = field(default_factory=lambda: Topics(("flights",)))
    starting: Positions = field(default_factory=lambda: Positions(TrimHorizon()))
    mode: MembershipMode = MembershipMode.SHARED
    on_restart: OnRestart = OnRestart.GROUP
    on_other_program: OnOtherProgram = OnOtherProgram.FAIL
    limits: Limits = UNLIMITED
    on_data_loss: LossPolicies = FAIL_ON_LOSS


@dataclass
class Checkpoint:
    """The offset log and the commit log of one query."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """See :meth:`streamgroups.query.micro_batches.CommitLog.has_finished`."""
        return bool(self.commits) and json.loads(self.offsets[self.commits - 1]) == offset

    def has_begun(self) -> bool:
        """See :meth:`streamgroups.query.micro_batches.CommitLog.has_begun`."""
        return bool(self.offsets)


class World:
    """A cluster with one topic, ``flights``, and one group."""

    def __init__(self, partitions: int = 2) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = FakeCluster(self.clock)
        self.cluster.create_topic("flights", partitions)
        self.group = FakeGroup(self.cluster, "airline")
        self.metadata_store = AdminMetadataStore(FakeAdmin(self.cluster))
        self.resets = ResetRequests(self.metadata_store, self.clock, lambda _: self.cluster.topics())

    def produce(self, *counts: int) -> None:
        """Appends these numbers of records to partition 0, 1 and so on."""
        for partition, count in enumerate(counts):
            self.cluster.produce(tp(partition), count)

    def committed(self) -> dict[int, int]:
        """The group's committed offsets by partition."""
        partitions = [tp(p) for p in range(self.cluster.topics()["flights"])]
        found = self.cluster.committed("airline", partitions)
        return {p.partition: c.next_offset for p, c in sorted(found.items())}

    def gaps(self) -> dict[int, Gaps]:
        """The recorded gaps by partition."""
        found = self.cluster.all_committed(gaps_group_of("airline"))
        return {p.partition: Gaps.decode(c.metadata) for p, c in sorted(found.items())}

    def order(self, *next_offsets: int) -> str:
        """Writes a reset request for the running group; returns its id."""
        return self.resets.write("airline", {tp(p): n for p, n in enumerate(next_offsets)})

    def applied(self) -> dict[TopicPartition, str]:
        """The last applied reset request, by partition."""
        partitions = [tp(p) for p in range(self.cluster.topics()["flights"])]
        return self.resets.applied("airline", partitions)

    def commit(self, *next_offsets: int) -> None:
        """Commits offsets, as an administration tool does."""
        self.cluster.commit("airline", {tp(p): n for p, n in enumerate(next_offsets)})


def tp(partition: int) -> TopicPartition:
    """A partition of the world's topic."""
    return TopicPartition("flights", partition)


class LedgerOnly:
    """The part of a sink with a ledger that a source uses (:class:`streamgroups.ledgers.staging.StagingSink`)."""

    def __init__(self, ledger: FakeLedger[Any]) -> None:
        self._ledger = ledger

    @contextmanager
    def open(self, group_id: str) -> Iterator[FakeLedger[Any]]:
        """See :meth:`streamgroups.ledgers.staging.StagingSink.open`."""
        yield self._ledger


class Run:
    """One process of a query, from its start to its end or kill."""

    def __init__(
        self,
        world: World,
        name: str,
        settings: Settings | None = None,
        checkpoint: Checkpoint | None = None,
        run: str = "1",
        *,
        reads_checkpoint: bool = False,
        run_id: str = "",
        time: TimeSettings | None = None,
        imported: ImportedTime | None = None,
        ledger: FakeLedger[Any] | None = None,
        states: BatchStates | None = None,
        group_limit: GroupLimit | None = None,
        commits_offsets: bool = False,
        form: str = "",
    ) -> None:
        #: Whether the user's process does not respond.
        self.is_user_stalled = False
        self._commits_offsets = commits_offsets
        self._sink = None if ledger is None else LedgerOnly(ledger)
        self.world, self.name, self.form = world, name, form
        self.settings = settings or Settings()
        self.checkpoint = checkpoint or Checkpoint()
        self.history = FakeHistory(world.clock, "airline", name, run)
        self.running: tuple[OffsetRange, ...] | None = None
        self._member: FakeMember | None = None
        self._start: Any = None
        self._end: Any = None
        self.participation = ResetParticipation(
            world.metadata_store,
            world.cluster,
            "airline",
            name,
            FakeExecutor(),
            self.history,
            world.clock,
            world.clock,
            wait_timeout_ms=0,
        )
        self.time = (
            None
            if time is None
            else QueryTime(
                name, "airline", time, self._seen, world.metadata_store, world.cluster, world.clock, imported
            )
        )
        parts = QueryParts(
            cluster=world.cluster,
            new_member=self._new_member,
            clock=world.clock,
            record=self.history,
            commit_log=self.checkpoint if reads_checkpoint or commits_offsets else Checkpoint(),
            left=SkippedRangeStore(world.metadata_store, "airline"),
            gaps=GapRecords(lambda: world.metadata_store, "airline", world.clock),
            resets=self.participation,
            times=self.time or Times(),
            states=states or BatchStates(),
            group_limit=group_limit,
        )
        self.source = MicroBatches(
            self.settings,
            Packing(cores=2),
            parts,
            QueryRun(run_id, form, commits_offsets=commits_offsets),
            QueryWaits(whole_timeout_ms=300),
        )

    def _seen(self, batch: InFlight) -> list[TaskObservation]:
        """The observations of the tasks: the event time of each record, which is its timestamp."""
        if self.is_user_stalled:
            raise QueryUnknown("The process of this Spark session does not respond.")
        records = [record for r in batch.ranges for record in self.world.cluster.read(r)]
        return [TaskObservation(it.topic_partition, it.offset, 1, it.timestamp_ms) for it in records]

    def _new_member(
        self, topics: Callable[[], Collection[str]], first_positions: FirstPositions, check_positions: CheckPositions
    ) -> Member:
        subscription = self.settings.subscription
        hooks: dict[str, Any] = {}
        if self._sink is not None:
            # A source uses this part of a sink only.
            ledger = LedgerPositions(self._sink, "airline", self.settings.on_restart)  # type: ignore[arg-type]
            hooks = {"take_over": ledger.take_over, "next_reset": ledger.next_reset, "move_ledger": ledger.move}
        self._member = FakeMember(
            self.world.group,
            self.name,
            topics=topics,
            first_positions=first_positions,
            record=self.history,
            assign=subscription.topic_partitions if isinstance(subscription, Partitions) else None,
            exclusive=self.settings.mode is MembershipMode.EXCLUSIVE,
            form=self.form,
            check_positions=check_positions,
            **hooks,
        )
        return self._member

    def facts(self, *, to_commit: bool = False) -> BatchFacts | None:
        """The information for a sink about the running batch, as in ``streamgroups_spark.source.running_query``;
        ``None`` if no batch runs.
        """
        run = self.source.run(self._end) if self._end is not None else None
        if run is None:
            return None
        snapshot = self.member.snapshot_to_commit() if to_commit else self.member.snapshot
        held = snapshot.group_metadata
        group_metadata = (
            None if held is None else ConsumerGroupMetadata("airline", held.generation, str(held.member_id))
        )
        source = BatchFacts(self._end, "airline", self.name, (), (), (), None, self.settings.mode, joins=True)
        return facts_of(
            source,
            run,
            MemberSnapshot(snapshot.in_flight, group_metadata),
            self.source.written,
            self.source.owned_before,
        )

    @property
    def member(self) -> FakeMember:
        """The member, after the start of the query."""
        assert self._member is not None
        return self._member

    @property
    def has_joined(self) -> bool:
        """Whether it has a member. If other members read, it runs warm-up batches first."""
        return self._member is not None

    def start(self, *, until_now: bool = False) -> Run:
        """Starts as Spark does: a logged batch that is not committed runs again first."""
        if until_now:
            self.source.run_until_now()
        logged, done = self.checkpoint.offsets, self.checkpoint.commits
        self._start = json.loads(logged[done - 1]) if done else self.source.initial_offset()
        if len(logged) > done:
            self._end = json.loads(logged[done])
            self._begin()
        return self

    def plan(self, *, limited: bool = True) -> tuple[OffsetRange, ...] | None:
        """Plans a batch, logs it and creates its tasks; ``None`` if no records are available."""
        assert self.running is None
        self._end = json.loads(json.dumps(self.source.latest_offset(self._start, limited=limited)))
        if self._end == self._start:
            return None
        self.checkpoint.offsets.append(json.dumps(self._end))
        ranges = self._begin()
        if self._end["n"] == self._start["n"]:
            # A warm-up: Spark runs it as any other batch, and plans the next one.
            self.finish()
            return self.plan(limited=limited)
        return ranges

    def _begin(self) -> tuple[OffsetRange, ...]:
        tasks = self.source.tasks(self._start, self._end)
        self.running = tuple(sorted(r for task in tasks for r in task))
        return self.running

    def finish(self) -> None:
        """The sink has written the batch: Spark adds it to its commit log."""
        assert self.running is not None
        self.checkpoint.commits += 1
        self.running, self._start = None, self._end

    def batch(self, *, limited: bool = True) -> list[str] | None:
        """Plans and finishes one batch after this time; returns its ranges as text."""
        self.world.clock.advance(250)
        ranges = self.plan(limited=limited)
        if ranges is None:
            return None
        self.finish()
        return [str(r) for r in ranges]

    def again(self) -> Run:
        """The same query in a new process."""
        return Run(
            self.world,
            self.name,
            self.settings,
            self.checkpoint,
            commits_offsets=self._commits_offsets,
            form=self.form,
        )
