"""G3, G4, G6, G14, G15: requests that are rejected before anything changes, and groups that have expired."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of, resets_group_of
from streamgroups.coordination.tool_commits import with_tool_marks
from streamgroups.cursors.argument_checks import (
    Reading,
    check_group_count,
    check_group_name,
    check_instance,
    check_limit,
    check_name_is_free,
    has_vanished,
    readers_of,
)
from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.json_values import MAX_INT64, MAX_TIME_MS
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed

DAY_MS = 86_400_000
UNUSED = Reading("g", False, 0, of_cursors=True)


@pytest.mark.parametrize("limit", [1, 15, 10_000])
def test_G4_a_request_returns_1_to_10_000_messages(limit: int) -> None:
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, 1.5, "10"])
def test_G4_any_other_limit_is_rejected(limit: Any) -> None:
    with pytest.raises(InvalidOption, match="between 1 and 10,000"):
        check_limit(limit)


def member(name: str, *partitions: int) -> GroupMember:
    held = frozenset(TopicPartition("flights", p) for p in partitions)
    return GroupMember(name, "/10.0.0.2", held)


def test_G3_a_name_of_a_live_member_is_rejected_and_the_error_names_it() -> None:
    group = GroupDescription("billing", "Stable", members=(member("worker-1", 1, 0), member("worker-2")))
    with pytest.raises(GroupRejected) as rejection:
        check_name_is_free(group, "worker-1")
    assert "worker-1 (/10.0.0.2), which owns flights-0, flights-1" in rejection.value.what
    check_name_is_free(group, "worker-3")


def test_G3_a_member_that_has_joined_does_not_count_itself() -> None:
    check_name_is_free(GroupDescription("billing", "Stable", members=(member("worker-1"),)), "worker-1", own=1)
    with pytest.raises(GroupRejected):
        check_name_is_free(
            GroupDescription("billing", "Stable", members=(member("worker-1"), member("worker-1"))), "worker-1", own=1
        )


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 250, None])
def test_an_invalid_name_is_rejected(name: Any) -> None:
    with pytest.raises(InvalidOption, match="group_name"):
        check_instance(name, "worker-1", 30_000)
    with pytest.raises(InvalidOption, match="instance_name"):
        check_instance("billing", name, 30_000)


@pytest.mark.parametrize("character", ["x", "ü", "漢", '"', "😀"])
def test_G3_the_metadata_entry_of_an_accepted_name_is_never_too_large(character: str) -> None:
    accepted = [n for n in range(1, 250) if is_accepted(character * n)]
    assert accepted[-1] == (124 if character == "😀" else 249)
    name = character * accepted[-1]
    # The broker appends a UUID to the client id.
    member_id = f"{name}-{'0' * 36}"
    entry = MemberEntry(name, member_id, MAX_TIME_MS, MAX_TIME_MS, "0" * 64, "0" * 64, MAX_INT64)
    assert len(entry.encode().encode()) < 4_096


def is_accepted(name: str) -> bool:
    try:
        check_instance("billing", name, 30_000)
    except InvalidOption:
        return False
    return True


def test_G3_a_name_that_is_too_large_for_the_metadata_entry_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"125 characters, which are 1,500 bytes .* At most 1,494 are allowed"):
        check_instance("billing", "😀" * 125, 30_000)


def test_a_group_does_not_have_the_name_of_a_metadata_group() -> None:
    with pytest.raises(InvalidOption, match="reserves for its metadata groups"):
        check_group_name("billing.streamgroups")
    check_group_name("billing.streamgroups.too")


@pytest.mark.parametrize(
    ("lease_timeout_ms", "fits"), [(1_000, True), (300_000, True), (999, False), (300_001, False), ("30s", False)]
)
def test_G6_a_timeout_is_neither_too_short_nor_longer_than_a_cursor_lasts(lease_timeout_ms: Any, fits: bool) -> None:
    if fits:
        check_instance("billing", "worker-1", lease_timeout_ms)
    else:
        with pytest.raises(InvalidOption, match="lease_timeout_ms"):
            check_instance("billing", "worker-1", lease_timeout_ms)


def test_G14_the_51st_group_is_rejected_with_the_candidates_to_delete() -> None:
    readers = [Reading(f"live-{i}", True) for i in range(47)]
    readers += [Reading("b", False, DAY_MS), Reading("a", False, 2 * DAY_MS), Reading("unknown", False)]
    check_group_count("flights", readers[:49], 50, setting="the option")
    with pytest.raises(GroupRejected) as rejection:
        check_group_count("flights", readers, 50, setting="the option")
    assert "'flights' is already read by 50 groups" in rejection.value.what
    assert rejection.value.remedy.endswith("without members: unknown, b, a. Or raise the option.")


def test_G14_the_error_reports_that_all_groups_are_in_use() -> None:
    with pytest.raises(GroupRejected, match="all of them have members"):
        check_group_count("flights", [Reading("a", True)], 1, setting="the option")


def test_G14_a_group_with_committed_offsets_reads_the_stream_and_metadata_groups_do_not() -> None:
    p0, p1, other = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("orders", 0)
    live = {"a": True, "b": False, "c": False, members_group_of("a"): False, resets_group_of("a"): False}
    metadata = {
        "a": {p0: "streamgroups:shared\0", other: ""},
        "b": {p1: ""},
        "c": {other: ""},
        members_group_of("a"): {
            p0: MemberEntry("x", "x-1", 7_000, 9_000).encode(),
            p1: MemberEntry("y", "y-1", 8_000, 9_000).encode() + "\0",
        },
        resets_group_of("a"): {p0: ""},
    }
    assert readers_of(["flights"], live, metadata)["flights"] == [
        Reading("a", True, last_used_ms=8_000, elsewhere=True),
        Reading("b", False),
    ]


@pytest.mark.parametrize(
    ("forms", "of_cursors"),
    [
        (["cursors", "cursors"], True),
        (["cursors", ""], True),
        (["", ""], False),
        (["none", "none"], False),
        (["cursors", "windows:minutes"], False),
    ],
)
def test_G15_only_the_commits_of_instances_make_a_group_of_cursors(forms: list[str], of_cursors: bool) -> None:
    """The members of a shared query store their use in the same entries."""
    marks = {TopicPartition("flights", p): CommitMark(False, form=it).encode() for p, it in enumerate(forms)}
    entry = MemberEntry("q", "q-1", 7_000, None).encode()
    metadata = {"a": marks, members_group_of("a"): dict.fromkeys(marks, entry)}
    assert readers_of(["flights"], {"a": False}, metadata)["flights"] == [
        Reading("a", False, last_used_ms=7_000, of_cursors=of_cursors)
    ]


@pytest.mark.parametrize(("reset_ms", "last_used_ms"), [(8 * DAY_MS, 8 * DAY_MS), (6_000, 7_000)])
def test_G15_a_reset_of_a_stopped_group_counts_as_its_use(reset_ms: int, last_used_ms: int) -> None:
    tp = TopicPartition("flights", 0)
    before = {tp: Committed(90, CommitMark(False, form="cursors").encode())}
    after = with_tool_marks({tp: Committed(10)}, before, "5f2c", reset_ms)
    metadata = {
        "a": {tp: after[tp].metadata},
        members_group_of("a"): {tp: MemberEntry("w", "w-1", 7_000, 9_000).encode()},
    }
    (reading,) = readers_of(["flights"], {"a": False}, metadata)["flights"]
    assert reading == Reading("a", False, last_used_ms=last_used_ms, of_cursors=True)
    assert has_vanished(reading, 7 * DAY_MS, 8 * DAY_MS + 60_000) is (reset_ms < DAY_MS)


def test_G17_a_group_with_an_unreadable_entry_has_no_known_last_use() -> None:
    p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    entry = MemberEntry("w", "w-1", 7_000, 9_000).encode()
    metadata = {
        "a": dict.fromkeys((p0, p1), CommitMark(False, form="cursors").encode()),
        members_group_of("a"): {p0: entry, p1: entry.replace('"v":1', '"v":2')},
    }
    (reading,) = readers_of(["flights"], {"a": False}, metadata)["flights"]
    assert (reading.last_used_ms, has_vanished(reading, 1, 9 * DAY_MS)) == (None, False)


def test_G15_a_reset_does_not_replace_the_missing_use_of_a_member() -> None:
    tp = TopicPartition("flights", 0)
    metadata = {"a": {tp: ToolMark(AppliedReset(7_000, "5f2c"), form="cursors").encode()}}
    assert readers_of(["flights"], {"a": False}, metadata)["flights"] == [Reading("a", False, of_cursors=True)]


@pytest.mark.parametrize(
    ("reader", "retention_ms", "vanished"),
    [
        (UNUSED, DAY_MS - 1, True),
        (UNUSED, DAY_MS, False),
        (replace(UNUSED, live=True), 1, False),
        (replace(UNUSED, last_used_ms=None), 1, False),
        (UNUSED, None, False),
        (replace(UNUSED, elsewhere=True), 1, False),
        (replace(UNUSED, of_cursors=False), 1, False),
    ],
    ids=[
        "longer",
        "exactly as long",
        "live",
        "without a recorded use",
        "kept permanently",
        "reads other streams",
        "of queries",
    ],
)
def test_G15_a_group_unused_for_the_retention_time_has_vanished(
    reader: Reading, retention_ms: int | None, vanished: bool
) -> None:
    assert has_vanished(reader, retention_ms, DAY_MS) is vanished
