"""The order of the undo files of a user, and what a later command does with an unfinished change.

Called by the commands that change committed offsets. A command can be killed at any step, and a response can be lost. So
its undo file is unfinished until the whole change is confirmed, and the committed offsets show how much of an unfinished
change has taken effect. Source: SEMANTICS O1, O2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from streamgroups.groups.offset_files import ChangedTo, FiledOffset
from streamgroups.partitions import TopicPartition

_NAME = re.compile(r"(?P<kind>undo|rest)-(?P<label>.*)-(?P<stamp>\d{8}T\d{9}Z)(?:-(?P<number>\d+))?\.json", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: The label of a file of several groups.
_SEVERAL = re.compile(r"\d+-groups")
_MISSING = FiledOffset(None)


@dataclass(frozen=True, slots=True, order=True)
class UndoName:
    """The parts of the name of an undo file. A later change has a greater one.

    Args:
        stamp_ms: the time in the name, in milliseconds since the epoch.
        number: the number of the file among those of this time.
        label: the label of its group, or the number of its groups.
    """

    stamp_ms: int
    number: int
    label: str

    def can_list(self, label: str) -> bool:
        """Whether the file can list a group.

        Args:
            label: the label of the group.

        >>> UndoName(0, 0, "board").can_list("board"), UndoName(0, 0, "2-groups").can_list("board")
        (True, True)
        """
        return self.label == label or _SEVERAL.fullmatch(self.label) is not None


def parse_undo_name(name: str) -> UndoName | None:
    """The parts of the name of an undo file; ``None`` for another name.

    >>> parse_undo_name("undo-board-19700101T000001000Z-2.json")
    UndoName(stamp_ms=1000, number=2, label='board')
    >>> parse_undo_name("rest-board-19700101T000001000Z.json")
    """
    found = _NAME.fullmatch(name)
    stamp_ms = None if found is None else _stamp_ms(found["stamp"])
    if found is None or stamp_ms is None or found["kind"] != "undo":
        return None
    return UndoName(stamp_ms, int(found["number"] or 0), found["label"])


def next_stamp_ms(now_ms: int, names: Iterable[str]) -> int:
    """The time for the name of a new file: now, or later than the files that exist.

    The clock of the machine can have been ahead. Then the newest file would not be that of the last change.

    Args:
        now_ms: the time in milliseconds since the epoch.
        names: the names of the files in the directory.

    >>> next_stamp_ms(500, ["undo-board-19700101T000001000Z.json", "notes.txt"]), next_stamp_ms(2_000, [])
    (1001, 2000)
    """
    stamps = [_stamp_ms(found["stamp"]) for name in names if (found := _NAME.fullmatch(name))]
    return max([now_ms, *(stamp + 1 for stamp in stamps if stamp is not None)])


def has_no_effect(
    before: Mapping[TopicPartition, FiledOffset], committed: Mapping[TopicPartition, FiledOffset]
) -> bool:
    """Whether an unfinished change of a group has not begun: the group has its earlier offsets, with their metadata.

    A commit of a tool changes the metadata in each case. A reset request that waits has an effect later.

    Args:
        before: the partitions of the group in the undo file.
        committed: the committed offsets of the group now.

    >>> tp = TopicPartition("flights", 0)
    >>> has_no_effect({tp: FiledOffset(4)}, {tp: FiledOffset(4)}), has_no_effect({tp: FiledOffset(4)}, {tp: FiledOffset(4, "x")})
    (True, False)
    """
    now = {tp: committed.get(tp, _MISSING) for tp in before}
    return all((now[tp].next_offset, now[tp].metadata) == (it.next_offset, it.metadata) for tp, it in before.items())


def is_reached(earlier: Mapping[TopicPartition, FiledOffset], committed: Mapping[TopicPartition, FiledOffset]) -> bool:
    """Whether a group has all offsets that a change sets.

    Args:
        earlier: the partitions of the group in the undo file of the change.
        committed: its committed offsets now.

    >>> tp = TopicPartition("flights", 0)
    >>> is_reached({tp: FiledOffset(4, changed_to=ChangedTo(10))}, {tp: FiledOffset(10)})
    True
    """
    return all(_target(committed.get(tp, _MISSING)) == it.changed_to for tp, it in earlier.items())


def is_repeated(
    earlier: Mapping[TopicPartition, FiledOffset],
    changes: Mapping[TopicPartition, FiledOffset],
    committed: Mapping[TopicPartition, FiledOffset],
) -> bool:
    """Whether a change of a group is an unfinished earlier one again, or the rest of it.

    It sets the same offsets, and each partition of the earlier change is where this found it, or where this sets it.

    Args:
        earlier: the partitions of the group in the undo file of the earlier change.
        changes: the new offsets of the group; without an offset for one to delete.
        committed: its committed offsets now.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> earlier = {p0: FiledOffset(4, changed_to=ChangedTo(10)), p1: FiledOffset(6, changed_to=ChangedTo(10))}
    >>> now = {p0: FiledOffset(10), p1: FiledOffset(6)}
    >>> [is_repeated(earlier, {p1: FiledOffset(to)}, now) for to in (10, 9)]
    [True, False]
    """
    common = earlier.keys() & changes.keys()
    return (
        bool(common)
        and all(earlier[tp].changed_to == _target(changes[tp]) for tp in common)
        and all(_is_explained(it, committed.get(tp, _MISSING)) for tp, it in earlier.items())
    )


def undo_entries(
    earlier: Mapping[TopicPartition, FiledOffset],
    changes: Mapping[TopicPartition, FiledOffset],
    committed: Mapping[TopicPartition, FiledOffset],
) -> dict[TopicPartition, FiledOffset]:
    """The partitions of a group for the undo file of a change.

    If the change completes an earlier one, an undo reverts both. So a partition has the offset before the earlier change,
    unless it was committed since by another command or a member.

    Args:
        earlier: the partitions of the group in the undo file of the earlier change; empty without one.
        changes: the new offsets of the group; without an offset for one to delete.
        committed: its committed offsets now.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> earlier = {p0: FiledOffset(4, changed_to=ChangedTo(10)), p1: FiledOffset(6, changed_to=ChangedTo(10))}
    >>> found = undo_entries(earlier, {p1: FiledOffset(10)}, {p0: FiledOffset(10), p1: FiledOffset(6)})
    >>> [(it.next_offset, it.changed_to.next_offset) for it in found.values()]
    [(4, 10), (6, 10)]
    """
    found = dict(earlier)
    for tp, new in changes.items():
        now = committed.get(tp, _MISSING)
        is_kept = tp in earlier and _is_explained(earlier[tp], now)
        found[tp] = replace(earlier[tp] if is_kept else now, changed_to=_target(new))
    return found


def _target(new: FiledOffset) -> ChangedTo:
    return ChangedTo(new.next_offset)


def _is_explained(earlier: FiledOffset, now: FiledOffset) -> bool:
    """Whether a partition is where a change found it, or where this sets it."""
    return now.next_offset == earlier.next_offset or _target(now) == earlier.changed_to


def _stamp_ms(stamp: str) -> int | None:
    try:
        time = datetime.strptime(stamp, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return (time - _EPOCH) // timedelta(milliseconds=1)
