"""A sink with a ledger in memory, with atomic transactions. Implements :class:`streamgroups.ports.Ledger`.

Transactions are optimistic. Two can be open at once, and the one that ends second is rejected if the first has changed
a value that it has read. A test can run code at every moment of a transaction: to change the ledger there, or to abort
the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

from streamgroups.errors import LedgerConflict
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed

_Output = TypeVar("_Output")


class Moment(Enum):
    """A moment of a transaction at which a test can run code."""

    #: Nothing was read yet.
    BEGUN = "begun"
    #: All values are read and written, and not visible yet.
    COMMITTING = "committing"
    #: All values are visible, and the caller has not received the result yet.
    COMMITTED = "committed"


def _nothing(moment: Moment) -> None:
    """The default of :class:`FakeLedger`: no action at the moments of a transaction."""


class FakeLedger(Generic[_Output]):
    """Output in the order of its commits, and the positions that it contains.

    Args:
        group_id: the group of :meth:`positions`, and of a transaction that names no other group.
        at: called at every :class:`Moment` of a transaction. If it raises, the transaction is aborted there.

    >>> ledger: FakeLedger[str] = FakeLedger("billing")
    >>> with ledger.transaction() as transaction:
    ...     transaction.write("ten flights")
    ...     transaction.advance({TopicPartition("flights", 0): 10})
    >>> ledger.written, ledger.positions([TopicPartition("flights", 0)])
    (['ten flights'], {TopicPartition(topic='flights', partition=0): 10})
    """

    def __init__(self, group_id: str, at: Callable[[Moment], None] = _nothing) -> None:
        self.group_id, self.at = group_id, at
        self.written: list[_Output] = []
        self._positions: dict[tuple[str, TopicPartition], int] = {}
        self._identities: dict[tuple[str, TopicPartition], TopicIdentity] = {}

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Ledger.positions`."""
        return self.positions_of(self.group_id, partitions)

    def identities_of(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TopicIdentity]:
        """Returns the topic identities of the positions of any group."""
        found = {tp: self._identities.get((group_id, tp), UNKNOWN) for tp in partitions}
        return {tp: it for tp, it in found.items() if it != UNKNOWN}

    def positions_of(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the positions of any group."""
        return {tp: self._positions[group_id, tp] for tp in partitions if (group_id, tp) in self._positions}

    @contextmanager
    def transaction(self) -> Iterator[_Transaction[_Output]]:
        """See :meth:`streamgroups.ports.Ledger.transaction`."""
        self.at(Moment.BEGUN)
        transaction = _Transaction[_Output](self, self.group_id, _Pending())
        yield transaction
        self.at(Moment.COMMITTING)
        pending = transaction.pending
        changed = sorted(tp for (g, tp), n in pending.read.items() if self._positions.get((g, tp)) != n)
        if changed:
            raise LedgerConflict(
                f"Another transaction has changed the ledger positions of {listed(changed)}.",
                remedy="Try again.",
            )
        self.written += pending.written
        self._positions |= pending.next_offsets
        self._identities |= pending.identities
        self.at(Moment.COMMITTED)


class _Pending(Generic[_Output]):
    """The reads and writes of one transaction, for all groups."""

    def __init__(self) -> None:
        self.read: dict[tuple[str, TopicPartition], int | None] = {}
        self.written: list[_Output] = []
        self.next_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.identities: dict[tuple[str, TopicPartition], TopicIdentity] = {}


class _Transaction(Generic[_Output]):
    """See :class:`streamgroups.ports.LedgerTransaction`."""

    def __init__(self, ledger: FakeLedger[_Output], group_id: str, pending: _Pending[_Output]) -> None:
        self._ledger, self._group_id, self.pending = ledger, group_id, pending

    def of(self, group_id: str) -> _Transaction[_Output]:
        return _Transaction(self._ledger, group_id, self.pending)

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._ledger.positions_of(self._group_id, partitions)
        self.pending.read |= {(self._group_id, tp): found.get(tp) for tp in partitions}
        return found

    def write(self, output: _Output) -> None:
        self.pending.written.append(output)

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        return self._ledger.identities_of(self._group_id, partitions)

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        self.pending.next_offsets |= {(self._group_id, tp): n for tp, n in next_offsets.items()}
        self.pending.identities |= {(self._group_id, tp): identities.get(tp, UNKNOWN) for tp in next_offsets}
