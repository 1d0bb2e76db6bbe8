"""W2, W3, S11: the watermark of a group, from the states of its partitions and from observations of them."""

from __future__ import annotations

from collections.abc import Collection

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import UnknownTopic
from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.watermark import At, NotYet, Watermark, earliest
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.query.group_time import GroupTime, Seen, group_watermark, watermark_of
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import UNNAMED, Fingerprinted, Named, New, StateOrigin
from streamgroups.state.state_time import GroupWindows, StateTime

P0, P1, P2 = (TopicPartition("flights", partition) for partition in range(3))
FILE = StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1)
TOPIC = TopicIdentity("c1", "t1")


def at(watermark_ms: int | None) -> Named:
    return Named(FILE, 10, None, StateTime(watermark_ms, watermark_ms, group=GroupWindows()))


def owned(state: StateOrigin, next_offset: int = 10) -> Owned:
    return Owned(next_offset, Origin.COMMITTED, TOPIC, state)


STATES: st.SearchStrategy[StateOrigin] = st.one_of(
    st.sampled_from([UNNAMED, New(), Fingerprinted(5), Named(FILE, 10, 5), Named(FILE, 10, 5, StateTime(7, 7))]),
    st.builds(at, st.none() | st.integers(-50, 50)),
)


class World:
    """The brokers, with a clock. Partitions 0 to 2 have 10 records each."""

    def __init__(self, timeout_ms: int | None = None) -> None:
        self.now_ms = 0
        self.commits: dict[TopicPartition, Owned] = {}
        self.ends = dict.fromkeys((P0, P1, P2), 10)
        self.requests: list[str] = []
        self.topic = TOPIC
        self.is_deleted = False
        self.time = GroupTime(
            lambda: list(self.ends), self._committed, self._identities, self._ends, lambda: self.now_ms, timeout_ms
        )

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        self.requests.append(f"committed {sorted(tp.partition for tp in partitions)}")
        return {tp: self.commits[tp] for tp in partitions if tp in self.commits}

    def _identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        return dict.fromkeys(topics, self.topic)

    def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.requests.append(f"ends {sorted(tp.partition for tp in partitions)}")
        if self.is_deleted:
            raise UnknownTopic("The topic 'flights' does not exist.", remedy="Create it.")
        return {tp: self.ends[tp] for tp in partitions}


@given(st.lists(STATES, min_size=1, max_size=4), st.integers(0, 4))
def test_W2_the_watermark_is_the_minimum_over_all_states(states: list[StateOrigin], count: int) -> None:
    partitions = {TopicPartition("flights", i): state for i, state in enumerate(states)}
    seen = {tp: Seen(UNNAMED if i < count else state, 10, 0, 99) for i, (tp, state) in enumerate(partitions.items())}
    own = {tp: owned(state) for i, (tp, state) in enumerate(partitions.items()) if i < count}
    assert group_watermark(seen, own, (), None) == earliest(*map(watermark_of, states))


@given(st.dictionaries(st.integers(0, 4), st.tuples(STATES, st.none() | st.integers(0, 60)), min_size=1), st.data())
def test_W3_idle_partitions_do_not_hold_back_the_others(
    found: dict[int, tuple[StateOrigin, int | None]], data: st.DataObject
) -> None:
    seen = {TopicPartition("flights", i): Seen(state, 10, since_ms, 60) for i, (state, since_ms) in found.items()}
    read = data.draw(st.sets(st.sampled_from(sorted(seen))))
    active = [
        it.state for tp, it in seen.items() if tp in read or it.idle_since_ms is None or 60 - it.idle_since_ms < 30
    ]
    watermark = group_watermark(seen, {}, read, 30)
    if active:
        assert watermark == earliest(*map(watermark_of, active))
    else:
        assert watermark in [watermark_of(it.state) for it in seen.values()]


def test_W2_a_query_without_the_time_of_a_group_sends_no_request() -> None:
    world = World(timeout_ms=1_000)
    for state in (New(), UNNAMED, Named(FILE, 10, 5), Named(FILE, 10, 5, StateTime(7, 7)), Fingerprinted(5)):
        assert world.time.watermark({P0: owned(state)}) == NotYet()
    assert world.requests == []


def test_W2_an_owner_of_all_partitions_reads_no_commits() -> None:
    world = World()
    assert world.time.watermark({tp: owned(at(7 + tp.partition)) for tp in (P0, P1, P2)}) == At(7)
    assert world.requests == []


def test_W2_commits_of_others_are_read_once_a_second_and_own_states_each_time() -> None:
    world = World()
    world.commits = {P1: owned(at(5)), P2: owned(at(8))}
    assert world.time.watermark({P0: owned(at(3))}) == At(3)
    world.commits[P1] = owned(at(6))
    world.now_ms = 999
    assert world.time.watermark({P0: owned(at(9))}) == At(5)
    world.now_ms = 1_000
    assert world.time.watermark({P0: owned(at(9))}) == At(6)
    assert world.requests == ["committed [1, 2]"] * 2


