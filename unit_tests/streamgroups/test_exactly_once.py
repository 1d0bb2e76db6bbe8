"""X2-X4: whatever happens in whatever order, every record is in the sink once and in order. And the same search finds what is
lost or repeated as soon as the method lacks its ledger, its fencing, or its key.

Two queries of one group write to one sink. They crash before, within and after the sink's commit, replay, are shut out and
go on as zombies, lose their checkpoints and hand partitions over in the middle of batches.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from streamgroups.errors import SinkUnreachable
from streamgroups.fakes import Moment
from streamgroups.partitions import TopicPartition
from unit_tests.exactly_once_model import (
    EXCLUSIVE,
    PARTITIONS,
    SHARED,
    ByBatchId,
    Method,
    Process,
    WithLedger,
    WithoutFencing,
    WithoutLedger,
    World,
)

PICK = st.integers(0, 3)


class _KilledError(Exception):
    """The process ends here."""


class Queries(RuleBasedStateMachine):
    """Queries of one group, their zombies included."""

    method: type[Method] = WithLedger
    how = SHARED

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.method(), self.how)
        self.world.sink.at = self._at
        self._happens: dict[Moment, Callable[[], None]] = {}

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

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, moment=st.sampled_from(Moment))
    def crash_while_committing(self, pick: int, moment: Moment) -> None:
        process = self.writing()[pick % len(self.writing())]
        self._happens[moment] = _die
        try:
            process.step()
        except _KilledError:
            self.world.kill(process)
        self._happens.clear()

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, moment=st.sampled_from(Moment))
    def lose_the_answer(self, pick: int, moment: Moment) -> None:
        self._happens[moment] = _no_answer
        self.writing()[pick % len(self.writing())].step()
        self._happens.clear()

    @precondition(lambda self: len(self.writing()) > 1)
    @rule(pick=PICK, other=PICK, moment=st.sampled_from(Moment))
    def commit_while_another_commits(self, pick: int, other: int, moment: Moment) -> None:
        first = self.writing()[pick % len(self.writing())]
        others = [process for process in self.writing() if process is not first]
        self._happens[moment] = others[other % len(others)].step
        first.step()
        self._happens.clear()

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
            self.picked(pick).spark.member.run_out_of_patience()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    # ---- what is told about it ---------------------------------------------------------------------------------------

    def _at(self, moment: Moment) -> None:
        if self.world.is_committing and moment in self._happens:
            # Once: what happens may commit too.
            self._happens.pop(moment)()

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


def _die() -> None:
    raise _KilledError


def _no_answer() -> None:
    raise SinkUnreachable("No answer.")


class _ExclusiveQueries(Queries):
    how = EXCLUSIVE


TestWithLedger = Queries.TestCase
TestWithLedger.settings = settings(max_examples=150, stateful_step_count=40)
TestExclusiveWithLedger = _ExclusiveQueries.TestCase
TestExclusiveWithLedger.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.parametrize(
    ("method", "breaks"),
    [
        (WithoutLedger, "twice"),
        (WithoutFencing, "twice|lost|out of order"),
        (ByBatchId, "twice|lost"),
    ],
)
def test_the_search_finds_what_is_wrong_with(method: type[Method], breaks: str) -> None:
    machine = type("Wrong", (Queries,), {"method": method})
    # The first counterexample will do; nobody reads the smallest.
    hasty = settings(
        max_examples=1_000,
        stateful_step_count=40,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError, match=breaks):
        run_state_machine_as_test(machine, settings=hasty)
