"""W10: a query reads the watermark of another group in the background, and survives failures and the end of that group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import pytest

from streamgroups.errors import BrokerUnreachable, InvalidOption, NotAuthorized, StreamGroupsError
from streamgroups.event_time.imported_watermark import StoredWatermark
from streamgroups.event_time.watermark import NOT_YET, At, Watermark
from streamgroups.fakes import FakeClock
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.query.group_time import GroupTime
from streamgroups.query.imported_time import ImportedTime, LaterTime

P0, P1 = TopicPartition("prices", 0), TopicPartition("prices", 1)


def stored(watermark: Watermark, *imports: str, has_members: bool = True) -> StoredWatermark:
    return StoredWatermark(watermark, has_members, has_offsets=True, generates=not imports, imports=frozenset(imports))


class Reader:
    """The stored watermarks of groups, or an error."""

    def __init__(self, **groups: StoredWatermark) -> None:
        self.groups = groups
        self.error: StreamGroupsError | None = None
        self.reads: list[str] = []
        self.is_closed = False

    def read(self, group_id: str) -> StoredWatermark:
        self.reads.append(group_id)
        if self.error is not None:
            raise self.error
        return self.groups.get(group_id, StoredWatermark())

    def close(self) -> None:
        self.is_closed = True


class World:
    """A query of the group ``prices`` that imports from ``trades``."""

    def __init__(self, *, generates: bool = True, **groups: StoredWatermark) -> None:
        self.clock, self.reader = FakeClock(1_000_000), Reader(**groups)
        self.jobs: list[Callable[[], None]] = []
        self.time = ImportedTime(
            "prices", "trades", self.reader.read, self.reader.close, self.clock, self.jobs.append, generates=generates
        )

    def run_jobs(self) -> None:
        jobs, self.jobs[:] = list(self.jobs), []
        for job in jobs:
            job()

    def read_again(self) -> Watermark:
        """The watermark after the next read."""
        self.clock.advance(10_000)
        self.time.watermark()
        self.run_jobs()
        return self.time.watermark()


def test_W10_the_check_reads_the_watermark_once() -> None:
    world = World(trades=stored(At(5)))
    assert world.time.watermark() == NOT_YET
    assert world.reader.reads == []
    world.time.check()
    world.time.check()
    assert world.time.watermark() == At(5)
    assert world.reader.reads == ["trades"]


def test_W10_a_group_without_event_time_is_rejected_at_each_start() -> None:
    world = World(trades=StoredWatermark(has_offsets=True, lacks_time=True))
    for _ in range(2):
        with pytest.raises(InvalidOption, match="group 'trades', which has committed batches without event time"):
            world.time.check()


def test_W10_later_reads_run_in_the_background_once_a_second() -> None:
    world = World(trades=stored(At(5)))
    world.time.check()
    world.reader.groups["trades"] = stored(At(7))
    world.clock.advance(999)
    assert (world.time.watermark(), world.jobs) == (At(5), [])
    world.clock.advance(1)
    assert world.time.watermark() == At(5), "the read has not run yet"
    assert world.time.watermark() == At(5)
    assert len(world.jobs) == 1
    world.run_jobs()
    assert world.time.watermark() == At(7)


def test_W10_a_group_that_starts_later_is_followed() -> None:
    world = World()
    world.time.check()
    assert world.read_again() == NOT_YET
    world.reader.groups["trades"] = stored(At(5))
    assert world.read_again() == At(5)


def test_W10_a_failed_read_keeps_the_watermark_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(trades=stored(At(5)))
    world.time.check()
    world.reader.error = BrokerUnreachable("No answer.")
    assert [world.read_again() for _ in range(3)] == [At(5)] * 3
    assert len(world.reader.reads) == 4
    assert caplog.text.count("cannot read the watermark that it imports from group 'trades': No answer.") == 1
    world.clock.advance(9_999)
    world.time.watermark()
    assert world.jobs == [], "a failure is followed by a pause"
    world.reader.error, world.reader.groups["trades"] = None, stored(At(6))
    assert world.read_again() == At(6)


def test_W10_a_failure_that_passes_does_not_prevent_the_start() -> None:
    world = World(trades=stored(At(5)))
    world.reader.error = BrokerUnreachable("No answer.")
    world.time.check()
    world.reader.error = None
    assert world.read_again() == At(5)


def test_W10_a_missing_permission_prevents_the_start() -> None:
    world = World()
    world.reader.error = NotAuthorized("Not you.")
    with pytest.raises(NotAuthorized):
        world.time.check()


def test_W10_the_end_of_the_other_application_is_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(trades=stored(At(5)))
    world.time.check()
    world.reader.groups["trades"] = stored(At(5), has_members=False)
    assert [world.read_again() for _ in range(12)] == [At(5)] * 12
    assert caplog.text.count("group trades has no members") == 1
    assert (world.time.status.watermark, world.time.status.stopped) == (At(5), ("trades",))
    assert world.time.status.unchanged_ms == 120_000
    world.reader.groups["trades"] = stored(At(9))
    assert world.read_again() == At(9)
    assert "It advances again." in caplog.text


def test_W10_the_groups_on_the_way_are_followed_and_a_cycle_ends() -> None:
    world = World(trades=stored(NOT_YET, "rates"), rates=stored(At(7), "prices", "trades"), prices=stored(At(99)))
    world.time.check()
    assert world.time.watermark() == At(7)
    assert world.reader.reads == ["trades", "rates"]


def test_W10_a_cycle_of_groups_without_records_of_their_own_is_rejected() -> None:
    world = World(generates=False, trades=stored(NOT_YET, "prices"))
    with pytest.raises(InvalidOption, match="it imports event time along prices <- trades, and no stream"):
        world.time.check()


def test_W10_the_number_of_groups_is_limited() -> None:
    world = World(trades=stored(At(1), "g0"), **{f"g{n}": stored(At(1), f"g{n + 1}") for n in range(99)})
    world.time.check()
    assert len(world.reader.reads) == 16


def test_W10_closing_does_not_wait() -> None:
    world = World()
    world.time.close()
    assert not world.reader.is_closed
    world.run_jobs()
    assert world.reader.is_closed


class Own(GroupTime):
    """The time of the group of the query."""

    def __init__(self, own: Watermark) -> None:
        super().__init__(list, lambda _: {}, lambda _: {}, lambda _: {}, lambda: 0)
        self._own = own

    def watermark(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
        return self._own


class TestWindowsOfAGroup:
    def later(self, world: World, own: Watermark = NOT_YET) -> LaterTime:
        later = LaterTime(Own(own), world.time)
        later.check()
        return later

    @pytest.mark.parametrize(
        ("own", "other", "expected"), [(At(3), At(5), At(5)), (At(7), At(5), At(7)), (NOT_YET, At(5), At(5))]
    )
    def test_W10_the_later_watermark_counts(self, own: Watermark, other: Watermark, expected: Watermark) -> None:
        assert self.later(World(trades=stored(other)), own).watermark({P0: Owned(5)}) == expected

    def test_W10_after_a_reset_of_the_query_the_watermark_is_read_again(self) -> None:
        world = World(trades=stored(At(5)))
        watermark = self.later(world).watermark
        assert watermark({P0: Owned(5), P1: Owned(9)}) == At(5)
        world.clock.advance(1_000)
        assert watermark({P0: Owned(6), P1: Owned(9)}) == At(5)
        before_the_reset = world.jobs.pop()
        assert watermark({P0: Owned(2), P1: Owned(9)}) == NOT_YET
        before_the_reset()
        assert watermark({P0: Owned(2), P1: Owned(9)}) == NOT_YET, "this read began before the reset"
        world.reader.groups["trades"] = stored(At(1))
        world.run_jobs()
        assert watermark({P0: Owned(2), P1: Owned(9)}) == At(1)

    def test_W10_a_partition_that_arrives_at_an_earlier_offset_is_no_reset(self) -> None:
        watermark = self.later(World(trades=stored(At(5)))).watermark
        for owned in ({P0: Owned(5)}, {P1: Owned(2)}, {P0: Owned(3), P1: Owned(2)}):
            assert watermark(owned) == At(5)
