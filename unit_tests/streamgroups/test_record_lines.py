"""Lines of text and of JSON as records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups.record_lines import NewRecord, json_record, text_record

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.binary(), st.binary(min_size=1, max_size=2), st.binary())
def test_the_first_separator_ends_the_key(key: bytes, separator: bytes, value: bytes) -> None:
    line = key.replace(separator, b"") + separator + value
    record = text_record(line, separator, where="line 1")
    assert record.key is not None
    assert record.value is not None
    assert record.key + separator + record.value == line
    assert separator not in record.key


def test_a_line_without_the_separator_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"f.txt, line 7: the key separator ':' is missing"):
        text_record(b"BOS", b":", where="f.txt, line 7")
    assert text_record(b"BOS:late", None, where="") == NewRecord(None, b"BOS:late")


@given(
    st.none() | TEXT,
    st.none() | TEXT,
    st.lists(st.tuples(NAMES, st.none() | TEXT)),
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | st.integers(1, 2**40),
)
def test_an_object_is_the_record(
    key: str | None,
    value: str | None,
    headers: list[tuple[str, str | None]],
    partition: int | None,
    timestamp: int | None,
) -> None:
    line = {"key": key, "value": value, "headers": headers, "partition": partition, "timestamp": timestamp}
    record = json_record(json.dumps(line).encode(), where="line 1")
    assert record == NewRecord(
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        tuple((name, None if it is None else it.encode()) for name, it in headers),
        partition,
        timestamp,
    )
    present = {name: it for name, it in line.items() if it is not None}
    assert json_record(json.dumps(present).encode(), where="line 1") == record


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"{}", NewRecord(None, None)),
        (b'{"value": 5, "key": [1, "\xc3\xbc"]}', NewRecord('[1,"ü"]'.encode(), b"5")),
        (b'{"value": ""}', NewRecord(None, b"")),
        (
            b'{"value": {"p": 0.12345678901234567890, "q": [100.10, 1E5, -0, -0.0]}}',
            NewRecord(None, b'{"p":0.12345678901234567890,"q":[100.10,1E5,-0,-0.0]}'),
        ),
        (b'{"key": 100.10, "value": {"": [true, null, {}, []]}}', NewRecord(b"100.10", b'{"":[true,null,{},[]]}')),
        (b'{"headers": {"trace": "1", "empty": null}}', NewRecord(None, None, (("trace", b"1"), ("empty", None)))),
    ],
)
def test_values_of_other_types(line: bytes, record: NewRecord) -> None:
    assert json_record(line, where="line 1") == record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"BOS", "Expecting value"),
        (b"[1]", "it is not a JSON object"),
        (b'{"Value": 1}', "the field 'Value' is unknown"),
        (b'{"partition": -1}', "-1 is not between 0"),
        (b'{"partition": "0"}', "'0' is not a whole number"),
        (b'{"timestamp": "yesterday"}', "'yesterday', which is not a time"),
        (b'{"timestamp": -5}', "'timestamp' is before 1970"),
        (b'{"timestamp": "1969-12-31T23:59:59Z"}', "'1969-12-31T23:59:59Z', which is before 1970"),
        (b'{"timestamp": 0}', "'timestamp' is 0"),
        (b'{"timestamp": "1970-01-01T00:00:00Z"}', "'timestamp' is 0"),
        (b'{"timestamp": 1.0}', "1.0 is not a whole number"),
        (b'{"headers": {"a\\u0000b": "1"}}', "the header name 'a\\x00b' contains the character NUL"),
        (b'{"value": 1, "value": 2}', "the name 'value' is repeated"),
        (b'{"value": {"a": {"b": 1, "b": 1}}}', "the name 'b' is repeated"),
        (b'{"value": 1e999}', "the number 1e999 is too large"),
        (b'{"timestamp": true}', "True is not a whole number"),
        (b'{"headers": 5}', "neither an object nor a list"),
        (b'{"headers": [["a"]]}', "not a pair of name and value"),
        (b'{"headers": {"a": 1}}', "the header 'a' is neither text nor null"),
        (b'{"value": "\xff"}', "can't decode byte"),
        (b'{"value": NaN}', "NaN is not a JSON number"),
    ],
)
def test_other_lines_are_rejected_with_their_place(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidOption, match="line 7: ") as rejected:
        json_record(line, where="line 7")
    assert reason in str(rejected.value)
