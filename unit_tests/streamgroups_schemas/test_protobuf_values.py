"""P4: each Protobuf value is decoded or has a problem. No value raises an error or ends the process."""

from __future__ import annotations

import base64
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, json_format, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.decoding.registry import RegisteredSchema
from streamgroups.decoding.wire_format import header, joined_indexes
from streamgroups.errors import InvalidOption, RegistryUnreachable
from streamgroups_schemas.protobuf_files import registered_file
from streamgroups_schemas.protobuf_types import arrow_type, message_at, mismatch
from streamgroups_schemas.protobuf_values import PROTOBUF, MessageSchema, decode_protobuf, encode_protobuf

_F = descriptor_pb2.FieldDescriptorProto
T = {name.removeprefix("TYPE_").lower(): number for name, number in _F.Type.items()}
IMPORTS = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)


def field(name: str, number: int, type_: str, *, repeated: bool = False, of: str = "") -> Any:
    label = _F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL
    return _F(name=name, number=number, type=T[type_], label=label, type_name=of or None)


def file(*messages: Any, enums: tuple[Any, ...] = ()) -> Any:
    made = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="board", syntax="proto3")
    made.dependency.extend(it.DESCRIPTOR.name for it in IMPORTS)
    made.message_type.extend(messages)
    made.enum_type.extend(enums)
    return made


def message(name: str, *fields: Any, nested: tuple[Any, ...] = ()) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, nested_type=nested)


def registered(schema_id: int, made: Any) -> RegisteredSchema:
    return RegisteredSchema(schema_id, PROTOBUF, base64.b64encode(made.SerializeToString()).decode())


def descriptor_set(made: Any) -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    for it in IMPORTS:
        it.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(made)
    return bytes(files.SerializeToString())


def entry(name: str, value: Any) -> Any:
    made = message(name, field("key", 1, "string"), value)
    made.options.map_entry = True
    return made


KIND = descriptor_pb2.EnumDescriptorProto(
    name="Kind", value=[descriptor_pb2.EnumValueDescriptorProto(name=n, number=i) for i, n in enumerate("AB")]
)
OPTIONAL = field("maybe", 12, "int32")
OPTIONAL.proto3_optional = True
OPTIONAL.oneof_index = 0
FLIGHT = message(
    "Flight",
    field("airport", 1, "string"),
    field("delay", 2, "int32"),
    field("long", 3, "sint64"),
    field("wide", 4, "uint64"),
    field("unsigned", 5, "uint32"),
    field("real", 6, "double"),
    field("flag", 7, "bool"),
    field("data", 8, "bytes"),
    field("kind", 9, "enum", of=".board.Kind"),
    field("gates", 10, "int32", repeated=True),
    field("place", 11, "message", of=".board.Flight.Place"),
    OPTIONAL,
    field("places", 13, "message", of=".board.Flight.Place", repeated=True),
    field("counts", 14, "message", of=".board.Flight.CountsEntry", repeated=True),
    field("at", 15, "message", of=".google.protobuf.Timestamp"),
    field("lasts", 16, "message", of=".google.protobuf.Duration"),
    field("boxed", 17, "message", of=".google.protobuf.Int64Value"),
    nested=(message("Place", field("code", 1, "string")), entry("CountsEntry", field("value", 2, "int64"))),
)
FLIGHT.oneof_decl.add(name="_maybe")
FILE = file(message("Other", field("x", 1, "int32")), FLIGHT, enums=(KIND,))
SCHEMA = MessageSchema("board.Flight", registered=registered(1, FILE))


class Registry:
    def __init__(self, *schemas: RegisteredSchema) -> None:
        self.schemas = {it.id: it for it in schemas}
        self.requests: list[int] = []

    def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
        assert kind == PROTOBUF
        self.requests.append(schema_id)
        return self.schemas.get(schema_id)


def outcome(array: pa.Array) -> list[tuple[Any, str | None]]:
    """The result and the class of the error of each value."""
    found = array.to_pylist(maps_as_pydicts="strict")
    return [(it["result"], it["problem"] and it["problem"]["error_class"]) for it in found]


