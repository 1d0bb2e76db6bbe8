"""W16, S4: maxDrift and targetBatchTime in the batches of a query, in the order of Spark's calls; on the fakes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation, Records
from streamgroups.event_time.watermark import At
from streamgroups.query.alignment import FIRST_OFFSETS, EventTimes
from streamgroups.query.batch_ranges import BatchAdmission
from streamgroups.query.trigger_limits import Limits
from unit_tests.streamgroups.query.spark_model import Run, Settings, World, tp

AS_READ = TimeSettings(Generation())
MINUTE_MS = 60_000


@pytest.fixture
def world() -> World:
    return World(2)


def produce(world: World, partition: int, first_minute: int, count: int) -> None:
    for minute in range(first_minute, first_minute + count):
        world.cluster.produce(tp(partition), timestamp_ms=minute * MINUTE_MS)


def aligned(world: World, *, drift_ms: int = 20 * MINUTE_MS, time: TimeSettings = AS_READ, **limits: Any) -> Run:
    return Run(world, "alice", Settings(limits=Limits(max_drift_ms=drift_ms, **limits)), time=time)


def last_minute(run: Run) -> dict[int, float]:
    assert run.time is not None
    times = run.time.event_times().watermarks
    return {it.partition: mark.time_ms / MINUTE_MS for it, mark in times.items() if isinstance(mark, At)}


class TestMaxDrift:
    def test_W16_the_partition_that_is_ahead_waits_and_everything_is_read(self, world: World) -> None:
        produce(world, 0, 1_000, 300)
        produce(world, 1, 0, 1_300)
        run = aligned(world).start(until_now=True)
        assert run.batch() == [f"flights-0[0,{FIRST_OFFSETS})", f"flights-1[0,{FIRST_OFFSETS})"]
        waited = 0
        while (read := run.batch()) is not None:
            waited += len(read) == 1
            minutes = last_minute(run)
            assert abs(minutes[0] - minutes[1]) <= 2 * 20 or minutes[0] == 1_009
        assert waited >= 900 / 20
        assert world.committed() == {0: 300, 1: 1_300}

    def test_W16_a_run_that_ends_reads_a_partition_although_the_others_are_at_their_end(self, world: World) -> None:
        produce(world, 0, 1_000, 100)
        produce(world, 1, 0, 5)
        run = aligned(world).start(until_now=True)
        while run.batch() is not None:
            pass
        assert world.committed() == {0: 100, 1: 5}

    def test_W16_the_trigger_once_has_no_limits(self, world: World) -> None:
        produce(world, 0, 1_000, 100)
        produce(world, 1, 0, 500)
        run = aligned(world).start()
        assert run.batch(limited=False) == ["flights-0[0,100)", "flights-1[0,500)"]

    def test_W16_the_smaller_of_two_limits_applies(self, world: World) -> None:
        produce(world, 0, 0, 300)
        produce(world, 1, 0, 300)
        run = aligned(world, max_offsets=4).start()
        assert run.batch() == ["flights-0[0,2)", "flights-1[0,2)"]
        assert run.batch() == ["flights-0[2,4)", "flights-1[2,4)"]

    def test_W16_a_partition_without_records_stops_the_query_with_a_warning(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        produce(world, 0, 1_000, 100)
        run = aligned(world).start()
        assert run.batch() == [f"flights-0[0,{FIRST_OFFSETS})"]
        with caplog.at_level(logging.WARNING):
            for _ in range(240):
                assert run.batch() is None
            assert caplog.messages == []
            for _ in range(2):
                assert run.batch() is None
        [message] = caplog.messages
        assert message == (
            "Group 'airline': the query has read no records for 60 s, because of maxDrift (20m). Ahead of the watermark "
            "(none yet): flights-0. Partitions that hold back the watermark: flights-1. If they have no available records, "
            "set partitionIdleTimeout on the source, or write records to them. If another query owns them, check that "
            "query."
        )
        assert run.source.limits_report == {"waiting": {"flights": {"0": None}}}
        produce(world, 1, 999, 1)
        assert run.batch() == ["flights-1[0,1)"]
        assert run.batch() == ["flights-0[10,20)"], "up to minute 1,019"
        assert run.source.limits_report == {"waiting": {}}

    def test_W16_an_idle_partition_does_not_stop_the_query(self, world: World) -> None:
        produce(world, 0, 1_000, 100)
        produce(world, 1, 10, 1)
        run = aligned(world, time=TimeSettings(Generation(), partition_idle_timeout_ms=2_000)).start()
        run.batch()
        assert run.batch() is None
        assert run.source.limits_report == {"waiting": {"flights": {"0": (1_009 - 10) * MINUTE_MS}}}
        for _ in range(20):
            run.batch()
        assert world.committed() == {0: 100, 1: 1}

    def test_W16_the_newest_record_counts_and_not_the_last_watermark(self, world: World) -> None:
        """A partition that emits a watermark every hundred records would otherwise read a hundred records."""
        produce(world, 0, 1_000, 300)
        produce(world, 1, 0, 300)
        run = aligned(world, time=TimeSettings(Generation(Records(100), delay_ms=MINUTE_MS))).start()
        run.batch()
        assert last_minute(run) == {}, "a batch in flight has no event time"
        assert run.batch() == ["flights-1[10,20)"]
        assert last_minute(run)[0] == 1_008

    def test_without_event_time_nothing_waits(self, world: World) -> None:
        produce(world, 0, 1_000, 100)
        run = Run(world, "alice", Settings(limits=Limits(max_drift_ms=1))).start()
        assert run.batch() == ["flights-0[0,100)"]


class TestTargetBatchTime:
    def run(self, world: World, run: Run, offset_ms: float, batches: int) -> list[int]:
        sizes = []
        for _ in range(batches):
            ranges = run.plan()
            if ranges is None:
                break
            sizes.append(sum(map(len, ranges)))
            world.clock.advance(int(50 + sizes[-1] * offset_ms))
            run.finish()
        return sizes

    def test_batches_grow_to_the_target(self, world: World) -> None:
        world.produce(40_000, 20_000)
        run = Run(world, "alice", Settings(limits=Limits(target_batch_ms=1_000))).start()
        sizes = self.run(world, run, 0.5, 20)
        assert sizes[:5] == [100, 200, 400, 800, 1_500]
        assert all(50 + size * 0.5 <= 1_000 for size in sizes)
        assert sizes[-1] > 1_400
        assert run.source.limits_report["maxOffsets"] == sizes[-1]
        assert sum(self.run(world, run, 3, 3)) < sizes[-1] + 2 * 400, "the batch after a slow one is small"

    def test_a_run_that_ends_reads_everything(self, world: World) -> None:
        world.produce(500, 300)
        run = Run(world, "alice", Settings(limits=Limits(target_batch_ms=1_000))).start(until_now=True)
        assert sum(self.run(world, run, 5, 100)) == 800

    def test_the_smaller_of_two_limits_applies(self, world: World) -> None:
        world.produce(5_000, 5_000)
        run = Run(world, "alice", Settings(limits=Limits(max_offsets=250, target_batch_ms=1_000))).start()
        assert self.run(world, run, 0.1, 5) == [100, 200, 250, 250, 250]

    def test_every_partition_with_records_is_read(self, world: World) -> None:
        world.produce(5_000, 1)
        run = Run(world, "alice", Settings(limits=Limits(target_batch_ms=10))).start()
        assert run.batch() == ["flights-0[0,1)", "flights-1[0,1)"]

    def test_the_trigger_once_has_no_limits(self, world: World) -> None:
        world.produce(5_000)
        run = Run(world, "alice", Settings(limits=Limits(target_batch_ms=10))).start()
        assert run.batch(limited=False) == ["flights-0[0,5000)"]


class TestDurations:
    """The duration of a batch is that of Spark's progress, which does not contain the wait for a trigger."""

    def admission(self, world: World, durations: Mapping[int, int], target_ms: int = 1_000) -> BatchAdmission:
        return BatchAdmission(
            Limits(target_batch_ms=target_ms), "airline", world.clock, lambda end: durations.get(end["n"])
        )

    def run(self, world: World, admission: BatchAdmission, number: int) -> int:
        ranges = admission.ranges({tp(0): (0, 10_000)}, EventTimes(), is_limited=True, is_bounded=False)
        admission.planned(number, ranges)
        world.clock.advance(5_000)
        for _ in range(3):
            admission.finished({"n": number}, number)
        return sum(map(len, ranges))

    def test_the_wait_for_a_trigger_does_not_count(self, world: World) -> None:
        admission = self.admission(world, {1: 100, 2: 200})
        assert [self.run(world, admission, n) for n in (1, 2, 3)] == [100, 200, 400]

    def test_without_progress_the_time_until_the_next_plan_counts(self, world: World) -> None:
        admission = self.admission(world, {})
        assert [self.run(world, admission, n) for n in (1, 2)] == [100, 16]

    def test_another_batch_does_not_count(self, world: World) -> None:
        admission = self.admission(world, {1: 100, 2: 9_000})
        self.run(world, admission, 1)
        admission.finished({"n": 2}, 2)
        assert admission.max_offsets == 200

    def test_a_fixed_cost_above_the_target_is_reported_once(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        durations: dict[int, int] = {}
        admission = self.admission(world, durations)
        with caplog.at_level(logging.WARNING):
            for number in range(1, 20):
                most = admission.max_offsets
                assert most is not None
                durations[number] = 2_000 + most
                assert self.run(world, admission, number) == most
        [message] = caplog.messages
        assert message == (
            "Group 'airline': a batch takes 2.0 s regardless of its size, which is more than targetBatchTime (1s). "
            "Smaller batches are not faster. Set targetBatchTime to at least 4s, or reduce the fixed cost of a batch, "
            "such as the connections of a sink."
        )
