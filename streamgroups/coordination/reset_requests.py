"""Writes reset requests for a group that has members. The members apply them.

Used by ``streamgroups_kafka.cursors.group_operations`` (``GroupCursors.update_group``) and by the command line
(``streamgroups groups reset``). While a group has members, a broker accepts commits only from them.
:mod:`streamgroups.coordination.reset_participant` applies the requests. Source: SEMANTICS G8, S6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from streamgroups.coordination.reset_protocol import (
    MemberEntry,
    ResetRequest,
    applied_ids,
    members_group_of,
    pending,
    resets_group_of,
)
from streamgroups.coordination.tool_commits import with_tool_marks
from streamgroups.errors import GroupRejected
from streamgroups.groups.applied_reset import new_reset_id
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Committed, MetadataStore
from streamgroups.printable import listed
from streamgroups.shell_quoting import command
from streamgroups.state.origins import UNNAMED, StateOrigin

#: The default limit of a broker for offset metadata (``offset.metadata.max.bytes``): 4,096, including the NUL that ends
#: a text in librdkafka.
_MAX_BYTES = 4_095
#: How long after the end of its written lease an instance may still be a member: it writes its lease once a second.
_ENTRY_DELAY_MS = 2_000


class ResetRequests:
    """The reset requests of groups, and the members that apply them.

    Args:
        metadata_store: the metadata entries of the groups.
        clock: the current time in milliseconds since the epoch.
        counts: how many partitions each of these topics has. Topics that do not exist, and those that this user may not
            describe, are left out; others are ignored. The names come from entries that other users can write.
    """

    def __init__(
        self,
        metadata_store: MetadataStore,
        clock: Clock,
        counts: Callable[[Collection[str]], Mapping[str, int]],
    ) -> None:
        self._metadata_store, self._clock, self._counts = metadata_store, clock, counts

    def write(
        self,
        group_id: str,
        where: Mapping[TopicPartition, int],
        states: Mapping[TopicPartition, StateOrigin] = MappingProxyType({}),
    ) -> str:
        """Requests the owners of partitions to continue at other positions, all in one step.

        Requests that are not applied yet become part of this one, with all their topics. If the group has members, call
        :meth:`cancel_unowned` first.

        Args:
            group_id: the group.
            where: the next offset of each partition.
            states: the states with which the owners continue. They search the others.

        Returns:
            The id of the request.

        Raises:
            GroupRejected: if the request names too many topics for one step.
        """
        waiting = self._unapplied(group_id, {tp.topic for tp in where})
        moved = {tp: order.next_offset for tp, order in waiting.items()} | dict(where)
        of_waiting = {tp: order.state for tp, order in waiting.items() if tp not in where}
        return self._write(group_id, moved, {**of_waiting, **states}, void=False, given={tp.topic for tp in where})

    def cancel_unowned(self, group: GroupDescription, topics: Collection[str]) -> str:
        """Cancels the requests that would become part of one for these topics, and that no member can apply.

        Otherwise the members pause, and wait for partitions that none of them reads.

        Args:
            group: the group with its members.
            topics: the topics that are reset next. Their own requests remain.

        Returns:
            A notice with the partitions whose requests are cancelled. Empty without such requests.
        """
        waiting = self._unapplied(group.group_id, topics)
        unowned = {
            tp: order.next_offset
            for tp, order in waiting.items()
            if tp.topic not in topics and not group.may_read(tp.topic)
        }
        if not unowned:
            return ""
        self._write(group.group_id, unowned, {}, void=True)
        return (
            f"An earlier reset request of group '{group.group_id}' is cancelled for {listed(sorted(unowned))}: none of its members "
            "reads them. To reset them, stop the members first."
        )

    def commit(self, group_id: str, where: Mapping[TopicPartition, int]) -> bool:
        """Commits offsets for a group without members. See :meth:`replace`."""

        def commit() -> None:
            before = self._metadata_store.read(group_id, where.keys())
            offsets = {tp: Committed(n) for tp, n in where.items()}
            self._metadata_store.write(group_id, with_tool_marks(offsets, before, new_reset_id(), self._clock()))

        return self.replace(group_id, where.keys(), commit)

    def replace(self, group_id: str, partitions: Collection[TopicPartition], commit: Callable[[], None]) -> bool:
        """Resets a group without members by a commit, and then cancels the requests that it replaces.

        Until the commit, a request remains valid. So if a member joins before it, the member applies the whole reset.

        Args:
            group_id: the group.
            partitions: the partitions.
            commit: commits the offsets. It raises GroupRejected if the group has members.

        Returns:
            Whether the offsets are committed. Otherwise the group has members.
        """
        try:
            commit()
        except GroupRejected:
            return False
        self.cancel(group_id, partitions)
        return True

    def cancel(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Cancels the requests for partitions whose offsets the caller resets by a commit. Their other partitions remain
        requested.
        """
        given = self._resets(group_id, partitions)
        if not given:
            return
        # Read first: an error must not leave the request cancelled in part.
        waiting = self._unapplied(group_id, {topic for order in given.values() for topic in order.moves})
        rest = {tp: order for tp, order in waiting.items() if tp not in given}
        self._write(group_id, {tp: order.next_offset for tp, order in given.items()}, {}, void=True)
        if rest:
            states = {tp: order.state for tp, order in rest.items()}
            self._write(group_id, {tp: order.next_offset for tp, order in rest.items()}, states, void=False)

    def waiting(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ResetRequest]:
        """The requests that are not applied yet."""
        resets = self._resets(group_id, partitions)
        return pending(resets, self.applied(group_id, resets)) if resets else {}

    def _unapplied(self, group_id: str, topics: Collection[str]) -> dict[TopicPartition, ResetRequest]:
        """The requests for these topics that are not applied yet, in all topics that they name.

        A request is never applied without one of its entries. So a request that replaces some of them contains the others.
        """
        found: dict[TopicPartition, ResetRequest] = {}
        read: set[str] = set()
        while new := {*topics, *(topic for order in found.values() for topic in order.moves)} - read:
            read |= new
            counts = self._counts(new)
            found |= self.waiting(
                group_id, [TopicPartition(t, p) for t in sorted(new & counts.keys()) for p in range(counts[t])]
            )
        return found

    def applied(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """The id of the last request that was applied to each partition, by the committed offsets of the group."""
        committed = self._metadata_store.read(group_id, partitions)
        return applied_ids(committed, self.entries(group_id, partitions))

    def entries(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, MemberEntry]:
        """The metadata entries that owners have written for partitions."""
        return member_entries_in(
            members_group_of(group_id), self._metadata_store.read(members_group_of(group_id), partitions)
        )

    def incompatible_members(self, group_id: str, members: Iterable[GroupMember]) -> list[GroupMember]:
        """The members that own partitions and do not apply reset requests: they have written no metadata entry."""
        members = list(members)
        entries = self.entries(group_id, {tp for m in members for tp in m.partitions})
        now_ms = self._clock()
        signed = {
            (tp, entry.member_id)
            for tp, entry in entries.items()
            if entry.until_ms is None or entry.until_ms + _ENTRY_DELAY_MS > now_ms
        }
        return [m for m in members if any((tp, m.member_id) not in signed for tp in m.partitions)]

    def _resets(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ResetRequest]:
        return reset_requests_in(
            resets_group_of(group_id), self._metadata_store.read(resets_group_of(group_id), partitions)
        )

    def _write(
        self,
        group_id: str,
        where: Mapping[TopicPartition, int],
        states: Mapping[TopicPartition, StateOrigin],
        *,
        void: bool,
        given: Collection[str] = (),
    ) -> str:
        number = new_reset_id()
        moves = {} if void else dict(Counter(tp.topic for tp in sorted(where)))
        resets = {tp: ResetRequest(number, n, moves, void, states.get(tp, UNNAMED)) for tp, n in sorted(where.items())}
        if any(len(order.encode().encode()) > _MAX_BYTES for order in resets.values()):
            raise _too_many(group_id, moves, given)
        entries = {tp: Committed(order.next_offset, order.encode()) for tp, order in resets.items()}
        self._metadata_store.write(resets_group_of(group_id), entries)
        return number


def _too_many(group_id: str, topics: Collection[str], given: Collection[str]) -> GroupRejected:
    """The error for a request that a broker would not store.

    Args:
        group_id: the group.
        topics: the topics of the request.
        given: those that the user resets. The other ones are those of requests that are not applied yet.
    """
    inherited = sorted(set(topics) - set(given))
    if not inherited:
        return GroupRejected(
            f"Group '{group_id}' has members, and {len(topics)} topics are too many for one reset request.",
            remedy="Reset fewer topics at a time, or stop the members first.",
        )
    return GroupRejected(
        f"Group '{group_id}' has members that have not applied earlier reset requests, for {listed(inherited)}. Together "
        f"these are {len(topics)} topics, too many for one reset request.",
        remedy=f"Wait until the members have applied them ({command('groups describe', [group_id])}), or stop the members first.",
    )


def member_entries_in(group_id: str, read: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, MemberEntry]:
    """The metadata entries of owners in :func:`~streamgroups.coordination.reset_protocol.members_group_of` a group.

    Args:
        group_id: the metadata group.
        read: its committed offsets and their metadata.
    """
    return read_entries(group_id, _metadata(read), lambda _, text: MemberEntry.parse(text))


def reset_requests_in(group_id: str, read: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, ResetRequest]:
    """The reset requests in :func:`~streamgroups.coordination.reset_protocol.resets_group_of` a group.

    Args:
        group_id: the metadata group.
        read: its committed offsets and their metadata.
    """
    return read_entries(group_id, _metadata(read), lambda tp, text: ResetRequest.parse(read[tp].next_offset, text))


def _metadata(read: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, str]:
    return {tp: c.metadata for tp, c in read.items()}
