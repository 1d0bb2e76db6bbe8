"""X2-X4: why a Kafka transaction needs no compare-and-swap: what its fences leave possible, searched through.

A group's offsets in a transaction overwrite whatever is there; Kafka compares nothing. Instead the broker checks the producer's epoch at
every write and the member's generation when offsets are added, hides offsets of open transactions from whoever asks for stable
ones, and a member commits only what it owned all the time since it read it. A model of the broker's rules and of runs that crash, are
shut out, write late and time out shows that these four are enough; a story for each shows that none is too many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

PICK = st.integers(0, 7)
PARTITIONS = (0, 1)
QUERIES = ("alice", "bob")


@dataclass(frozen=True)
class Fences:
    """What holds zombies off."""

    epoch: bool = True
    generation: bool = True
    stable_offsets: bool = True
    owned_since: bool = True


class FencedError(Exception):
    """A broker refuses."""


@dataclass
class Transaction:
    """An open transaction as its coordinator has it."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Run:
    """One process of a query: a member, a driver and its tasks."""

    query: str
    generation: int = 0
    epoch: int | None = None
    owned: dict[int, int | None] = field(default_factory=dict)
    #: Taken away since it last heard of the group: each loss is told, also of what comes back.
    lost: set[int] = field(default_factory=set)
    #: What the batch in flight reads, and how far it has come.
    batch: dict[int, tuple[int, int]] = field(default_factory=dict)
    stage: str = "planning"


class Kafka:
    """The broker's rules."""

    def __init__(self, fences: Fences) -> None:
        self.fences = fences
        self.epochs = dict.fromkeys(QUERIES, 0)
        self.open: dict[str, Transaction] = {}
        self.log: dict[int, list[int]] = {p: [] for p in PARTITIONS}
        self.offsets = dict.fromkeys(PARTITIONS, 0)
        self.generation = 0
        self.members: list[Run] = []

    def begin(self, query: str, known_epoch: int | None) -> int:
        """InitProducerId."""
        if known_epoch not in (None, self.epochs[query]):
            raise FencedError
        self.open[query] = Transaction()
        self.epochs[query] += 1
        return self.epochs[query]

    def check(self, query: str, epoch: int | None) -> Transaction:
        """The open transaction, for whoever is of its epoch."""
        if query not in self.open or (self.fences.epoch and epoch != self.epochs[query]):
            raise FencedError
        return self.open[query]

    def commit_offsets(self, run: Run, offsets: dict[int, int]) -> None:
        """TxnOffsetCommit."""
        transaction = self.check(run.query, run.epoch)
        if self.fences.generation and not (run in self.members and run.generation == self.generation):
            raise FencedError
        transaction.offsets |= offsets

    def end(self, run: Run) -> None:
        """EndTxn, committing."""
        transaction = self.check(run.query, run.epoch)
        for partition, offset in transaction.rows:
            self.log[partition].append(offset)
        self.offsets |= transaction.offsets
        del self.open[run.query]

    def time_out(self, query: str) -> None:
        """The broker aborts what is open for too long."""
        del self.open[query]
        self.epochs[query] += 1

    def committed(self, partition: int) -> int | None:
        """OffsetFetch; nothing while a transaction may yet change it."""
        pending = any(partition in transaction.offsets for transaction in self.open.values())
        return None if pending and self.fences.stable_offsets else self.offsets[partition]