def test_types_of_a_message() -> None:
    place = pa.struct([("code", pa.string())])
    expected = [
        ("airport", pa.string()),
        ("delay", pa.int32()),
        ("long", pa.int64()),
        ("wide", pa.decimal128(20, 0)),
        ("unsigned", pa.int64()),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("data", pa.binary()),
        ("kind", pa.string()),
        ("gates", pa.list_(pa.int32())),
        ("place", place),
        ("maybe", pa.int32()),
        ("places", pa.list_(place)),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("at", pa.timestamp("us", "UTC")),
        ("lasts", pa.duration("us")),
        ("boxed", pa.int64()),
    ]
    assert arrow_type(SCHEMA.message()) == pa.struct(expected)
    assert arrow_type(MessageSchema("board.Flight", descriptor_set(FILE)).message()) == pa.struct(expected)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ([field("a", 1, "message", of=".board.M")], "field 'a' has the type 'board.M'"),
        ([field("a", 1, "message", of=".google.protobuf.Struct")], "'google.protobuf.Struct'"),
        ([], "the message has the type 'board.M', which has no equivalent in Spark. The message has no fields."),
    ],
)
def test_a_type_without_an_equivalent_is_rejected_and_named(fields: list[Any], names: str) -> None:
    schema = MessageSchema("board.M", registered=registered(1, file(message("M", *fields))))
    with pytest.raises(InvalidOption) as error:
        arrow_type(schema.message())
    assert names in str(error.value)


@pytest.mark.parametrize(
    "schema",
    [
        MessageSchema("board.Flight", b"\xff"),
        MessageSchema("board.Missing", descriptor_set(FILE)),
        MessageSchema("board.Missing", registered=registered(1, FILE)),
        MessageSchema(None, registered=RegisteredSchema(1, PROTOBUF, 'syntax = "proto3"; message A {}')),
        MessageSchema(None, registered=RegisteredSchema(1, PROTOBUF, "AAAA")),
        MessageSchema(None, registered=registered(1, file())),
    ],
)
def test_a_schema_without_the_message_is_rejected(schema: MessageSchema) -> None:
    with pytest.raises(InvalidOption):
        schema.message()


I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"))
places = st.fixed_dictionaries({"code": texts})
rows = st.fixed_dictionaries(
    {
        "airport": texts,
        "delay": I32,
        "long": I64,
        "wide": st.integers(0, 2**64 - 1).map(Decimal),
        "unsigned": st.integers(0, 2**32 - 1),
        "real": st.floats(allow_nan=False),
        "flag": st.booleans(),
        "data": st.binary(),
        "kind": st.sampled_from("AB"),
        "gates": st.lists(I32),
        "place": st.none() | places,
        "maybe": st.none() | I32,
        "places": st.lists(places, max_size=2),
        "counts": st.dictionaries(texts, I64, max_size=3),
        "at": st.none() | st.datetimes(timezones=st.just(timezone.utc)),
        "lasts": st.none() | st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
        "boxed": st.none() | I64,
    }
)


@given(st.lists(st.none() | rows, max_size=3))
def test_any_value_round_trips(values: list[Any]) -> None:
    array = pa.array(values, arrow_type(SCHEMA.message()))
    for schema, registry in (
        (SCHEMA, Registry(registered(1, FILE))),
        (MessageSchema("board.Flight", descriptor_set(FILE)), None),
    ):
        decoded = decode_protobuf(encode_protobuf(array, schema).field("result"), schema, registry)
        assert outcome(decoded) == [(it, None) for it in values]


@given(st.lists(st.binary(max_size=40) | st.binary(max_size=40).map(lambda it: header(1) + it), max_size=20))
def test_any_bytes_are_decoded_or_have_a_problem(values: list[bytes]) -> None:
    for schemas in (None, Registry(registered(1, FILE))):
        for result, error in outcome(decode_protobuf(pa.array(values, pa.binary()), SCHEMA, schemas)):
            assert (result is None) != (error is None)


