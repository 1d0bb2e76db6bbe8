"""W2, W3, W10, S11: the watermark of any group, by what its queries store; on the fakes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

import pytest
from tenacity import wait_none

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import BrokerUnreachable, NotAuthorized
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.time_entries import write_entry
from streamgroups.event_time.watermark import NOT_YET, At
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.query import missing_partitions
from streamgroups.query.imported_time import StoredWatermarks
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import UNNAMED, Named, New, StateOrigin
from streamgroups.state.state_time import GroupWindows, StateTime

P0, P1, OLD = TopicPartition("trades", 0), TopicPartition("trades", 1), TopicPartition("earlier", 0)
FILE = StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1)
IDLE = TimeSettings(Generation(), partition_idle_timeout_ms=60)


class Groups:
    """A cluster with the topic ``trades`` of two partitions, and the group ``trades``."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = FakeCluster(self.clock)
        self.cluster.create_topic("trades", 2)
        self.cluster.create_topic("earlier", 1)
        self.store = AdminMetadataStore(FakeAdmin(self.cluster))
        self.reader = StoredWatermarks(self.cluster, self.store, self.clock)

    def store_time(
        self, tp: TopicPartition, next_offset: int, time_ms: int, settings: TimeSettings = IDLE, *, idle: bool = False
    ) -> None:
        """The owner stores an entry and commits the offset."""
        since_ms = 0 if idle else None
        asserted = At(time_ms) if settings.generation is not None else NOT_YET
        time = PartitionTime(time_ms, asserted, next_offset=next_offset, idle_since_ms=since_ms, seen_ms=100)
        self.cluster.commit(event_time_group_of("trades"), {tp: next_offset}, write_entry(time, settings))
        self.commit(tp, next_offset, UNNAMED)

    def store_state(
        self, tp: TopicPartition, next_offset: int, watermark_ms: int | None, used_ms: int | None = None
    ) -> None:
        """The owner commits an offset with a state of windows with ``time="group"``."""
        time = StateTime(watermark_ms, watermark_ms, group=GroupWindows(used_ms))
        self.commit(tp, next_offset, Named(FILE, next_offset, None, time))

    def commit(self, tp: TopicPartition, next_offset: int, state: StateOrigin) -> None:
        """The owner commits an offset with a state."""
        identity = self.cluster.identities([tp.topic])[tp.topic]
        self.cluster.commit("trades", {tp: next_offset}, CommitMark(False, identity=identity, state=state).encode())

    def hide(self, monkeypatch: pytest.MonkeyPatch, topic: str, times: int | None = None) -> None:
        """The next lists of all topics lack a topic, or all of them."""
        topics = self.cluster.topics
        n_lists = 0

        def hidden() -> Mapping[str, int]:
            nonlocal n_lists
            n_lists += 1
            return {name: n for name, n in topics().items() if name != topic or (times and n_lists > times)}

        monkeypatch.setattr(self.cluster, "topics", hidden)

    def run(self, *partitions: TopicPartition) -> None:
        """A member owns these partitions."""
        member = GroupMember("alice", "/10.0.0.1", frozenset(partitions))
        self.cluster.host("trades", lambda: GroupDescription("trades", "Stable", members=(member,)))
        self.clock.advance(10_000)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(missing_partitions.until_listed, "wait", wait_none())
    return Groups()


