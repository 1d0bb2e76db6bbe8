"""The ledger of a query, pickled from the user's process to the process of its source.

Its class can belong to the user's program, so it cannot be JSON as the other messages. ``sinks.ledger_registry`` pickles it,
and ``source.running_query`` unpickles it. Only a process of this user with the key of the session can send it
(``bridge.rpc``): :func:`unpickled_ledger` executes code of the sender. Source: ``pyspark.cloudpickle``; SEMANTICS X3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups_spark.internals.private_spark import pickled, unpickled
from streamgroups_spark.messages.batch import LedgerReply


def pickled_ledger(sink: Any, group_ids: Sequence[str]) -> bytes:
    """Pickles a sink.

    Args:
        sink: see :class:`streamgroups.ledgers.staging.StagingSink`.
        group_ids: the groups of its query, for the error.

    Raises:
        InvalidOption: if it cannot be pickled, for example because it contains an open connection.
    """
    try:
        return pickled(sink)
    except Exception as e:
        raise InvalidOption(
            f"The ledger of group '{', '.join(group_ids)}' cannot be pickled ({type(e).__name__}: {e}), but "
            "the query's source needs a copy in its process.",
            remedy=(
                "Pass connection parameters to it. Open connections and files in its methods, not in the constructor."
            ),
        ) from e


def unpickled_ledger(reply: LedgerReply) -> Any:
    """Returns a copy of the sink.

    Args:
        reply: the reply of the user's process.

    Raises:
        StreamGroupsError: if it cannot be unpickled, for example because this process cannot import its class.
    """
    try:
        return unpickled(reply.pickled)
    except Exception as e:
        raise StreamGroupsError(
            f"The ledger of the query cannot be unpickled in the process of its source ({type(e).__name__}: {e}).",
            remedy="Install the packages of the sink for the Python of the driver's workers.",
        ) from e
