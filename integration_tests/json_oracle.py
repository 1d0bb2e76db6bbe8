"""What ``sg.decode`` promises for a JSON value, by Python's ``json`` with the text of numbers.

Used by ``test_json_agrees_with_python``. Source: RFC 8259; ``docs/decoding.rst``.
"""

from __future__ import annotations

import base64
import calendar
import json
import re
import struct
import time
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

_BITS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_SPACE = " \t\n\r"
_ALL = Context(prec=20_000, rounding=ROUND_HALF_UP)
_LONG_EXPONENT = re.compile(r"[eE],*[+-]?[\d,]{5,}")


class Undecided(Exception):
    """The documents promise nothing for the notation of a time or of bytes, or for the limits of a replaced field."""


class Letter(Exception):
    """The value is a dead letter of one of these classes."""

    def __init__(self, *classes: str) -> None:
        super().__init__(classes)
        self.classes = classes


@dataclass(frozen=True)
class Number:
    """A number, as its text."""

    text: str


@dataclass(frozen=True)
class Pairs:
    """An object, with repeated names."""

    items: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class JsonText:
    """The text of an object or array."""

    value: Any


@dataclass(frozen=True)
class Nearest:
    """The ``float`` that is nearest to a number."""

    exact: Fraction


def strict(text: str) -> tuple[Any, str]:
    """Returns the first value of a text, and the rest of it.

    Raises:
        ValueError: if the text does not begin with a value of RFC 8259, or a number or name is too long.
    """

    def reject(constant: str) -> Any:
        raise ValueError(constant)

    def number(text: str) -> Number:
        if sum(map(str.isdigit, text)) > 1000:
            raise ValueError(text)
        return Number(text)

    def pairs(items: list[tuple[str, Any]]) -> Pairs:
        if any(len(name) > 50_000 for name, _ in items):
            raise ValueError(items)
        return Pairs(tuple(items))

    decoder = json.JSONDecoder(
        parse_float=number,
        parse_int=number,
        parse_constant=reject,
        object_pairs_hook=pairs,
    )
    text = text.strip(_SPACE)
    value, end = decoder.raw_decode(text)
    return value, text[end:]


def expected(value: bytes, schema: StructType) -> dict[str, Any]:
    """Returns the record of a value.

    Raises:
        Letter: if the value is a dead letter.
        Undecided: if it has a time or bytes in a notation that the documents do not name.
    """
    try:
        text = value.decode()
    except ValueError:
        raise Letter("NotUtf8") from None
    if not text.strip(_SPACE):
        raise Letter("EmptyValue")
    try:
        found, rest = strict(text)
    except (ValueError, RecursionError):
        raise Letter("Malformed") from None
    if not isinstance(found, Pairs):
        # The classes are those of the first value.
        raise Letter("NotAnObject", "Malformed")
    trailing: tuple[str, ...] = ("TrailingBytes",) if rest else ()
    if _has_half_pair(found):
        raise Letter("NotUtf8")
    if rest and re.search(r"\\u[dD]", rest):
        trailing = ("TrailingBytes", "NotUtf8")
    try:
        record: dict[str, Any] = _converted(found, schema)
    except Letter as e:
        raise Letter(*e.classes, *trailing[1:]) from None
    if rest:
        raise Letter(*trailing)
    return record


def is_same(found: Any, expected: Any) -> bool:
    """Returns whether a decoded value is the expected one."""
    match expected:
        case dict():
            return (
                isinstance(found, dict)
                and found.keys() == expected.keys()
                and all(is_same(found[it], expected[it]) for it in expected)
            )
        case list():
            return (
                isinstance(found, list)
                and len(found) == len(expected)
                and all(is_same(a, b) for a, b in zip(found, expected, strict=True))
            )
        case JsonText(value):
            return isinstance(found, str) and strict(found) == (value, "")
        case Nearest(exact):
            return isinstance(found, float) and _is_nearest(found, exact)
    return type(found) is type(expected) and bool(found == expected)


def _converted(value: Any, type_: DataType) -> Any:
    if value is None:
        return None
    if isinstance(type_, StringType):
        return _text(value)
    if isinstance(value, Pairs):
        return _of_object(value, type_)
    if isinstance(value, list) and isinstance(type_, ArrayType):
        return [_converted(it, type_.elementType) for it in value]
    if isinstance(value, bool) and isinstance(type_, BooleanType):
        return value
    if isinstance(value, Number):
        return _of_number(value.text, type_)
    if isinstance(value, str):
        return _of_string(value, type_)
    raise Letter("FieldType")


