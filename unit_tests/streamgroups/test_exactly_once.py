"""X2-X4: whatever happens in whatever order, every record is in the sink once and in order. And the same search finds what is
lost or repeated as soon as the method lacks its ledger, its fencing, or its key.

Two queries of one group write to one sink. They crash before, within and after the sink's commit, replay, are fenced and
continue as zombies, lose their checkpoints and hand partitions over in the middle of batches.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from streamgroups.errors import SinkUnreachable
from streamgroups.fakes import Moment
from unit_tests.exactly_once_model import (
    EXCLUSIVE,
    PICK,
    SHARED,
    ByBatchId,
    Method,
    QueriesOfOneGroup,
    WithLedger,
    WithoutFencing,
    WithoutLedger,
    World,
)
from unit_tests.examples import sequences


class _KilledError(Exception):
    """The process ends here."""


class Queries(QueriesOfOneGroup):
    """Queries of one group, their zombies included."""

    method: type[Method] = WithLedger
    how = SHARED

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.method(), self.how)
        self.world.sink.at = self._at
        self._happens: dict[Moment, Callable[[], None]] = {}

    # ---- what happens ------------------------------------------------------------------------------------------------

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

    # ---- assertions -----------------------------------------------------------------------------------------------

    def _at(self, moment: Moment) -> None:
        if self.world.is_committing and moment in self._happens:
            # Once: what happens may commit too.
            self._happens.pop(moment)()


def _die() -> None:
    raise _KilledError


def _no_answer() -> None:
    raise SinkUnreachable("No answer.")


class _ExclusiveQueries(Queries):
    how = EXCLUSIVE


TestWithLedger = Queries.TestCase
TestWithLedger.settings = settings(max_examples=sequences(150), stateful_step_count=40)
TestExclusiveWithLedger = _ExclusiveQueries.TestCase
TestExclusiveWithLedger.settings = settings(max_examples=sequences(100), stateful_step_count=40)


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
    # The first counterexample is enough; the smallest one is not needed.
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