def test_each_kind_of_bad_value_has_its_class() -> None:
    def changed(schema_id: int, *fields: Any) -> RegisteredSchema:
        return registered(schema_id, file(message("Other", field("x", 1, "int32")), message("Flight", *fields)))

    registry = Registry(
        registered(1, FILE),
        changed(2, field("airport", 1, "string"), field("added", 99, "string")),
        changed(3, field("airport", 1, "int32")),
        changed(4, field("gates", 10, "int32")),
        RegisteredSchema(5, "AVRO", '"string"'),
        RegisteredSchema(6, PROTOBUF, "no descriptor"),
    )
    flight = joined_indexes((1,))
    values = [
        header(1) + flight + b"\x0a\x03JFK",
        header(2) + flight + b"\x0a\x03LAX\x9a\x06\x03new",
        None,
        b"",
        b"{}",
        header(1) + flight + b"\x0a\x09JFK",
        header(1) + flight + b"\x0a\x01\xff",
        header(1) + joined_indexes((0,)) + b"\x08\x01",
        header(1) + joined_indexes((7, 7)),
        header(3) + flight,
        header(4) + flight,
        header(5) + flight,
        header(6) + flight,
        header(7) + flight,
        header(1),
        header(1) + flight + b"\x78",
    ]
    found = outcome(decode_protobuf(pa.array(values * 2, pa.binary()), SCHEMA, registry))
    assert [found[i][0]["airport"] for i in (0, 1)] == ["JFK", "LAX"]
    assert [error for _, error in found[: len(values)]] == [
        None,
        None,
        None,
        "EmptyValue",
        "NoMagicByte",
        "Malformed",
        "Malformed",
        "SchemaMismatch",
        "SchemaMismatch",
        "SchemaMismatch",
        "SchemaMismatch",
        "SchemaMismatch",
        "SchemaMismatch",
        "UnknownSchemaId",
        "Malformed",
        "Malformed",
    ]
    assert registry.requests == [1, 2, 1, 1, 3, 4, 5, 6, 7], "one request for each message of a schema"


def test_a_time_that_arrow_cannot_store_is_out_of_range() -> None:
    schema = MessageSchema("board.M", descriptor_set(file(message("M", FLIGHT.field[14]))))
    value = b"\x7a\x0a\x08" + b"\xff" * 8 + b"\x7f"
    [(_, error)] = outcome(decode_protobuf(pa.array([value], pa.binary()), schema, None))
    assert error == "OutOfRange"


def test_an_unknown_value_of_an_enum_is_its_number() -> None:
    [(result, error)] = outcome(
        decode_protobuf(pa.array([b"\x48\x07"], pa.binary()), MessageSchema("board.Flight", descriptor_set(FILE)), None)
    )
    assert (result["kind"], error) == ("7", None)


def test_a_row_that_does_not_fit_the_message_is_not_encodable() -> None:
    type_ = arrow_type(SCHEMA.message())
    values = [
        {"kind": "Z"},
        {"unsigned": -1},
        {"gates": [1, None]},
        {"delay": 1, "at": datetime(2026, 1, 1, tzinfo=timezone.utc)},
    ]
    found = outcome(encode_protobuf(pa.array(values, type_), SCHEMA))
    assert [error for _, error in found] == ["NotEncodable", "NotEncodable", "NotEncodable", None]


def test_two_fields_of_a_oneof_are_not_encodable() -> None:
    fields = [field("gate", 1, "int32"), field("bus", 2, "message", of=".board.Bus"), field("delay", 3, "int32")]
    for it in fields[:2]:
        it.oneof_index = 0
    exit_ = message("Exit", *fields)
    exit_.oneof_decl.add(name="way")
    nested = message("Flight", field("exits", 1, "message", repeated=True, of=".board.Exit"))
    schema = MessageSchema("board.Flight", descriptor_set(file(nested, exit_, message("Bus", field("n", 1, "int32")))))
    one, other = {"gate": 0, "bus": None, "delay": 1}, {"gate": None, "bus": {"n": 1}, "delay": 1}
    both = {"gate": 0, "bus": {"n": 1}, "delay": 1}
    rows = [{"exits": [one, other]}, {"exits": [other, both]}]
    encoded = encode_protobuf(pa.array(rows, arrow_type(schema.message())), schema)
    assert [error for _, error in outcome(encoded)] == [None, "NotEncodable"]
    assert "gate and bus of oneof way are both set" in encoded.field("problem")[1]["error"].as_py()
    decoded = decode_protobuf(encoded.field("result"), schema, None)
    assert outcome(decoded)[0] == (rows[0], None)


