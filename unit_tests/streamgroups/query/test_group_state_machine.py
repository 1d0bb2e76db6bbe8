"""G11, G12, S1-S3: whatever happens in whatever order, one owner each, nothing lost, repeated only what was in flight.

Queries join, read, stop, die, are fenced and come back with their checkpoints, all on the fakes; after every step the
promises are checked, and at the end the remaining members read everything to the end.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgroups.groups.audit import overlaps, ownership_epochs
from streamgroups.groups.history import Event
from streamgroups.partitions import TopicPartition
from streamgroups.query.trigger_limits import Limits
from unit_tests.examples import sequences
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

NAMES = ("alice", "bob", "carol", "dave")
#: Which of those there are.
PICK = st.integers(0, 3)
SETTINGS = Settings(limits=Limits(max_offsets=7))


class Queries(RuleBasedStateMachine):
    """Up to four queries of one group on a topic of three or more partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(3)
        self.checkpoints: dict[str, Checkpoint] = {}
        self.runs: dict[str, Run] = {}
        self.zombies: set[str] = set()
        self.ever_fenced = False
        self.delivered: Counter[tuple[TopicPartition, int]] = Counter()
        self.excused: set[tuple[TopicPartition, int]] = set()
        self.last_committed: dict[int, int] = {}
        self.events: list[Event] = []
        self.started = 0

    # ---- what happens ------------------------------------------------------------------------------------------------

    @rule(counts=st.lists(st.integers(0, 9), min_size=1, max_size=4))
    def produce(self, counts: list[int]) -> None:
        self.world.produce(*counts[: self.partitions])

    @rule(partition=st.integers(0, 2), count=st.integers(1, 3))
    def leave_gap(self, partition: int, count: int) -> None:
        self.world.cluster.leave_gap(tp(partition), count)

    @precondition(lambda self: self.partitions < 4)
    @rule()
    def add_partition(self) -> None:
        self.world.cluster.add_partitions("flights", self.partitions + 1)

    @precondition(lambda self: len(self.runs) < len(NAMES))
    @rule(pick=PICK, keep_checkpoint=st.sampled_from([True, True, True, False]))
    def start(self, pick: int, keep_checkpoint: bool) -> None:
        resting = [name for name in NAMES if name not in self.runs]
        name = resting[pick % len(resting)]
        checkpoint = self.checkpoints.get(name, Checkpoint()) if keep_checkpoint else Checkpoint()
        self.checkpoints[name] = checkpoint
        self.started += 1
        # Every other one may read its checkpoint when it stops.
        run = Run(self.world, name, SETTINGS, checkpoint, run=str(self.started), reads_checkpoint=self.started % 2 == 0)
        self.runs[name] = run.start()
        if not run.has_joined:
            # After a finished batch, and before it has warmed up, it joins only when a batch is requested.
            run.plan()

    @precondition(lambda self: self.runs)
    @rule(pick=PICK, times=st.integers(1, 5))
    def plan_or_finish(self, pick: int, times: int) -> None:
        for _ in range(times):
            self.time_passes()
            self.advance(self.picked(pick))

    @precondition(lambda self: self.runs)
    @rule()
    def all_members_plan_or_finish(self) -> None:
        for name in list(self.runs):
            self.advance(name)

    @precondition(lambda self: self.runs)
    @rule(pick=PICK, sink_was_done=st.booleans())
    def kill(self, pick: int, sink_was_done: bool) -> None:
        name = self.picked(pick)
        self.excuse(name)
        if sink_was_done:
            self.deliver(self.runs[name])
        self.gone(name)
        self.world.group.kill(name)

    @precondition(lambda self: self.runs)
    @rule(pick=PICK)
    def stop(self, pick: int) -> None:
        name = self.picked(pick)
        self.excuse(name)
        self.runs[name].source.stop()
        self.gone(name)

    @precondition(lambda self: self.runs.keys() - self.zombies)
    @rule(pick=PICK)
    def fence(self, pick: int) -> None:
        living = sorted(self.runs.keys() - self.zombies)
        name = living[pick % len(living)]
        self.excuse(name)
        self.zombies.add(name)
        self.ever_fenced = True
        self.world.group.fence(name)

    @rule()
    def settle(self) -> None:
        self.world.group.settle()
        self.zombies.clear()

    @rule(rebalancing=st.booleans())
    def hold_commits(self, rebalancing: bool) -> None:
        self.world.group.rebalancing = rebalancing

    # ---- assertions -----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        return self.world.cluster.topics()["flights"]

    def picked(self, pick: int) -> str:
        return sorted(self.runs)[pick % len(self.runs)]

    def advance(self, name: str) -> None:
        run = self.runs[name]
        if run.running is not None:
            self.deliver(run)
            run.finish()
            return
        run.plan()
        if name in self.zombies:
            self.excuse(name)

    def deliver(self, run: Run) -> None:
        for r in run.running or ():
            self.delivered.update((record.topic_partition, record.offset) for record in self.world.cluster.read(r))

    def excuse(self, name: str) -> None:
        """The records that this member has read or reads, and that are not committed."""
        committed = self.world.committed()
        membership = self.runs[name].member.membership
        for r in membership.in_flight.ranges if membership.in_flight else ():
            self.excused |= {(r.topic_partition, o) for o in range(r.next_offset, r.end_offset)}
        for p, owned in membership.owned.items():
            self.excused |= {(p, o) for o in range(committed.get(p.partition, 0), owned.next_offset)}

    def gone(self, name: str) -> None:
        self.events += self.runs.pop(name).history.events
        self.zombies.discard(name)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def time_passes(self) -> None:
        self.world.clock.advance(100)

    @invariant()
    def one_owner_each(self) -> None:
        owned = Counter(
            p for name, run in self.runs.items() if name not in self.zombies for p in run.member.membership.owned
        )
        assert not owned or max(owned.values()) == 1

    @invariant()
    def what_is_in_flight_is_read_once(self) -> None:
        in_flight = Counter(
            r.topic_partition
            for name, run in self.runs.items()
            if name not in self.zombies and run.member.membership.in_flight
            for r in run.member.membership.in_flight.ranges
        )
        assert not in_flight or max(in_flight.values()) == 1

    @invariant()
    def nothing_is_lost(self) -> None:
        for partition, next_offset in self.world.committed().items():
            assert not self.undelivered(partition, next_offset)

    def undelivered(self, partition: int, end_offset: int) -> list[int]:
        records = self.world.cluster._partition(tp(partition)).records
        return [r.offset for r in records if r.offset < end_offset and (tp(partition), r.offset) not in self.delivered]

    @invariant()
    def only_what_was_in_flight_is_repeated(self) -> None:
        assert {record for record, times in self.delivered.items() if times > 1} <= self.excused

    @invariant()
    def committed_offsets_never_regress(self) -> None:
        committed = self.world.committed()
        assert all(committed[p] >= n for p, n in self.last_committed.items())
        self.last_committed = committed

    def teardown(self) -> None:
        """The remaining and new members read everything to its end."""
        self.hold_commits(False)
        if not self.runs:
            self.start(0, True)
        self.settle()
        for _ in range(200):
            self.time_passes()
            self.all_members_plan_or_finish()
            self.settle()
            ends = {p: self.world.cluster._partition(tp(p)).end_offset for p in range(self.partitions)}
            if all(self.world.committed().get(p, 0) == end for p, end in ends.items()):
                break
            self.nothing_is_lost()
            self.committed_offsets_never_regress()
        else:
            raise AssertionError(f"never got there: {self.world.committed()} of {ends}")
        self.only_what_was_in_flight_is_repeated()
        while self.runs:
            self.stop(0)
        if not self.ever_fenced:
            assert not overlaps(ownership_epochs(self.events))


TestQueries = Queries.TestCase
TestQueries.settings = settings(max_examples=sequences(150), stateful_step_count=40)
