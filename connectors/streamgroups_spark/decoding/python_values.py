"""Values that Python codecs decode and encode: expressions over one column, so Spark passes no other column to Python.

Called by ``decoding.decode_encode`` on the driver, which first checks whether a column can be encoded. The codecs of ``streamgroups_schemas`` run in tasks. A registry is pickled with
the function: a plan shows only the name of the function, and no setting (SEMANTICS P3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, DayTimeIntervalType, MapType, StructField, StructType

from streamgroups.decoding.formats import Avro, Protobuf
from streamgroups.decoding.registry import RegisteredSchema
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups_kafka.schema_registry.client import RegistryClient
from streamgroups_schemas.results import PROBLEM
from streamgroups_spark.dlq.failure_column import failure, has_source_column, is_good, with_letter
from streamgroups_spark.frames.columns import column
from streamgroups_spark.internals.arrow_functions import arrow_function
from streamgroups_spark.internals.private_spark import from_arrow_type
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import FEATURES

_DONE = "__streamgroups_done"
#: A function of a task: an array of values to an array of ``result`` and ``problem``.
Codec = Callable[[pa.Array], pa.Array]
#: Types of columns that a schema with a wider type accepts.
_WIDER = {
    "tinyint": ("int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def apply_codec(
    df: DataFrame,
    codec: Codec,
    name: str,
    *,
    type_: DataType,
    into: str | None,
    step: str,
    original: Column | None = None,
) -> DataFrame:
    """Adds a column with the results of a codec, and the column ``dead_letter``.

    Args:
        df: the rows.
        codec: the codec.
        name: the column with its arguments.
        type_: the type of its results.
        into: the name of the new column. An existing column of this name is replaced. ``None``: results are not kept.
        step: the name of the step in letters.
        original: the value of letters if the DataFrame has no column ``value``. ``None`` if the argument is no value: then
            these letters have it as JSON in ``record``.
    """
    problem_type = from_arrow_type(PROBLEM)
    returned = StructType([StructField("result", type_), StructField("problem", problem_type)])
    done = _function(codec, returned)(F.when(is_good(df), column(name)))
    staged = df.select("*", done.alias(_DONE))
    problem = F.col(_DONE)["problem"]
    details = problem["details"]
    if original is None and not has_source_column(df.schema, "value"):
        details = F.map_concat(details, F.create_map(F.lit("record"), F.to_json(column(name))))
    letter = failure(
        staged,
        step=step,
        error_class=problem["error_class"],
        error=problem["error"],
        details=details,
        value=original,
    )
    kept = [column(it) for it in df.columns if it not in (COLUMN, into)]
    result = [] if into is None else [F.col(_DONE)["result"].alias(into)]
    return staged.select(*kept, *result, with_letter(df, F.when(problem.isNotNull(), letter)))


def _function(codec: Codec, returned: StructType) -> Any:
    def decode_values(values: pa.Array) -> pa.Array:
        prepare_python_worker()
        return codec(values)

    if not FEATURES.has_arrow_api:
        raise FEATURES.needs("A codec of Avro, Protobuf or JSON Schema", "4.1")
    made = arrow_function(decode_values, returned)
    # Otherwise Spark evaluates it again for each filter on its results.
    return made.asNondeterministic()


def latest_schema(format_: Avro | Protobuf, type_: str) -> RegisteredSchema:
    """Requests the latest schema of the subject of a format.

    Args:
        format_: a format with a registry.
        type_: the name of the type in the registry.

    Raises:
        InvalidOption: if the schema has another type.
        StreamGroupsError: if the registry does not answer, or does not have the subject.
    """
    assert format_.registry is not None
    assert format_.subject is not None
    # A new client for each build: an earlier one has cached the latest schema, and has the earlier password.
    with RegistryClient(format_.registry) as client:
        latest = client.latest(format_.subject, type_)
    if latest.type != type_:
        raise InvalidOption(
            f"The latest schema of subject '{format_.subject}' has the type {latest.type}, and not {type_}.",
            remedy="Correct 'subject', or use the format of the subject.",
        )
    return latest


def check_encodable(given: DataType, expected: DataType, path: str = "") -> None:
    """Checks that a column has the fields of a schema, by their names, and their types.

    Args:
        given: the type of the column.
        expected: the type of the schema.
        path: the name of the field, for errors.

    Raises:
        InvalidOption: for the first difference.

    >>> given = StructType().add("b", "integer").add("a", "string")
    >>> check_encodable(given, StructType().add("a", "string").add("b", "long"))
    >>> check_encodable(given, StructType().add("a", "integer").add("b", "long"))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Field 'a' of the column has the type string, but the schema requires int. Cast it.
    """
    if isinstance(expected, StructType) and isinstance(given, StructType):
        _check_struct(given, expected, path)
    elif isinstance(expected, ArrayType) and isinstance(given, ArrayType):
        check_encodable(given.elementType, expected.elementType, path)
    elif isinstance(expected, MapType) and isinstance(given, MapType):
        check_encodable(given.keyType, expected.keyType, path)
        check_encodable(given.valueType, expected.valueType, path)
    elif not (isinstance(given, DayTimeIntervalType) and isinstance(expected, DayTimeIntervalType)):
        here, there = given.simpleString(), expected.simpleString()
        if here != there and there not in _WIDER.get(here, ()):
            raise InvalidOption(
                f"Field '{path}' of the column has the type {here}, but the schema requires {there}.", remedy="Cast it."
            )


def _check_struct(given: StructType, expected: StructType, path: str) -> None:
    missing = sorted(set(expected.names) - set(given.names))
    if missing:
        raise InvalidOption(
            f"The column has no field '{_at(path, missing[0])}', which the schema has.",
            remedy="Add the field to the column, or remove it from the schema.",
        )
    more_names = sorted(set(given.names) - set(expected.names))
    if more_names:
        raise InvalidOption(
            f"The column has a field '{_at(path, more_names[0])}', which the schema does not have.",
            remedy="Remove the field from the column, or add it to the schema.",
        )
    for field in expected.fields:
        check_encodable(given[field.name].dataType, field.dataType, _at(path, field.name))


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
