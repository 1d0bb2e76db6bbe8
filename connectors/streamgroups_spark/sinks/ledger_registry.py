"""Which sink keeps the ledger of which query, in the user's own process. The sources of a query request it (``rpc``).

Called by ``exactly_once`` and ``foreach_ledger`` before a query is started. A sink goes straight from here to the source's process, so its login
reaches no option, no plan and no file. An entry belongs to one checkpoint: a later query of the same group with another sink, or with none, has
nothing to do with it. It goes when the query has ended and its writer cannot be started again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle

from streamgroups.errors import InvalidOption
from streamgroups_spark import register as registering
from streamgroups_spark.internals.rpc import Answering
from streamgroups_spark.source.batch_messages import LedgerRequest


@dataclass(frozen=True, slots=True)
class _Ledger:
    """The sink of a query.

    Args:
        group_ids: the groups that the query reads for.
        sink: see :class:`streamgroups.ledgers.staging.StagingSink`.
        pickled: the same.
        writer: what starts the query.
    """

    group_ids: frozenset[str]
    sink: Any
    pickled: bytes
    writer: weakref.ref[Any]

    def is_same_sink(self, other: _Ledger) -> bool:
        # A restarted query may make its sink again.
        return bool(self.sink == other.sink) or self.pickled == other.pickled


class Ledgers:
    """The ledgers of one process.

    Args:
        active: the checkpoints of the queries that run now.
        resolved: a checkpoint as Spark resolves it, from what the user has given.
    """

    def __init__(self, active: Callable[[], Collection[str]], resolved: Callable[[str], str]) -> None:
        self._active, self._resolved = active, resolved
        self._lock = threading.Lock()
        self._kept: dict[str, _Ledger] = {}

    def keep(self, sink: Any, group_ids: Sequence[str], *, checkpoint: str, writer: Any) -> None:
        """From now on this sink keeps the ledger of the query with this checkpoint.

        Args:
            sink: see :class:`streamgroups.ledgers.staging.StagingSink`.
            group_ids: the groups that the query reads for.
            checkpoint: the query's.
            writer: what starts the query. The entry stays for as long as this is referenced, or the query runs.

        Raises:
            InvalidOption: if a running query keeps the ledger of one of these groups in another sink, or the sink does not pickle.
        """
        ledger = _Ledger(frozenset(group_ids), sink, _pickled(sink, group_ids), weakref.ref(writer))
        active = self._active()
        checkpoint = self._resolved(checkpoint)
        with self._lock:
            self._forget_ended(active)
            self._check(checkpoint, ledger, active)
            self._kept[checkpoint] = ledger

    def of(self, group_id: str, checkpoint: str | None) -> Any:
        """The sink that keeps the ledger of a group; ``None`` if the query has none.

        Args:
            group_id: the group that the source reads for.
            checkpoint: of its query; ``None`` if it is not known. Then the group alone must say which ledger is meant.

        Raises:
            InvalidOption: if another running query keeps the ledger of the group in another sink, or if several could be meant.
        """
        active = self._active()
        with self._lock:
            of_group = {where: ledger for where, ledger in self._kept.items() if group_id in ledger.group_ids}
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

    def _forget_ended(self, active: Collection[str]) -> None:
        ended = [where for where, ledger in self._kept.items() if ledger.writer() is None and where not in active]
        for where in ended:
            del self._kept[where]

    def _check(self, checkpoint: str, ledger: _Ledger, active: Collection[str]) -> None:
        for where, other in sorted(self._kept.items()):
            both = other.group_ids & ledger.group_ids
            if both and where != checkpoint and where in active and not other.is_same_sink(ledger):
                raise InvalidOption(
                    f"Group '{min(both)}' already has a ledger in {other.sink}, for the query with "
                    f"checkpoint '{where}'. Two ledgers would each contain only some of the positions.",
                    remedy="Stop that query first, set a separate group.id for each sink, or write to one sink.",
                )


def _pickled(sink: Any, group_ids: Sequence[str]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(sink))
    except Exception as e:
        raise InvalidOption(
            f"The ledger of group '{', '.join(group_ids)}' cannot be pickled ({type(e).__name__}: {e}), but "
            "the query's source needs a copy in its process.",
            remedy=(
                "Pass connection parameters to it. Open connections and files in its methods, not in the constructor."
            ),
        ) from e


_ledgers = Ledgers(registering.active_checkpoints, registering.resolved_checkpoint)
_lock = threading.Lock()
_answering: Answering | None = None


def keep(sink: Any, group_ids: Sequence[str], *, checkpoint: str, writer: Any) -> None:
    """See :meth:`Ledgers.keep`."""
    global _answering
    _ledgers.keep(sink, group_ids, checkpoint=checkpoint, writer=writer)
    with _lock:
        if _answering is None:
            _answering = Answering(registering.SESSION, _answer)


def _answer(question: Any) -> Any:
    return _ledgers.of(question.group_id, question.checkpoint) if isinstance(question, LedgerRequest) else None
