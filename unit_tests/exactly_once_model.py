"""Queries of one group that write to one sink, and every way they can fail.

A :class:`Query` outlives its processes: it has the checkpoint. A :class:`Process` is a query that runs: the real
``streamgroups.query.micro_batches`` under the small Spark of ``spark_model``, with a member and a sink in memory. How it takes partitions over and how it
commits is a :class:`Method`: the real one, or one that lacks something. Used by ``test_exactly_once``.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch, LedgerConflict, PositionsDiffer, SinkUnreachable, StreamGroupsError
from streamgroups.fakes import FakeLedger
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.ledgers.commit import commit_batch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.admission import Limits
from streamgroups_spark.sinks import batch_info
from streamgroups_spark.sinks.batch_info import BatchInfo
from unit_tests.spark_model import Checkpoint, Run, Settings, tp
from unit_tests.spark_model import World as Cluster

P0, P1 = PARTITIONS = (tp(0), tp(1))
#: Which of those there are.
PICK = st.integers(0, 3)

SHARED = Settings(limits=Limits(max_offsets=6))
#: As a query with state is: it reads a batch again though that is written, and has it not written again.
EXCLUSIVE = Settings(limits=Limits(max_offsets=6), mode=MembershipMode.EXCLUSIVE, on_restart=OnRestart.CHECKPOINT)


@dataclass
class Query:
    """What outlives a process: the checkpoint."""

    name: str
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    #: A zombie has written what this checkpoint does not know: somebody restarts it with ``onRestart=group``, as the error says.
    follows_group: bool = False

    def forget(self) -> None:
        """The checkpoint is lost, or the query is started with a new one."""
        self.checkpoint = Checkpoint()


@dataclass(frozen=True)
class Output:
    """What a batch writes: where each record came from, and which batch it was."""

    query: str
    batch_id: int
    rows: tuple[tuple[TopicPartition, int], ...]


class Method(Protocol):
    """How batches are committed, and whether the sink says where partitions are read on."""

    keeps_ledger: ClassVar[bool]

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """Writes a batch.

        Raises:
            FencedBatch: if it must not be written.
        """
        ...


class World:
    """The topic, the group and the sink."""

    def __init__(self, method: Method, settings: Settings = SHARED) -> None:
        self.method, self.settings = method, settings
        self.kafka = Cluster(len(PARTITIONS))
        self.sink: FakeLedger[Output] = FakeLedger("airline")
        self.records: dict[TopicPartition, list[int]] = {p: [] for p in PARTITIONS}
        names = ("alice", "bob") if settings.mode is MembershipMode.SHARED else ("alice",)
        self.queries = [Query(name) for name in names]
        #: Every process that is alive; of each query the newest, the others are zombies.
        self.processes: list[Process] = []
        #: Whether a batch is being committed now; partitions are taken over in transactions, too.
        self.is_committing = False
        self._started = 0

    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        """Appends records, and a gap behind them (SEMANTICS G13)."""
        written = self.kafka.cluster.produce(partition, count)
        self.records[partition] += range(written.next_offset, written.end_offset)
        self.kafka.cluster.leave_gap(partition, gap)

    def written(self, partition: TopicPartition) -> list[int]:
        """The offsets of a partition that the sink has, in the order in which they were written."""
        return [offset for output in self.sink.written for p, offset in output.rows if p == partition]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets."""
        return {tp(p): n for p, n in self.kafka.committed().items()}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the partitions end."""
        return self.kafka.cluster.end_offsets(PARTITIONS)

    def newest(self, query: Query) -> Process | None:
        """The process of a query that Spark would show; ``None`` if it does not run."""
        return next((p for p in reversed(self.processes) if p.query is query), None)

    def start(self, query: Query) -> None:
        """Starts a query; a process of it that is still there is replaced, and may not notice."""
        if (old := self.newest(query)) is not None:
            self.shut_out(old)
            # It may write to its checkpoint too; the newer run's log is what counts.
            old.spark.checkpoint = deepcopy(query.checkpoint)
        self._started += 1
        process = self.new_process(query, f"{query.name}-{self._started}")
        self.processes.append(process)
        process.step()

    def new_process(self, query: Query, name: str) -> Process:
        """A process of a query, which has not begun."""
        return Process(self, query, name)

    def shut_out(self, process: Process) -> None:
        """The group goes on without a process, which does not notice: a zombie."""
        if process.is_in_group:
            self.kafka.group.fence(process.name)

    def kill(self, process: Process) -> None:
        """A process dies, and the group notices."""
        self.processes.remove(process)
        if process.spark.has_joined:
            try:
                self.kafka.group.kill(process.name)
            except LookupError:
                # It has failed, and left the group already.
                process.spark.member.die()

    def settle(self) -> None:
        """The group and its members come to rest; zombies hear that they are shut out, and join again."""
        self.kafka.group.settle()


class Process:
    """One process of a query."""

    def __init__(self, world: World, query: Query, name: str) -> None:
        self.world, self.query, self.name = world, query, name
        ledger = world.sink if world.method.keeps_ledger else None
        how = replace(world.settings, on_restart=OnRestart.GROUP) if query.follows_group else world.settings
        self.spark = Run(world.kafka, name, how, query.checkpoint, ledger=ledger)
        self._has_started = False
        #: Whether the sink has the batch in flight.
        self.is_written = False

    @property
    def is_in_group(self) -> bool:
        """Whether the group counts on it."""
        return any(m.client_id == self.name for m in self.world.kafka.group.describe().members)

    @property
    def is_to_write(self) -> bool:
        """Whether it runs a batch that its sink has not been given yet."""
        return self.spark.running is not None and not self.is_written

    def step(self) -> None:
        """The next thing that this process does; what goes wrong ends the query in order."""
        self.world.kafka.clock.advance(250)
        try:
            if not self._has_started:
                self._has_started = True
                self.spark.start()
            elif self.is_to_write:
                self.write()
            elif self.spark.running is not None:
                self.spark.finish()
                self.is_written = False
            else:
                self.spark.plan()
                self.query.follows_group = False
        except StreamGroupsError as e:
            self.query.follows_group |= isinstance(e, PositionsDiffer)
            self.end()

    def end(self) -> None:
        """The query fails, or is stopped."""
        self.world.processes.remove(self)
        self.spark.source.stop()

    def seen(self, *, to_commit: bool = False) -> BatchInfo:
        """What a sink finds out about the batch, and refuses: see ``streamgroups_spark.sinks.batch_info``."""
        facts = self.spark.facts(to_commit=to_commit)
        assert facts is not None
        batch_info.check_source(facts)
        return BatchInfo((facts,), len(self.spark.checkpoint.offsets) - 1)

    @property
    def rows(self) -> tuple[tuple[TopicPartition, int], ...]:
        """What its tasks read."""
        return tuple(
            (r.topic_partition, offset)
            for r in self.spark.running or ()
            for offset in self.world.records[r.topic_partition]
            if r.next_offset <= offset < r.end_offset
        )

    def write(self) -> None:
        """As ``streamgroups_spark.sinks.ledger`` does."""
        batch = self.seen()
        if not batch.is_written:
            self.world.is_committing = True
            try:
                output = Output(self.query.name, batch.batch_id, self.rows)
                self.world.method.commit(self.world, batch.ranges, output)
            finally:
                self.world.is_committing = False
        self.is_written = True


# ---- methods -------------------------------------------------------------------------------------------------------


def patiently(attempt: Callable[[], object]) -> None:
    """Tries again for as long as the failure may pass, as sinks do."""
    while True:
        try:
            attempt()
            return
        except (LedgerConflict, SinkUnreachable):
            continue


class WithLedger:
    """The real one."""

    keeps_ledger = True

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """See :class:`Method`."""
        patiently(lambda: commit_batch(world.sink, {"airline": ranges}, output if output.rows else None))


class WithoutFencing(WithLedger):
    """Keeps a ledger, and writes whatever it says unless the batch is done."""

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """See :class:`Method`."""
        try:
            super().commit(world, ranges, output)
        except FencedBatch:
            with world.sink.transaction() as transaction:
                transaction.write(output)
                transaction.advance({r.topic_partition: r.end_offset for r in ranges})


class WithoutLedger:
    """At least once: reading goes on where the group has committed."""

    keeps_ledger = False

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """See :class:`Method`."""

        def write() -> None:
            with world.sink.transaction() as transaction:
                transaction.write(output)

        patiently(write)


class ByBatchId(WithoutLedger):
    """What is often done in ``foreachBatch``: a batch whose id is in the sink is not written again."""

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """See :class:`Method`."""

        def write() -> None:
            with world.sink.transaction() as transaction:
                if (output.query, output.batch_id) not in {(o.query, o.batch_id) for o in world.sink.written}:
                    transaction.write(output)

        patiently(write)


class QueriesOfOneGroup(RuleBasedStateMachine):
    """What happens to the queries of one group, their zombies included, whatever they write to."""

    world: World

    # ---- what happens ------------------------------------------------------------------------------------------------

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 6), gap=st.integers(0, 2))
    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        self.world.produce(partition, count, gap)

    @precondition(lambda self: len(self.world.processes) < 4)
    @rule(pick=PICK, new_checkpoint=st.sampled_from([False, False, True]))
    def start(self, pick: int, new_checkpoint: bool) -> None:
        query = self.world.queries[pick % len(self.world.queries)]
        if new_checkpoint:
            query.forget()
        self.world.start(query)

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICK, times=st.integers(1, 6))
    def advance(self, pick: int, times: int) -> None:
        process = self.picked(pick)
        for _ in range(times):
            if process in self.world.processes:
                process.step()

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        self.world.kill(self.picked(pick))

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICK)
    def stop(self, pick: int) -> None:
        self.picked(pick).end()

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICK)
    def shut_out(self, pick: int) -> None:
        self.world.shut_out(self.picked(pick))

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICK)
    def wait_no_longer_for_a_batch(self, pick: int) -> None:
        if self.picked(pick).spark.has_joined:
            self.picked(pick).spark.member.time_out()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    # ---- what is told about it ---------------------------------------------------------------------------------------

    def picked(self, pick: int) -> Process:
        return self.world.processes[pick % len(self.world.processes)]

    def writing(self) -> list[Process]:
        return [process for process in self.world.processes if process.is_to_write]

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_repeated_or_out_of_order(self) -> None:
        for p in PARTITIONS:
            written = self.world.written(p)
            assert len(set(written)) == len(written), f"{p}: twice: {written}"
            assert written == sorted(written), f"{p}: out of order: {written}"
            expected = self.world.records[p][: len(written)]
            assert written == expected, f"{p}: lost: {sorted(set(expected) - set(written))}"

    @invariant()
    def what_the_group_has_committed_is_written(self) -> None:
        for p, next_offset in self.world.committed.items():
            lost = {o for o in self.world.records[p] if o < next_offset} - set(self.world.written(p))
            assert not lost, f"{p}: lost: {sorted(lost)}"

    def teardown(self) -> None:
        """Everybody goes on for as long as it takes, zombies first."""
        for process in [p for p in self.world.processes if not p.is_in_group]:
            for _ in range(9):
                if process in self.world.processes:
                    process.step()
        for _ in range(500):
            self.world.settle()
            for query in self.world.queries:
                if self.world.newest(query) is None:
                    self.world.start(query)
            for process in list(self.world.processes):
                if process in self.world.processes:
                    process.step()
            if all(self.world.committed.get(p, 0) == end for p, end in self.world.ends.items()):
                break
        self.nothing_is_lost_repeated_or_out_of_order()
        self.what_the_group_has_committed_is_written()
        assert all(self.world.written(p) == records for p, records in self.world.records.items()), (
            "lost: the end was never reached"
        )
