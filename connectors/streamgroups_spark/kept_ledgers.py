"""Which sink keeps the ledger of which group, in the user's own process: sources of the session ask for it (``rendezvous``).

Told by ``exactly_once`` and ``foreach_ledger`` before a query is started. A sink goes straight from here to the source's process, so its login
reaches no option, no plan and no file.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark import cloudpickle

from streamgroups.errors import InvalidOption
from streamgroups_spark.batch_facts import LedgerQuestion
from streamgroups_spark.registering import SESSION
from streamgroups_spark.rendezvous import Answering

_lock = threading.Lock()
_sinks: dict[str, Any] = {}
_answering: Answering | None = None


def keep(group_id: str, sink: Any) -> None:
    """From now on this sink keeps the ledger of the group.

    Args:
        group_id: whose.
        sink: see :class:`streamgroups.staging.StagingSink`.

    Raises:
        InvalidOption: if another one does: two ledgers would each have a part of the positions. Or if it does not pickle: the
            source runs in another process.
    """
    global _answering
    try:
        cloudpickle.dumps(sink)
    except Exception as e:
        raise InvalidOption(
            f"The ledger of group '{group_id}' does not pickle ({type(e).__name__}: {e}), and the query's source needs a copy in its process.",
            remedy="Give it what it needs to connect; open connections and files where they are used, not in the constructor.",
        ) from e
    with _lock:
        kept = _sinks.setdefault(group_id, sink)
        # A restarted query may make its sink anew: what counts is that it is the same.
        if kept != sink and cloudpickle.dumps(kept) != cloudpickle.dumps(sink):
            raise InvalidOption(
                f"Group '{group_id}' has a ledger in {kept} already.",
                remedy="Give each sink a group.id of its own, or write to one sink; the session remembers it until it ends.",
            )
        if _answering is None:
            _answering = Answering(SESSION, _answer)


def _answer(question: Any) -> Any:
    return _sinks.get(question.group_id) if isinstance(question, LedgerQuestion) else None
