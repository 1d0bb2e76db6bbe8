"""P4: each Avro value is decoded or has a problem. No value raises an error or ends the process."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.decoding.registry import RegisteredSchema
from streamgroups.decoding.wire_format import header
from streamgroups.errors import InvalidOption, RegistryUnreachable
from streamgroups_schemas.avro_types import arrow_type
from streamgroups_schemas.avro_values import AVRO, check_reader, decode_avro, encode_avro
from streamgroups_schemas.results import with_numbers


def record(name: str = "Flight", **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def schema(schema_id: int = 1, **fields: Any) -> RegisteredSchema:
    return RegisteredSchema(schema_id, AVRO, json.dumps(record(**fields)))


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


FIELDS: dict[str, Any] = {
    "flag": "boolean",
    "number": "int",
    "long": ["null", "long"],
    "real": "double",
    "text": "string",
    "data": ["bytes", "null"],
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
    "again": ["null", "Kind"],
    "fixed": {"type": "fixed", "name": "Four", "size": 4},
    "items": {"type": "array", "items": ["null", "int"]},
    "map": {"type": "map", "values": "long"},
    "inner": ["null", record("Inner", x="int", y={"type": "array", "items": record("Deep", z="string")})],
    "day": logical("int", "date"),
    "millis": logical("long", "timestamp-millis"),
    "micros": logical("long", "timestamp-micros"),
    "local": logical("long", "local-timestamp-micros"),
    "price": logical("bytes", "decimal", precision=10, scale=2),
    "id": logical("string", "uuid"),
    "time": logical("int", "time-millis"),
    "either": ["null", "int", "long"],
}
FULL = schema(**FIELDS)


class Registry:
    def __init__(self, *schemas: RegisteredSchema) -> None:
        self.schemas = {it.id: it for it in schemas}
        self.requests: list[int] = []

    def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
        assert kind == AVRO
        self.requests.append(schema_id)
        return self.schemas.get(schema_id)


def outcome(array: pa.Array) -> list[tuple[Any, str | None]]:
    """The result and the class of the error of each value. Python must have the result."""
    found = array.to_pylist(maps_as_pydicts="strict")
    return [(it["result"], it["problem"] and it["problem"]["error_class"]) for it in found]


def encoded(value: Any, written: RegisteredSchema, *, has_header: bool = False) -> bytes:
    values = pa.array([value], arrow_type(written.text))
    [(result, error)] = outcome(encode_avro(values, written, has_header=has_header))
    assert error is None
    return bytes(result)


def test_types_of_a_schema() -> None:
    assert arrow_type(FULL.text) == pa.struct(
        [
            ("flag", pa.bool_()),
            ("number", pa.int32()),
            ("long", pa.int64()),
            ("real", pa.float64()),
            ("text", pa.string()),
            ("data", pa.binary()),
            ("kind", pa.string()),
            ("again", pa.string()),
            ("fixed", pa.binary()),
            ("items", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int64())),
            (
                "inner",
                pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))]),
            ),
            ("day", pa.date32()),
            ("millis", pa.timestamp("us", "UTC")),
            ("micros", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(10, 2)),
            ("id", pa.string()),
            ("time", pa.int32()),
            ("either", pa.int64()),
        ]
    )


EMPTY_ITEMS = "Field 'a' of the Avro schema is an array of values without bytes"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"a": "null"}, "field 'a' has the type 'null'"),
        ({"a": ["int", "string"]}, "field 'a' has the type 'union'"),
        ({"a": record("Inner", b=["null", "string", "bytes"])}, "field 'a.b' has the type 'union'"),
        ({"a": record("Inner")}, "field 'a' has the type 'record'"),
        ({"a": logical("bytes", "decimal", precision=39)}, "decimal(39, 0)"),
        ({"next": ["null", "Flight"]}, "Field 'next' of the Avro schema has the type 'Flight', which contains itself"),
        ({"a": {"type": "array", "items": "null"}}, EMPTY_ITEMS),
        ({"a": {"type": "array", "items": {"type": "fixed", "name": "None", "size": 0}}}, EMPTY_ITEMS),
        ({"a": {"type": "array", "items": record("Inner", b="null", c=record("Deep"))}}, EMPTY_ITEMS),
    ],
)
def test_a_type_without_an_equivalent_is_rejected_and_named(fields: dict[str, Any], names: str) -> None:
    with pytest.raises(InvalidOption) as error:
        arrow_type(json.dumps(record(**fields)))
    assert names in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "{", "{}", '"strin"', "[]", '"string"', '{"type": "record", "name": "A"}', "null"]
)
def test_a_text_that_is_no_record_is_rejected(text: str) -> None:
    with pytest.raises(InvalidOption):
        arrow_type(text)


MAX_US = 4 * 10**15
rows = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "number": st.integers(-(2**31), 2**31 - 1),
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "real": st.floats(allow_nan=False),
        "text": st.text(st.characters(codec="utf-8")),
        "data": st.none() | st.binary(),
        "kind": st.sampled_from("AB"),
        "again": st.none() | st.sampled_from("AB"),
        "fixed": st.binary(min_size=4, max_size=4),
        "items": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
        "map": st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(-(2**63), 2**63 - 1)),
        "inner": st.none()
        | st.fixed_dictionaries({"x": st.just(5), "y": st.lists(st.fixed_dictionaries({"z": st.just("deep")}))}),
        "day": st.dates(date(1, 1, 1)),
        "millis": st.datetimes(timezones=st.just(timezone.utc)).map(lambda it: it.replace(microsecond=7000)),
        "micros": st.datetimes(timezones=st.just(timezone.utc)),
        "local": st.datetimes(),
        "price": st.decimals(-99999999, 99999999, places=2, allow_nan=False),
        "id": st.text(st.characters(codec="utf-8")),
        "time": st.integers(0, 2**31 - 1),
        "either": st.none() | st.integers(-(2**63), 2**63 - 1),
    }
)


@given(st.lists(st.none() | rows, max_size=4))
def test_any_value_round_trips(values: list[Any]) -> None:
    array = pa.array(values, arrow_type(FULL.text))
    for has_header in (False, True):
        bytes_of = encode_avro(array, FULL, has_header=has_header)
        assert [it is None for it, _ in outcome(bytes_of)] == [it is None for it in values]
        decoded = decode_avro(bytes_of.field("result"), FULL, Registry(FULL) if has_header else None)
        assert outcome(decoded) == [(it, None) for it in values]


@given(st.lists(st.binary(max_size=60) | st.binary(max_size=60).map(lambda it: header(1) + it), max_size=20))
def test_any_bytes_are_decoded_or_have_a_problem(values: list[bytes]) -> None:
    for schemas in (None, Registry(FULL)):
        for result, error in outcome(decode_avro(pa.array(values, pa.binary()), FULL, schemas)):
            assert (result is None) != (error is None)


@given(st.data())
def test_a_changed_value_is_decoded_or_has_a_problem(data: st.DataObject) -> None:
    value = bytearray(encoded(data.draw(rows), FULL))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value)[: data.draw(st.integers(0, len(value)))]
    # Arrow has times that Python has not.
    for found in decode_avro(pa.array([cut, bytes(value)], pa.binary()), FULL, None):
        assert found["result"].is_valid != found["problem"].is_valid


SMALL = schema(1, airport="string", delay="int")


def classes(values: list[bytes | None], reader: RegisteredSchema, *known: RegisteredSchema) -> list[str | None]:
    return [error for _, error in outcome(decode_avro(pa.array(values, pa.binary()), reader, Registry(*known)))]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("boolean", None),
        ("int", None),
        ({"type": "array", "items": "boolean"}, [True, None]),
        ({"type": "map", "values": "boolean"}, [("a", None)]),
        (record("Inner", b="boolean"), {"b": None}),
        (["null", record("Inner", b="boolean")], {"b": None}),
    ],
)
def test_null_in_a_field_that_requires_a_value_is_not_encodable(type_: Any, value: Any) -> None:
    own = schema(a=type_)
    found = outcome(encode_avro(pa.array([{"a": value}], arrow_type(own.text)), own, has_header=False))
    assert found == [(None, "NotEncodable")]


def test_null_is_not_encoded_as_a_default() -> None:
    fields = [{"name": "a", "type": "boolean", "default": True}, {"name": "b", "type": ["null", "boolean"]}]
    own = RegisteredSchema(1, AVRO, json.dumps({"type": "record", "name": "Flight", "fields": fields}))
    values = pa.array([{"a": None, "b": None}, {"a": False, "b": None}], arrow_type(own.text))
    assert outcome(encode_avro(values, own, has_header=False)) == [(None, "NotEncodable"), (b"\x00\x00", None)]


def test_a_row_without_an_object_of_python_is_a_problem() -> None:
    own = schema(text="string", map={"type": "map", "values": "long"})
    texts = pa.array([b"JFK", b"\xff", b"LAX"], pa.binary())
    maps = pa.array([[("a", 1)], [("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    columns = [pa.Array.from_buffers(pa.string(), len(texts), texts.buffers()), maps]
    values = pa.StructArray.from_arrays(columns, names=["text", "map"])
    result = encode_avro(values, own, has_header=False)
    assert [error for _, error in outcome(result)] == [None, "NotUtf8", "NotEncodable"]
    problems = result.field("problem").to_pylist()
    assert problems[2]["error"] == "A map in the value has a key twice."


def test_each_kind_of_bad_value_has_its_class() -> None:
    good = encoded({"airport": "JFK", "delay": 4}, SMALL, has_header=True)
    values = [
        good,
        None,
        b"",
        b"{}",
        b"\x00\x00",
        header(9) + good[5:],
        good[:-1],
        good + b"\x00",
        header(1) + b"\x02\xff\x00",
    ]
    assert classes(values, SMALL, SMALL) == [
        None,
        None,
        "EmptyValue",
        "NoMagicByte",
        "NoMagicByte",
        "UnknownSchemaId",
        "Malformed",
        "TrailingBytes",
        "NotUtf8",
    ]


@pytest.mark.parametrize("name", ["timestamp-millis", "local-timestamp-millis"])
def test_a_time_that_spark_cannot_store_is_out_of_range(name: str) -> None:
    reader = schema(t=logical("long", name))
    year_300_000 = 9_404_843_904_000_000
    values = [as_long(it) for it in (0, year_300_000, -year_300_000, 2**63 - 1, -(2**63), 2**63 // 1000 + 1)]
    found = decode_avro(pa.array(values, pa.binary()), reader, None)
    assert [error for _, error in outcome(found)] == [None, *["OutOfRange"] * 5]


def test_times_after_the_year_9999_are_decoded() -> None:
    times = [2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001]
    for name in ("timestamp-micros", "local-timestamp-micros"):
        reader = schema(t=logical("long", name))
        found = decode_avro(pa.array([as_long(it) for it in times], pa.binary()), reader, None)
        assert found.field("problem").null_count == len(times)
        assert with_numbers(found.field("result")).to_pylist() == [{"t": it} for it in times]
        again = encode_avro(found.field("result"), reader, has_header=False)
        assert again.field("result").to_pylist() == [as_long(it) for it in times]


def as_long(number: int) -> bytes:
    number, parts = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def test_a_decimal_costs_no_more_than_its_bytes() -> None:
    reader = schema(t=logical("bytes", "decimal", precision=38, scale=2))
    numbers = [b"\x7f" * 2_000_000, b"\x80" + bytes(2_000_000), b"\xff" * 2_000_000, bytes(2_000_000) + b"\x05", b""]
    values = [as_long(len(it)) + it for it in numbers]
    assert outcome(decode_avro(pa.array(values, pa.binary()), reader, None)) == [
        (None, "OutOfRange"),
        (None, "OutOfRange"),
        ({"t": Decimal("-0.01")}, None),
        ({"t": Decimal("0.05")}, None),
        (None, "Malformed"),
    ]


@pytest.mark.parametrize("index", [-1, -2, -3, -4, -(2**31), -(2**63), 2, 3, 2**31, 2**63 - 1])
def test_an_index_that_a_type_does_not_have_is_malformed(index: int) -> None:
    enum, inner = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, record("Inner", x="int")
    for type_ in (enum, ["null", "int"], ["int", "long"], ["null", enum], ["null", inner]):
        values = pa.array([as_long(index) + b"\x00\x00"[: type_ != enum]], pa.binary())
        assert outcome(decode_avro(values, schema(a=type_), None)) == [(None, "Malformed")], type_
    writer = schema(2, a=["null", "int", "string", enum, inner], b="int")
    written = pa.array([header(2) + as_long(index if index < 0 else index + 5) + b"\x00\x00"], pa.binary())
    assert outcome(decode_avro(written, schema(1, b="int"), Registry(writer))) == [(None, "Malformed")]


def doubled(levels: int, leaf: Any) -> str:
    """A small schema: each record has two fields of the one before it."""
    fields = [{"name": "a", "type": record("R0", x=leaf)}]
    for level in range(1, levels + 1):
        inner = record(f"R{level}", a=f"R{level - 1}", b=f"R{level - 1}")
        fields.append({"name": f"f{level}", "type": ["null", inner]})
    return json.dumps({"type": "record", "name": "Flight", "fields": [*fields, {"name": "delay", "type": "int"}]})


@pytest.mark.parametrize("levels", [10, 40, 200])
def test_each_type_of_a_schema_is_judged_once(levels: int) -> None:
    writer, reader = RegisteredSchema(2, AVRO, doubled(levels, "int")), schema(1, delay="long")
    value = header(2) + b"\x02" + b"\x00" * levels + b"\x0a"
    assert outcome(decode_avro(pa.array([value], pa.binary()), reader, Registry(writer))) == [({"delay": 5}, None)]
    if levels > 10:
        with pytest.raises(InvalidOption, match="more than 10,000 fields"):
            arrow_type(writer.text)


@pytest.mark.parametrize("leaf", ["null", {"type": "fixed", "name": "Nothing", "size": 0}])
def test_a_value_is_no_work_without_bytes(leaf: Any) -> None:
    writer = RegisteredSchema(2, AVRO, doubled(40, leaf))
    value = pa.array([header(2) + b"\x00" * 40], pa.binary())
    assert outcome(decode_avro(value, schema(1, delay="int"), Registry(writer))) == [(None, "SchemaMismatch")]


TEXT = "東京国際空港"
_CONTINUED = b"\xff" * 9


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        # As Java's BinaryDecoder: bits above 64 are dropped, and more than ten bytes are rejected.
        (_CONTINUED + b"\x01", -(2**63)),
        (_CONTINUED + b"\x7f", -(2**63)),
        (b"\x82" + b"\x80" * 8 + b"\x00", 1),
        (b"\x82" + b"\x80" * 9 + b"\x00", None),
        (_CONTINUED + b"\xff\x01", None),
        (_CONTINUED * 1_000 + b"\x01", None),
    ],
)
@pytest.mark.parametrize("text", ["", TEXT])
def test_a_number_has_ten_bytes_at_most(number: bytes, expected: int | None, text: str) -> None:
    own = schema(1, text="string", number="long", length="bytes", place=["null", "string"])
    encoded = bytes([2 * len(text.encode())]) + text.encode()
    good = (encoded + b"\x02\x00\x00", ({"text": text, "number": 1, "length": b"", "place": None}, None))
    values = [encoded + number + b"\x00\x00", good[0]]
    found = None if expected is None else {"text": text, "number": expected, "length": b"", "place": None}
    required = [(found, None if found else "Malformed"), good[1]]
    assert outcome(decode_avro(pa.array(values, pa.binary()), own, None)) == required
    with_ids = [header(1) + it for it in values]
    assert outcome(decode_avro(pa.array(with_ids, pa.binary()), own, Registry(own))) == required
    # Lengths, and indexes of branches.
    for at in (b"\x02" + number, b"\x02\x00" + number):
        assert outcome(decode_avro(pa.array([encoded + at], pa.binary()), own, None)) == [(None, "Malformed")]


def test_a_recursive_field_that_the_reader_leaves_out_is_read() -> None:
    items = {"type": "array", "items": "Flight"}
    fields = {"before": ["null", "Flight"], "others": items, "kind": ["null", "int", "Flight"], "delay": "int"}
    writer, reader = schema(2, **fields), schema(1, delay="long")
    leaf = b"\x00\x00\x00\x08"
    nested = b"\x02" + leaf + b"\x04" + leaf + leaf + b"\x00" + b"\x04" + leaf + b"\x0a"
    values = [header(2) + it for it in (leaf, nested, b"\x02" * 1_000_000, b"\xff" * 1_000_000, b"\x01" + leaf)]
    assert outcome(decode_avro(pa.array(values, pa.binary()), reader, Registry(writer))) == [
        ({"delay": 4}, None),
        ({"delay": 5}, None),
        (None, "Malformed"),
        (None, "Malformed"),
        (None, "Malformed"),
    ]


EPOCH_2020 = datetime(2020, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("written", "read", "number", "expected"),
    [
        ("long", logical("long", "timestamp-millis"), 1_577_836_800_000, EPOCH_2020),
        ("long", logical("long", "timestamp-micros"), 1_577_836_800_000_000, EPOCH_2020),
        ("long", logical("long", "local-timestamp-millis"), 1_577_836_800_000, EPOCH_2020.replace(tzinfo=None)),
        ("int", logical("long", "timestamp-millis"), 1, datetime(1970, 1, 1, 0, 0, 0, 1000, timezone.utc)),
        ("int", logical("int", "date"), 18_262, date(2020, 1, 1)),
        (logical("int", "date"), "int", 18_262, 18_262),
        (logical("int", "date"), "long", 18_262, 18_262),
        (logical("long", "timestamp-millis"), "long", 5, 5),
        # Two units of one time are one time.
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), 1_577_836_800_000, EPOCH_2020),
        (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), 1_577_836_800_000_000, EPOCH_2020),
    ],
)
def test_the_logical_type_of_the_reader(written: Any, read: Any, number: int, expected: Any) -> None:
    values = pa.array([header(2) + as_long(number)], pa.binary())
    assert outcome(decode_avro(values, schema(1, t=read), Registry(schema(2, t=written)))) == [({"t": expected}, None)]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (logical("long", "timestamp-millis"), logical("long", "local-timestamp-millis")),
        (logical("int", "date"), logical("long", "timestamp-millis")),
        (logical("bytes", "decimal", precision=9, scale=2), logical("bytes", "decimal", precision=9, scale=3)),
    ],
)
def test_two_logical_types_with_other_meanings_are_a_mismatch(written: Any, read: Any) -> None:
    assert classes([header(2) + b"\x02\x02"], schema(1, t=read), schema(2, t=written)) == ["SchemaMismatch"]


def test_defaults_have_the_types_of_the_reader() -> None:
    fields = [
        {"name": "at", "type": logical("long", "timestamp-millis"), "default": 1_577_836_800_000},
        {"name": "price", "type": logical("bytes", "decimal", precision=4, scale=1), "default": "\u00ff"},
        {"name": "data", "type": "bytes", "default": "\u00e9\u0000"},
        {"name": "four", "type": {"type": "fixed", "name": "Two", "size": 2}, "default": "\u00fe\u00ff"},
    ]
    reader = RegisteredSchema(1, AVRO, json.dumps({"type": "record", "name": "Flight", "fields": fields}))
    values = pa.array([header(2) + b"\x02"], pa.binary())
    expected = {"at": EPOCH_2020, "price": Decimal("-0.1"), "data": b"\xe9\x00", "four": b"\xfe\xff"}
    assert outcome(decode_avro(values, reader, Registry(schema(2, x="int")))) == [(expected, None)]


def test_an_invalid_annotation_is_ignored() -> None:
    oracle_number = logical("bytes", "decimal", precision=64, scale=127)
    large = logical("bytes", "decimal", precision=50, scale=2)
    assert arrow_type(schema(a=oracle_number).text) == pa.struct([("a", pa.binary())])
    writer = schema(2, a=oracle_number, b=large, c="int")
    value = header(2) + b"\x02\x01\x02\x01\x0a"
    assert classes([value], schema(1, c="int"), writer) == [None]
    assert classes([value], schema(1, b=logical("bytes", "decimal", precision=38, scale=2)), writer) == [None]


def test_a_double_in_a_union_of_numbers_keeps_its_digits() -> None:
    own = schema(1, a=["null", "float", "double"])
    array = pa.array([{"a": 0.1}, {"a": None}], arrow_type(own.text))
    written = encode_avro(array, own, has_header=False).field("result")
    assert outcome(decode_avro(written, own, None)) == [({"a": 0.1}, None), ({"a": None}, None)]


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int", 2**31),
        ("int", "1"),
        ("long", 1.5),
        ("boolean", 1),
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "Two", "size": 2}, "a"),
        ({"type": "enum", "name": "Kind", "symbols": ["A"]}, "B"),
        (["null", "string"], 5),
        (record("Inner", x="int"), {}),
        ({"type": "array", "items": "int"}, ["a"]),
        ({"type": "map", "values": "int"}, []),
        (logical("bytes", "decimal", precision=4), ""),
        ("double", 10**400),
    ],
)
def test_a_default_of_another_type_is_rejected(type_: Any, default: Any) -> None:
    fields = [{"name": "a", "type": type_, "default": default}]
    reader = RegisteredSchema(1, AVRO, json.dumps({"type": "record", "name": "Flight", "fields": fields}))
    with pytest.raises(InvalidOption, match=r"The default of field 'Flight\.a' in the Avro schema is wrong"):
        check_reader(reader)


def test_a_writers_schema_is_resolved_with_the_readers() -> None:
    old = schema(1, airport="string", delay="int")
    new = RegisteredSchema(
        2,
        AVRO,
        json.dumps(
            {
                "type": "record",
                "name": "Flight",
                "fields": [
                    {"name": "delay", "type": "long"},
                    {"name": "gate", "type": ["null", "string"], "default": None},
                    {"name": "place", "type": "string", "aliases": ["airport"]},
                ],
            }
        ),
    )
    other = schema(3, airport="string", delay="string")
    another = RegisteredSchema(4, "JSON", "{}")
    endless = RegisteredSchema(5, AVRO, json.dumps(record("Flight", delay="long", next=["null", "Flight"])))
    values = [
        encoded({"airport": "JFK", "delay": 4}, old, has_header=True),
        encoded({"delay": 5, "gate": "B", "place": "LAX"}, new, has_header=True),
        encoded({"airport": "JFK", "delay": "x"}, other, has_header=True),
        header(4),
        header(5) + b"\x02" * 100_000,
    ]
    registry = Registry(old, new, other, another, endless)
    found = decode_avro(pa.array(values * 2, pa.binary()), new, registry)
    assert outcome(found)[:2] == [
        ({"delay": 4, "gate": None, "place": "JFK"}, None),
        ({"delay": 5, "gate": "B", "place": "LAX"}, None),
    ]
    assert [error for _, error in outcome(found)[2:5]] == ["SchemaMismatch"] * 3
    assert registry.requests == [1, 2, 3, 4, 5], "one request for each schema"
    details = found.field("problem").to_pylist(maps_as_pydicts="strict")[2]["details"]
    assert details == {"schema_id": "3"}


def test_a_schema_has_references() -> None:
    place = json.dumps(record("Place", code="string"))
    own = RegisteredSchema(1, AVRO, json.dumps(record("Flight", place="Place")), (("Place", place),))
    assert arrow_type(own.text, own.references) == pa.struct([("place", pa.struct([("code", pa.string())]))])
    array = pa.array([{"place": {"code": "JFK"}}], arrow_type(own.text, own.references))
    written = encode_avro(array, own, has_header=True).field("result")
    assert outcome(decode_avro(written, own, Registry(own))) == [({"place": {"code": "JFK"}}, None)]


def test_an_unreachable_registry_is_no_problem_of_a_value() -> None:
    class Unreachable(Registry):
        def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
            raise RegistryUnreachable("It does not answer.")

    with pytest.raises(RegistryUnreachable):
        decode_avro(pa.array([header(1)], pa.binary()), SMALL, Unreachable())


def test_a_row_that_does_not_fit_the_schema_is_not_encodable() -> None:
    values = pa.array([{"airport": None, "delay": 1}, {"airport": "JFK", "delay": 2}], arrow_type(SMALL.text))
    assert [error for _, error in outcome(encode_avro(values, SMALL, has_header=False))] == ["NotEncodable", None]
    enum = schema(
        kind={"type": "enum", "name": "Kind", "symbols": ["A"]}, price=logical("bytes", "decimal", precision=4)
    )
    values = pa.array([{"kind": "Z", "price": Decimal(1)}], arrow_type(enum.text))
    assert [error for _, error in outcome(encode_avro(values, enum, has_header=False))] == ["NotEncodable"]


def test_a_field_name_that_is_not_valid_unicode_is_rejected() -> None:
    schema = '{"type": "record", "name": "Flight", "fields": [{"name": "\\ud800", "type": "int"}]}'
    with pytest.raises(InvalidOption, match="not valid Unicode"):
        arrow_type(schema)
