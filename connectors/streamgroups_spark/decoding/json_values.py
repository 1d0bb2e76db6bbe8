"""JSON values, by Spark's own functions: no value passes through Python.

Called by ``decoding.api`` on the driver. Source: Spark's ``JsonToStructs`` and ``JacksonParser``.

``from_json`` alone accepts values that are not one JSON object. It ignores text after the first object, replaces bytes
that are not UTF-8, and returns null for an empty value. So the value is parsed as the first element of an array whose
second element is a mark. Text after the object then is an error, or the second element is not the mark.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from streamgroups.decoding.formats import Json
from streamgroups.decoding.problems import Kind
from streamgroups.errors import InvalidOption
from streamgroups_spark.dlq.failure_column import failure, is_good, with_letter
from streamgroups_spark.internals.columns import column

_MARK = "__streamgroups_mark"
_CORRUPT = "__streamgroups_corrupt"
_PARSED, _TEXT = "__streamgroups_parsed", "__streamgroups_text"


def decode_json(df: DataFrame, name: str, json: Json, *, into: str, step: str) -> DataFrame:
    """Adds a column with the decoded values, and the column ``dead_letter``.

    Args:
        df: the rows.
        name: the column with the values, binary or string.
        json: the format.
        into: the name of the new column.
        step: the name of the step in letters.
    """
    schema = json_schema(json)
    text = F.when(is_good(df), column(name)).cast("string")
    staged = df.select("*", text.alias(_TEXT), _parse(text, schema, json).alias(_PARSED))
    parsed = F.col(_PARSED)
    first = parsed["r"][0]
    is_one = parsed[_CORRUPT].isNull() & (F.size(parsed["r"]) == 2) & parsed["r"][1][_MARK]
    is_right = F.coalesce(is_one & first.isNotNull() & F.is_valid_utf8(_TEXT), F.lit(False))
    kind, error, details = _reason(schema, json)
    letter = failure(staged, step=step, error_class=kind, error=error, details=details, value=column(name))
    kept = [column(it) for it in df.columns if it != "dead_letter"]
    return staged.select(
        *kept,
        F.when(is_right, first.dropFields(_MARK)).alias(into),
        with_letter(df, F.when(F.col(_TEXT).isNotNull() & ~is_right, letter)),
    )


def encode_json(df: DataFrame, name: str, json: Json, *, into: str, step: str) -> DataFrame:
    """Adds a column with structs as JSON, and the column ``dead_letter``. Fields that are null are written.

    Args:
        df: the rows.
        name: the column to encode, a struct.
        json: the format.
        into: the name of the new column, binary. An existing column of this name is replaced.
        step: the name of the step in letters.
    """
    text = F.when(is_good(df), F.to_json(column(name), {"ignoreNullFields": "false", **json.options}))
    is_bad = column(name).isNotNull() & F.col(_TEXT).isNull()
    staged = df.select("*", text.alias(_TEXT))
    error = F.lit("Spark cannot write the row as JSON.")
    letter = failure(staged, step=step, error_class=F.lit(Kind.NOT_ENCODABLE.value), error=error)
    kept = [column(it) for it in df.columns if it not in ("dead_letter", into)]
    return staged.select(
        *kept, F.col(_TEXT).cast("binary").alias(into), with_letter(df, F.when(is_good(df) & is_bad, letter))
    )


def json_schema(json: Json) -> StructType:
    """Returns the schema of a format.

    Raises:
        InvalidOption: if it is missing, not valid, or no struct.
    """
    remedy = "Write fields with their types, as in sg.Json('airport string, delay int')."
    given = json.schema
    if isinstance(given, str):
        try:
            given = StructType.fromDDL(given)
        except PySparkException as e:
            raise InvalidOption(
                f"The schema of sg.Json is '{given}', which Spark cannot parse ({e.getCondition()}).", remedy=remedy
            ) from None
    if not isinstance(given, StructType) or not given.fields:
        raise InvalidOption("The schema of sg.Json names no fields.", remedy=remedy)
    return given


def _parse(text: Column, schema: StructType, json: Json) -> Column:
    element = StructType([*schema.fields, StructField(_MARK, BooleanType())])
    whole = StructType([StructField("r", ArrayType(element)), StructField(_CORRUPT, StringType())])
    marked = F.concat(F.lit('{"r":['), text, F.lit(f',{{"{_MARK}":true}}]}}'))
    return F.from_json(marked, whole, _options(json))


def _options(json: Json) -> dict[str, str]:
    return {**json.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def _reason(schema: StructType, json: Json) -> tuple[Column, Column, Column]:
    """The class, the text and the details of an error. Spark evaluates them for bad rows only."""
    text = F.col(_TEXT)
    # Each field is parsed alone, so nested types are compared as well.
    mismatched = F.array_compact(F.array(*(F.when(_is_wrong(text, it, json), _shown(it)) for it in schema.fields)))
    is_field, names = F.size(mismatched) > 0, F.array_join(mismatched, ", ")
    cases = [
        (~F.is_valid_utf8(text), Kind.NOT_UTF8, F.lit("The value is not valid UTF-8.")),
        (F.trim(text) == "", Kind.EMPTY, F.lit("The value is empty.")),
        (F.try_parse_json(text).isNull(), Kind.MALFORMED, F.lit("The value is not JSON.")),
        (~F.ltrim(text).startswith("{"), Kind.NOT_AN_OBJECT, F.lit("The value is JSON, but not an object.")),
        (is_field, Kind.FIELD_TYPE, F.concat(F.lit("The schema has another type: "), names, F.lit("."))),
    ]
    kind, error = F.lit(Kind.TRAILING.value), F.lit("More text follows the JSON object.")
    for condition, found, message in reversed(cases):
        kind = F.when(condition, F.lit(found.value)).otherwise(kind)
        error = F.when(condition, message).otherwise(error)
    is_empty = F.create_map().cast("map<string,string>")
    details = F.when(kind == Kind.FIELD_TYPE.value, F.create_map(F.lit("fields"), names)).otherwise(is_empty)
    return kind, error, details


def _is_wrong(text: Column, field: StructField, json: Json) -> Column:
    alone = StructType([field, StructField(_CORRUPT, StringType())])
    return F.from_json(text, alone, _options(json))[_CORRUPT].isNotNull()


def _shown(field: StructField) -> Column:
    return F.lit(f"{field.name} {field.dataType.simpleString()}")
