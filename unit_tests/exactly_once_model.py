"""Queries of one group that write to one sink, and every way they can fail.

A :class:`Query` outlives its processes: it has the checkpoint. A :class:`Process` is a query that runs: the real
``streamgroups_spark.micro_batches`` under the small Spark of ``spark_model``, with a member and a sink in memory. How it takes partitions over and how it
commits is a :class:`Method`: the real one, or one that lacks something. Used by ``test_exactly_once``.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from streamgroups.batches.admission import Limits
from streamgroups.batches.resuming import OnRestart
from streamgroups.committing import commit_batch
from streamgroups.errors import FencedBatch, LedgerConflict, PositionsDiffer, SinkUnreachable, StreamGroupsError
from streamgroups.fakes import FakeLedger
from streamgroups.groups.joining import MembershipMode
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.batch_seen import SeenBatch, check_source
from unit_tests.spark_model import Checkpoint, Run, Settings, tp
from unit_tests.spark_model import World as Cluster

P0, P1 = PARTITIONS = (tp(0), tp(1))

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
        process = Process(self, query, f"{query.name}-{self._started}")
        self.processes.append(process)
        process.step()

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
                self._write()
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

    def _write(self) -> None:
        """As ``streamgroups_spark.ledger_sink`` does."""
        facts = self.spark.facts()
        assert facts is not None
        batch_id = len(self.spark.checkpoint.offsets) - 1
        batch = SeenBatch((facts,), batch_id)
        check_source(facts, has_state=self.world.settings.mode is MembershipMode.EXCLUSIVE)
        if not batch.is_written:
            assert self.spark.running is not None
            rows = tuple(
                (r.topic_partition, offset)
                for r in self.spark.running
                for offset in self.world.records[r.topic_partition]
                if r.next_offset <= offset < r.end_offset
            )
            self.world.is_committing = True
            try:
                self.world.method.commit(self.world, batch.ranges, Output(self.query.name, batch_id, rows))
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