class Queries(RuleBasedStateMachine):
    """Two queries of one group, and what is left of their older runs."""

    fences = Fences()

    def __init__(self) -> None:
        super().__init__()
        self.kafka = Kafka(self.fences)
        self.ends = dict.fromkeys(PARTITIONS, 20)
        self.runs: list[Run] = []
        self.owners: dict[int, Run] = {}
        #: What tasks have written, and may write again.
        self.writes: list[tuple[str, int | None, list[tuple[int, int]]]] = []

    # ---- what happens ------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.runs) < 4)
    @rule(query=st.sampled_from(QUERIES))
    def start(self, query: str) -> None:
        self.kafka.members = [m for m in self.kafka.members if m.query != query]
        # First of all: what an older run has left open is aborted, for others may wait to read its offsets.
        run = Run(query, epoch=self.kafka.begin(query, None))
        del self.kafka.open[query]
        self.runs.append(run)
        self.kafka.members.append(run)
        self.rebalance(0, 1)

    @precondition(lambda self: self.runs)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        self.end(self.runs[pick % len(self.runs)])

    @precondition(lambda self: self.kafka.members)
    @rule(pick=PICK)
    def shut_out(self, pick: int) -> None:
        self.kafka.members.pop(pick % len(self.kafka.members))
        self.rebalance(0, 1)

    @precondition(lambda self: self.kafka.members)
    @rule(first=PICK, second=PICK)
    def rebalance(self, first: int, second: int) -> None:
        members, before = self.kafka.members, self.owners
        self.kafka.generation += 1
        picks = zip(PARTITIONS, (first, second), strict=True)
        self.owners = {p: members[pick % len(members)] for p, pick in picks if members}
        for partition, owner in before.items():
            if self.owners.get(partition) is not owner:
                owner.lost.add(partition)

    @precondition(lambda self: self.kafka.open)
    @rule(pick=PICK)
    def time_out(self, pick: int) -> None:
        self.kafka.time_out(sorted(self.kafka.open)[pick % len(self.kafka.open)])

    @precondition(lambda self: self.writes)
    @rule(pick=PICK)
    def write_late(self, pick: int) -> None:
        """A task that was slow, or sent again, writes what it was told to long ago."""
        query, epoch, rows = self.writes[-1 - pick % len(self.writes)]
        if query in self.kafka.open and self.kafka.epochs[query] == epoch:
            # The batch of this very transaction: the sequence number tells that it is there.
            return
        try:
            self.kafka.check(query, epoch).rows += rows
        except FencedError:
            return

    @precondition(lambda self: self.runs)
    @rule(pick=PICK, times=st.integers(1, 5))
    def go_on(self, pick: int, times: int) -> None:
        run = self.runs[pick % len(self.runs)]
        for _ in range(times):
            if run in self.runs:
                self.step(run)

    # ---- what a run does ---------------------------------------------------------------------------------------------

    def step(self, run: Run) -> None:
        try:
            getattr(self, run.stage)(run)
        except FencedError:
            self.end(run)

    def end(self, run: Run) -> None:
        self.runs.remove(run)
        if run in self.kafka.members:
            self.kafka.members.remove(run)
            self.rebalance(0, 1)

    def hear_of_the_group(self, run: Run) -> None:
        """What a member learns when it polls; one that was shut out learns nothing."""
        if run not in self.kafka.members:
            return
        run.generation = self.kafka.generation
        mine = {p for p, owner in self.owners.items() if owner is run}
        run.owned = {p: n for p, n in run.owned.items() if p not in run.lost and n is not None}
        run.lost.clear()
        for partition in mine - run.owned.keys():
            run.owned[partition] = self.kafka.committed(partition)

    def planning(self, run: Run) -> None:
        self.hear_of_the_group(run)
        run.batch = {
            p: (n, min(n + 2, self.ends[p])) for p, n in run.owned.items() if n is not None and n < self.ends[p]
        }
        if run.batch:
            run.epoch = self.kafka.begin(run.query, run.epoch)
            run.stage = "writing"

    def writing(self, run: Run) -> None:
        rows = [(p, offset) for p, (begin, end) in run.batch.items() for offset in range(begin, end)]
        self.writes.append((run.query, run.epoch, rows))
        self.kafka.check(run.query, run.epoch).rows += rows
        run.stage = "committing_offsets"

    def committing_offsets(self, run: Run) -> None:
        self.hear_of_the_group(run)
        still = all(run.owned.get(p) == begin for p, (begin, _) in run.batch.items())
        if self.fences.owned_since and not still:
            raise FencedError
        self.kafka.commit_offsets(run, {p: end for p, (_, end) in run.batch.items()})
        run.stage = "ending"

    def ending(self, run: Run) -> None:
        self.kafka.end(run)
        run.owned |= {p: end for p, (begin, end) in run.batch.items() if run.owned.get(p) == begin}
        run.stage = "planning"

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def offsets_and_output_are_one(self) -> None:
        for partition, written in self.kafka.log.items():
            assert written == list(range(self.kafka.offsets[partition])), f"{written}, {self.kafka.offsets}"

    def teardown(self) -> None:
        """Whoever is left goes on, zombies first; what died is started again."""
        for run in sorted(self.runs, key=self.kafka.members.__contains__):
            self.go_on(self.runs.index(run), 8) if run in self.runs else None
        for query in list(self.kafka.open):
            self.time_out(sorted(self.kafka.open).index(query))
        for _ in range(400):
            for query in QUERIES:
                if all(run.query != query for run in self.kafka.members):
                    self.runs = [run for run in self.runs if run in self.kafka.members]
                    self.start(query)
            for run in list(self.kafka.members):
                # A whole batch each: who is interrupted by the other's coming back interrupts the other in turn.
                self.go_on(self.runs.index(run), 4)
            if self.kafka.offsets == self.ends:
                break
        self.offsets_and_output_are_one()
        assert self.kafka.offsets == self.ends, f"never got there: {self.kafka.offsets} of {self.ends}: {self.runs}"


TestFences = Queries.TestCase
TestFences.settings = settings(max_examples=100, stateful_step_count=40)


def _a_late_write(world: Queries) -> None:
    world.start("alice")
    world.go_on(0, 2)
    world.crash(0)
    world.start("alice")
    world.go_on(0, 1)
    world.write_late(0)
    world.go_on(0, 3)


def _a_member_that_was_shut_out(world: Queries) -> None:
    world.start("alice")
    world.go_on(0, 2)
    world.shut_out(0)
    world.start("bob")
    world.go_on(1, 4)
    world.go_on(0, 2)


def _a_commit_that_is_under_way(world: Queries) -> None:
    world.start("alice")
    world.go_on(0, 3)
    world.shut_out(0)
    world.start("bob")
    world.go_on(1, 1)
    world.go_on(0, 1)
    world.go_on(1, 4)


def _a_partition_that_has_moved(world: Queries) -> None:
    world.start("alice")
    world.go_on(0, 2)
    world.start("bob")
    world.go_on(1, 4)
    world.go_on(0, 2)


@pytest.mark.parametrize(
    ("missing", "story"),
    [
        ("epoch", _a_late_write),
        ("generation", _a_member_that_was_shut_out),
        ("stable_offsets", _a_commit_that_is_under_way),
        ("owned_since", _a_partition_that_has_moved),
    ],
)
def test_none_is_too_many(missing: str, story: Callable[[Queries], None]) -> None:
    fenced = Queries()
    story(fenced)
    fenced.offsets_and_output_are_one()
    # Somebody has got on, and nobody twice.
    assert any(fenced.kafka.offsets.values())

    class Open(Queries):
        fences = replace(Fences(), **{missing: False})

    open_to_it = Open()
    story(open_to_it)
    with pytest.raises(AssertionError):
        open_to_it.offsets_and_output_are_one()