def test_a_row_without_an_object_of_python_is_a_problem() -> None:
    type_ = arrow_type(SCHEMA.message())
    array = pa.array([{"airport": "JFK"}, {"counts": [("a", 1), ("a", 2)]}, {"gates": [1]}, None], type_)
    texts = pa.array([b"JFK", None, b"\xff", None], pa.binary())
    airports = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    columns = [airports, *(array.field(i) for i in range(1, type_.num_fields))]
    values = pa.StructArray.from_arrays(columns, fields=list(type_), mask=array.is_null())
    found = outcome(encode_protobuf(values, SCHEMA))
    assert [error for _, error in found] == [None, "NotEncodable", "NotUtf8", None]


def test_an_unreachable_registry_is_no_problem_of_a_value() -> None:
    class Unreachable(Registry):
        def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
            raise RegistryUnreachable("It does not answer.")

    with pytest.raises(RegistryUnreachable):
        decode_protobuf(pa.array([header(1) + b"\x00"], pa.binary()), SCHEMA, Unreachable())


SCALARS = [it for it in T if it not in ("group", "message")]
EDGES: dict[str, list[Any]] = {
    "float": [0.0, 1.5, float("inf")],
    "double": [0.0, 0.1, 1e300],
    "bool": [False, True],
    "string": ["", "JFK", "\u00e9"],
    "bytes": [b"", b"JFK", b"\xff"],
    "enum": [0, 1, 7, -1, 2**31 - 1],
}


def of_type(type_: str, *, repeated: bool = False) -> MessageSchema:
    one = field("a", 1, type_, repeated=repeated, of=".board.Kind" if type_ == "enum" else "")
    return MessageSchema("board.M", registered=registered(1, file(message("M", one), enums=(KIND,))))


def edges(type_: str) -> list[Any]:
    if type_ in EDGES:
        return EDGES[type_]
    limits = (0, 2 ** int(type_[-2:])) if type_ in ("uint32", "uint64", "fixed32", "fixed64") else None
    low, high = limits or (-(2 ** (int(type_[-2:]) - 1)), 2 ** (int(type_[-2:]) - 1))
    return [it for it in (low, -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, high - 1) if low <= it < high]


def plain(value: Any) -> Any:
    if value in ("A", "B"):
        return "AB".index(value)
    if isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else value.encode()
    return value


@pytest.mark.parametrize("written", SCALARS)
@pytest.mark.parametrize("read", SCALARS)
@pytest.mark.parametrize("repeated", [False, True])
def test_P4_a_value_of_another_type_is_the_same_value_or_a_mismatch(written: str, read: str, repeated: bool) -> None:
    writer, reader = of_type(written, repeated=repeated), of_type(read, repeated=repeated)
    assert writer.registered is not None
    make = GetMessageClass(writer.message())
    registry = Registry(writer.registered)
    for value in edges(written):
        made = make(a=[value] if repeated else value)
        found = decode_protobuf(pa.array([header(1) + b"\x00" + made.SerializeToString()]), reader, registry)
        [(result, error)] = outcome(found)
        if error is None:
            got = result["a"][0] if repeated else result["a"]
            assert plain(got) == plain(value), (written, read, value)
        else:
            assert error == (
                "Malformed" if (written, read, value) == ("bytes", "string", b"\xff") else "SchemaMismatch"
            )
            assert written != read


@pytest.mark.parametrize("pair", ["int32 int64", "uint32 int64", "uint32 uint64", "sint32 sint64", "string bytes"])
def test_a_wider_type_is_read(pair: str) -> None:
    written, read = pair.split()
    assert mismatch(of_type(written).message(), of_type(read).message()) is None
    assert mismatch(of_type(read).message(), of_type(written).message()) in (None if "bytes" in pair else "a", "a")


def test_an_unknown_value_of_a_closed_enum_is_its_number() -> None:
    made = file(
        message(
            "M", field("one", 1, "enum", of=".board.Kind"), field("many", 2, "enum", repeated=True, of=".board.Kind")
        ),
        enums=(KIND,),
    )
    made.syntax = "proto2"
    made.message_type[0].field[0].default_value = "B"
    schema = MessageSchema("board.M", descriptor_set(made))
    values = pa.array([b"\x08\x07\x10\x00\x10\x09\x10\x01", b"", b"\x08\x00"], pa.binary())
    assert outcome(decode_protobuf(values, schema, None)) == [
        ({"one": "7", "many": ["A", "9", "B"]}, None),
        ({"one": None, "many": []}, None),
        ({"one": "A", "many": []}, None),
    ]