class TestGroupsWithEntries:
    def test_W2_the_watermark_is_the_minimum_over_the_partitions(self, groups: Groups) -> None:
        groups.run(P0, P1)
        groups.store_time(P0, 5, 900)
        assert groups.reader.read("trades").watermark == NOT_YET, "partition 1 has no event time yet"
        groups.store_time(P1, 3, 300)
        found = groups.reader.read("trades")
        assert (found.watermark, found.generates, found.lacks_time) == (At(300), True, False)

    def test_W3_a_partition_that_its_owner_has_stored_as_idle_holds_back_no_other(self, groups: Groups) -> None:
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 3, 300, idle=True)
        assert groups.reader.read("trades").watermark == At(900)

    def test_W10_after_a_reset_to_an_earlier_offset_an_entry_does_not_count(self, groups: Groups) -> None:
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 3, 300)
        groups.cluster.commit("trades", {P0: 4})
        found = groups.reader.read("trades")
        assert (found.watermark, found.lacks_time) == (NOT_YET, False)
        groups.cluster.commit("trades", {P0: 5})
        assert groups.reader.read("trades").watermark == At(300)

    def test_W10_the_groups_that_it_imports_from_are_named(self, groups: Groups) -> None:
        for tp in (P0, P1):
            groups.store_time(tp, 5, 900, TimeSettings(import_from="rates"))
        found = groups.reader.read("trades")
        assert (found.watermark, found.generates, found.imports) == (NOT_YET, False, {"rates"})

    def test_W10_a_damaged_entry_has_no_time(self, groups: Groups) -> None:
        groups.store_time(P0, 5, 900)
        groups.cluster.commit(event_time_group_of("trades"), {P0: 5}, '{"v":1,"import":["rates"]}')
        found = groups.reader.read("trades")
        assert (found.watermark, found.imports, found.lacks_time) == (NOT_YET, frozenset(), True)


class TestGroupsWithStates:
    def test_W2_the_watermark_is_the_minimum_over_the_partitions(self, groups: Groups) -> None:
        groups.run(P0, P1)
        groups.store_state(P0, 5, 900)
        assert groups.reader.read("trades").watermark == NOT_YET, "partition 1 has no state yet"
        groups.store_state(P1, 3, 300)
        found = groups.reader.read("trades")
        assert (found.watermark, found.generates) == (At(300), True)

    def test_W3_the_timeout_of_the_importing_query_excludes_idle_partitions(self, groups: Groups) -> None:
        reader = StoredWatermarks(groups.cluster, groups.store, groups.clock, idle_timeout_ms=2_000)
        for tp, next_offset, watermark_ms in ((P0, 5, 900), (P1, 3, 300)):
            groups.cluster.produce(tp, next_offset)
            groups.store_state(tp, next_offset, watermark_ms)
        assert reader.read("trades").watermark == At(300)
        groups.clock.advance(1_000)
        groups.cluster.produce(P0)
        assert reader.read("trades").watermark == At(300)
        groups.clock.advance(1_000)
        assert reader.read("trades").watermark == At(900), "partition 1 is idle, and partition 0 has a record"

    def test_W10_a_reset_partition_holds_back_the_group_again(self, groups: Groups) -> None:
        groups.store_state(P0, 5, 900)
        groups.store_state(P1, 3, 300)
        groups.cluster.commit("trades", {P1: 1})
        found = groups.reader.read("trades")
        assert (found.watermark, found.lacks_time) == (NOT_YET, False)

    def test_W10_a_watermark_that_its_queries_have_used_counts(self, groups: Groups) -> None:
        """They have excluded a partition that never had records, or have imported it themselves."""
        groups.run(P0, P1)
        groups.store_state(P0, 5, 900, used_ms=700)
        assert groups.reader.read("trades").watermark == At(700)
        groups.commit(P1, 0, New())
        assert groups.reader.read("trades").watermark == At(700)
        groups.store_state(P1, 3, 800, used_ms=600)
        assert groups.reader.read("trades").watermark == At(800)
        groups.cluster.commit("trades", {P1: 1})
        assert groups.reader.read("trades").watermark == NOT_YET, "a tool has reset a partition"

    def test_S11_the_state_of_an_earlier_topic_holds_back_the_group(self, groups: Groups) -> None:
        groups.store_state(P0, 5, 900)
        mark = CommitMark(False, identity=TopicIdentity("fake-cluster", "another"))
        state = Named(FILE, 3, None, StateTime(300, group=GroupWindows()))
        groups.cluster.commit("trades", {P1: 3}, CommitMark(False, identity=mark.identity, state=state).encode())
        assert groups.reader.read("trades").watermark == NOT_YET


