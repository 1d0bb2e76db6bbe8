"""Adds the marks of a tool to the offsets of a change: a reset, an import, a copy or an undo of a group without members.

Used by :mod:`streamgroups.coordination.reset_requests` and by the commands that change groups. A change can need several commits.
So the marks are made once, for all its offsets. Source: SEMANTICS F2, S14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import ToolMark, mark_of
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed


def with_tool_marks(
    offsets: Mapping[TopicPartition, Committed],
    before: Mapping[TopicPartition, Committed],
    id_: str,
    now_ms: int,
    *,
    keeps_program: bool = True,
) -> dict[TopicPartition, Committed]:
    """The offsets of a change by a tool, with the marks of the tool (SEMANTICS F2).

    The group belongs to the same program as before (SEMANTICS S14), unless a savepoint is restored.

    Args:
        offsets: all offsets of the change. Their metadata names their topic and their state, as that of an exported offset.
        before: the offsets that they replace.
        id_: the id of the change: :func:`~streamgroups.groups.applied_reset.new_reset_id`.
        now_ms: the time in milliseconds since the epoch.
        keeps_program: whether the group belongs to the same program as before. Otherwise the metadata names its program.

    >>> from streamgroups.groups.applied_reset import AppliedReset
    >>> p0 = TopicPartition("flights", 0)
    >>> before = {p0: Committed(9, ToolMark(AppliedReset(7, "5f2c")).encode())}
    >>> ToolMark.parse(with_tool_marks({p0: Committed(4)}, before, "a1", 5)[p0].metadata).reset
    AppliedReset(number=8, id='a1')
    """

    def mark(tp: TopicPartition, like: str) -> ToolMark:
        replaced, kept = mark_of(before[tp].metadata) if tp in before else None, mark_of(like)
        reset = (NO_RESET if replaced is None else replaced.reset).then(id_, now_ms)
        named = replaced if keeps_program else kept
        form = "" if named is None else named.form
        if kept is None:
            return ToolMark(reset, form=form)
        if not isinstance(kept, ToolMark):
            return ToolMark(reset, kept.identity, kept.state, form)
        # The mark of an exported offset can be that of an earlier restore. Then this change sets the offset, as any reset does.
        is_same = tp in before and before[tp].next_offset == offsets[tp].next_offset
        is_restored = kept.is_restored and not keeps_program
        kept_reset = kept.kept_reset if is_same else None
        return replace(kept, reset=reset, form=form, kept_reset=kept_reset, is_restored=is_restored)

    return {tp: Committed(it.next_offset, mark(tp, it.metadata).encode()) for tp, it in offsets.items()}