@pytest.mark.parametrize(
    ("imported", "type_"),
    [
        ("google/protobuf/timestamp.proto", ".google.protobuf.Timestamp"),
        ("google/protobuf/descriptor.proto", ""),
        ("google/protobuf/compiler/plugin.proto", ""),
        ("google/type/date.proto", ".google.type.Date"),
        ("google/type/money.proto", ".google.type.Money"),
        ("google/type/datetime.proto", ".google.type.TimeZone"),
        ("confluent/meta.proto", ""),
        ("confluent/type/decimal.proto", ".confluent.type.Decimal"),
    ],
)
def test_files_that_clients_of_registries_have(imported: str, type_: str) -> None:
    made = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="board", syntax="proto3")
    made.dependency.append(imported)
    more = [field("at", 2, "message", of=type_)] if type_ else []
    made.message_type.append(message("M", field("a", 1, "string"), *more))
    registry_schema = registered(1, made)
    schema = MessageSchema("board.M", registered=registry_schema)
    values = pa.array([header(1) + b"\x00\x0a\x01x"], pa.binary())
    [(result, error)] = outcome(decode_protobuf(values, schema, Registry(registry_schema)))
    assert (result["a"], error) == ("x", None)


def test_an_imported_file_that_is_missing_is_named() -> None:
    made = file(message("M", field("a", 1, "string")))
    made.dependency.append("google/protobuf/../../x.proto")
    with pytest.raises(InvalidOption, match=r"google/protobuf/\.\./\.\./x\.proto, which is imported, is missing"):
        MessageSchema("board.M", registered=registered(1, made)).message()


@pytest.mark.parametrize("levels", [10, 60])
def test_each_message_of_a_schema_is_compared_once(levels: int) -> None:
    messages = [message("M0", field("a", 1, "int32"))]
    for level in range(1, levels + 1):
        of = f".board.M{level - 1}"
        messages.append(message(f"M{level}", field("a", 1, "message", of=of), field("b", 2, "message", of=of)))
    written = registered_file(registered(1, file(*messages)).text)
    read = registered_file(registered(2, file(*messages)).text)
    name = f"board.M{levels}"
    both = [it.pool.FindMessageTypeByName(name) for it in (written, read)]
    assert mismatch(*both) is None
    with pytest.raises(InvalidOption, match="more than 10,000 fields") if levels > 12 else nullcontext():
        arrow_type(both[1])


@given(st.lists(rows, max_size=3))
def test_P4_values_of_generated_code(values: list[Any]) -> None:
    """Google's JSON of a message is the oracle."""
    make = GetMessageClass(SCHEMA.message())
    array = pa.array(values, arrow_type(SCHEMA.message()))
    payloads = encode_protobuf(array, MessageSchema("board.Flight", descriptor_set(FILE))).field("result")
    for value, payload in zip(values, payloads.to_pylist(), strict=True):
        shown = json_format.MessageToDict(
            make.FromString(payload), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for name in ("airport", "delay", "unsigned", "flag", "kind", "gates", "places"):
            assert shown[name] == value[name]
        for name in ("long", "wide", "boxed"):
            assert (int(shown[name]) if name in shown else None) == value[name]
        assert base64.b64decode(shown["data"]) == value["data"]
        assert {key: int(it) for key, it in shown["counts"].items()} == value["counts"]
        for name in ("place", "maybe"):
            assert shown.get(name) == value[name]


def test_a_schema_imports_another_file() -> None:
    place = descriptor_pb2.FileDescriptorProto(name="x.proto", package="board", syntax="proto3")
    place.message_type.append(message("Place", field("code", 1, "string")))
    flight = file(message("Flight", field("place", 1, "message", of=".board.Place")))
    flight.dependency.append("board/place.proto")
    own = registered(1, flight)
    found = registered_file(own.text, (("board/place.proto", registered(2, place).text),))
    at_first = message_at(found, (0,))
    assert at_first is not None
    assert arrow_type(at_first) == pa.struct([("place", pa.struct([("code", pa.string())]))])
