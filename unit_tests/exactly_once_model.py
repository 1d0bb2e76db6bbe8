"""Two queries of one group that write to one sink, as small as they can be, and every way they can fail.

A :class:`Query` outlives its runs: it has the checkpoint, as Spark has, with a log of batches that were begun and of those that
were finished. A :class:`Run` is one process of it; a run that the group has shut out does not know it and goes on. How a run
takes partitions over and how it commits is a :class:`Method`: the real one, or one that lacks something. Used by
``test_exactly_once``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamgroups.batches.offset_json import BatchOffset
from streamgroups.batches.resuming import OnRestart
from streamgroups.committing import commit_batch, take_over_partitions
from streamgroups.errors import FencedBatch, LedgerConflict, SinkUnreachable
from streamgroups.fakes import FakeLedger
from streamgroups.groups.membership import Origin, Owned
from streamgroups.ledgers.taking_over import replay
from streamgroups.partitions import OffsetRange, TopicPartition

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
PARTITIONS = (P0, P1)


@dataclass
class Query:
    """What outlives a process: the checkpoint."""

    name: str
    begun: list[BatchOffset] = field(default_factory=list)
    finished: int = 0

    def forget(self) -> None:
        """The checkpoint is lost, or the query is started with a new one."""
        self.begun, self.finished = [], 0


@dataclass(frozen=True)
class Output:
    """What a batch writes: where each record came from, and which batch it was."""

    query: str
    batch_id: int
    rows: tuple[tuple[TopicPartition, int], ...]


class Method(Protocol):
    """How partitions are taken over and batches are committed."""

    def take_over(self, world: World, owned: Mapping[TopicPartition, Owned]) -> Mapping[TopicPartition, int]:
        """Where these partitions are read on."""
        ...

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """Writes a batch.

        Raises:
            FencedBatch: if it must not be written.
        """
        ...


class World:
    """The topic, the group and the sink."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.sink: FakeLedger[Output] = FakeLedger("billing")
        self.records: dict[TopicPartition, list[int]] = {tp: [] for tp in PARTITIONS}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.queries = [Query("alice"), Query("bob")]
        #: Every process that is alive; of each query at most one is in the group, the others are zombies.
        self.runs: list[Run] = []
        self.owners: dict[TopicPartition, Run] = {}
        self.committed: dict[TopicPartition, int] = {}
        #: Whether a batch is being committed now; partitions are taken over in transactions, too.
        self.is_committing = False

    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        """Appends records, and a gap behind them (SEMANTICS G13)."""
        end = self.ends[partition]
        self.records[partition] += range(end, end + count)
        self.ends[partition] = end + count + gap

    def written(self, partition: TopicPartition) -> list[int]:
        """The offsets of a partition that the sink has, in the order in which they were written."""
        return [offset for output in self.sink.written for tp, offset in output.rows if tp == partition]

    @property
    def members(self) -> list[Run]:
        """The runs that the group knows."""
        return [run for run in self.runs if run.member]

    def start(self, query: Query) -> None:
        """Starts a query; a run of it that is still in the group is replaced, and may not notice."""
        for old in self.members:
            if old.query is query:
                self.shut_out(old)
        run = Run(self, query)
        self.runs.append(run)
        self.assign(list(self.owners.values()))
        run.resume()

    def shut_out(self, run: Run) -> None:
        """The group goes on without a run, which does not notice: a zombie."""
        run.member = False
        self.owners = {tp: owner for tp, owner in self.owners.items() if owner is not run}
        self.assign(list(self.owners.values()))

    def end(self, run: Run) -> None:
        """A process ends, and the group notices."""
        self.runs.remove(run)
        self.shut_out(run)

    def assign(self, wished: list[Run]) -> None:
        """Gives the partitions to members, as wished as far as possible, without waiting for batches in flight."""
        members = self.members
        for i, tp in enumerate(PARTITIONS):
            owner = wished[i] if i < len(wished) and wished[i].member else None
            new = owner or (members[i % len(members)] if members else None)
            if new is None or self.owners.get(tp) is new:
                continue
            if tp in self.owners:
                self.owners[tp].next_offsets.pop(tp, None)
            self.owners[tp] = new
            new.came_in(tp)

    def owned(self, partition: TopicPartition) -> Owned:
        """What the group says to whoever gets a partition."""
        if partition in self.committed:
            return Owned(self.committed[partition])
        return Owned(0, Origin.STARTING)


