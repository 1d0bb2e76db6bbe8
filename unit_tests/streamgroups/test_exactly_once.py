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
    PARTITIONS,
    ByBatchId,
    Method,
    Run,
    WithLedger,
    WithoutFencing,
    WithoutLedger,
    World,
)

PICK = st.integers(0, 3)


class _KilledError(Exception):
    """The process ends here."""


class Queries(RuleBasedStateMachine):
    """Two queries, their zombies included."""

    method: type[Method] = WithLedger

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.method())
        self.world.sink.at = self._at
        self._happens: dict[Moment, Callable[[], None]] = {}

    # ---- what happens ------------------------------------------------------------------------------------------------

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 6), gap=st.integers(0, 2))
    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        self.world.produce(partition, count, gap)

    @precondition(lambda self: len(self.world.runs) < 4)
    @rule(pick=st.integers(0, 1), new_checkpoint=st.sampled_from([False, False, True]))
    def start(self, pick: int, new_checkpoint: bool) -> None:
        query = self.world.queries[pick]
        if new_checkpoint:
            query.forget()
        self.world.start(query)

    @precondition(lambda self: self.world.runs)
    @rule(pick=PICK, times=st.integers(1, 6))
    def go_on(self, pick: int, times: int) -> None:
        run = self.picked(pick)
        for _ in range(times):
            if run in self.world.runs:
                run.step()

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, moment=st.sampled_from(Moment))
    def crash_while_committing(self, pick: int, moment: Moment) -> None:
        run = self.writing()[pick % len(self.writing())]
        self._happens[moment] = _die
        try:
            run.write()
        except _KilledError:
            self.world.end(run)
        self._happens.clear()

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, moment=st.sampled_from(Moment))
    def lose_the_answer(self, pick: int, moment: Moment) -> None:
        self._happens[moment] = _no_answer
        self.writing()[pick % len(self.writing())].write()
        self._happens.clear()

    @precondition(lambda self: len(self.writing()) > 1)
    @rule(pick=PICK, other=PICK, moment=st.sampled_from(Moment))
    def commit_while_another_commits(self, pick: int, other: int, moment: Moment) -> None:
        first = self.writing()[pick % len(self.writing())]
        others = [run for run in self.writing() if run is not first]
        self._happens[moment] = others[other % len(others)].write
        first.write()
        self._happens.clear()

    @precondition(lambda self: self.world.runs)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        self.world.end(self.picked(pick))

    @precondition(lambda self: self.world.members)
    @rule(pick=PICK)
    def shut_out(self, pick: int) -> None:
        self.world.shut_out(self.world.members[pick % len(self.world.members)])

    @precondition(lambda self: len(self.world.members) == 2)
    @rule(first=st.integers(0, 1), second=st.integers(0, 1))
    def rebalance(self, first: int, second: int) -> None:
        members = self.world.members
        self.world.assign([members[first], members[second]])

    # ---- what is told about it ---------------------------------------------------------------------------------------

    def _at(self, moment: Moment) -> None:
        if self.world.is_committing and moment in self._happens:
            # Once: what happens may commit too.
            self._happens.pop(moment)()

    def picked(self, pick: int) -> Run:
        return self.world.runs[pick % len(self.world.runs)]

    def writing(self) -> list[Run]:
        return [run for run in self.world.runs if run.batch is not None and not run.is_written]

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_repeated_or_out_of_order(self) -> None:
        for tp in PARTITIONS:
            written = self.world.written(tp)
            assert len(set(written)) == len(written), f"{tp}: twice: {written}"
            assert written == sorted(written), f"{tp}: out of order: {written}"
            expected = self.world.records[tp][: len(written)]
            assert written == expected, f"{tp}: lost: {sorted(set(expected) - set(written))}"

    @invariant()
    def what_the_group_has_committed_is_written(self) -> None:
        for tp, next_offset in self.world.committed.items():
            lost = {o for o in self.world.records[tp] if o < next_offset} - set(self.world.written(tp))
            assert not lost, f"{tp}: lost: {sorted(lost)}"

    def teardown(self) -> None:
        """Everybody goes on for as long as it takes, zombies first."""
        for run in [r for r in self.world.runs if not r.member]:
            for _ in range(9):
                if run in self.world.runs:
                    run.step()
        for _ in range(500):
            for query in self.world.queries:
                if not any(run.query is query for run in self.world.members):
                    self.world.start(query)
            for run in self.world.members:
                run.step()
            if self.world.committed == {tp: end for tp, end in self.world.ends.items() if end}:
                break
        self.nothing_is_lost_repeated_or_out_of_order()
        self.what_the_group_has_committed_is_written()
        assert all(self.world.written(tp) == records for tp, records in self.world.records.items()), (
            "lost: the end was never reached"
        )


def _die() -> None:
    raise _KilledError


def _no_answer() -> None:
    raise SinkUnreachable("No answer.")


TestWithLedger = Queries.TestCase
TestWithLedger.settings = settings(max_examples=300, stateful_step_count=40)


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