class TestPartitions:
    def test_W10_a_topic_that_no_member_reads_any_more_does_not_count(self, groups: Groups) -> None:
        groups.store_time(OLD, 9, 100)
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 3, 300)
        assert groups.reader.read("trades").watermark == At(100), "without members all stored topics count"
        groups.run(P0, P1)
        found = groups.reader.read("trades")
        assert (found.watermark, found.has_members) == (At(300), True)

    def test_W10_the_topics_of_members_count_after_their_end(self, groups: Groups) -> None:
        groups.store_time(OLD, 9, 100)
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 3, 300)
        groups.run(P0, P1)
        groups.reader.read("trades")
        groups.cluster.host("trades", lambda: GroupDescription("trades", "Empty"))
        groups.clock.advance(10_000)
        found = groups.reader.read("trades")
        assert (found.watermark, found.has_members) == (At(300), False)

    def test_W2_a_partition_that_a_member_has_not_read_yet_holds_back(self, groups: Groups) -> None:
        groups.run(P0, P1)
        groups.store_time(P0, 5, 900)
        assert groups.reader.read("trades").watermark == NOT_YET

    def test_W10_new_partitions_count_after_some_seconds(self, groups: Groups) -> None:
        groups.run(P0, P1)
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 3, 300)
        assert groups.reader.read("trades").watermark == At(300)
        groups.cluster.add_partitions("trades", 3)
        groups.clock.advance(10_000)
        assert groups.reader.read("trades").watermark == NOT_YET


class TestTopicsThatAListLacks:
    """A member reads ``trades`` and ``earlier``, and the slow topic is not in the list of all topics."""

    @pytest.fixture
    def groups(self, groups: Groups) -> Groups:
        groups.store_time(OLD, 9, 100)
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 3, 300)
        groups.run(P0, P1, OLD)
        return groups

    @pytest.mark.parametrize("has_members", [True, False])
    def test_G17_a_topic_that_the_user_may_not_describe_is_an_error(
        self, groups: Groups, monkeypatch: pytest.MonkeyPatch, has_members: bool
    ) -> None:
        if not has_members:
            groups.cluster.host("trades", lambda: GroupDescription("trades", "Empty"))
            assert groups.reader.read("trades").watermark == At(100)
            groups.clock.advance(10_000)
        groups.hide(monkeypatch, "earlier")

        def denied(topics: Collection[str]) -> NoReturn:
            raise NotAuthorized(f"Topic {', '.join(map(repr, topics))} could not be described.")

        monkeypatch.setattr(groups.cluster, "identities", denied)
        for _ in range(2):
            with pytest.raises(NotAuthorized, match="'earlier'"):
                groups.reader.read("trades")

    def test_W2_a_topic_that_is_not_listed_for_a_moment_is_no_deleted_one(
        self, groups: Groups, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert groups.reader.read("trades").watermark == At(100)
        groups.clock.advance(10_000)
        groups.hide(monkeypatch, "earlier", times=1)
        with pytest.raises(BrokerUnreachable, match="has not listed earlier, which group 'trades' reads") as e:
            groups.reader.read("trades")
        assert e.value.retriable
        assert groups.reader.read("trades").watermark == At(100)

    def test_W2_a_deleted_topic_does_not_hold_back(self, groups: Groups) -> None:
        groups.cluster.delete_topic("earlier")
        assert groups.reader.read("trades").watermark == At(300)


class TestGroupsWithoutTime:
    def test_W10_a_group_that_does_not_exist(self, groups: Groups) -> None:
        found = groups.reader.read("trades")
        assert (found.watermark, found.has_members, found.has_offsets, found.lacks_time) == (
            NOT_YET,
            False,
            False,
            False,
        )

    def test_W10_a_group_appears_later(self, groups: Groups) -> None:
        groups.reader.read("trades")
        groups.store_time(P0, 5, 900)
        groups.store_time(P1, 5, 900)
        groups.clock.advance(10_000)
        assert groups.reader.read("trades").watermark == At(900)

    @pytest.mark.parametrize("state", [UNNAMED, Named(FILE, 5), Named(FILE, 5, None, StateTime(300, 300))])
    def test_W10_batches_without_event_time(self, groups: Groups, state: StateOrigin) -> None:
        groups.commit(P0, 5, state)
        found = groups.reader.read("trades")
        assert (found.has_offsets, found.lacks_time) == (True, True)

    def test_W10_offsets_of_a_tool_and_starting_positions_show_nothing(self, groups: Groups) -> None:
        groups.cluster.commit("trades", {P0: 5})
        groups.commit(P1, 0, New())
        found = groups.reader.read("trades")
        assert (found.has_offsets, found.lacks_time) == (True, False)
