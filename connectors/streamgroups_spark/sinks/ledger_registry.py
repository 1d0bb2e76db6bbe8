"""The registry of sinks with a ledger, by query, in the user's process.

The ``start()`` of ``sinks.exactly_once``, and ``sinks.foreach_ledger``, register a sink before its query is started, and the
source requests it by driver RPC. The sink moves directly to the process of the source, so its credentials appear in no option, plan or
file. An entry belongs to one checkpoint and one sink. It does not affect a later query with another one: no batch of that query
moves the ledger, so its positions would be those of the past. An entry is deleted when the query has ended and its writer
cannot be started again. Source: SEMANTICS X2, X3.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge import user_process
from streamgroups_spark.bridge.pickled_ledger import pickled_ledger
from streamgroups_spark.internals.private_spark import FOREACH_BATCH
from streamgroups_spark.messages.batch import LedgerReply, LedgerRequest


@dataclass(frozen=True, slots=True)
class _Ledger:
    """The sink of a query.

    Args:
        sink_name: the sink of the query, as in ``QueryFacts``.
        group_ids: the groups of the query.
        sink: see :class:`streamgroups.ledgers.staging.StagingSink`.
        pickled: the pickled sink.
        writer: the object that starts the query.
    """

    sink_name: str
    group_ids: frozenset[str]
    sink: Any
    pickled: bytes
    writer: weakref.ref[Any]

    def may_be_of(self, sink_name: str | None) -> bool:
        """Whether a query with this sink moves the ledger. ``None``: the sink is unknown."""
        # The function of a running foreachBatch refers to its ledger.
        is_used = self.sink_name != FOREACH_BATCH or self.writer() is not None
        return sink_name is None or (sink_name == self.sink_name and is_used)

    def is_same_sink(self, other: _Ledger) -> bool:
        # A restarted query may create an equal sink.
        return bool(self.sink == other.sink) or self.pickled == other.pickled


class Ledgers:
    """The ledgers of one process.

    Args:
        active: returns the checkpoints of the active queries.
        resolved: resolves a checkpoint of the user as Spark does.
    """

    def __init__(self, active: Callable[[], Collection[str]], resolved: Callable[[str], str]) -> None:
        self._active, self._resolved = active, resolved
        self._lock = threading.Lock()
        self._kept: dict[str, _Ledger] = {}

    def keep(self, sink: Any, group_ids: Sequence[str], *, checkpoint: str, writer: Any, sink_name: str) -> None:
        """Registers this sink as the ledger of the query with this checkpoint.

        Args:
            sink: see :class:`streamgroups.ledgers.staging.StagingSink`.
            group_ids: the groups of the query.
            checkpoint: the checkpoint of the query.
            writer: the object that starts the query. The entry exists while this object is referenced, or the query
                runs.
            sink_name: the sink of the query, as in ``QueryFacts``.

        Raises:
            InvalidOption: if an active query has the ledger of one of these groups in another sink, or if the sink
                cannot be pickled.
        """
        ledger = _Ledger(sink_name, frozenset(group_ids), sink, pickled_ledger(sink, group_ids), weakref.ref(writer))
        checkpoint = self._resolved(checkpoint)
        active = self._forget_ended()
        with self._lock:
            self._check(checkpoint, ledger, active)
            self._kept[checkpoint] = ledger

    def of(self, group_id: str, checkpoint: str | None, sink_name: str | None) -> Any:
        """Returns the sink with the ledger of a group. ``None`` if the query has no ledger.

        Args:
            group_id: the group of the source.
            checkpoint: the checkpoint of its query. ``None`` if it is unknown. Then the group must have only one
                ledger.
            sink_name: the sink of its query, as in ``QueryFacts``. ``None`` if it is unknown.

        Raises:
            InvalidOption: if another active query has the ledger of the group in another sink, or if several ledgers
                match.
        """
        active = self._active()
        with self._lock:
            of_group = {
                where: ledger
                for where, ledger in self._kept.items()
                if group_id in ledger.group_ids and ledger.may_be_of(sink_name)
            }
            if checkpoint is None:
                first, *others = of_group.values() or [None]
                if first is not None and not all(first.is_same_sink(other) for other in others if other is not None):
                    raise InvalidOption(
                        f"Group '{group_id}' has ledgers in several sinks, and the checkpoint of its query "
                        "cannot be determined.",
                        remedy="Call sg.register(spark) in the process that starts the query.",
                    )
                return None if first is None else first.sink
            if checkpoint not in of_group:
                return None
            self._check(checkpoint, of_group[checkpoint], active)
            return of_group[checkpoint].sink

    def _forget_ended(self) -> Collection[str]:
        """Deletes the entries of queries that have ended and cannot be started again. Returns the active queries."""
        with self._lock:
            without_writer = {where: ledger for where, ledger in self._kept.items() if ledger.writer() is None}
        # In this order: another thread can start a query meanwhile, and Spark makes it active before its writer is deleted.
        active = self._active()
        with self._lock:
            for where, ledger in without_writer.items():
                # Another thread can have replaced the entry.
                if where not in active and self._kept.get(where) is ledger:
                    del self._kept[where]
        return active

    def _check(self, checkpoint: str, ledger: _Ledger, active: Collection[str]) -> None:
        for where, other in sorted(self._kept.items()):
            both = other.group_ids & ledger.group_ids
            if both and where != checkpoint and where in active and not other.is_same_sink(ledger):
                raise InvalidOption(
                    f"Group '{min(both)}' already has a ledger in {other.sink}, for the query with "
                    f"checkpoint '{where}'. Two ledgers would each contain only some of the positions.",
                    remedy="Stop that query first, set a separate group.id for each sink, or write to one sink.",
                )


_ledgers = Ledgers(user_process.active_checkpoints, user_process.resolved_checkpoint)


def keep(sink: Any, group_ids: Sequence[str], *, checkpoint: str, writer: Any, sink_name: str) -> None:
    """See :meth:`Ledgers.keep`."""
    _ledgers.keep(sink, group_ids, checkpoint=checkpoint, writer=writer, sink_name=sink_name)
    user_process.answer(LedgerRequest, _answer)


def _answer(request: LedgerRequest) -> LedgerReply | None:
    sink = _ledgers.of(request.group_id, request.checkpoint, request.sink)
    return None if sink is None else LedgerReply(pickled_ledger(sink, [request.group_id]))
