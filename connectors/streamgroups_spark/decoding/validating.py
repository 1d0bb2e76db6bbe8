"""``sg.schemas.validate``: dead letters for JSON values that violate a JSON Schema.

Called by users on the driver. Source: SEMANTICS P4.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType

from streamgroups_schemas.json_schema import validate_json, validator
from streamgroups_spark.decoding.decode_encode import check_column
from streamgroups_spark.decoding.python_values import apply_codec
from streamgroups_spark.dlq.failure_column import check_letters
from streamgroups_spark.frames.columns import column as column_of
from streamgroups_spark.internals.pickle_checks import Shipped


@dataclass(frozen=True, slots=True)
class Validator(Shipped):
    """Validates JSON values in a task."""

    schema: str

    def __call__(self, values: pa.Array) -> pa.Array:
        """Returns the problem of each value."""
        return validate_json(values, self.schema)


def validate(df: DataFrame, schema: str, *, column: str = "value", step: str = "validate") -> DataFrame:
    """Validates a column of JSON values. A value that violates the schema becomes a dead letter (SEMANTICS P4).

    Args:
        df: a stream or a batch DataFrame.
        schema: a JSON Schema, as JSON. It must not refer to other documents.
        column: the column with the values: binary or string.
        step: the name of the step in dead letters.

    Returns:
        The columns of ``df`` and the column ``dead_letter``. A null value, and a row that already has a dead letter, are
        not validated.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    Example::

        checked = sg.schemas.validate(records, '{"required": ["airport"], "properties": {"delay": {"minimum": 0}}}')
        flights = sg.decode(checked, sg.schemas.Json("airport string, delay int"))
    """
    check_letters(df)
    check_column(df, column, binary_only=False)
    validator(schema)
    original = column_of(column).cast("binary")
    return apply_codec(df, Validator(schema), column, type_=BooleanType(), into=None, step=step, original=original)
