"""A small model of a group that reads, writes and commits without an error, and the history that it leaves.

Used by ``test_history_checker``. Two members share partitions. They are killed before and after their commits, hand partitions
over, and reset back. Some records become dead letters, some complete a row, and each commit has a state with a watermark.
"""

from __future__ import annotations

from hypothesis import strategies as st

from integration_tests.history.events import (
    Acknowledged,
    Assigned,
    Commit,
    Event,
    ExpectedRow,
    FaultHealed,
    FaultInjected,
    Gap,
    HighWater,
    LogsSearched,
    Moved,
    Position,
    Read,
    Reset,
    Revoked,
    StateLoaded,
    StateWritten,
    Workload,
    Written,
    WrittenRow,
    name_of,
)
from streamgroups.partitions import OffsetRange, TopicPartition

GROUP, DELAY_MS, MAX_LAG_MS = "g", 20, 10_000
RECORDED = (
    *(Acknowledged, Assigned, Commit, Position, HighWater, Written, Read, ExpectedRow, WrittenRow),
    *(StateLoaded, StateWritten, LogsSearched),
)
MEMBERS = ("ann", "bob")


def is_letter(offset: int) -> bool:
    """Whether a record becomes a dead letter."""
    return offset % 7 == 3


def is_row(offset: int) -> bool:
    """Whether a record completes a row."""
    return offset % 5 == 1


