"""X2-X4: batches that read nothing are written once, whatever happens to runs and checkpoints; and two stories show what a
ledger with less information would lose.

One query writes no-data batches to one sink. Its runs crash within and after the sink's commit, continue as zombies, lose responses and checkpoints, and get
checkpoints back from a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgroups.errors import FencedBatch, SinkUnreachable
from streamgroups.fakes import FakeLedger, Moment
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.compare_and_swap import AlreadyDone, Commit
from streamgroups.ledgers.no_data_batch import NoDataBatch, judge_no_data
from unit_tests.examples import sequences

BATCH = NoDataBatch("this checkpoint", 7, 99)


@pytest.mark.parametrize(
    ("recorded", "is_done"),
    [
        (None, False),
        (NoDataBatch("this checkpoint", 6, 99), False),
        (NoDataBatch("another checkpoint", 8, 99), False),
        (NoDataBatch("another checkpoint", 7, 99), False),
        (BATCH, True),
    ],
)
def test_what_is_next_or_done(recorded: NoDataBatch | None, is_done: bool) -> None:
    result = judge_no_data(BATCH, recorded, group_id="board")
    assert result == (AlreadyDone() if is_done else Commit(BATCH.positions))


@pytest.mark.parametrize(
    "recorded",
    [
        # Of the same number: the checkpoint was set back, and Spark has logged another batch since.
        NoDataBatch("this checkpoint", 7, 98),
        NoDataBatch("this checkpoint", 8, 99),
        NoDataBatch("this checkpoint", 8, 98),
    ],
)
def test_what_is_stale(recorded: NoDataBatch) -> None:
    with pytest.raises(FencedBatch, match=f"batch {recorded.batch_id}"):
        judge_no_data(BATCH, recorded, group_id="board")


@dataclass(frozen=True)
class Checkpoint:
    """What outlives a run: Spark's log of batches, and how many are done."""

    query_id: str
    logged: tuple[NoDataBatch, ...] = ()
    done: int = 0


@dataclass
class Run:
    """A process of the query, which has read the checkpoint when it began."""

    checkpoint: Checkpoint
    is_written: bool = False

    @property
    def batch(self) -> NoDataBatch | None:
        """The batch that it runs."""
        return self.checkpoint.logged[-1] if len(self.checkpoint.logged) > self.checkpoint.done else None


def known(batch: NoDataBatch) -> NoDataBatch:
    """All that is known of a batch."""
    return batch


def by_number(batch: NoDataBatch) -> NoDataBatch:
    """Only how Spark counts it within its checkpoint."""
    return replace(batch, fingerprint=0)


def by_number_alone(batch: NoDataBatch) -> NoDataBatch:
    """Only how Spark counts it."""
    return replace(batch, fingerprint=0, query_id="any")


