"""Moving a group that has members: orders are left on its board, and its members obey them.

Used by ``group_operations`` (``GroupCursors.update_group``) and by the command line (``streamgroups groups reset``). A broker lets nobody but
members commit to a group that has some. What members do with an order is :mod:`streamgroups.coordination.reset_participant`. Source: SEMANTICS G8, S6.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from streamgroups.coordination.reset_protocol import Note, Order, board_of, pending, resets_of
from streamgroups.errors import GroupRefused
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Board, Clock, Committed

#: So many notes in one commit: far below what a broker takes as one (about 1 MB).
_NOTES_PER_COMMIT = 1_000
#: The default limit of a broker for offset metadata (``offset.metadata.max.bytes``): 4,096, with the NUL that ends a text in librdkafka.
_MOST_BYTES = 4_095
#: How much longer an instance may be there than it has noted: it notes its lease once a second.
_NOTE_DELAY_MS = 2_000


class Owner(Protocol):
    """A live member, by whomever it was described."""

    @property
    def client_id(self) -> str: ...
    @property
    def partitions(self) -> frozenset[TopicPartition]: ...


_Owner = TypeVar("_Owner", bound=Owner)


class OrderBook:
    """The orders of groups, and who obeys.

    Args:
        board: the groups' notes.
        clock: the time now, in milliseconds since the epoch.
    """

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock

    def give(self, group_id: str, where: Mapping[TopicPartition, int], counts: Mapping[str, int]) -> str:
        """Orders the owners of partitions to go on elsewhere, all in one step.

        Orders that are not obeyed yet become part of this one.

        Args:
            group_id: the group.
            where: the next offset of each partition.
            counts: how many partitions each of the topics has.

        Returns:
            The order's id.

        Raises:
            GroupRefused: if it names too many topics for one step.
        """
        waiting = self.waiting(group_id, [TopicPartition(t, p) for t, count in counts.items() for p in range(count)])
        moved = {tp: order.next_offset for tp, order in waiting.items()} | dict(where)
        return self._write(group_id, moved, void=False)

    def cancel(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Makes orders for partitions out of date: they are moved by committing."""
        given = self._orders(group_id, partitions)
        if given:
            self._write(group_id, {tp: order.next_offset for tp, order in given.items()}, void=True)

    def waiting(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Order]:
        """The orders that have not been obeyed yet."""
        orders = self._orders(group_id, partitions)
        obeyed = {tp: note.obeyed for tp, note in self.notes(group_id, orders).items()}
        return pending(orders, obeyed)

    def notes(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Note]:
        """What owners have noted of partitions."""
        return notes_in(board_of(group_id), self._board.read(board_of(group_id), partitions))

    def strangers(self, group_id: str, members: Iterable[_Owner]) -> list[_Owner]:
        """The members that have partitions and have not noted themselves on the board, as those do who obey orders."""
        members = list(members)
        notes = self.notes(group_id, {tp for m in members for tp in m.partitions})
        now_ms = self._clock()
        signed = {
            (tp, note.instance)
            for tp, note in notes.items()
            if note.until_ms is None or note.until_ms + _NOTE_DELAY_MS > now_ms
        }
        return [m for m in members if any((tp, m.client_id) not in signed for tp in m.partitions)]

    def _orders(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Order]:
        return orders_in(resets_of(group_id), self._board.read(resets_of(group_id), partitions))

    def _write(self, group_id: str, where: Mapping[TopicPartition, int], *, void: bool) -> str:
        number = uuid.uuid4().hex
        moves = {} if void else dict(Counter(tp.topic for tp in sorted(where)))
        orders = {tp: Order(number, n, moves, void) for tp, n in sorted(where.items())}
        if any(len(order.encode().encode()) > _MOST_BYTES for order in orders.values()):
            raise GroupRefused(
                f"Group '{group_id}' has members, and {len(moves)} topics are too many for one reset request.",
                remedy="Reset fewer topics at a time, or stop the members first.",
            )
        rows = [(tp, Committed(order.next_offset, order.encode())) for tp, order in orders.items()]
        for i in range(0, len(rows), _NOTES_PER_COMMIT):
            self._board.write(resets_of(group_id), dict(rows[i : i + _NOTES_PER_COMMIT]))
        return number


def notes_in(group_id: str, read: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, Note]:
    """The notes among what was read from a metadata group, :func:`~streamgroups.coordination.reset_protocol.board_of` a group."""
    return read_entries(group_id, _metadata(read), lambda _, text: Note.parse(text))


def orders_in(group_id: str, read: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, Order]:
    """The orders among what was read from a metadata group, :func:`~streamgroups.coordination.reset_protocol.resets_of` a group."""
    return read_entries(group_id, _metadata(read), lambda tp, text: Order.parse(read[tp].next_offset, text))


def _metadata(read: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, str]:
    return {tp: c.metadata for tp, c in read.items()}
