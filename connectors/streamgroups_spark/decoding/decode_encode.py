"""``sg.decode`` and ``sg.encode``: values of records as columns, with dead letters for those that cannot be converted.

Called by users on the driver. Source: SEMANTICS P4.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from streamgroups.decoding.formats import Avro, Json, Protobuf
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.extras import load
from streamgroups_spark.decoding.json_values import decode_json, encode_json
from streamgroups_spark.dlq.failure_column import check_letters
from streamgroups_spark.frames.columns import column as column_of
from streamgroups_spark.internals.connect import reject_in_flow

#: The formats of values.
Format: TypeAlias = Json | Avro | Protobuf


def decode(
    df: DataFrame, format: Format, *, column: str = "value", into: str = "record", step: str = "decode"
) -> DataFrame:
    """Decodes a column. A value that cannot be decoded becomes a dead letter, and the query continues (SEMANTICS P4).

    Args:
        df: a stream or a batch DataFrame. Dead letters contain the columns of the source that it has: ``topic``,
            ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``.
        format: the format of the values: :class:`Json`, :class:`Avro` or :class:`Protobuf`.
        column: the column with the values: binary, or a string for JSON.
        into: the name of the new column, a struct.
        step: the name of the step in dead letters.

    Returns:
        The columns of ``df``, the column ``into``, and the column ``dead_letter``. Exactly one of both is set, except
        for a null value (a tombstone): then both are null. A row that already has a dead letter is not decoded.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.
        StreamGroupsError: if a registry does not answer, or does not have the subject.

    A query fails with :class:`~streamgroups.errors.RegistryUnreachable` if the registry does not answer. No record
    becomes a dead letter then.

    Example::

        flights = sg.decode(records, sg.schemas.Json("airport string, delay int"))
        delays = flights.select("key", "record.airport", "record.delay", "dead_letter")
    """
    reject_in_flow(df, "sg.decode")
    check_letters(df)
    _check_format(format)
    check_column(df, column, binary_only=not isinstance(format, Json))
    if into.lower() in {name.lower() for name in [*df.columns, COLUMN]}:
        raise InvalidOption(f"The DataFrame already has a column '{into}'.", remedy="Set 'into' to another name.")
    if isinstance(format, Json):
        return decode_json(df, column, format, into=into, step=step)
    codec, type_ = _stage(format).decoder(format)
    values, original = _python_values(format), column_of(column)
    return values.apply_codec(df, codec, column, type_=type_, into=into, step=step, original=original)  # type: ignore[no-any-return]


def encode(
    df: DataFrame, format: Format, *, column: str = "record", into: str = "value", step: str = "encode"
) -> DataFrame:
    """Encodes a column of structs. A row that cannot be encoded becomes a dead letter.

    Args:
        df: a stream or a batch DataFrame.
        format: the format. With a registry, ``subject`` must be set, and the id of the schema precedes each value.
        column: the column to encode: a struct with the fields of the schema, in any order.
        into: the name of the new column. An existing column of this name is replaced.
        step: the name of the step in dead letters.

    Returns:
        The columns of ``df``, the column ``into``, and the column ``dead_letter``. A null struct is encoded as null, a
        tombstone. A row that already has a dead letter is not encoded.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.
        StreamGroupsError: if the registry does not answer, or rejects the schema.

    Example::

        registry = sg.schemas.SchemaRegistry("http://localhost:8081")
        delays = sg.encode(delays, sg.schemas.Avro(registry=registry, subject="delays-value"), column="delay")
    """
    reject_in_flow(df, "sg.encode")
    check_letters(df)
    _check_format(format)
    types = {field.name: field.dataType for field in df.schema.fields}
    if not isinstance(types.get(column), StructType):
        raise InvalidOption(
            f"The DataFrame has no column '{column}' that is a struct.",
            remedy="Create it, as in df.withColumn('record', F.struct('airport', 'delay')).",
        )
    if into == COLUMN:
        raise InvalidOption(f"Option 'into' is '{COLUMN}'.", remedy="Set 'into' to another name.")
    if isinstance(format, Json):
        return encode_json(df, column, format, into=into, step=step)
    if format.registry is not None and format.subject is None:
        raise InvalidOption(
            "sg.encode with a registry needs a subject.", remedy="Pass subject='<topic>-value' to the format."
        )
    codec = _stage(format).encoder(format, types[column])
    values, type_ = _python_values(format), BinaryType()
    return values.apply_codec(df, codec, column, type_=type_, into=into, step=step)  # type: ignore[no-any-return]


def _stage(format: Avro | Protobuf) -> Any:
    name = "avro_stage" if isinstance(format, Avro) else "protobuf_stage"
    return load(f"streamgroups_spark.decoding.{name}", needed_by=f"sg.{type(format).__name__}")


def _python_values(format: Avro | Protobuf) -> Any:
    return load("streamgroups_spark.decoding.python_values", needed_by=f"sg.{type(format).__name__}")


def _check_format(format: object) -> None:
    if not isinstance(format, (Json, Avro, Protobuf)):
        raise InvalidOption(
            f"Option 'format' is {format!r}.",
            remedy="Pass sg.schemas.Json(...), sg.schemas.Avro(...) or sg.schemas.Protobuf(...).",
        )


def check_column(df: DataFrame, column: str, *, binary_only: bool) -> None:
    """Checks that a column with values exists.

    Raises:
        InvalidOption: if it does not exist, or has another type.
    """
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
