"""JSON values, by Spark's own functions: no value passes through Python.

Called by ``decoding.decode_encode`` on the driver. Source: Spark's ``JsonToStructs`` and ``JacksonParser``.

``from_json`` alone accepts values that are not one JSON object. It ignores text after the first object, replaces bytes
that are not UTF-8, and returns null for an empty value. So a field is inserted before the last brace of the value: a mark
with a random name. Only if that brace closes the first object, the object has the mark. What ``from_json`` changes in the
fields of an object is described in ``json_exact``.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DecimalType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from streamgroups.decoding.formats import Json
from streamgroups.decoding.value_errors import Kind
from streamgroups.errors import InvalidOption
from streamgroups_spark.decoding.json_exact import (
    can_be_long,
    can_wrap,
    has_half_pair,
    needs_texts,
    only_decimals,
    widened,
    with_texts,
    without_decimals,
    wraps,
)
from streamgroups_spark.decoding.json_plan import CORRUPT, JsonPlan, check_settings, with_field
from streamgroups_spark.decoding.json_types import has, merged
from streamgroups_spark.dlq.failure_column import failure, is_good, with_letter
from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.record_values import check_time_texts

_TEXT, _SAFE = "__streamgroups_text", "__streamgroups_safe"
#: Values with a long decimal: JSON with short ones, the value without decimals, and its decimals alone.
_SHORT, _REST, _DECIMALS = "__streamgroups_short", "__streamgroups_rest", "__streamgroups_decimals"
_PARSED, _TEXTS, _RIGHT = "__streamgroups_parsed", "__streamgroups_texts", "__streamgroups_right"
_SPACE = r"[ \t\r\n]*"


def decode_json(df: DataFrame, name: str, json: Json, *, into: str, step: str) -> DataFrame:
    """Adds a column with the decoded values, and the column ``dead_letter``.

    Args:
        df: the rows.
        name: the column with the values, binary or string.
        json: the format.
        into: the name of the new column.
        step: the name of the step in letters.
    """
    plan = JsonPlan.of(json_schema(json), json.options)
    check_settings(df.sparkSession, json, plan.schema)
    text = F.col(_TEXT)
    staged = _parsed(df.select("*", F.when(is_good(df), column(name)).cast("string").alias(_TEXT)), plan)
    staged = staged.select("*", _is_right(plan).alias(_RIGHT))
    is_empty = F.coalesce(text.rlike(rf"\A{_SPACE}\{{{_SPACE}\}}{_SPACE}\z"), F.lit(False))
    kind, error, details = _reason(plan, staged)
    letter = failure(staged, step=step, error_class=kind, error=error, details=details, value=column(name))
    kept = [column(it) for it in df.columns if it != "dead_letter"]
    empty = F.from_json(F.lit("{}"), plan.schema)
    return staged.select(
        *kept,
        F.when(F.col(_RIGHT), _record(staged, plan)).when(is_empty, empty).alias(into),
        with_letter(df, F.when(text.isNotNull() & ~F.col(_RIGHT) & ~is_empty, letter)),
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
    check_time_texts(df.sparkSession, StructType([df.schema[name]]), "sg.encode")
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
    remedy = "Write fields with their types, as in sg.schemas.Json('airport string, delay int')."
    given = json.schema
    if isinstance(given, str):
        try:
            given = StructType.fromDDL(given)
        except PySparkException as e:
            raise InvalidOption(
                f"The schema of sg.schemas.Json is '{given}', which Spark cannot parse ({e.getCondition()}).",
                remedy=remedy,
            ) from None
    if not isinstance(given, StructType) or not given.fields:
        raise InvalidOption("The schema of sg.schemas.Json names no fields.", remedy=remedy)
    return given


def _parsed(df: DataFrame, plan: JsonPlan) -> DataFrame:
    """Adds the parsed values, and the texts of their numbers where they are needed."""
    text, schema = F.col(_TEXT), plan.schema
    df = _with_safety(df, plan)
    can_parse = F.col(_SAFE) if _SAFE in df.columns else text.isNotNull()
    field = F.lit(f',"{plan.mark}":true}}'.encode())
    last, marked = _with_last_field(text, field), with_field(widened(schema), plan.mark, BooleanType())
    parsed = plan.parse(last, marked)
    if has(schema, (DecimalType,)) and plan.finds_numbers:
        # Expressions of a row are evaluated for values with a long decimal only.
        df = df.select("*", F.when(can_be_long(text), plan.short(text)).alias(_SHORT))
        is_long = F.col(_SHORT).isNotNull()
        rest = F.when(is_long, plan.parse(last, without_decimals(marked))).alias(_REST)
        df = df.select("*", rest, F.when(is_long, plan.parse(F.col(_SHORT), only_decimals(schema))).alias(_DECIMALS))
        parsed = F.when(is_long, _with_decimals(plan, marked)).otherwise(parsed)
    df = df.select("*", F.when(can_parse, parsed).alias(_PARSED))
    if has(schema, (StringType,)) and plan.finds_numbers:
        needed = needs_texts(text, F.col(_PARSED), schema)
        df = df.select("*", F.when(needed, plan.texts(text)).alias(_TEXTS))
    return df


def _with_safety(df: DataFrame, plan: JsonPlan) -> DataFrame:
    """Adds whether all numbers can be parsed, if the schema has types for which some cannot."""
    text, is_safe = F.col(_TEXT), None
    if has(plan.schema, (DecimalType,)) and not plan.finds_numbers:
        is_safe = ~can_be_long(text)
    if has(plan.schema, (TimestampType,)):
        fits = ~can_wrap(text, plan.schema)
        if plan.finds_numbers:
            df = df.select("*", F.when(~fits, plan.texts(text)).alias(_TEXTS))
            fits = fits | (F.col(_TEXTS)[CORRUPT].isNull() & ~wraps(F.col(_TEXTS), plan.schema))
        is_safe = fits if is_safe is None else fits & is_safe
    return df if is_safe is None else df.select("*", is_safe.alias(_SAFE)).drop(_TEXTS)


def _with_decimals(plan: JsonPlan, marked: StructType) -> Column:
    """The value with a long decimal, of the type ``marked`` with :data:`CORRUPT`."""
    rest, decimals = F.col(_REST), F.col(_DECIMALS)
    # Maps lose repeated names when they are merged.
    repeats = F.when(plan.exceeds(rest, without_decimals(plan.schema)), F.col(_TEXT))
    corrupt = F.coalesce(rest[CORRUPT], decimals[CORRUPT], repeats)
    value = merged(rest, decimals, widened(plan.schema), (DecimalType,), lambda it: it)
    names = [it.name for it in plan.schema]
    return F.struct(*(value[it].alias(it) for it in names), rest[plan.mark].alias(plan.mark), corrupt.alias(CORRUPT))


def _with_last_field(text: Column, field: Column) -> Column:
    """Returns a text with a field instead of the last brace, or null if other text is last."""
    without_space = F.when(text.rlike(rf"\}}{_SPACE}\z"), F.rtrim(text, F.lit(" \t\r\n")))
    # Functions of bytes do not count characters.
    end = F.when(text.endswith("}"), text).otherwise(without_space).cast("binary")
    return F.concat(F.substring(end, F.lit(1), F.octet_length(end) - 1), field).cast("string")


def _is_right(plan: JsonPlan) -> Column:
    text, parsed = F.col(_TEXT), F.col(_PARSED)
    is_one = parsed[CORRUPT].isNull() & parsed[plan.mark]
    is_exact = F.is_valid_utf8(text) & ~has_half_pair(text) & ~plan.exceeds(parsed, plan.schema)
    if has(plan.schema, (VariantType,)):
        is_exact = is_exact & ~plan.has_infinite(text, plan.schema)
    return F.coalesce(is_one & is_exact, F.lit(False))


def _record(df: DataFrame, plan: JsonPlan) -> Column:
    parsed = F.col(_PARSED)
    record = parsed.dropFields(plan.mark, CORRUPT)
    if _TEXTS in df.columns:
        exact = with_texts(parsed, F.col(_TEXTS), plan.schema, plan.mark)
        record = F.when(F.col(_TEXTS).isNull(), record).otherwise(exact)
    return record if widened(plan.schema) == plan.schema else record.cast(plan.schema)


def _reason(plan: JsonPlan, staged: DataFrame) -> tuple[Column, Column, Column]:
    """The class, the text and the details of an error. Spark evaluates them for bad rows only."""
    text = F.col(_TEXT)
    is_safe = F.col(_SAFE) if _SAFE in staged.columns else F.lit(True)
    # Each field is parsed alone, so nested types are compared as well.
    wrong = (F.when(_is_wrong(staged, is_safe, it, plan), _shown(it)) for it in plan.schema.fields)
    mismatched = F.array_compact(F.array(*wrong))
    is_field, names = F.size(mismatched) > 0, F.array_join(mismatched, ", ")
    is_object = text.rlike(rf"\A{_SPACE}\{{")
    nothing = StructType([StructField("__streamgroups_nothing", BooleanType())])
    is_malformed = F.when(is_object, plan.parse(text, nothing)[CORRUPT].isNotNull()).otherwise(
        F.try_parse_json(text).isNull()
    )
    cases = [
        (~F.is_valid_utf8(text), Kind.NOT_UTF8, F.lit("The value is not valid UTF-8.")),
        (text.rlike(rf"\A{_SPACE}\z"), Kind.EMPTY, F.lit("The value is empty.")),
        (is_malformed, Kind.MALFORMED, F.lit("The value is not JSON.")),
        (~is_object, Kind.NOT_AN_OBJECT, F.lit("The value is JSON, but not an object.")),
        (has_half_pair(text), Kind.NOT_UTF8, F.lit("A text in the value has half of a surrogate pair.")),
        (
            is_field,
            Kind.FIELD_TYPE,
            F.concat(F.lit("The value does not fit these fields of the schema: "), names, F.lit(".")),
        ),
        (~is_safe, Kind.OUT_OF_RANGE, F.lit("A number is too large for its decimal or timestamp.")),
    ]
    kind, error = F.lit(Kind.TRAILING.value), F.lit("More text follows the JSON object.")
    for condition, found, message in reversed(cases):
        kind = F.when(condition, F.lit(found.value)).otherwise(kind)
        error = F.when(condition, message).otherwise(error)
    is_empty = F.create_map().cast("map<string,string>")
    details = F.when(kind == Kind.FIELD_TYPE.value, F.create_map(F.lit("fields"), names)).otherwise(is_empty)
    return kind, error, details


def _is_wrong(staged: DataFrame, is_safe: Column, field: StructField, plan: JsonPlan) -> Column:
    text, alone = F.col(_TEXT), StructType([field])

    def tested(alone: StructType) -> Column:
        parsed = plan.parse(text, widened(alone))
        exceeds = plan.exceeds(parsed[field.name], alone[0].dataType)
        return parsed[CORRUPT].isNotNull() | exceeds | plan.has_infinite(text, alone)

    if not has(alone, (DecimalType,)):
        return tested(alone)
    if _SHORT not in staged.columns:
        return F.when(is_safe, tested(alone)).otherwise(tested(without_decimals(alone)))
    decimals = plan.parse(F.col(_SHORT), only_decimals(alone))[CORRUPT].isNotNull()
    return F.when(F.col(_SHORT).isNull(), tested(alone)).otherwise(tested(without_decimals(alone)) | decimals)


def _shown(field: StructField) -> Column:
    return F.lit(f"{field.name} {field.dataType.simpleString()}")
