"""S10: old state files are deleted, by one member, and never one that a committed offset needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import pyarrow as pa
import pytest

from streamgroups.errors import NotAuthorized, StateUnreachable
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.identity import UNKNOWN
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState
from streamgroups.state.origins import Named
from streamgroups.state.state_retention import Retention
from streamgroups.threads import N_THREADS
from streamgroups_operators.collection import Collector
from streamgroups_operators.store import NewState, Operator, StateStore
from streamgroups_spark.source.stage_states import StateCollection
from unit_tests.fake_state_files import FakeStateFiles

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SCHEMA = pa.schema([("n", pa.int64())])
MINUTE_MS = 60_000
NOW_MS = 1_732_334_000_000


class World:
    def __init__(self) -> None:
        self.clock = FakeClock(NOW_MS)
        self.files = FakeStateFiles(self.clock)
        self.cluster = FakeCluster(self.clock)
        self.jobs: list[Callable[[], None]] = []
        self.collector = Collector(self.files, Retention(60 * MINUTE_MS, 30 * MINUTE_MS), self.clock)
        self.partitions = [P0, P1]
        self.collection = StateCollection(
            [self.collector], "billing", self.cluster, lambda: self.partitions, self.clock, self.jobs.append
        )

    def store(self, minutes_ago: int) -> StateFileName:
        file = StateFileName(NOW_MS - minutes_ago * MINUTE_MS, "1f3a9c2b7d10", 1, minutes_ago)
        states = [
            NewState(PartitionState(OffsetRange(tp, 0, 5), 0, UNKNOWN), {"0": [pa.table({"n": [1]})]})
            for tp in (P0, P1)
        ]
        StateStore(Operator("billing", "windows", "", SCHEMA), self.files).write(file, states)
        self.files.written_ms[file] = file.planned_ms
        return file

    def run(self) -> None:
        jobs, self.jobs[:] = list(self.jobs), []
        for job in jobs:
            job()


@pytest.fixture
def world() -> World:
    return World()


def test_S10_only_the_owner_of_the_first_partition_collects(world: World) -> None:
    old, base = world.store(300), world.store(100)
    world.collection([P0])
    assert world.jobs == [], "not at once"
    world.clock.advance(MINUTE_MS)
    world.collection([P1])
    world.run()
    assert world.files.list().keys() == {old, base}
    world.clock.advance(MINUTE_MS)
    world.collection([P0])
    world.collection([P0])
    assert len(world.jobs) == 1, "one at a time"
    world.run()
    assert world.files.list().keys() == {base}


def test_S10_the_states_of_committed_offsets_stay(world: World) -> None:
    committed, _base = world.store(300), world.store(100)
    world.cluster.commit("billing", {P1: 5}, CommitMark(False, state=Named(committed, 5)).encode())
    world.clock.advance(MINUTE_MS)
    world.collection([P0, P1])
    world.run()
    assert committed in world.files.list()


def test_G17_the_states_of_a_topic_that_a_response_lacks_stay(world: World) -> None:
    committed, base = world.store(300), world.store(100)
    world.cluster.commit("billing", {P1: 5}, CommitMark(False, state=Named(committed, 5)).encode())
    world.partitions = [P0]
    for _ in range(2):
        world.clock.advance(MINUTE_MS)
        world.collection([P0])
        world.run()
        assert world.files.list().keys() == {committed, base}


def test_G17_the_states_of_a_topic_that_the_user_may_not_describe_stay(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    files = {world.store(300), world.store(100)}
    world.partitions = [TopicPartition("departures", 0)]
    world.cluster.rejections["flights"] = NotAuthorized("'flights' is denied.", remedy="Grant Describe.")
    world.clock.advance(MINUTE_MS)
    world.collection(world.partitions)
    world.run()
    assert world.files.list().keys() == files
    assert "Old state files of group 'billing' are not deleted: 'flights' is denied. Grant Describe." in caplog.text


def test_S10_a_damaged_file_stops_the_collection_with_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    old, damaged = world.store(300), world.store(100)
    world.files.contents[damaged] = b"damaged"
    world.clock.advance(MINUTE_MS)
    world.collection([P0])
    world.run()
    assert world.files.list().keys() == {old, damaged}
    assert f"The state file '{damaged}' in 'memory' is damaged" in caplog.text


def test_S10_a_storage_that_does_not_answer_is_logged_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, base = world.store(300), world.store(100)

    def fail() -> dict[StateFileName, int]:
        raise StateUnreachable("The state location cannot be used.")

    with monkeypatch.context() as patch:
        patch.setattr(world.files, "list", fail)
        world.clock.advance(MINUTE_MS)
        world.collection([P0])
        world.run()
    assert "Old state files of group 'billing' are not deleted" in caplog.text
    assert world.files.list().keys() == {old, base}
    world.clock.advance(MINUTE_MS)
    world.collection([P0])
    world.run()
    assert world.files.list().keys() == {base}


def test_S10_a_new_file_is_kept_if_the_clock_of_the_storage_is_set_forward(world: World) -> None:
    base = world.store(100)
    committed = world.store(1)
    world.cluster.commit("billing", {P0: 5, P1: 5}, CommitMark(False, state=Named(committed, 5)).encode())

    def collect(after_ms: int) -> None:
        world.clock.advance(after_ms)
        world.collection([P0])
        world.run()

    collect(MINUTE_MS)
    in_flight = world.store(400)
    collect(MINUTE_MS)
    assert world.files.list().keys() == {base, committed, in_flight}, "it is at most a minute old"


def test_S10_old_unfinished_files_are_deleted(world: World) -> None:
    base = world.store(100)
    young, old = (StateFileName(NOW_MS, "1f3a9c2b7d10", 9, attempt) for attempt in (1, 2))
    world.files.unfinished_ms = {young: NOW_MS - 20 * MINUTE_MS, old: NOW_MS - 30 * MINUTE_MS}
    world.clock.advance(MINUTE_MS)
    world.collection([P0])
    world.run()
    assert (world.files.unfinished_ms.keys(), world.files.list().keys()) == ({young}, {base})


def test_S10_manifests_are_read_in_several_threads_and_only_their_essentials_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minutes_ago in range(100, 116):
        world.store(minutes_ago)
    together, read = threading.Barrier(N_THREADS, timeout=60), world.files.read

    def wait(file: StateFileName) -> memoryview:
        together.wait()
        return read(file)

    monkeypatch.setattr(world.files, "read", wait)
    plan = world.collector.plan([])
    assert len(plan.files) == 15
    assert {it.partition for it in world.collector.partitions} == {0, 1}
    world.collector.plan([])  # Reads no file again: nothing waits for the others.


def test_S10_a_slow_collection_is_logged(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store(300), world.store(100)
    delete = world.files.delete

    def delete_slowly(files: Collection[StateFileName]) -> None:
        world.clock.advance(11 * MINUTE_MS)
        delete(files)

    monkeypatch.setattr(world.files, "delete", delete_slowly)
    world.clock.advance(MINUTE_MS)
    world.collection([P0])
    world.run()
    assert "A collection of old state files of group 'billing' took 660 s, and deleted 1." in caplog.text