class GroupModel:
    """A group without errors. Each method is a step, and appends its events.

    Args:
        n_partitions: the number of partitions.
    """

    def __init__(self, n_partitions: int) -> None:
        self.tps = [TopicPartition("t", p) for p in range(n_partitions)]
        names = tuple(map(name_of, RECORDED))
        self.events: list[Event] = [Workload(0, "injector", GROUP, "t", True, True, DELAY_MS, MAX_LAG_MS, names)]
        self._time_ms, self._batch, self._n_resets = 0, 0, 0
        self._owner = dict.fromkeys(self.tps, "")
        self._end = dict.fromkeys(self.tps, 0)
        self._position = dict.fromkeys(self.tps, 0)
        self._latest = dict.fromkeys(self.tps, 0)
        self._times: dict[TopicPartition, list[int]] = {tp: [] for tp in self.tps}
        self._output: dict[TopicPartition, list[int]] = {tp: [] for tp in self.tps}
        self._letters: dict[TopicPartition, set[int]] = {tp: set() for tp in self.tps}
        self._rows: list[tuple[TopicPartition, int]] = []
        self._high = dict.fromkeys(self.tps, 0)
        for tp in self.tps:
            self._assign(tp, MEMBERS[0])

    def _now(self) -> int:
        self._time_ms += 1
        return self._time_ms

    def _assign(self, tp: TopicPartition, member: str) -> None:
        self._owner[tp] = member
        self.events.append(Assigned(self._now(), member, GROUP, {tp: self._position[tp]}))

    def produce(self, tp: TopicPartition, n: int, jitter: int) -> None:
        """Adds records, some of them out of order."""
        first = self._end[tp]
        times = [100 + (first + i) * 10 - (jitter * (i % 3)) for i in range(n)]
        self._times[tp] += times
        self._end[tp] += n
        self.events.append(
            Acknowledged(self._now(), "producer", tp, tuple(range(first, first + n)), tuple(times)),
        )

    def batch(self, tp: TopicPartition, n: int, *, outcome: str = "accepted") -> None:
        """Reads, writes and commits records.

        Args:
            tp: the partition.
            n: the maximum number of records.
            outcome: ``accepted``; ``rejected``; ``read``: killed before the commit; ``done``: killed after it.
        """
        owner, first = self._owner[tp], self._position[tp]
        end = min(self._end[tp], first + n)
        if end == first:
            return
        self._batch += 1
        self.events.append(Read(self._now(), owner, GROUP, self._batch, (OffsetRange(tp, first, end),)))
        self.events.append(StateLoaded(self._now(), owner, tp, first, first if first else None, first))
        watermark_ms = max(self._times[tp][:end]) - DELAY_MS
        self.events.append(StateWritten(self._now(), owner, tp, end, watermark_ms))
        self._high[tp] = max(self._high[tp], end)
        if outcome != "read":
            self._commit(tp, end, outcome)
        if outcome in ("read", "done"):
            self.events.append(FaultInjected(self._now(), "injector", "after-commit", "query", owner))
            self._assign(tp, MEMBERS[1 - MEMBERS.index(owner)])
            self.events.append(FaultHealed(self._now(), "injector", "after-commit", "query"))

    def _commit(self, tp: TopicPartition, end: int, outcome: str) -> None:
        owner, first = self._owner[tp], self._position[tp]
        self.events.append(Commit(self._now(), owner, GROUP, 3, {tp: end}, "begun"))
        if outcome != "rejected":
            self._output[tp] += [it for it in range(first, end) if not is_letter(it)]
            self._letters[tp].update(filter(is_letter, range(first, end)))
            self._rows += [(tp, it) for it in range(first, end) if is_row(it)]
            self._position[tp] = end
        if outcome != "done":
            self.events.append(Commit(self._now(), owner, GROUP, 3, {tp: end}, outcome))

    def hand_over(self, tp: TopicPartition) -> None:
        """The owner releases a partition, and the other member receives it."""
        owner = self._owner[tp]
        self.events.append(Revoked(self._now(), owner, GROUP, {tp: self._position[tp]}, "released"))
        self._assign(tp, MEMBERS[1 - MEMBERS.index(owner)])

    def reset(self, tp: TopicPartition, distance: int) -> None:
        """Resets back. An observer reads the position before and after it."""
        target = max(0, self._position[tp] - 1 - distance)
        # A run that begins with a dead letter begins in the output with the record after it.
        if target >= self._position[tp] or all(map(is_letter, range(target, self._position[tp]))):
            return
        self._n_resets += 1
        self.observe()
        self.events.append(Reset(self._now(), "injector", GROUP, self._n_resets, {tp: target}, "requested"))
        ranges = (OffsetRange(tp, target, self._position[tp]),)
        self.events.append(Moved(self._now(), self._owner[tp], GROUP, {tp: target}, ranges))
        self._position[tp] = target
        self.observe()
        self.events.append(Reset(self._now(), "injector", GROUP, self._n_resets, {tp: target}, "applied"))

    def expire(self, tp: TopicPartition, n: int) -> None:
        """Retention deletes records that the group has not read, and the owner records the gap."""
        end = min(self._position[tp] + n, self._end[tp])
        # A reset before a gap would require the lost records again.
        if self._n_resets == 0 and end > self._position[tp]:
            ranges = (OffsetRange(tp, self._position[tp], end),)
            self.events.append(Gap(self._now(), self._owner[tp], GROUP, ranges))
            self._position[tp], self._high[tp] = end, max(self._high[tp], end)

    def observe(self) -> None:
        """An observer reads the positions, and how far the output is written."""
        self.events.append(Position(self._now(), "observer", GROUP, dict(self._position)))
        self.events.append(HighWater(self._now(), "observer", dict(self._high)))

    def finish(self) -> list[Event]:
        """The group reads to the end, and the independent reader reads the output."""
        for tp in self.tps:
            self.batch(tp, self._end[tp])
        self.observe()
        for tp in self.tps:
            self.events.append(Written(self._now(), "reader", "output", tp, tuple(self._output[tp])))
            self.events.append(Written(self._now(), "reader", "letters", tp, tuple(sorted(self._letters[tp]))))
            for n in filter(is_row, range(self._end[tp])):
                is_read = (tp, n) in self._rows
                self.events.append(ExpectedRow(self._now(), "pandas", tp, n, f"{tp} {n}", f"sum {n}", is_read))
        self.events.append(LogsSearched(self._now(), "injector", 3, 900, ()))
        for tp, n in self._rows:
            self.events.append(WrittenRow(self._now(), "reader", f"{tp} {n}", f"sum {n}"))
        return self.events


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Histories without an anomaly. The first partition has records and no reset."""
    model = GroupModel(draw(st.integers(1, 3)))
    model.produce(model.tps[0], 9, 1)
    steps = ["produce", "batch", "hand_over", "reset", "expire", "observe"]
    for step in draw(st.lists(st.sampled_from(steps), max_size=25)):
        tp = draw(st.sampled_from(model.tps))
        if step == "produce":
            model.produce(tp, draw(st.integers(1, 12)), draw(st.integers(0, 9)))
        elif step == "batch":
            outcome = draw(st.sampled_from(["accepted", "accepted", "rejected", "read", "done"]))
            model.batch(tp, draw(st.integers(1, 15)), outcome=outcome)
        elif step == "hand_over":
            model.hand_over(tp)
        elif step == "reset" and tp != model.tps[0]:
            model.reset(tp, draw(st.integers(0, 9)))
        elif step == "expire" and tp != model.tps[0]:
            model.expire(tp, draw(st.integers(1, 4)))
        elif step == "observe":
            model.observe()
    return model.finish()
