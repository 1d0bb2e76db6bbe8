"""P4: a JSON value is decoded exactly, or is a dead letter. Python's parser, with the text of numbers, is the oracle."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import streamgroups as sg
from integration_tests.json_oracle import Letter, Undecided, expected, is_same
from integration_tests.json_random import JsonChance
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from unit_tests.examples import examples

#: The same values are decoded with each of these schemas. Other fields are ignored.
SCHEMAS = [
    "s string, i bigint, h smallint, n struct<s:string>, b boolean",
    "s string, t tinyint, d double, f float, n struct<s:string,d:double>, l array<string>, m map<string,string>, "
    "x array<struct<s:string,t:tinyint>>, deep map<string,array<map<string,float>>>",
    "s string, c decimal(10,2), at timestamp, n struct<c:decimal(38,18),at:bigint,s:string>, lc array<decimal(5,0)>, "
    "ma map<string,timestamp>, md map<string,decimal(6,2)>, `1e99999` decimal(3,1), v binary, g int",
]
#: Values for the second schema, and the class of the error; ``None`` for a value that is decoded.
FIXED: list[tuple[bytes, str | None]] = [
    (b"{}", None),
    (b" {\t}\r\n", None),
    (b'{"s":1.10} \n', None),
    (b'{"s":-0,"l":[1.10,"1.10",{"a":[1.0]},null],"m":{"k":1.50},"x":[{"s":2.0,"t":5},null]}', None),
    (b'{"s":{"a":1.10,"b":"\\" 1.10 \\\\"}}', None),
    (b'{"s":1.2345678901234567E19}', None),
    (b'{"s":12345678901234567890123.4500}', None),
    (b'{"s":1e400,"l":[-1e400,[1e400]]}', None),
    (b'{"\\u0073":1.10}', None),
    (b'{"s":"0","l":["1.10"]}', None),
    (b'{"d":1e10,"f":1e10}', None),
    (b'{"t":1,"t":2}', None),
    (b'{"s":1.10,"s":null}', None),
    (b'{"s":"\\ud83d\\ude00 \\\\ud800"}', None),
    (b'{"m":{"":1.10,"\\u0073":-0}}', None),
    (b'{"s":' + b"[" * 999 + b"]" * 999 + b"}", None),
    (b'{"s":' + b"1" * 1000 + b"}", None),
    (b'{"s":1.' + b"1" * 998 + b"}", None),
    (b'{"s":"' + b"1.10" * 100_000 + b'","l":[1.10]}', None),
    (b'{"t":200}', "FieldType"),
    (b'{"t":-129}', "FieldType"),
    (b'{"t":70000}', "FieldType"),
    (b'{"x":[{"t":128}]}', "FieldType"),
    (b'{"d":1e400}', "FieldType"),
    (b'{"d":' + b"9" * 400 + b"}", "FieldType"),
    (b'{"d":"Infinity"}', "FieldType"),
    (b'{"f":1e39}', "FieldType"),
    (b'{"f":1234567890123456789012345678901e9}', "FieldType"),
    (b'{"deep":{"a":[{"b":1e39}]}}', "FieldType"),
    (b'{"n":{"d":-1e999}}', "FieldType"),
    (b'{"m":{"k":"1","k":"2"}}', "FieldType"),
    (b'{"t":"x","t":1}', "FieldType"),
    (b'{"t":"x"}{', "FieldType"),
    (b'\n {"t":"x"}', "FieldType"),
    (b'{"s":"\\ud800"}', "NotUtf8"),
    (b'{"\\ud800":1}', "NotUtf8"),
    (b'{"other":["\\ude00\\ud83d"]}', "NotUtf8"),
    (b'{"s":"\xed\xa0\x80"}', "NotUtf8"),
    (b"{'t':1}", "Malformed"),
    (b'{"d":NaN}', "Malformed"),
    (b'{"other":-Infinity}', "Malformed"),
    (b'{"t":1,}', "Malformed"),
    (b'{"t":1\x0b}', "Malformed"),
    (b'\xef\xbb\xbf{"t":1}', "Malformed"),
    (b'{"s":' + b"[" * 1000 + b"]" * 1000 + b"}", "Malformed"),
    (b'{"other":' + b"[" * 1000 + b"]" * 1000 + b"}", "Malformed"),
    (b'{"s":' + b"1" * 1001 + b"}", "Malformed"),
    (b'{"' + b"n" * 50_000 + b'":1}', None),
    (b'{"' + b"n" * 50_001 + b'":1}', "Malformed"),
    (b'{"t":1}],"r":[{"t":2}', "TrailingBytes"),
    (b'{"t":1},{"__streamgroups_mark":true}]}', "TrailingBytes"),
    (b'{"t":1}{"t":2}', "TrailingBytes"),
    (b'{}{"t":2}', "TrailingBytes"),
    (b'{"t":1}}', "TrailingBytes"),
    (b'{"t":1}]}', "TrailingBytes"),
    (b'{"t":1} x', "TrailingBytes"),
    (b'{"t":1}\x00', "TrailingBytes"),
    (b"\n\t", "EmptyValue"),
    ("\u2028".encode(), "Malformed"),
    (b"[{}", "Malformed"),
    (b'{"t":1', "Malformed"),
    (b'{"t":1\x0b', "Malformed"),
    (b'{"t":1 \n]', "Malformed"),
    (b"[{}]", "NotAnObject"),
]
#: Values for the third schema.
FIXED_LIMITS: list[tuple[bytes, str | None]] = [
    (b'{"at":9223372036854,"n":{"at":9223372036855}}', None),
    (b'{"at":-9223372036854}', None),
    (b'{"at":"2026-03-01T12:00:00Z","n":{"at":1772366400000000}}', None),
    (b'{"at":9223372036855}', "OutOfRange"),
    (b'{"\\u0061t":-9223372036855}', "OutOfRange"),
    (b'{"ma":{"k":1772366400000000}}', "OutOfRange"),
    (b'{"at":9223372036854775808}', "FieldType"),
    (b'{"c":1e9}', "FieldType"),
    (b'{"c":1e-9,"s":"1e999999999","n":{"s":1e999999999}}', None),
    (b'{"c":12345678.90}', None),
    (b'{"c":"12,345,678.9"}', None),
    (b'{"c":"12,345,678.9\\u0030"}', None),
    (b'{"c":"1\\u0065\\u0030\\u0030\\u0030\\u0030\\u0033","s":1.10,"at":1}', None),
    (b'{"c":1e000002,"n":{"c":"\\u0031\\uff10"},"lc":["\\uabf1",2e00001],"at":9223372036854}', None),
    ('{"c":"1\\u002c2e\u0660,\u0660\u0660\u0660\u0660\u0661"}'.encode(), None),
    (b'{"c":1e-999999999,"lc":[0e999999999,"0E+99999999999999999999"]}', None),
    (b'{"other":["1\\u0065999999999",1e999999999,"' + b"9" * 900_000 + b'"],"c":"1"}', None),
    (b'{"other":"\\u0031' + b"9" * 900_000 + b'x","c":"1"}', None),
    (b'{"c":"' + b"0" * 999 + b'.\\u0031"}', None),
    (b'{"1e99999":1.5,"md":{"3e123456":1e00001,"\\u0031":"\\u0032"}}', None),
    (b'{"md":{"k":"\\u0031","k":2}}', "FieldType"),
    (b'{"c":"1e99999\\u0022,"}', "FieldType"),
    (b'{"c":"' + b"0" * 1000 + b'.\\u0031"}', "FieldType"),
    (b'{"c":true,"c":1,"s":"\\u0031"}', "FieldType"),
    (b'{"c":1e999999999,"c":1}', "FieldType"),
    (b'{"c":"1\\u0065999999999","c":1}', "FieldType"),
    (b'{"\\u0063":1e999999999,"c":1}', "FieldType"),
    (b'{"n":{"c":1e999999999},"n":null}', "FieldType"),
    (b'{"c":1e999999999}', "FieldType"),
    (b'{"c":"1e999999999"}', "FieldType"),
    (b'{"c":"1e9,9,9,9,9,9,9,9"}', "FieldType"),
    (b'{"c":"1\\u0065\\u0039\\u0039\\u0039\\u0039\\u0039\\u0039"}', "FieldType"),
    ('{"c":"1e\uff19\uff19\uff19\uff19\uff19\uff19\uff19\uff19"}'.encode(), "FieldType"),
    (b'{"n":{"c":1e999999999},"s":1.10}', "FieldType"),
    (b'{"lc":[1,1e999999999]}', "FieldType"),
    (b'{"c":"' + b"9" * 900_000 + b'"}', "FieldType"),
    (b'{"at":9223372036855,"c":1e999999999}', "FieldType"),
    (b'{"c":{"d":["3e12345"]}}', "FieldType"),
    (b'{"c":1e999999999,"g":"x"}', "FieldType"),
    (b'{"c":1e999999999,"g":', "Malformed"),
    (b'{"c":1e999999999}{}', "FieldType"),
]
#: Without ``--hypothesis-seed``, which ``make nightly`` prints.
USUAL_SEED = 11


def decoded(spark: SparkSession, values: list[bytes], schema: str, options: dict[str, str] | None = None) -> list[Any]:
    frame = spark.createDataFrame(list(enumerate(values)), "n int, value binary")
    rows = sg.decode(frame, sg.schemas.Json(schema, options or {}))
    return sorted(in_micros(rows, schema).collect(), key=lambda row: row.n)


def in_micros(rows: DataFrame, schema: str) -> DataFrame:
    """Python's ``datetime`` has no year 10,000."""
    if " timestamp" not in schema:
        return rows
    in_map = F.transform_values("record.ma", lambda _, it: F.unix_micros(it))
    return rows.withColumn(
        "record", F.col("record").withField("at", F.unix_micros("record.at")).withField("ma", in_map)
    )