class Run:
    """One process of a query."""

    def __init__(self, world: World, query: Query) -> None:
        self.world, self.query = world, query
        self.member = True
        self.next_offsets: dict[TopicPartition, int] = {}
        self.number = len(query.begun)
        #: The batch in flight, and whether the sink has it.
        self.batch: BatchOffset | None = None
        self.is_written = False

    def came_in(self, partition: TopicPartition) -> None:
        """The group gives this run a partition."""
        owned = {partition: self.world.owned(partition)}
        self.next_offsets |= self.world.method.take_over(self.world, owned)

    def resume(self) -> None:
        """Begins with the batch that the checkpoint says is unfinished, as far as it is still to be read."""
        if self.query.finished < len(self.query.begun):
            logged = self.query.begun[-1]
            self.number = logged.number - 1
            self._begin(replay(logged, self.next_offsets, whole=False).ranges)

    def step(self) -> None:
        """The next thing that this process does."""
        if self.batch is None:
            self.plan()
        elif not self.is_written:
            self.write()
        else:
            self.finish()

    def plan(self) -> None:
        """Begins a batch of up to four offsets of each partition."""
        ranges = tuple(
            OffsetRange(tp, n, min(n + 4, self.world.ends[tp]))
            for tp, n in self.next_offsets.items()
            if n < self.world.ends[tp]
        )
        if ranges:
            self._begin(ranges)
            # A zombie of the query may write to its checkpoint too; the newer run's log is what counts.
            if self.batch and self in self.world.members:
                self.query.begun.append(self.batch)

    def _begin(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.number += 1
        self.batch, self.is_written = BatchOffset(self.number, ranges), False

    def write(self) -> None:
        """Commits the batch; a refusal fails the query."""
        assert self.batch is not None
        rows = tuple(
            (r.topic_partition, offset)
            for r in self.batch.ranges
            for offset in self.world.records[r.topic_partition]
            if r.next_offset <= offset < r.end_offset
        )
        self.world.is_committing, refused = True, False
        try:
            self.world.method.commit(self.world, self.batch.ranges, Output(self.query.name, self.batch.number, rows))
        except FencedBatch:
            refused = True
        finally:
            self.world.is_committing = False
        self.is_written = True
        if refused:
            self.world.end(self)

    def finish(self) -> None:
        """Spark notes that the batch is done, the group's committed offsets follow, and reading goes on behind it."""
        assert self.batch is not None
        ends = {
            r.topic_partition: r.end_offset
            for r in self.batch.ranges
            if self.next_offsets.get(r.topic_partition) == r.next_offset
        }
        self.next_offsets |= ends
        if self.member:
            self.query.finished = len(self.query.begun)
            self.world.committed |= ends
        self.batch = None


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

    def take_over(self, world: World, owned: Mapping[TopicPartition, Owned]) -> Mapping[TopicPartition, int]:
        """See :class:`Method`. Nobody moves the group on purpose here, so there is never a difference."""
        decided = take_over_partitions(world.sink, owned, OnRestart.FAIL, group_id="billing")
        world.committed |= decided.follow
        return decided.next_offsets

    def commit(self, world: World, ranges: tuple[OffsetRange, ...], output: Output) -> None:
        """See :class:`Method`."""
        patiently(lambda: commit_batch(world.sink, {"billing": ranges}, output if output.rows else None))


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

    def take_over(self, world: World, owned: Mapping[TopicPartition, Owned]) -> Mapping[TopicPartition, int]:
        """See :class:`Method`."""
        return {tp: o.next_offset for tp, o in owned.items()}

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
