"""The output mode of the sinks: they add the rows of each batch.

Called by the sinks when Spark creates their writers, and by ``sinks.stream_writer`` before it starts a query. Spark itself rejects
only ``update`` for sinks in Python. Source: Spark's ``SupportsTruncate``; SEMANTICS X1.
"""

from __future__ import annotations

from streamgroups.errors import InvalidOption

_REMEDY = (
    "Use 'append' with sg.windows or a watermark, or foreachBatch with sg.ledgers.ledger for a table that is replaced."
)


def check_output_mode(mode: str) -> None:
    """Rejects another mode than ``append``.

    Args:
        mode: the argument of ``DataStreamWriter.outputMode``.

    Raises:
        InvalidOption: for ``complete`` and ``update``.

    >>> check_output_mode("Append")
    """
    if mode.lower() != "append":
        raise InvalidOption(f"Output mode '{mode}' is set for a sink that adds rows.", remedy=_REMEDY)


def reject_overwrite(overwrite: bool) -> None:
    """Rejects the output mode ``complete``, for which Spark passes all rows of the result again in each batch.

    Args:
        overwrite: the argument of Spark's ``DataSource.streamWriter``.

    Raises:
        InvalidOption: in this mode.
    """
    if overwrite:
        raise InvalidOption(
            "Output mode 'complete' writes the whole result in each batch, and this sink adds rows.",
            remedy=_REMEDY,
        )
