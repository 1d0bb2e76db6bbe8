"""F2, S14: the marks of a change by a tool."""

from __future__ import annotations

from streamgroups.coordination.tool_commits import with_tool_marks
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.state.origins import New

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
FLIGHTS = TopicIdentity("c1", "t1")


def test_F2_S14_a_change_has_one_id_and_keeps_the_program() -> None:
    replaced = CommitMark(False, state=New(), reset=AppliedReset(7, "5f2c"), form="windows:minutes")
    exported = CommitMark(False, identity=FLIGHTS, state=New(), reset=AppliedReset(9, "b2"), form="none")
    before = {P0: Committed(9, replaced.encode())}
    offsets = {P0: Committed(4), P1: Committed(6, exported.encode())}
    found = with_tool_marks(offsets, before, "a1", 5)
    assert {tp: (it.next_offset, ToolMark.parse(it.metadata)) for tp, it in found.items()} == {
        P0: (4, ToolMark(AppliedReset(8, "a1"), form="windows:minutes")),
        P1: (6, ToolMark(AppliedReset(5, "a1"), FLIGHTS, New())),
    }


def test_F2_the_reset_of_an_offset_that_stays_is_kept() -> None:
    """A restore of the state alone, or the rest of one that was imported. At another offset, the import sets the offset too."""
    mark = ToolMark(AppliedReset(), state=New(), kept_reset=AppliedReset(7, "5f2c"))
    offsets = {tp: Committed(4, mark.encode()) for tp in (P0, P1)}
    found = with_tool_marks(offsets, {P0: Committed(4), P1: Committed(6)}, "a1", 5)
    kept = {tp: ToolMark.parse(it.metadata) for tp, it in found.items()}
    assert kept == {
        P0: ToolMark(AppliedReset(5, "a1"), state=New(), kept_reset=AppliedReset(7, "5f2c")),
        P1: ToolMark(AppliedReset(5, "a1"), state=New()),
    }


def test_C2_only_a_restore_sets_a_restored_offset() -> None:
    """The metadata of an exported offset can be that of an earlier restore."""
    restored = ToolMark(AppliedReset(), state=New(), is_restored=True)
    offsets, before = {P0: Committed(4, restored.encode())}, {P0: Committed(6)}
    for keeps_program in (True, False):
        found = with_tool_marks(offsets, before, "a1", 5, keeps_program=keeps_program)
        expected = ToolMark(AppliedReset(5, "a1"), state=New(), is_restored=not keeps_program)
        assert ToolMark.parse(found[P0].metadata) == expected
