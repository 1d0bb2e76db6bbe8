"""A model of the queries of one group that write to one sink, with all their failures. Used by ``test_exactly_once``.

A :class:`Query` has the checkpoint and outlives its processes. A :class:`Process` is one run: the real
``streamgroups.query.micro_batches`` on the model of Spark in ``spark_model``, with a member and a sink in memory. A
:class:`Method` defines the takeover of partitions and the commit: the real method, or one without a safeguard. Source:
SEMANTICS X1-X4.
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
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import TopicPartition
from streamgroups.query.trigger_limits import Limits
from streamgroups_spark.sinks import batch_info
from streamgroups_spark.sinks.batch_info import BatchInfo
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, tp
from unit_tests.streamgroups.query.spark_model import World as Cluster

P0, P1 = PARTITIONS = (tp(0), tp(1))
#: The index of a query or process, modulo their number.
PICK = st.integers(0, 3)

SHARED = Settings(limits=Limits(max_offsets=6))
#: A stateful query reads a batch again even if it is written, and does not write it again.
EXCLUSIVE = Settings(limits=Limits(max_offsets=6), mode=MembershipMode.EXCLUSIVE, on_restart=OnRestart.CHECKPOINT)


@dataclass
class Query:
    """The part of a query that outlives its processes: the checkpoint."""

    name: str
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    #: A zombie has written offsets that this checkpoint does not contain. A user restarts the query with
    #: ``onRestart=group``, as the error recommends.
    follows_group: bool = False

    def forget(self) -> None:
        """The checkpoint is lost, or the query restarts with a new one."""
        self.checkpoint = Checkpoint()


@dataclass(frozen=True)
class Output:
    """The output of a batch: the source of each record, and the id of the batch."""

    query: str
    batch_id: int
    rows: tuple[tuple[TopicPartition, int], ...]


class Method(Protocol):
    """A method to commit batches. The sink can also provide the positions at which partitions resume."""

    has_ledger: ClassVar[bool]

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
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
        #: All live processes. The newest process of a query is current; the others are zombies.
        self.processes: list[Process] = []
        #: Whether a commit is in progress. A takeover of partitions also uses a transaction.
        self.is_committing = False
        self._started = 0

    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        """Appends records, and a gap after them (SEMANTICS G13)."""
        written = self.kafka.cluster.produce(partition, count)
        self.records[partition] += range(written.next_offset, written.end_offset)
        self.kafka.cluster.leave_gap(partition, gap)

    def written(self, partition: TopicPartition) -> list[int]:
        """The offsets of a partition in the sink, in the order of the writes."""
        return [offset for output in self.sink.written for p, offset in output.rows if p == partition]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets."""
        return {tp(p): n for p, n in self.kafka.committed().items()}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end offsets of the partitions."""
        return self.kafka.cluster.end_offsets(PARTITIONS)

    def newest(self, query: Query) -> Process | None:
        """The current process of a query; ``None`` if the query does not run."""
        return next((p for p in reversed(self.processes) if p.query is query), None)

    def start(self, query: Query) -> None:
        """Starts a query. A live process of the query becomes a zombie."""
        if (old := self.newest(query)) is not None:
            self.fence(old)
            # The old process can also write to its checkpoint, but the log of the new run is the valid one.
            old.spark.checkpoint = deepcopy(query.checkpoint)
        self._started += 1
        process = self.new_process(query, f"{query.name}-{self._started}")
        self.processes.append(process)
        process.step()

    def new_process(self, query: Query, name: str) -> Process:
        """A process of a query that has not started."""
        return Process(self, query, name)

    def fence(self, process: Process) -> None:
        """Removes a process from the group without a notification: it becomes a zombie."""
        if process.is_in_group:
            self.kafka.group.fence(process.name)

    def kill(self, process: Process) -> None:
        """A process is killed, and the group detects it."""
        self.processes.remove(process)
        if process.spark.has_joined:
            try:
                self.kafka.group.kill(process.name)
            except LookupError:
                # It has failed before, and has left the group.
                process.spark.member.die()

    def settle(self) -> None:
        """The group and its members complete the rebalance; zombies detect that they are fenced, and join again."""
        self.kafka.group.settle()

    def step_all(self) -> None:
        """Each query runs, and each process takes one step."""
        self.settle()
        for query in self.queries:
            if self.newest(query) is None:
                self.start(query)
        for process in list(self.processes):
            if process in self.processes:
                process.step()


class Process:
    """One process of a query."""

    def __init__(self, world: World, query: Query, name: str) -> None:
        self.world, self.query, self.name = world, query, name
        ledger = world.sink if world.method.has_ledger else None
        how = replace(world.settings, on_restart=OnRestart.GROUP) if query.follows_group else world.settings
        self.spark = self.new_run(how, ledger)
        self._has_started = False
        #: Whether the sink contains the batch in flight.
        self.is_written = False

    def new_run(self, settings: Settings, ledger: FakeLedger[Output] | None) -> Run:
        """The process on the model of Spark."""
        return Run(self.world.kafka, self.name, settings, self.query.checkpoint, ledger=ledger)

    @property
    def is_in_group(self) -> bool:
        """Whether the group has it as a member."""
        return any(m.client_id == self.name for m in self.world.kafka.group.describe().members)

    @property
    def is_to_write(self) -> bool:
        """Whether it runs a batch that its sink has not received."""
        return self.spark.running is not None and not self.is_written

    def step(self) -> None:
        """Executes the next step of this process. An error ends the query in an orderly way."""
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
        """The query fails or stops."""
        self.world.processes.remove(self)
        self.spark.source.stop()

    def seen(self, *, to_commit: bool = False) -> BatchInfo:
        """The batch as the sink identifies it, or an error if the sink rejects it: see
        ``streamgroups_spark.sinks.batch_info``.
        """
        facts = self.spark.facts(to_commit=to_commit)
        assert facts is not None
        batch_info.check_source(facts)
        return BatchInfo((facts,), len(self.spark.checkpoint.offsets) - 1)

    @property
    def rows(self) -> tuple[tuple[TopicPartition, int], ...]:
        """The records that its tasks read."""
        return tuple(
            (r.topic_partition, offset)
            for r in self.spark.running or ()
            for offset in self.world.records[r.topic_partition]
            if r.next_offset <= offset < r.end_offset
        )

    def write(self) -> None:
        """Writes the batch as ``streamgroups_spark.sinks.ledger_writer`` does."""
        batch = self.seen()
        if not batch.is_written:
            self.world.is_committing = True
            try:
                output = Output(self.query.name, batch.batch_id, self.rows)
                self.world.method.commit(self.world, batch, output)
            finally:
                self.world.is_committing = False
        self.is_written = True


# ---- methods -------------------------------------------------------------------------------------------------------


def patiently(attempt: Callable[[], object]) -> None:
    """Retries retriable errors, as sinks do."""
    while True:
        try:
            attempt()
            return
        except (LedgerConflict, SinkUnreachable):
            continue


class WithLedger:
    """The real method."""

    has_ledger = True

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
        """See :class:`Method`."""
        written = output if output.rows else None
        patiently(lambda: commit_batch(world.sink, {"airline": batch.ranges}, written, epochs=batch.epochs))


class WithoutFencing(WithLedger):
    """Uses a ledger, and writes every batch that is not finished, without the check for fenced members."""

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
        """See :class:`Method`."""
        try:
            super().commit(world, batch, output)
        except FencedBatch:
            with world.sink.transaction() as transaction:
                transaction.write(output)
                transaction.advance({r.topic_partition: r.end_offset for r in batch.ranges})


class WithoutLedger:
    """At least once: reading resumes at the committed offsets of the group."""

    has_ledger = False

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
        """See :class:`Method`."""

        def write() -> None:
            with world.sink.transaction() as transaction:
                transaction.write(output)

        patiently(write)


class ByBatchId(WithoutLedger):
    """A common method in ``foreachBatch``: a batch whose id is in the sink is not written again."""

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
        """See :class:`Method`."""

        def write() -> None:
            with world.sink.transaction() as transaction:
                if (output.query, output.batch_id) not in {(o.query, o.batch_id) for o in world.sink.written}:
                    transaction.write(output)

        patiently(write)


class QueriesOfOneGroup(RuleBasedStateMachine):
    """The failures of the queries of one group and their zombies, for every method."""

    world: World

    # ---- rules -------------------------------------------------------------------------------------------------------

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
    def fence(self, pick: int) -> None:
        self.world.fence(self.picked(pick))

    @precondition(lambda self: self.world.processes)
    @rule(pick=PICK)
    def wait_no_longer_for_a_batch(self, pick: int) -> None:
        if self.picked(pick).spark.has_joined:
            self.picked(pick).spark.member.time_out()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def picked(self, pick: int) -> Process:
        return self.world.processes[pick % len(self.world.processes)]

    def writing(self) -> list[Process]:
        return [process for process in self.world.processes if process.is_to_write]

    # ---- invariants --------------------------------------------------------------------------------------------------

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
        """All processes continue until the input is read, zombies first."""
        for process in [p for p in self.world.processes if not p.is_in_group]:
            for _ in range(9):
                if process in self.world.processes:
                    process.step()
        for _ in range(500):
            self.world.step_all()
            if all(self.world.committed.get(p, 0) == end for p, end in self.world.ends.items()):
                break
        self.nothing_is_lost_repeated_or_out_of_order()
        self.what_the_group_has_committed_is_written()
        assert all(self.world.written(p) == records for p, records in self.world.records.items()), (
            "lost: the end was never reached"
        )