# The third schema has the limits of each type.
@pytest.mark.parametrize("number", [pytest.param(0, marks=LONG), pytest.param(1, marks=LONG), 2])
def test_P4_each_json_value_is_exact_or_a_letter(
    spark: SparkSession, request: pytest.FixtureRequest, number: int
) -> None:
    known, schema = [[], FIXED, FIXED_LIMITS][number], SCHEMAS[number]
    chance = JsonChance(int(request.config.getoption("--hypothesis-seed") or USUAL_SEED))
    rows = decoded(spark, [*(value for value, _ in known), *(chance.value() for _ in range(examples(600)))], schema)
    found = [
        (value, row.dead_letter and row.dead_letter.error_class) for (value, _), row in zip(known, rows, strict=False)
    ]
    assert found == known
    # Python's functions do not call themselves 1,000 times.
    check([row for row in rows if row.value.count(b"[") < 500], schema)


def test_options_permit_more_than_json(spark: SparkSession) -> None:
    infinite = [b'{"d":NaN,"s":1.10}', b'{"d":"-Infinity"}', b'{"d":1e400}']
    rows = decoded(spark, infinite, "d double, s string", {"allowNonNumericNumbers": "true"})
    assert [(str(row.record.d), row.record.s) for row in rows] == [("nan", "1.10"), ("-inf", None), ("inf", None)]
    (row,) = decoded(spark, [b"{'s':1.10,'c':1}"], "s string, c decimal(3,1)", {"AllowSingleQuotes": "true"})
    assert row.record.asDict() == {"s": "1.1", "c": 1}