class NoDataBatches(RuleBasedStateMachine):
    """See the module."""

    known_of: Callable[[NoDataBatch], NoDataBatch | None] = staticmethod(known)

    def __init__(self) -> None:
        super().__init__()
        self.sink: FakeLedger[NoDataBatch] = FakeLedger("board")
        self.sink.at = self._at
        self._happens: dict[Moment, Callable[[], None]] = {}
        self._made = 0
        self.checkpoint = Checkpoint("checkpoint-0")
        self.copies: list[Checkpoint] = []
        self.run = Run(self.checkpoint)
        self.zombies: list[Run] = []
        self.finished: list[NoDataBatch] = []

    def _number(self) -> int:
        self._made += 1
        return self._made

    # ---- what happens ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.run.batch is None)
    @rule()
    def begin(self) -> None:
        # What Spark logs holds the time, so it is never the same again.
        batch = NoDataBatch(self.checkpoint.query_id, len(self.checkpoint.logged), self._number())
        self.checkpoint = replace(self.checkpoint, logged=(*self.checkpoint.logged, batch))
        self.run.checkpoint, self.run.is_written = self.checkpoint, False

    @precondition(lambda self: self.run.batch is not None)
    @rule(moment=st.sampled_from([None, *Moment]))
    def write(self, moment: Moment | None) -> None:
        self._write(self.run, moment)

    @precondition(lambda self: self.zombies)
    @rule(pick=st.integers(0, 3), moment=st.sampled_from([None, *Moment]))
    def a_zombie_writes(self, pick: int, moment: Moment | None) -> None:
        self._write(self.zombies[pick % len(self.zombies)], moment)

    @precondition(lambda self: self.run.batch is not None and self.run.is_written)
    @rule()
    def finish(self) -> None:
        assert self.run.batch is not None
        self.finished.append(self.run.batch)
        self.checkpoint = replace(self.checkpoint, done=len(self.checkpoint.logged))
        self.run.checkpoint = self.checkpoint

    @rule(continues=st.booleans())
    def restart(self, continues: bool) -> None:
        if continues and self.run.batch is not None:
            self.zombies.append(self.run)
        self.run = Run(self.checkpoint)

    @rule()
    def copy(self) -> None:
        self.copies.append(self.checkpoint)

    @precondition(lambda self: self.copies)
    @rule(pick=st.integers(0, 3))
    def set_back(self, pick: int) -> None:
        self.checkpoint = self.copies[pick % len(self.copies)]
        self.run = Run(self.checkpoint)

    @rule()
    def lose_the_checkpoint(self) -> None:
        self.checkpoint = Checkpoint(f"checkpoint-{self._number()}")
        self.run = Run(self.checkpoint)

    def _write(self, run: Run, moment: Moment | None) -> None:
        batch = run.batch
        assert batch is not None
        if moment is not None:
            self._happens[moment] = _no_answer
        try:
            commit_batch(self.sink, {"board": ()}, batch, no_data_batch=type(self).known_of(batch))
            run.is_written = True
        except SinkUnreachable:
            # It crashes there, or it tries again: either way it is judged again.
            pass
        except FencedBatch:
            if run in self.zombies:
                self.zombies.remove(run)
            else:
                # It fails, and the user begins with a new checkpoint.
                self.lose_the_checkpoint()
        self._happens.clear()

    def _at(self, moment: Moment) -> None:
        if moment in self._happens:
            self._happens.pop(moment)()

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_twice(self) -> None:
        written = Counter((batch.query_id, batch.batch_id) for batch in self.sink.written)
        assert not [batch for batch, times in written.items() if times > 1], "twice"

    @invariant()
    def what_is_done_is_written(self) -> None:
        assert set(self.finished) <= set(self.sink.written), "lost"


def _no_answer() -> None:
    raise SinkUnreachable("No answer.")


TestNoDataBatches = NoDataBatches.TestCase
TestNoDataBatches.settings = settings(max_examples=sequences(200), stateful_step_count=40)


def _set_back(queries: NoDataBatches) -> None:
    queries.copy()
    _a_batch(queries)
    queries.set_back(0)
    _a_batch(queries)


def _lost(queries: NoDataBatches) -> None:
    _a_batch(queries)
    queries.lose_the_checkpoint()
    _a_batch(queries)


def _a_batch(queries: NoDataBatches) -> None:
    queries.begin()
    queries.write(None)
    # A rejected batch does not exist any more.
    if queries.run.batch is not None:
        queries.finish()


@pytest.mark.parametrize(("known_of", "story"), [(by_number, _set_back), (by_number_alone, _lost)])
def test_output_is_lost_if_less_is_known_of_a_batch(
    known_of: Callable[[NoDataBatch], NoDataBatch], story: Callable[[NoDataBatches], None]
) -> None:
    right = NoDataBatches()
    story(right)
    right.what_is_done_is_written()
    right.nothing_is_twice()
    wrong = type("Wrong", (NoDataBatches,), {"known_of": staticmethod(known_of)})()
    story(wrong)
    with pytest.raises(AssertionError, match="lost"):
        wrong.what_is_done_is_written()