def _text(value: Any) -> Any:
    match value:
        case str():
            return value
        case Number(text):
            return text
        case bool():
            return json.dumps(value)
    return JsonText(value)


def _of_object(value: Pairs, type_: DataType) -> Any:
    problems: list[str] = []
    pairs: list[tuple[str, Any]] = []
    types = {it.name: it.dataType for it in type_.fields} if isinstance(type_, StructType) else {}
    if not isinstance(type_, (StructType, MapType)):
        raise Letter("FieldType")
    for name, it in value.items:
        if isinstance(type_, StructType) and name not in types:
            continue
        try:
            pairs.append((name, _converted(it, type_.valueType if isinstance(type_, MapType) else types[name])))
        except Letter as e:
            problems.extend(e.classes)
    repeats = len({name for name, _ in value.items}) < len(value.items)
    if repeats and isinstance(type_, StructType) and problems:
        raise Undecided
    if problems:
        raise Letter(*problems)
    if isinstance(type_, MapType) and len(dict(pairs)) < len(pairs):
        raise Letter("FieldType")
    return dict(pairs) if isinstance(type_, MapType) else {**dict.fromkeys(types), **dict(pairs)}


def _of_number(text: str, type_: DataType) -> Any:
    is_integer = text.lstrip("-").isdigit()
    if isinstance(type_, DecimalType):
        return _decimal(text, type_)
    exact = None if _LONG_EXPONENT.search(text) else Fraction(text)
    if isinstance(type_, DoubleType) and abs(float(text)) < float("inf"):
        return float(text)
    if isinstance(type_, FloatType):
        # A number half way to 2**128 is rounded to infinity.
        if exact is None and float(text) == 0:
            return Nearest(Fraction(0))
        if exact is not None and abs(exact) < 2**128 - 2**103:
            return Nearest(exact)
    if is_integer and type(type_) in _BITS and -(2 ** _BITS[type(type_)]) <= int(text) < 2 ** _BITS[type(type_)]:
        return int(text)
    if is_integer and isinstance(type_, TimestampType):
        if -(2**63) <= int(text) * 1_000_000 < 2**63:
            return int(text) * 1_000_000
        raise Letter("OutOfRange", "FieldType")
    raise Letter("FieldType")


def _of_string(text: str, type_: DataType) -> Any:
    if isinstance(type_, DecimalType):
        return _decimal(text, type_)
    if isinstance(type_, TimestampType):
        try:
            return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) * 1_000_000
        except ValueError:
            raise Undecided from None
    if isinstance(type_, BinaryType) and re.fullmatch("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?", text):
        return base64.b64decode(text)
    if isinstance(type_, BinaryType):
        raise Undecided
    raise Letter("FieldType")


def _decimal(text: str, type_: DecimalType) -> Decimal:
    found = re.fullmatch(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?)(\d+))?", text.replace(",", ""))
    if not found or not (digits := found[2] + (found[3] or "")) or len(digits) > 1000:
        raise Letter("FieldType")
    # Python converts at most 4,300 digits, and rounds with at most as many as a context has.
    exponent = (found[5] or "0").lstrip("".join(it for it in found[5] or "0" if int(it) == 0)) or "0"
    size = min(int(exponent[:9]), 10_000) if len(exponent) < 10 else 10_000
    number = Decimal(f"{found[1]}{digits}e{-len(found[3] or '')}").scaleb(-size if found[4] == "-" else size, _ALL)
    rounded = number.quantize(Decimal(1).scaleb(-type_.scale), context=_ALL)
    if abs(rounded) >= Decimal(10) ** (type_.precision - type_.scale):
        raise Letter("FieldType")
    return rounded


def _has_half_pair(value: Any) -> bool:
    match value:
        case str():
            return any("\ud800" <= it <= "\udfff" for it in value)
        case list():
            return any(map(_has_half_pair, value))
        case Pairs(items):
            return any(_has_half_pair(name) or _has_half_pair(it) for name, it in items)
    return False


def _is_nearest(found: float, exact: Fraction) -> bool:
    """Whether no other ``float`` is nearer. Zero has two neighbours: the smallest numbers of both signs."""
    (bits,) = struct.unpack("<I", struct.pack("<f", abs(found)))
    distance = abs(Fraction(found) - exact)
    sign = -1 if found < 0 or (found == 0 and exact < 0) else 1
    return all(abs(sign * _float_of(it) - exact) >= distance for it in (bits - 1, bits + 1) if it >= 0)


def _float_of(bits: int) -> Fraction:
    return Fraction(2) ** 128 if bits >= 0x7F80_0000 else Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])
