"""Rejects tables with writer requirements that this sink does not support. Pure functions.

Called by ``tables``. Source: Delta's protocol, "Table Features" and "Requirements for Writers". deltalake itself
rejects unknown features. This module checks the features that deltalake leaves to the writer of data files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamgroups.errors import SinkRejected

_HARMLESS = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
#: Keys in the metadata of a column whose values the table generates.
_MADE_BY_THE_TABLE = ("delta.generationExpression", "delta.identity.start")
_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True)
class Demands:
    """The writer requirements in the log of a table.

    Args:
        features: the names of writer features.
        settings: the properties of the table.
        columns: the metadata of each column, by its name.
    """

    features: Sequence[str]
    settings: Mapping[str, str]
    columns: Mapping[str, Mapping[str, object]]


def check_ledger(settings: Mapping[str, str], *, uri: str) -> None:
    """Rejects a table that expires transaction identifiers. The ledger consists of them.

    Raises:
        SinkRejected: if the table has a retention for them.
    """
    if settings.get(_RETENTION):
        raise SinkRejected(
            f"Table {uri} has the property {_RETENTION}: an idle partition would lose its position after that time.",
            remedy=f"Remove the property: ALTER TABLE ... UNSET TBLPROPERTIES ('{_RETENTION}').",
        )


def check_files_may_be_added(demands: Demands, *, uri: str, replaces: bool) -> None:
    """Rejects a table that does not permit to add or replace data files.

    Args:
        demands: the requirements of the table.
        uri: the address of the table.
        replaces: whether files are also removed.

    Raises:
        SinkRejected: if a feature, constraint or column prevents it. The error contains its name.

    >>> check_files_may_be_added(Demands(["checkConstraints"], {}, {}), uri="/flights", replaces=False)
    """
    for what in _obstacles(demands, replaces=replaces):
        raise SinkRejected(
            f"Table {uri} has {what}, which this mode of the sink does not support.",
            remedy="Write to a table without it, or with Spark's own Delta sink at least once.",
        )
    if replaces and demands.settings.get("delta.appendOnly", "").lower() == "true":
        raise SinkRejected(
            f"Table {uri} is append-only (delta.appendOnly), and this mode replaces files.", remedy="Use mode='append'."
        )


def _obstacles(demands: Demands, *, replaces: bool) -> Iterable[str]:
    yield from (f"the feature '{name}'" for name in demands.features if name not in _HARMLESS)
    yield from (
        f"the constraint '{key.removeprefix('delta.constraints.')}'"
        for key in demands.settings
        if key.startswith("delta.constraints.")
    )
    for name, metadata in demands.columns.items():
        if "delta.invariants" in metadata:
            yield f"an invariant on column '{name}'"
        if any(key in metadata for key in _MADE_BY_THE_TABLE):
            yield f"the generated column '{name}'"
    if demands.settings.get("delta.columnMapping.mode", "none") != "none":
        yield "column mapping"
    # A file with a deletion vector is removed by path and vector, but deltalake accepts only the path.
    if replaces and "deletionVectors" in demands.features:
        yield "deletion vectors"
