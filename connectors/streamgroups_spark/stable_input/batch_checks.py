"""Rejects batches that cannot be pinned, before anything changes.

Called by ``stable_input.batches`` on the driver. Source: SEMANTICS X7.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from streamgroups.errors import InvalidOption
from streamgroups.stable_input import idempotency
from streamgroups.stable_input.pins import PinnedPart
from streamgroups_operators.pinned_records import SOURCE
from streamgroups_spark.sinks.batch_info import BatchInfo

_TYPES = (StringType, IntegerType, LongType)
_OTHER_QUERY = (
    "Write the output to a topic with sg.exactly_once, and read this topic with another query that has the side effect."
)


def check_columns(rows: DataFrame) -> None:
    """Rejects a batch whose rows cannot be attributed to records of the source.

    Raises:
        InvalidOption: if a column is missing, has another type, or has the name of the column of the keys.
    """
    names = rows.columns
    missing = [name for name in SOURCE if name not in names]
    if missing:
        raise InvalidOption(
            f"The batch has no column {', '.join(map(repr, missing))}, so its rows cannot be attributed to records.",
            remedy="Keep the columns 'topic', 'partition' and 'offset' of the source in each select. Rows behind an "
            f"aggregation have no offset: {_OTHER_QUERY}",
        )
    for name, of in zip(SOURCE, _TYPES, strict=True):
        found = [field.dataType for field in rows.schema.fields if field.name == name]
        if len(found) != 1 or not isinstance(found[0], of):
            raise InvalidOption(
                f"The column '{name}' has the type {found[0].simpleString()}" + (", twice." if len(found) > 1 else "."),
                remedy="The columns 'topic', 'partition' and 'offset' must be those of the source: do not replace them.",
            )
    if idempotency.COLUMN in names:
        raise InvalidOption(
            f"The batch already has a column '{idempotency.COLUMN}'.", remedy="Rename it: this column is added."
        )


def check_ordinary(info: BatchInfo, *, has_state: bool) -> str:
    """Returns the group of a batch that can be pinned.

    Raises:
        InvalidOption: if it reads for several groups, or its query has an operator with state.
    """
    groups = sorted({source.group_id for source in info.sources})
    if len(groups) > 1:
        raise InvalidOption(
            f"The query reads for the groups {', '.join(groups)}, but a stable batch belongs to one group.",
            remedy="Read all topics with one source ('subscribe' accepts several).",
        )
    if has_state or any(source.states_run_id is not None for source in info.sources):
        # A pinned batch is not computed again, but its state would have to be.
        raise InvalidOption(
            f"The query of group '{groups[0]}' has an operator with state, so its batches cannot be pinned.",
            remedy=_OTHER_QUERY,
        )
    return groups[0]


def check_pinned_columns(pinned: Collection[PinnedPart], schema: StructType, name: str) -> None:
    """Rejects pinned records with other columns than those of the batch.

    Raises:
        InvalidOption: if the columns differ: the program has changed since the records were pinned.
    """
    for part in pinned:
        if part.pin.segments and part.origin.columns != schema.simpleString():
            raise InvalidOption(
                f"The pinned records of {part.range} have the columns {part.origin.columns}, and those of the batch are "
                f"{schema.simpleString()}.",
                remedy="Let the previous version of the program finish these records. Or set another 'name' than "
                f"'{name}': the records are then computed again, and have the same keys.",
            )
