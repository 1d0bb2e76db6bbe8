"""Tables of dead letters: the settings of their sinks.

Called by ``sinks.exactly_once`` on the driver. Source: SEMANTICS X9; :data:`streamgroups.dlq.letter.LETTER`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups_spark.sinks.letters.of_batch import letter_schema


def letter_table(sink: Any) -> Any:
    """Returns the sink of a table of dead letters. :func:`create_letter_table` creates the table.

    A row of PostgreSQL replaces one with the same id. So letters that are written again after a reset replace their
    rows.

    Args:
        sink: the sink of the user.
    """
    if hasattr(sink, "conninfo") and sink.mode == "append":
        return replace(sink, mode="upsert", key=("id",))
    return sink


def create_letter_table(sink: Any) -> None:
    """Creates the table of dead letters if it does not exist, before the query starts.

    Args:
        sink: the sink of :func:`letter_table`.

    Raises:
        StreamGroupsError: if the table does not fit, or is not accessible.
    """
    sink.discard(sink.begin(letter_schema(), uuid.uuid4().hex))


def check_isolation(sink: Any, dead: Any) -> None:
    """Checks the setting ``isolate_violations`` of the sink of the output, before anything is created.

    The transaction of the output finds the rows. So their dead letters can only be written in it.

    Args:
        sink: the sink of the output.
        dead: the sink of dead letters; ``None`` without.

    Raises:
        InvalidOption: if the dead letters are not in the database of the sink.
    """
    if not getattr(sink, "isolate_violations", False) or (dead is not None and has_same_database(dead, sink)):
        return
    where = "'dead_letters' is not set" if dead is None else "'dead_letters' is another system or another database"
    raise InvalidOption(
        f"'isolate_violations' of table {sink.table} is set, but {where}. Only the transaction of the output finds such rows.",
        remedy="Pass dead_letters=sg.PostgresSink(...) with the same connection, or remove isolate_violations.",
    )


def has_same_database(dead: Any, sink: Any) -> bool:
    """Returns whether a transaction of the sink can write dead letters: both are tables of one PostgreSQL database.

    Args:
        dead: the sink of dead letters.
        sink: the sink of the output.
    """
    conninfo, connection = getattr(dead, "conninfo", None), getattr(dead, "connection", None)
    if conninfo is None or conninfo != getattr(sink, "conninfo", None):
        return False
    return bool(connection == getattr(sink, "connection", None))
