"""Rejects columns for which Python and a sink receive only a binary form of Spark: of the types VARIANT, GEOMETRY and GEOGRAPHY.

Called on the driver before a query starts. Arrow has a struct of numbers and bytes for such a column. A sink would store these
bytes, and a function would receive them instead of ``{"delay": 5}``, without an error. The sinks check their batches again
(:mod:`streamgroups_sinks.spark_types`). Operators and pinned records return such a column as it was, so they accept it. Source:
PySpark's ``pyspark.sql.pandas.types``.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql.types import DataType, StructType

from streamgroups.errors import InvalidOption
from streamgroups_spark.frames.record_values import contains
from streamgroups_spark.internals.spark_api import BINARY_FORM_TYPES


def check_no_binary_form(columns: StructType, receiver: str, *, remedy: str | None = None) -> None:
    """Checks that no column contains a type in a binary form of Spark.

    Args:
        columns: the columns.
        receiver: the sink or function that receives or returns them, for errors.
        remedy: what else the user can do. Default: the conversion in a query.

    Raises:
        InvalidOption: for the first such column. The error contains its name and the type.

    >>> from pyspark.sql.types import ArrayType, VariantType
    >>> check_no_binary_form(StructType().add("payload", ArrayType(VariantType())), "the sink DeltaSink")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Column 'payload' contains the type variant, for which the sink DeltaSink has only \
Spark's binary form. Write it as a string with to_json.
    """
    for field in columns.fields:
        for type_, conversion in BINARY_FORM_TYPES.items():
            if contains(field.dataType, partial(_is, type_)):
                raise InvalidOption(
                    f"Column '{field.name}' contains the type {type_.typeName()}, for which {receiver} has only "
                    "Spark's binary form.",
                    remedy=remedy or conversion,
                )


def _is(type_: type[DataType], of: DataType) -> bool:
    return isinstance(of, type_)