@LONG
def test_a_number_in_a_variant_is_finite(spark: SparkSession) -> None:
    values: dict[bytes, str | None] = {
        b'{"v":1e400}': "FieldType",
        b'{"v":{"a":[1,-1e999999999]}}': "FieldType",
        b'{"v":["Infinity",1e400]}': "FieldType",
        b'{"l":[{"v":0},{"v":' + b"9" * 250 + b"e99}]}": "FieldType",
        b'{"v":1e400,"v":1,"s":1e400}': None,
        b'{"v":["Infinity","-Infinity","1e400",1.7e308,1e-400]}': None,
        b'{"v":{"a":1.50,"b":[12345678901234567890.5]},"l":[{"v":null},null]}': None,
    }
    schema = "s string, v variant, l array<struct<v:variant>>"
    rows = sg.decode(spark.createDataFrame(list(enumerate(values)), "n int, value binary"), sg.schemas.Json(schema))
    found = rows.orderBy("n").select("dead_letter.error_class", F.col("record.v").cast("string").alias("v")).collect()
    assert [it.error_class for it in found] == list(values.values())
    assert [it.v for it in found[4:]] == [
        "1",
        '["Infinity","-Infinity","1e400",1.7E308,0.0]',
        '{"a":1.5,"b":[12345678901234567890.5]}',
    ]
    (row,) = sg.decode(
        spark.createDataFrame([(b'{"v":1e400}',)], "value binary"),
        sg.schemas.Json("v variant", {"allowNonNumericNumbers": "true"}),
    ).collect()
    assert row.dead_letter is None


