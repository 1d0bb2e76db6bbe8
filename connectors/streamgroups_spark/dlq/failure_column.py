"""The column ``dead_letter``: a row that a step could not process carries its failure in it.

Called by each step on the driver. A good row has null. A step after another one passes rows that have a letter, and
does not process them. Source: SEMANTICS P4; :mod:`streamgroups.dlq.letter`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType, TimestampType

from streamgroups.dlq.letter import COLUMN, FAILURE, missing_columns
from streamgroups.errors import InvalidOption
from streamgroups_spark.frames.columns import column
from streamgroups_spark.internals.connect import reject_in_flow
from streamgroups_spark.internals.private_spark import type_of

_P = ParamSpec("_P")
#: The type of the column in SQL.
FAILURE_TYPE = f"STRUCT<{', '.join(f'{name}: {type_}' for name, type_ in FAILURE.items())}>"
_HEADERS = "array<struct<key:string,value:binary>>"
#: The types that each column of the source has, or that a user can have cast it to without a loss.
_SOURCE = {
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint", "int"),
    "timestamp": ("timestamp",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": (_HEADERS,),
}


def check_letters(df: DataFrame) -> None:
    """Checks that a column ``dead_letter`` of the DataFrame is one of this library.

    Raises:
        InvalidOption: if it has another type, or its name is in another case: Spark resolves ``DEAD_LETTER`` to this column, and
            its result has the name of the query.
    """
    for field in df.schema.fields:
        if field.name.lower() != COLUMN:
            continue
        if not is_failure(field.dataType):
            raise InvalidOption(
                f"The DataFrame has a column '{field.name}', which is no dead letter.", remedy="Rename the column."
            )
        if field.name != COLUMN:
            raise InvalidOption(
                f"The column '{COLUMN}' has the name '{field.name}': its dead letters would be rows of the output.",
                remedy=f"Write {COLUMN} in lower case in the query.",
            )


def is_failure(type_: DataType) -> bool:
    """Returns whether a type is that of the column ``dead_letter``."""
    if not isinstance(type_, StructType):
        return False
    return {it.name: it.dataType.simpleString() for it in type_.fields} == {
        name: _simple(sql) for name, sql in FAILURE.items()
    }


def source_columns(df: DataFrame) -> list[str]:
    """Returns the columns of the source record that the DataFrame has, with types that a letter can contain."""
    return [name for name in df.columns if name in _SOURCE and has_source_column(df.schema, name)]


def is_good(df: DataFrame) -> Column:
    """Returns whether a row has no dead letter, so that a step processes it."""
    return column(COLUMN).isNull() if COLUMN in df.columns else F.lit(True)


def failure(
    df: DataFrame,
    *,
    step: str,
    error_class: Column,
    error: Column,
    details: Column | None = None,
    value: Column | None = None,
) -> Column:
    """Returns the failure of a row, with the source record as far as the DataFrame has its columns.

    Args:
        df: the rows.
        step: the name of the step.
        error_class: the class of the error.
        error: its message, without secrets.
        details: more facts, a map; ``None`` for no facts.
        value: the value of the record if the DataFrame has no column ``value``.
    """
    return failure_of(df.schema, column, step=step, error_class=error_class, error=error, details=details, value=value)


def failure_of(
    schema: StructType,
    cell: Callable[[str], Column],
    *,
    step: str,
    error_class: Column,
    error: Column,
    details: Column | None = None,
    value: Column | None = None,
    is_output: bool = False,
) -> Column:
    """Returns the failure of a record: see :func:`failure`.

    Args:
        schema: the columns of the record.
        cell: returns a column of the record.
        is_output: whether it is a record of the output. Without a column ``key``, its key is null.
    """
    facts = {} if is_output else missing_of(schema, has_value=value is not None)
    more = F.create_map(*(F.lit(it) for pair in facts.items() for it in pair)).cast("map<string,string>")
    if details is None:
        details = more
    elif facts:
        details = F.map_concat(details, more)
    own = {
        "step": F.lit(step),
        "error_class": error_class,
        "error": error,
        "details": details,
    }
    cells = {}
    for name, sql in FAILURE.items():
        if name in own:
            cells[name] = own[name]
        elif has_source_column(schema, name):
            cells[name] = cell(name)
        elif name == "value" and value is not None:
            cells[name] = value
        else:
            cells[name] = F.lit(None)
        cells[name] = cells[name].cast(sql).alias(name)
    return F.struct(*cells.values())


def missing_of(schema: StructType, *, has_value: bool = False) -> dict[str, str]:
    """Returns the detail with the key or the value that a record does not have.

    Args:
        schema: the columns of the record.
        has_value: whether another column contains the value.
    """
    names = [name for name in ("key", "value") if has_source_column(schema, name)]
    return missing_columns([*names, "value"] if has_value else names)


def with_letter(df: DataFrame, letter: Column) -> Column:
    """Returns the column ``dead_letter`` after a step: the earlier letter of a row, or else that of the step."""
    letter = letter.cast(FAILURE_TYPE)
    return (F.coalesce(column(COLUMN), letter) if COLUMN in df.columns else letter).alias(COLUMN)


def passes_letters(
    step: Callable[Concatenate[DataFrame, _P], DataFrame],
) -> Callable[Concatenate[DataFrame, _P], DataFrame]:
    """Lets a step whose output has other rows than its input, such as windows, return earlier dead letters beside it.

    The step receives the rows without a dead letter.
    """

    @wraps(step)
    def called(df: DataFrame, /, *args: _P.args, **kwargs: _P.kwargs) -> DataFrame:
        reject_in_flow(df, f"sg.{step.__name__}")
        check_letters(df)
        if COLUMN not in df.columns:
            return step(df, *args, **kwargs)
        output = step(df.where(column(COLUMN).isNull()).drop(COLUMN), *args, **kwargs)
        earlier = df.where(column(COLUMN).isNotNull()).select(COLUMN)
        return output.unionByName(earlier, allowMissingColumns=True)

    return called


def has_source_column(schema: StructType, name: str) -> bool:
    """Returns whether a record has a column of the source, with a type from which its bytes can be restored."""
    if name not in _SOURCE or schema.names.count(name) != 1:
        return False
    type_ = schema[name].dataType
    return isinstance(type_, TimestampType) if name == "timestamp" else type_.simpleString() in _SOURCE[name]


def _simple(sql: str) -> str:
    return type_of(sql).simpleString()