def test_W2_a_partition_that_a_query_has_lost_holds_back_by_its_last_known_state() -> None:
    world = World()
    assert world.time.watermark({tp: owned(at(5)) for tp in (P0, P1, P2)}) == At(5)
    assert world.time.watermark({P0: owned(at(9))}) == At(5)


@pytest.mark.parametrize("commit", [None, owned(New()), owned(UNNAMED), owned(at(None)), owned(Named(FILE, 10, 5))])
def test_W2_a_partition_without_a_watermark_holds_back_the_group(commit: Owned | None) -> None:
    world = World()
    world.commits = {P1: owned(at(5))} | ({} if commit is None else {P2: commit})
    assert world.time.watermark({P0: owned(at(9))}) == NotYet()


def test_S11_the_commit_of_an_earlier_topic_holds_back_the_group() -> None:
    world = World()
    world.commits = {P1: owned(at(5)), P2: owned(at(5))}
    world.topic = TopicIdentity("c1", "t2")
    assert world.time.watermark({P0: owned(at(9))}) == NotYet()


def watermarks(world: World, every_ms: int, until_ms: int) -> list[Watermark]:
    found = []
    while world.now_ms <= until_ms:
        found.append(world.time.watermark({P0: owned(at(9))}))
        world.now_ms += every_ms
    return found


def test_W3_a_partition_is_idle_after_the_timeout_without_available_records() -> None:
    world = World(timeout_ms=3_000)
    world.commits = {P1: owned(at(5)), P2: owned(New())}
    assert watermarks(world, 1_000, 3_000) == [NotYet(), NotYet(), NotYet(), At(9)]
    world.ends[P1] = 11
    assert world.time.watermark({P0: owned(at(9))}) == At(5)
    assert world.time.watermark({P0: owned(at(4))}, {P0}) == At(4), "it has records in the next batch"


def test_W3_a_partition_without_a_position_is_not_idle() -> None:
    world = World(timeout_ms=3_000)
    world.commits = {P1: owned(at(5))}
    assert set(watermarks(world, 1_000, 9_000)) == {NotYet()}


def test_W3_a_new_position_ends_idleness() -> None:
    world = World(timeout_ms=3_000)
    world.commits = {P1: owned(at(5)), P2: owned(at(6), 9)}
    assert watermarks(world, 1_000, 3_000)[-1] == At(6), "a record of partition 2 is available"
    world.commits[P2] = owned(at(7))
    assert watermarks(world, 1_000, 6_000) == [At(7)] * 3
    assert watermarks(world, 1_000, 7_000) == [At(9)]


def test_W2_a_topic_that_is_deleted_meanwhile_changes_nothing() -> None:
    world = World(timeout_ms=9_000)
    world.commits = {P1: owned(at(5)), P2: owned(at(8))}
    assert world.time.watermark({P0: owned(at(9))}) == At(5)
    world.is_deleted, world.now_ms = True, 2_000
    assert world.time.watermark({P0: owned(at(9))}) == At(5)


def test_W2_W3_an_explanation_shows_all_partitions_of_the_group() -> None:
    world = World(timeout_ms=3_000)
    world.commits = {P1: owned(at(5)), P2: owned(New())}
    watermarks(world, 1_000, 2_000)
    world.ends |= {P0: 11, P1: 11}
    watermarks(world, 1_000, 3_000)
    used = Named(FILE, 10, None, StateTime(9, 9, group=GroupWindows(7)))
    explanation = world.time.explain("board", "alice", {P0: owned(used)})
    assert str(explanation).splitlines() == [
        "Group 'board', member 'alice': the watermark is 1970-01-01T00:00:00.007Z.",
        "partition  event time                watermark                 state",
        "flights-0  1970-01-01T00:00:00.009Z  1970-01-01T00:00:00.009Z  ahead",
        "flights-1  1970-01-01T00:00:00.005Z  1970-01-01T00:00:00.005Z  holds back the watermark",
        "flights-2  none yet                  none yet                  idle for 3 s: does not hold back the watermark",
    ]


def test_W10_an_explanation_contains_an_imported_watermark() -> None:
    world = World()
    own = {P0: owned(at(9)), P1: owned(at(5)), P2: owned(at(7))}
    world.time.watermark(own)
    imported = ImportStatus("trades", At(8), 41_000)
    explanation = world.time.explain("board", "alice", own, imported)
    assert str(explanation).splitlines()[:2] == [
        "Group 'board', member 'alice': the watermark is 1970-01-01T00:00:00.008Z.",
        "Watermark of group 'trades', which is imported: 1970-01-01T00:00:00.008Z, unchanged for 41 s.",
    ]
