"""Parses JSON of other programs and checks its values: every value has bounds, and every error is a ``ValueError``.
Writes JSON that each other program can parse.

Called for all data of a cluster, a checkpoint or a file: metadata entries, offsets, reports, histories. Python's parser
alone accepts ``Infinity``, numbers of any size and text that no broker stores, and raises ``RecursionError`` for deep
nesting. Source: RFC 8259; Kafka's protocol, whose offsets are integers of 64 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

#: The largest offset, and the largest time in milliseconds.
MAX_INT64 = 2**63 - 1
#: Kafka counts partitions with 32 bits.
MAX_INT32 = 2**31 - 1
#: The largest time in milliseconds that is valid in microseconds too, also after a duration is added: Spark and Arrow
#: use 64 bits for microseconds.
MAX_TIME_MS = 2**62 // 1_000
#: Far more than this library and Spark write, and little enough that the parsed value can be printed.
MAX_DEPTH = 64

_T = TypeVar("_T")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


def read_json(text: str) -> Any:
    """The value of a whole JSON document.

    Raises:
        ValueError: if it is not JSON, contains ``Infinity`` or ``NaN``, or is nested deeper than :data:`MAX_DEPTH`.

    >>> read_json('{"next": 7}')
    {'next': 7}
    >>> read_json('{"next": Infinity}')
    Traceback (most recent call last):
    ValueError: Infinity is not a JSON number
    """
    return _parsed(STRICT.decode, text)


def read_unique_json(text: str) -> Any:
    """The value of a whole JSON document that a user has written.

    Raises:
        ValueError: the errors of :func:`read_json`, and if an object has two values of one name. One of them would have no effect.

    >>> read_unique_json('{"flights": {"0": 5, "0": 7}}')
    Traceback (most recent call last):
    ValueError: the name '0' is repeated
    """
    return _parsed(_UNIQUE_DECODER.decode, text)


def read_json_prefix(text: str) -> Any:
    """The value of the JSON document at the start of a text. Raises the errors of :func:`read_json`.

    >>> read_json_prefix('{"next": 7}\\0rest')
    {'next': 7}
    """
    return _parsed(lambda text: STRICT.raw_decode(text)[0], text)


class ExactNumber(float):
    """A number that keeps its text: ``100.10`` and numbers with many digits have no equal ``float``."""

    text: str

    def __new__(cls, text: str) -> ExactNumber:
        """Parses a number. Raises ``ValueError`` if it is too large."""
        number = super().__new__(cls, _finite(text))
        number.text = text
        return number


def read_exact_json(text: str) -> Any:
    """The value of a whole JSON document, which :func:`write_exact_json` writes with the same content.

    Raises:
        ValueError: the errors of :func:`read_json`, and if an object has two values of one name.

    >>> write_exact_json(read_exact_json('{"price": 100.10, "id": 0.12345678901234567890}'))
    '{"price":100.10,"id":0.12345678901234567890}'
    >>> read_exact_json('{"price": 1, "price": 2}')
    Traceback (most recent call last):
    ValueError: the name 'price' is repeated
    """
    return _parsed(_EXACT_DECODER.decode, text)


def write_exact_json(value: Any) -> str:
    """A value of :func:`read_exact_json` as JSON without spaces."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{write_exact_json(name)}:{write_exact_json(it)}' for name, it in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(write_exact_json, value))}]"
    return value.text if isinstance(value, ExactNumber) else json.dumps(value, ensure_ascii=False)


def write_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Returns any value as JSON. Numbers that JSON does not have are texts, as Spark writes them.

    Args:
        value: the value.
        indent: the indentation; ``None`` for one line.
        default: returns a value of JSON for an object of another type.

    >>> write_json({"total": [float("nan"), float("inf"), float("-inf"), 1.5]})
    '{"total": ["NaN", "Infinity", "-Infinity", 1.5]}'
    """
    try:
        return json.dumps(value, indent=indent, default=default, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite_values(value), indent=indent, default=default, ensure_ascii=False, allow_nan=False)


def _finite_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {_finite_values(name): _finite_values(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_values(it) for it in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def whole(value: Any, *, least: int = 0, most: int = MAX_INT64) -> int:
    """An integer within bounds.

    Args:
        value: a value of a JSON document.
        least: the smallest permitted number.
        most: the largest permitted number.

    Raises:
        ValueError: if it is not an integer, or out of bounds.

    >>> whole(7)
    7
    >>> whole(-1)
    Traceback (most recent call last):
    ValueError: -1 is not between 0 and 9223372036854775807
    """
    if type(value) is not int:
        raise ValueError(f"{_shown(value)} is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{_shown(value)} is not between {least} and {most}")
    return value


def whole_or_none(value: Any, *, least: int = 0, most: int = MAX_INT64) -> int | None:
    """``None`` for JSON's null, otherwise as :func:`whole`."""
    return None if value is None else whole(value, least=least, most=most)


def time_ms(value: Any) -> int:
    """A time in milliseconds since the epoch that is valid in microseconds too. Raises the errors of :func:`whole`."""
    return whole(value, least=-MAX_TIME_MS, most=MAX_TIME_MS)


def time_ms_or_none(value: Any) -> int | None:
    """``None`` for JSON's null, otherwise as :func:`time_ms`."""
    return None if value is None else time_ms(value)


def partition_number(key: Any) -> int:
    """A partition from the key of a JSON object, where numbers are text.

    Raises:
        ValueError: if it is not a partition, or has another form: ``"00"`` and ``"0"`` would be two keys of one partition.

    >>> partition_number("12")
    12
    """
    if not (isinstance(key, str) and _PARTITION.fullmatch(key)):
        raise ValueError(f"{_shown(key)} is not a partition")
    return whole(int(key), most=MAX_INT32)


def string(value: Any, *, most: int = 4_096) -> str:
    """Text of at most ``most`` characters that can be stored as UTF-8.

    Raises:
        ValueError: if it is not such a text.

    >>> string("\\ud800")
    Traceback (most recent call last):
    UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed
    """
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{_shown(value)} is not a text of at most {most} characters")
    value.encode()
    return value


def string_or_none(value: Any) -> str | None:
    """``None`` for JSON's null, otherwise as :func:`string`."""
    return None if value is None else string(value)


def flag(value: Any) -> bool:
    """True or false. Raises ``ValueError`` for any other value."""
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def items(value: Any) -> Iterable[tuple[str, Any]]:
    """The names and values of a JSON object. Raises ``ValueError`` for any other value."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is not an object")
    return value.items()


def elements(value: Any) -> list[Any]:
    """The values of a JSON array. Raises ``ValueError`` for any other value."""
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is not a list")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _exact_int(text: str) -> int | ExactNumber:
    # An int has no negative zero.
    return ExactNumber(text) if text == "-0" else int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {_shown(name)} is repeated")
        found[name] = value
    return found


#: Python's parser without ``NaN``, ``Infinity`` and numbers that become infinite.
STRICT = json.JSONDecoder(parse_constant=_constant, parse_float=_finite)
_UNIQUE_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_finite, object_pairs_hook=_unique)
_EXACT_DECODER = json.JSONDecoder(
    parse_constant=_constant, parse_float=ExactNumber, parse_int=_exact_int, object_pairs_hook=_unique
)


def _parsed(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return _not_deep(parse(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _not_deep(value: _T) -> _T:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for it in level
            if isinstance(it, dict | list)
            for child in (it.values() if isinstance(it, dict) else it)
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) <= 10**30 else "a number of many digits"
    return text if len(text) <= 80 else text[:80] + "…"
