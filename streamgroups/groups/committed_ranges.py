"""The ranges that owners of a partition have committed, and the changes of its position between them.

Called by :mod:`streamgroups.groups.offset_audit`, which describes them. Pure: a walk over the commits of one partition. Source:
SEMANTICS O6, F1, F2; the marks of commits (:mod:`streamgroups.groups.commit_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark, mark_of
from streamgroups.groups.offset_records import OffsetRecord

_NO_END = 1 << 63
#: Before each window.
_EARLIER_MS = -1
_WITHOUT_MARK = "another client has set the position: a tool, or a consumer without this library"
_NO_REASON = "an owner began to read behind the position, and nothing names the reason"
_AFTER_DELETION = "the committed offset was deleted, or has expired"


class Kind(Enum):
    """The kind of an entry."""

    #: An owner has committed the range.
    COMMITTED = "committed"
    #: The same, by an owner that does not name where it began, or by another consumer.
    UNSURE = "unsure"
    #: The first commit that is still stored has passed the range. Nothing shows what was read of it.
    BEFORE = "before"
    #: A reset went back: all offsets of the range may be committed again.
    PERMIT = "permit"
    #: A reset has skipped the range.
    SKIP = "skip"
    #: The position has passed the range, and no mark names a reason.
    JUMP = "jump"


@dataclass(frozen=True, slots=True)
class Entry:
    """What has happened to the offsets ``[begin, end)``.

    Args:
        kind: the kind.
        begin: the first offset.
        end: the offset after the last one.
        time_ms: the time of the commit, in milliseconds since the epoch.
        detail: the reason.
    """

    kind: Kind
    begin: int
    end: int
    time_ms: int
    detail: str = ""


@dataclass(slots=True)
class CommittedRanges:
    """The result of the walk, and its state.

    Args:
        since_ms: the beginning of the window: a committed range ends there, and another one begins.
        has_other_consumers: whether clients without marks can be consumers of the group.
        position: the last position; ``None`` without a commit.
        begin: the first offset with evidence.
        reset: the last reset that the position contains.
        topic_id: the id of the topic.
        is_set_by_tool: whether a tool has set the position, and no owner has continued there yet.
        entries: all entries, in the order of the commits.
        forms: the forms of the programs that have committed. Empty texts for unknown ones.
    """

    since_ms: int
    has_other_consumers: bool = False
    position: int | None = None
    begin: int = 0
    reset: AppliedReset = NO_RESET
    topic_id: str | None = None
    is_set_by_tool: bool = False
    entries: list[Entry] = field(default_factory=list)
    forms: set[str] = field(default_factory=set)
    _owner: tuple[int, int | None, AppliedReset] | None = None
    #: The entry that grows with the next commit of the same owner.
    _growing: int | None = None
    _why: str = ""

    def follow(self, commit: OffsetRecord) -> None:
        """Adds the next commit."""
        mark = mark_of(commit.metadata)
        self._enter_topic(mark)
        if commit.next_offset is None:
            self._why, self._owner, self._growing = _AFTER_DELETION, None, None
            return
        self.is_set_by_tool = not isinstance(mark, CommitMark)
        if isinstance(mark, CommitMark):
            self._by_member(mark, commit.next_offset, commit.time_ms)
            return
        if isinstance(mark, ToolMark):
            # A member gives the reset of a client without marks an id. The position stays the same then.
            self._move(commit.next_offset, commit.time_ms, reset=mark.reset)
            self.reset = mark.reset
        elif self.has_other_consumers and self.position is not None and self.position < commit.next_offset:
            self._read(Kind.UNSURE, self.position, commit.next_offset, commit.time_ms)
            self.position = commit.next_offset
        else:
            self._move(commit.next_offset, commit.time_ms, why=_WITHOUT_MARK)
        self._owner = None

    def _enter_topic(self, mark: CommitMark | ToolMark | None) -> None:
        """A topic that was recreated has other records at the same offsets: the evidence begins there."""
        topic_id = None if mark is None else mark.identity.topic_id
        if topic_id is None:
            return
        if self.topic_id not in (None, topic_id):
            self.position, self._owner, self._growing = None, None, None
            self.entries.clear()
        self.topic_id = topic_id

    def _by_member(self, mark: CommitMark, end: int, time_ms: int) -> None:
        self.forms.add(mark.form)
        begin, owner = mark.from_offset, (mark.epoch, mark.from_offset, mark.reset)
        reset = mark.reset if mark.reset != self.reset and mark.reset.contains(self.reset) else None
        if begin is None or begin > end:
            if reset is not None or self.position is None:
                self._move(end, time_ms, reset=reset)
            self._read(Kind.UNSURE, self.position or 0, end, time_ms)
        elif owner == self._owner and self.position is not None:
            self._read(Kind.COMMITTED, self.position, end, time_ms)
        else:
            self._move(begin, time_ms, reset=reset, why=self._why or _NO_REASON)
            self._read(Kind.COMMITTED, begin, end, time_ms)
        self.position, self._owner, self._why = end, owner, ""
        self.reset = self.reset if reset is None else reset

    def _move(self, to: int, time_ms: int, *, reset: AppliedReset | None = None, why: str = "") -> None:
        """Changes the position without a commit of records. ``reset`` explains it."""
        at, self._growing = self.position, None
        self.position = to
        if at is None:
            self.begin = to
            self._add(Kind.BEFORE, 0, to, _EARLIER_MS)
        elif reset is None:
            self._add(Kind.JUMP, at, to, time_ms, why)
        elif to < at:
            self._add(Kind.PERMIT, to, _NO_END, time_ms, f"reset {reset.id}")
        else:
            self._add(Kind.SKIP, at, to, time_ms, f"reset {reset.id}")

    def _read(self, kind: Kind, begin: int, end: int, time_ms: int) -> None:
        """Adds a committed range, or lets the last one grow."""
        if self._growing is not None:
            last = self.entries[self._growing]
            is_same_side = (last.time_ms >= self.since_ms) == (time_ms >= self.since_ms)
            if (last.kind, last.end) == (kind, begin) and is_same_side:
                self.entries[self._growing] = replace(last, end=max(end, begin), time_ms=time_ms)
                return
        self._growing = self._add(kind, begin, end, time_ms)

    def _add(self, kind: Kind, begin: int, end: int, time_ms: int, detail: str = "") -> int | None:
        if begin >= end:
            return None
        self.entries.append(Entry(kind, begin, end, time_ms, detail))
        return len(self.entries) - 1


def committed_ranges(
    commits: Iterable[OffsetRecord], since_ms: int, *, has_other_consumers: bool = False
) -> CommittedRanges:
    """Walks over the commits of one partition.

    Args:
        commits: its commits, in the order of the log.
        since_ms: the beginning of the window.
        has_other_consumers: see :class:`CommittedRanges`.

    >>> from streamgroups.partitions import TopicPartition
    >>> p0, mark = TopicPartition("flights", 0), CommitMark(False, from_offset=0).encode()
    >>> ranges = committed_ranges([OffsetRecord(p0, 5, mark, 1), OffsetRecord(p0, 9, mark, 2), OffsetRecord(p0, 12, "by hand", 3)], 0)
    >>> [(it.kind.name, it.begin, it.end) for it in ranges.entries]
    [('COMMITTED', 0, 9), ('JUMP', 9, 12)]
    """
    found = CommittedRanges(since_ms, has_other_consumers)
    for commit in commits:
        found.follow(commit)
    return found
