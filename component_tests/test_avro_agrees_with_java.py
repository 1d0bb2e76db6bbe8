"""P4: Avro values are decoded as Java's Avro decodes them: schema resolution, defaults, aliases and logical types.

The oracle is the Avro of PySpark's jars, with its conversions of logical types. One process decodes all values.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings

from component_tests.avro_pairs import Pair, pairs
from streamgroups.decoding.registry import RegisteredSchema
from streamgroups.decoding.wire_format import header
from streamgroups.errors import InvalidOption
from streamgroups_schemas.avro_values import AVRO, check_reader, decode_avro
from streamgroups_schemas.results import with_numbers
from unit_tests.examples import examples

SOURCE = Path(__file__).parent / "java" / "AvroOracle.java"


class Java:
    """A process that decodes values with Java's Avro."""

    def __init__(self) -> None:
        [pyspark] = importlib.util.find_spec("pyspark").submodule_search_locations  # type: ignore[union-attr, misc]
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{pyspark}/jars/*", str(SOURCE)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )

    def decoded(self, pair: Pair) -> dict[str, Any]:
        """Returns an object with ``value`` or ``error``."""
        line = {"writer": json.dumps(pair.writer), "reader": json.dumps(pair.reader), "value": pair.encoded.hex()}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    if shutil.which("javac") is None:
        pytest.skip("a JDK compiles the oracle, and this machine has none")
    process = Java()
    yield process
    process.close()


def own(pair: Pair) -> tuple[Any, str | None]:
    """The result, as the oracle shows it, and the class of the error."""
    writer = RegisteredSchema(2, AVRO, json.dumps(pair.writer))

    class Registry:
        def by_id(self, _id: int, _kind: str) -> RegisteredSchema:
            return writer

    reader = RegisteredSchema(1, AVRO, json.dumps(pair.reader))
    found = decode_avro(pa.array([header(2) + pair.encoded], pa.binary()), reader, Registry())
    problem = found.field("problem")[0].as_py()
    if problem is not None:
        return None, problem["error_class"]
    result = found.field("result")
    numbers = with_numbers(result)
    return shown(numbers[0].as_py(maps_as_pydicts="strict"), result.type), None


def shown(value: Any, type_: pa.DataType) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if pa.types.is_struct(type_):
        return {it.name: shown(value[it.name], it.type) for it in type_}
    if pa.types.is_list(type_):
        return [shown(it, type_.value_type) for it in value]
    if pa.types.is_map(type_):
        return {key: shown(it, type_.item_type) for key, it in value.items()}
    if isinstance(value, float):
        bits = 0x7FF8000000000000 if value != value else struct.unpack(">Q", struct.pack(">d", value))[0]
        return f"{bits:x}"
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:f}" if pa.types.is_decimal(type_) else str(value)


def check(pair: Pair, java: Java) -> str:
    """Compares both results. Returns what it found."""
    other, (result, error) = java.decoded(pair), own(pair)
    # Java replaces bytes that are not UTF-8, and its decimals have any length.
    if error in ("OutOfRange", "NotUtf8"):
        return error
    # Java 1.12.1 cannot convert a value of a union of one type.
    if error is None and "expected generic type" in other.get("error", ""):
        return "an error of Java"
    assert ("value" in other) == (error is None), (pair, other, result, error)
    if error is None:
        assert result == other["value"], pair
    return error or "decoded"


def annotated(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


DECIMAL = annotated("bytes", "decimal", precision=9, scale=2)
FIXED = {"type": "fixed", "name": "Amount", "size": 2}
#: Types, and a value of each.
TYPES: list[tuple[Any, Any]] = [
    *(
        (annotated("long", f"{zone}timestamp-{unit}"), 1_577_836_800_123)
        for zone in ("", "local-")
        for unit in ("millis", "micros")
    ),
    (annotated("int", "date"), 18_262),
    (annotated("int", "time-millis"), 5),
    (annotated("string", "uuid"), "x"),
    (DECIMAL, b"\x01\x00"),
    ({**FIXED, **annotated("fixed", "decimal", precision=4, scale=1)}, b"\xff\x80"),
    (annotated("bytes", "decimal", precision=64, scale=127), b"\x01"),
    ({**FIXED, **annotated("fixed", "decimal", precision=5)}, b"\x01\x02"),
    (annotated("long", "date"), 5),
    (annotated("int", "timestamp-millis"), 5),
    (annotated("string", "decimal", precision=4), "4"),
]


def bare(type_: dict[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in type_.items() if name not in ("logicalType", "precision", "scale")}


@pytest.mark.parametrize(("type_", "value"), TYPES)
@pytest.mark.parametrize("of_writer", [True, False])
@pytest.mark.parametrize("of_reader", [True, False])
def test_P4_the_logical_type_is_that_of_the_reader(
    java: Java, type_: dict[str, Any], value: Any, of_writer: bool, of_reader: bool
) -> None:
    written, read = type_ if of_writer else bare(type_), type_ if of_reader else bare(type_)
    is_fixed = type_["type"] == "fixed"

    def fields(it: Any) -> dict[str, Any]:
        again = "Amount" if is_fixed else it
        inner = record("Inner", x=again, y={"type": "map", "values": again})
        return {"a": it, "b": ["null", again], "c": {"type": "array", "items": inner}}

    row = {"a": value, "b": (1, value), "c": [{"x": value, "y": {"k": value}}]}
    pair = Pair(record("Flight", **fields(written)), record("Flight", **fields(read)), row)
    assert check(pair, java) == "decoded"


@pytest.mark.parametrize(("type_", "value"), TYPES)
def test_P4_the_logical_type_of_a_default(java: Java, type_: dict[str, Any], value: Any) -> None:
    default = value.decode("latin-1") if isinstance(value, bytes) else value
    again = "Amount" if type_["type"] == "fixed" else type_
    defaults = [
        ("a", type_, default),
        ("b", [again, "null"], default),
        ("c", {"type": "array", "items": again}, [default, default]),
        ("d", record("Inner", x=again), {"x": default}),
        ("e", ["null", again], None),
    ]
    fields = [{"name": n, "type": t, "default": d} for n, t, d in defaults]
    pair = Pair(record("Flight", z="int"), {"type": "record", "name": "Flight", "fields": fields}, {"z": 1})
    assert check(pair, java) == "decoded"


def test_P4_a_recursive_field_that_the_reader_leaves_out(java: Java) -> None:
    writer = record("Flight", next=["null", "Flight"], delay="int")
    value = {"next": (1, {"next": (1, {"next": (0, None), "delay": 1}), "delay": 2}), "delay": 3}
    assert check(Pair(writer, record("Flight", delay="long"), value), java) == "decoded"


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck), deadline=None)
@given(pair=pairs())
def test_P4_random_schemas_and_values(java: Java, pair: Pair) -> None:
    try:
        check_reader(RegisteredSchema(1, AVRO, json.dumps(pair.reader)))
    except InvalidOption as error:
        event(error.what[:40])
        return
    event(check(pair, java))
