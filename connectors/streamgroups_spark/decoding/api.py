"""``sg.decode``: values of records as columns, with dead letters for those that cannot be decoded.

Called by users on the driver. Source: SEMANTICS P4.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups.decoding.formats import Json
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups_spark.decoding.json_values import decode_json
from streamgroups_spark.dlq.failure_column import check_letters

_STEP = "decode"


def decode(df: DataFrame, format: Json, *, column: str = "value", into: str = "record", step: str = _STEP) -> DataFrame:
    """Decodes a column. A value that cannot be decoded becomes a dead letter, and the query continues (SEMANTICS P4).

    Args:
        df: a stream or a batch DataFrame. Dead letters contain the columns of the source that it has: ``topic``,
            ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``.
        format: the format of the values: :class:`Json`.
        column: the column with the values: binary, or a string for JSON.
        into: the name of the new column, a struct.
        step: the name of the step in dead letters.

    Returns:
        The columns of ``df``, the column ``into``, and the column ``dead_letter``. Exactly one of both is set, except
        for a null value (a tombstone): then both are null. A row that already has a dead letter is not decoded.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    Example::

        flights = sg.decode(records, sg.Json("airport string, delay int"))
        delays = flights.select("key", "record.airport", "record.delay", "dead_letter")
    """
    check_letters(df)
    _check_columns(df, column, into, binary_only=False)
    if not isinstance(format, Json):
        raise InvalidOption(f"Option 'format' is {format!r}.", remedy="Pass sg.Json(...).")
    return decode_json(df, column, format, into=into, step=step)


def _check_columns(df: DataFrame, column: str, into: str, *, binary_only: bool) -> None:
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    if column not in types:
        raise InvalidOption(
            f"The DataFrame has no column '{column}'.", remedy=f"Its columns are: {', '.join(df.columns)}."
        )
    permitted = ("binary",) if binary_only else ("binary", "string")
    if types[column] not in permitted:
        raise InvalidOption(
            f"Column '{column}' has the type {types[column]}.", remedy=f"It must be {' or '.join(permitted)}."
        )
    if into.lower() in {name.lower() for name in [*df.columns, COLUMN]}:
        raise InvalidOption(f"The DataFrame already has a column '{into}'.", remedy="Set 'into' to another name.")