@pytest.mark.parametrize("policy", ["LEGACY", "exception", "CORRECTED"])
@pytest.mark.parametrize(
    "type_",
    [
        "date",
        *(pytest.param(it, marks=LONG) for it in ("timestamp", "timestamp_ntz", "array<struct<at:date>>", "string")),
    ],
)
def test_dates_need_the_policy_of_spark(spark: SparkSession, policy: str, type_: str) -> None:
    """With ``EXCEPTION`` one value fails the query, and with ``LEGACY`` 2026-13-45 is February 14, 2027."""
    name = "spark.sql.legacy.timeParserPolicy"
    before, rows = spark.conf.get(name), spark.createDataFrame([(b'{"at":"2026-13-45"}',)], "value binary")
    spark.conf.set(name, policy)
    try:
        if policy != "CORRECTED" and type_ != "string":
            with pytest.raises(InvalidOption, match=f"{name} is '{policy.upper()}'.* Set it to 'CORRECTED'"):
                sg.decode(rows, sg.schemas.Json(f"at {type_}"))
        else:
            (row,) = sg.decode(rows, sg.schemas.Json(f"at {type_}")).collect()
            assert (row.dead_letter is None) == (type_ == "string")
    finally:
        spark.conf.set(name, str(before))


def test_decimals_need_the_usual_locale(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(b'{"c":"1,234.5"}',)], "value binary")
    with pytest.raises(InvalidOption, match=r"'locale' of sg.schemas.Json is 'sv', and the schema has decimals"):
        sg.decode(rows, sg.schemas.Json("c decimal(5,1)", {"LOCALE": "sv"}))
    (row,) = sg.decode(rows, sg.schemas.Json("c decimal(5,1)", {"locale": "en-us"})).collect()
    assert row.record.c == Decimal("1234.5")


def check(rows: list[Any], schema: str) -> None:
    type_ = StructType.fromDDL(schema)
    assert isinstance(type_, StructType)
    for row in rows:
        value = bytes(row.value)
        try:
            record, letters = expected(value, type_), None
        except Letter as e:
            record, letters = None, e.classes
        except Undecided:
            assert (row.record is None) != (row.dead_letter is None), row
            continue
        if letters is None:
            assert row.dead_letter is None, (value, row.dead_letter)
            assert is_same(row.record.asDict(True), record), (value, row.record, record)
        else:
            assert row.record is None, (value, row.record, letters)
            assert row.dead_letter.error_class in letters, (value, row.dead_letter, letters)
