"""Metadata entries are written by every principal with Read on the group: none of them stops a query, a cursor or a restart, or exhausts its memory."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from streamgroups import metadata_entries as entries
from streamgroups.coordination.reset_protocol import (
    MemberEntry,
    ResetRequest,
    event_time_group_of,
    members_group_of,
    resets_group_of,
    skipped_ranges_group_of,
)
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation
from streamgroups.ports import Committed
from streamgroups.query.trigger_limits import Limits
from unit_tests.streamgroups.query.spark_model import Run, Settings, World, tp

TWO_A_TIME = Settings(limits=Limits(max_offsets=2))
TIMES = TimeSettings(Generation())
HOSTILE = {
    "nested lists": "[" * 4_000,
    "nested objects": '{"v":1,"order":' * 250,
    "an infinite number of partitions": '{"v":1,"order":"x","moves":{"flights":Infinity},"void":false}',
    "a number that overflows": '{"v":1,"order":"x","moves":{"flights":1e999},"void":false}',
    "an infinite time": '{"v":1,"instance":"m","used":Infinity,"until":null,"applied":"","stopped":"","reading":0}',
    "a long id": json.dumps({"v": 1, "order": "x" * 3_000, "moves": {"flights": 1}, "void": False}),
    "half a surrogate": '{"v":1,"order":"x","moves":{"\\ud800":1},"void":false}',
    "an infinite event time": '{"v":1,"event":1e999,"watermark":1,"records":0,"period":null,"next":1,"idle_since":null,"seen":null}',
    "the end of all times": json.dumps(
        {
            "v": 1,
            "event": 1,
            "watermark": 10**18,
            "records": 0,
            "period": None,
            "next": 1,
            "idle_since": None,
            "seen": None,
        }
    ),
}
EVERYWHERE = (members_group_of, resets_group_of, skipped_ranges_group_of, event_time_group_of)


@pytest.fixture
def world() -> World:
    world = World(2)
    world.produce(40, 40)
    return world


@pytest.fixture(autouse=True)
def _unnamed() -> None:
    """Each test is a process of its own."""
    entries._named.clear()


@pytest.mark.parametrize("where", EVERYWHERE, ids=lambda where: where("group"))
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_entry_stops_a_query_or_its_restart(
    world: World, text: str, where: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(world, "alice", TWO_A_TIME, time=TIMES).start()
    assert run.batch()
    world.metadata_store.write(where("airline"), {tp(0): Committed(3, text)})
    assert [run.batch() for _ in range(3)] == [[f"flights-{p}[{n},{n + 1})" for p in (0, 1)] for n in (1, 2, 3)]
    world.group.kill("alice")
    world.metadata_store.write(where("airline"), {tp(0): Committed(3, text)})
    # An unreadable entry of skipped ranges can contain the batch before the kill, so this batch is read again.
    first = 3 if where is skipped_ranges_group_of else 4
    assert run.again().start().batch() == [f"flights-0[{first},{first + 1})", "flights-1[4,5)"]
    named = [r.getMessage() for r in caplog.records if "cannot be read: they" in r.getMessage()]
    # The owner overwrites entries of its own before they are read.
    assert len(named) <= 1
    if where is resets_group_of:
        assert named[0].startswith("The metadata entries of group 'airline.streamgroups.resets' at flights-0 cannot")


def test_a_reset_works_beside_an_entry_that_cannot_be_read(world: World) -> None:
    run = Run(world, "alice", TWO_A_TIME).start()
    run.batch()
    for text in HOSTILE.values():
        world.metadata_store.write(resets_group_of("airline"), {tp(1): Committed(3, text)})
        assert world.resets.waiting("airline", [tp(0), tp(1)]) == {}
    world.resets.cancel("airline", [tp(0), tp(1)])
    world.order(8)
    assert run.batch() == ["flights-0[8,9)", "flights-1[1,2)"]


def test_every_unreadable_entry_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    texts = {tp(p): "{" for p in range(12)}
    for _ in range(3):
        assert entries.read_entries("airline.streamgroups", texts, lambda _, text: MemberEntry.parse(text)) == {}
    (named,) = caplog.records
    assert "flights-8, flights-9 and 2 more cannot be read" in named.getMessage()


class TestARequestThatCannotBeComplete:
    """M2: its writer was killed between two commits, a part of it was deleted, or it is forged."""

    @pytest.fixture
    def run(self, world: World) -> Run:
        run = Run(world, "alice", TWO_A_TIME).start()
        run.batch()
        return run

    def forge(self, world: World, moves: dict[str, int]) -> None:
        world.metadata_store.write(
            resets_group_of("airline"), {tp(0): Committed(9, ResetRequest("5f2c", 9, moves).encode())}
        )

    @pytest.mark.parametrize("moves", [{"flights": 9}, {"flights": 10**9}, {}])
    def test_stops_no_partition(self, world: World, run: Run, moves: dict[str, int]) -> None:
        self.forge(world, moves)
        assert [run.batch() for _ in range(3)] == [[f"flights-{p}[{n},{n + 1})" for p in (0, 1)] for n in (1, 2, 3)]

    def test_is_a_warning_after_10_s_and_then_every_minute(
        self, world: World, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.forge(world, {"flights": 9})
        warned_after_s = []
        for second in range(1, 100):
            world.clock.advance(750)
            world.produce(1, 1)
            run.batch()
            if "Reset request 5f2c of group 'airline' is not applied" in caplog.text:
                assert (
                    "only 1 of 9 entries for flights exists. The group continues at its current offsets." in caplog.text
                )
                warned_after_s.append(second)
                caplog.clear()
        assert len(warned_after_s) == 2
        assert warned_after_s[0] >= 10

    def test_is_polled_less_often_then(self, world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forge(world, {"flights": 9})
        run.batch()
        world.clock.advance(10_000)
        run.batch()
        reads, read = [], world.metadata_store.read
        monkeypatch.setattr(world.metadata_store, "read", lambda group, tps: (reads.append(group), read(group, tps))[1])
        for _ in range(8):
            world.produce(1, 1)
            run.batch()
        assert reads.count(resets_group_of("airline")) == 2

    def test_a_member_that_had_stopped_for_it_reads_on(self, world: World, run: Run) -> None:
        """The second half of the entries is gone once the member has stopped: they are deleted with their topic."""
        bob = Run(world, "bob", TWO_A_TIME).start()
        for _ in range(3):
            run.batch()
            bob.batch()
        world.group.settle()
        world.clock.advance(250)
        in_flight = bob.plan()
        assert in_flight
        world.order(20, 20)
        assert run.batch() is None
        world.cluster.forget(resets_group_of("airline"))
        self_owned = next(p for p, name in world.group.owners().items() if name == "alice")
        world.metadata_store.write(
            resets_group_of("airline"), {self_owned: Committed(20, ResetRequest("5f2c", 20, {"flights": 2}).encode())}
        )
        assert run.batch()
        assert world.resets.entries("airline", [self_owned])[self_owned].stopped != "5f2c"
