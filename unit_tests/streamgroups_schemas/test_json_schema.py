"""P4: each JSON value is valid or has a problem."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups_schemas.json_schema import validate_json, validator

SCHEMA = json.dumps(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["airport"],
        "properties": {"delay": {"$ref": "#/$defs/delay"}, "gates": {"prefixItems": [{"type": "string"}]}},
        "unevaluatedProperties": {"type": "string"},
        "$defs": {"delay": {"type": "integer", "minimum": 0}},
    }
)


def problems(values: list[bytes | None], schema: str = SCHEMA) -> list[Any]:
    found = validate_json(pa.array(values, pa.binary()), schema).field("problem")
    return [it and (it["error_class"], it["error"], it["details"]) for it in found.to_pylist(maps_as_pydicts="strict")]


def test_a_violation_names_the_path_and_the_message() -> None:
    found = problems(
        [
            b'{"airport": "JFK", "delay": 4}',
            None,
            b'{"airport": "JFK", "delay": -1, "gates": [7]}',
            b"{}",
            b'{"airport": "JFK", "more": 1}',
        ]
    )
    assert found[:2] == [None, None]
    text = 'delay: -1 is less than the minimum of 0; gates.0: 7 is not of type "string".'
    assert found[2] == ("InvalidDocument", text, {"path": "delay"})
    assert found[3] == ("InvalidDocument", '(root): "airport" is a required property.', {"path": "(root)"})
    assert found[4][0] == "InvalidDocument"


def test_what_is_no_json_has_its_class() -> None:
    assert [it[0] for it in problems([b"", b"{", b'"\xff"', b"[" * 100_000])] == [
        "EmptyValue",
        "Malformed",
        "NotUtf8",
        "Malformed",
    ]


@pytest.mark.parametrize(
    ("value", "error_class"),
    [
        (b"NaN", "Malformed"),
        (b'{"airport": -Infinity}', "Malformed"),
        (b"-1e400", "Malformed"),
        ("{}".encode("utf-16"), "NotUtf8"),
        ("{}".encode("utf-16-le"), "Malformed"),
        ("{}".encode("utf-32-be"), "Malformed"),
        (b"\xef\xbb\xbf{}", "Malformed"),
        (b'"\xed\xa0\x80"', "NotUtf8"),
        (b'"\\ud800"', "NotUtf8"),
        (b'{"\\uDC00\\ud800": 1}', "NotUtf8"),
        (b'{"a":1}{"b":2}', "TrailingBytes"),
        (b"{} x", "TrailingBytes"),
        (b" \t\r\n", "EmptyValue"),
        (b"\x0b", "Malformed"),
        (b" {} \n", None),
        (b'"\\ud83d\\ude00"', None),
        (b'"\\\\ud800"', None),
    ],
)
def test_a_value_is_one_document_of_rfc_8259(value: bytes, error_class: str | None) -> None:
    [problem] = problems([value], "{}")
    assert (problem and problem[0]) == error_class
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    [found] = validate_json(pa.array([text]), "{}").field("problem").to_pylist()
    assert (found and found["error_class"]) == error_class


def test_a_text_that_is_not_utf8_is_a_problem_of_its_row() -> None:
    texts = pa.array([b"{}", b"\xff", None], pa.binary())
    values = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    found = validate_json(values, "{}").field("problem").to_pylist()
    assert [it and it["error_class"] for it in found] == [None, "NotUtf8", None]


@given(
    st.lists(
        st.binary(max_size=20)
        | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(lambda it: json.dumps(it).encode())
    )
)
def test_any_bytes_are_valid_or_have_a_problem(values: list[bytes]) -> None:
    assert len(problems(values)) == len(values)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[]",
        '{"type": "objct"}',
        '{"$ref": "http://example.org/other.json"}',
        '{"pattern": "("}',
        "5",
        "[" * 100_000,
    ],
    ids=lambda schema: schema[:20],
)
def test_an_invalid_schema_is_rejected(schema: str) -> None:
    with pytest.raises(InvalidOption, match="The JSON Schema is invalid"):
        validator(schema)
