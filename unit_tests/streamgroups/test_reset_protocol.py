"""G8, G9: the metadata entries by which members coordinate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.coordination.reset_protocol import (
    MemberEntry,
    ResetRequest,
    Step,
    applied_ids,
    candidates,
    next_step,
    pending,
)
from streamgroups.groups.applied_reset import AppliedReset, new_reset_id
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from unit_tests.handover import handover
from unit_tests.work import work_of

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
TIMES = st.integers(0, 2**42)
TEXTS = st.text("0123456789abcdef", max_size=32)
IDS = st.integers(1, 2**63 - 1).map("{:x}".format)
FLIGHTS = {"flights": 3}
NOTHING = Step({}, frozenset(), {}, {}, {})
#: The default limit of a broker for metadata beside an offset (offset.metadata.max.bytes).
MAX_BYTES = 4096


@given(st.text(max_size=249), st.text(max_size=249), TIMES, st.none() | TIMES, TEXTS, TEXTS)
def test_G9_an_entry_is_read_back_and_fits_beside_an_offset(
    name: str, member_id: str, used: int, until: int | None, applied: str, stopped: str
) -> None:
    entry = MemberEntry(name, member_id, used, until, applied, stopped)
    for behind in ("", "\0", "\0}", "{", "\x7f"):
        assert MemberEntry.parse(entry.encode() + behind) == entry
    assert len(entry.encode().encode()) <= MAX_BYTES


@given(IDS, st.integers(0, 2**62), st.dictionaries(st.text(max_size=249), st.integers(0, 10_000)), st.booleans())
def test_G8_a_reset_request_is_read_back(request_id: str, next_offset: int, topics: dict[str, int], void: bool) -> None:
    reset_request = ResetRequest(request_id, next_offset, topics, void)
    assert ResetRequest.parse(next_offset, reset_request.encode()) == reset_request


@pytest.mark.parametrize(
    "metadata", ["", "streamgroups:shared", "[]", "{}", '{"v":2,"order":"a","void":false}', '{"v":1}']
)
def test_entries_of_other_programs_are_ignored(metadata: str) -> None:
    assert MemberEntry.parse(metadata) is None
    assert ResetRequest.parse(0, metadata) is None


@pytest.mark.parametrize("request_id", ["", "x", "0", "0a", "1.2", "A", "f" * 17, "8" + 15 * "0", "a\n", "a;epoch=9"])
def test_F2_a_reset_request_without_an_id_of_a_mark_is_ignored(request_id: str) -> None:
    """Its id could not be stored in the mark of the position, so it would be applied again and again."""
    assert ResetRequest.parse(10, ResetRequest(request_id, 10, {"flights": 3}).encode()) is None
    assert ResetRequest.parse(10, ResetRequest(new_reset_id(), 10, {"flights": 3}).encode()) is not None


def reset_request(request_id: str, next_offset: int = 0, *, moves: int = 3, void: bool = False) -> ResetRequest:
    return ResetRequest(request_id, next_offset, {"flights": moves}, void)


def entry(member_id: str = "alice", *, applied: str = "", stopped: str = "") -> MemberEntry:
    return MemberEntry("the name of all", member_id, 0, None, applied, stopped)


def group_of(owners: Mapping[TopicPartition, str], state: str = "Stable", *topics: str) -> GroupDescription:
    """A group whose members have the same name, and subscribe to ``topics``."""
    partitions = {name: frozenset(tp for tp, owner in owners.items() if owner == name) for name in owners.values()}
    members = [
        GroupMember("the name of all", "/10.0.0.1", partitions[name], member_id=name, subscription=frozenset(topics))
        for name in partitions
    ]
    return GroupDescription("airline", state, members=tuple(members))


def test_G8_a_reset_request_is_applied_once() -> None:
    resets = {P0: reset_request("a", 10), P1: reset_request("b", 20), P2: reset_request("c", 30, void=True)}
    assert pending(resets, {}) == {P0: reset_request("a", 10), P1: reset_request("b", 20)}
    assert pending(resets, {P0: "a", P1: "a"}) == {P1: reset_request("b", 20)}


def test_F2_the_mark_of_a_commit_shows_the_last_applied_reset_request() -> None:
    shows = CommitMark(exclusive=False, reset=AppliedReset(3, "a")).encode()
    without, by_a_tool = CommitMark(exclusive=False).encode(), ToolMark(AppliedReset(4, "b")).encode()
    committed = {P0: Committed(10, shows), P1: Committed(10, without)}
    # An entry can be late, or lost: nothing fences it.
    assert applied_ids(committed, {P0: entry(applied="b"), P1: entry(applied="a")}) == {P0: "a", P1: ""}
    # A commit of another client does not show what was applied before it. A tool's change is no request.
    others = {P0: Committed(10, "by hand"), P1: Committed(10, by_a_tool)}
    assert applied_ids(others, {P0: entry(applied="a"), P1: entry(applied="a")}) == {P0: "a", P1: "a"}
    assert applied_ids({}, {P2: entry(applied="a")}) == {P2: "a"}


def test_S6_a_reset_request_contains_existing_partitions_only() -> None:
    """Numbers in an entry of a topic are not used as sizes."""
    forged = ResetRequest("a", 0, {"flights": 2**31 - 1, "gone": 2**31 - 1})
    assert candidates([forged], {"flights": 2, "orders": 1}) == {P0, P1}


class TestNextStep:
    REQUESTS: ClassVar = {P0: reset_request("a", 10), P1: reset_request("a", 20), P2: reset_request("a", 30)}
    OWNERS: ClassVar = dict.fromkeys(REQUESTS, "alice")

    def step(
        self,
        resets: Mapping[TopicPartition, ResetRequest],
        entries: Mapping[TopicPartition, MemberEntry],
        owned: Collection[TopicPartition],
        owners: Mapping[TopicPartition, str] = OWNERS,
        *,
        applied: Mapping[TopicPartition, str] = MappingProxyType({}),
        state: str = "Stable",
        counts: Mapping[str, int] = FLIGHTS,
        me: str = "alice",
    ) -> Step:
        return next_step(resets, entries, applied, owned, group_of(owners, state, "flights"), counts, me=me)

    def test_S6_no_member_resumes_before_all_have_stopped(self) -> None:
        entries = {P0: entry(stopped="a"), P1: entry(stopped="a"), P2: entry(stopped="older")}
        waits = self.step(self.REQUESTS, entries, [P0, P1])
        assert waits == Step({}, frozenset(), {}, {}, {"a": "flights-2 has not paused"})
        assert self.step(self.REQUESTS, entries, [P2]).stop == {P2: "a"}
        stopped = {**entries, P2: entry(stopped="a")}
        assert self.step(self.REQUESTS, stopped, [P0, P1]) == Step(
            {}, frozenset(), {P0: reset_request("a", 10), P1: reset_request("a", 20)}, {}, {}
        )

    def test_S6_every_member_that_has_resumed_had_stopped(self) -> None:
        entries, applied = {P1: entry(stopped="a"), P2: entry(stopped="a")}, {P0: "a", P1: "a"}
        assert self.step(self.REQUESTS, entries, [P2], applied=applied).move == {P2: reset_request("a", 30)}
        assert self.step(self.REQUESTS, entries, [P0, P1], applied=applied) == NOTHING

    def test_F2_an_entry_that_names_a_request_does_not_show_that_it_is_applied(self) -> None:
        entries = dict.fromkeys(self.REQUESTS, entry(applied="a"))
        assert self.step(self.REQUESTS, entries, [P0, P1]).stop == {P0: "a", P1: "a"}

    def test_S6_an_incomplete_reset_request_stops_no_member(self) -> None:
        resets = {P0: reset_request("a", 10), P1: reset_request("a", 20)}
        missing = {"a": "only 2 of 3 entries for flights exist"}
        assert self.step(resets, {}, [P0, P1]) == Step({}, frozenset(), {}, missing, {})
        # A member that has stopped for it continues, and stores that: the part may come later.
        stopped = {P0: entry(stopped="a"), P1: entry("bob", stopped="a")}
        assert self.step(resets, stopped, [P0, P1]) == Step({}, frozenset([P0]), {}, missing, {})

    def test_S6_a_reset_request_with_a_deleted_topic_is_complete_without_it(self) -> None:
        """Its entries are deleted with it."""
        resets = {P0: ResetRequest("a", 10, {"flights": 1, "gone": 4})}
        assert self.step(resets, {P0: entry(stopped="a")}, [P0]).move == resets
        assert self.step(resets, {}, [P0], counts={**FLIGHTS, "gone": 4}).incomplete == {
            "a": "only 0 of 4 entries for gone exist"
        }

    def test_S6_a_reset_request_in_several_commits_is_complete_with_the_last(self) -> None:
        for n in range(1, 4):
            resets = dict(list(self.REQUESTS.items())[:n])
            assert bool(self.step(resets, {}, [P0]).stop) == (n == 3)

    def test_S6_the_last_reset_request_counts(self) -> None:
        again = {tp: reset_request("b", n) for n, tp in enumerate(self.REQUESTS)}
        stopped_for_the_first = dict.fromkeys(again, entry(stopped="a"))
        assert self.step(again, stopped_for_the_first, [P0]).stop == {P0: "b"}
        void = {tp: reset_request("c", void=True) for tp in self.REQUESTS}
        assert self.step(void, stopped_for_the_first, [P0]) == NOTHING

    def test_S6_the_entry_of_a_former_owner_does_not_count_for_the_present_one(self) -> None:
        stopped = dict.fromkeys(self.REQUESTS, entry(stopped="a"))
        bobs = {**self.OWNERS, P2: "bob"}
        assert not self.step(self.REQUESTS, stopped, [P0], bobs).move
        by_bob = {**stopped, P2: entry("bob", stopped="a")}
        assert self.step(self.REQUESTS, stopped, [P2], bobs, me="bob").stop == {P2: "a"}
        assert self.step(self.REQUESTS, by_bob, [P0], bobs).move.keys() == {P0}

    def test_S6_while_a_group_rebalances_no_member_resumes(self) -> None:
        stopped = dict.fromkeys(self.REQUESTS, entry(stopped="a"))
        for state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
            assert self.step(self.REQUESTS, stopped, [P0], state=state).waiting.keys() == {"a"}
        assert self.step(self.REQUESTS, stopped, [P0]).move.keys() == {P0}

    def test_S6_a_partition_without_owner_is_waited_for_if_a_member_subscribes_to_its_topic(self) -> None:
        """With the classic protocol the group is stable while a former owner finishes its batch."""
        found = handover(3)
        assert found.group.describe().is_settled

        def waiting(entries: Mapping[TopicPartition, MemberEntry]) -> Mapping[str, str]:
            return next_step(self.REQUESTS, entries, {}, [P0], found.group.describe(), FLIGHTS, me="alice").waiting

        stopped = {P0: entry(stopped="a"), P1: entry(stopped="a")}
        # The entry of a former owner does not show that the next one has paused.
        of_former = {**stopped, P2: entry(stopped="a")}
        for entries in (stopped, of_former):
            assert waiting(entries) == {"a": "flights-2 has not paused"}
        found.end_batch()
        assert found.group.describe().owners[P2].member_id == "bob"
        assert waiting(of_former) == {"a": "flights-2 has not paused"}
        assert waiting({**stopped, P2: entry("bob", stopped="a")}) == {}

    def test_S6_a_partition_that_no_member_can_read_is_not_waited_for(self) -> None:
        orders = TopicPartition("orders", 0)
        resets = {tp: ResetRequest("a", 10, {"flights": 1, "orders": 1}) for tp in (P0, orders)}
        stopped, counts = {P0: entry(stopped="a")}, {"flights": 1, "orders": 1}

        def step(group: GroupDescription) -> Step:
            return next_step(resets, stopped, {}, [P0], group, counts, me="alice")

        assert step(group_of({P0: "alice"}, "Stable", "flights")).move.keys() == {P0}
        assert step(group_of({P0: "alice"}, "Stable", "flights", "orders")).waiting == {"a": "orders-0 has not paused"}
        # A broker can leave out the subscriptions of members.
        unknown = GroupMember("the name of all", "/10.0.0.1", frozenset([P0]), member_id="alice")
        group = GroupDescription("airline", "Stable", members=(unknown,))
        assert step(group).waiting == {"a": "orders-0 has not paused"}

    @given(st.lists(st.sampled_from(["", "a", "b"]), min_size=6, max_size=6), st.sets(st.sampled_from([P0, P1, P2])))
    def test_S6_a_step_applies_all_of_a_reset_request_or_nothing(
        self, ids: list[str], owned: set[TopicPartition]
    ) -> None:
        applied = {tp: ids[i] for i, tp in enumerate(self.REQUESTS)}
        entries = {tp: entry(stopped=ids[i + 3]) for i, tp in enumerate(self.REQUESTS)}
        step = self.step(self.REQUESTS, entries, owned, applied=applied)
        due = {tp for tp in owned if applied[tp] != "a"}
        assert step.stop.keys() == {tp for tp in due if entries[tp].stopped != "a"}
        all_stopped = all("a" in (entries[tp].stopped, applied[tp]) for tp in entries)
        assert step.move.keys() == (due if all_stopped else set())


@pytest.mark.parametrize("requests", ["one", "many"])
def test_G8_the_cost_of_a_step_grows_with_the_partitions(requests: str) -> None:
    def work(n: int) -> int:
        ids = ["a" if requests == "one" else f"a{p}" for p in range(n)]
        resets = {TopicPartition("t", p): ResetRequest(id_, 1, {"t": n}) for p, id_ in enumerate(ids)}
        group = GroupDescription("airline", "Stable")
        return work_of(lambda: next_step(resets, {}, {}, list(resets), group, {"t": n}, me="a"))

    assert work(400) < 2.5 * work(200)
