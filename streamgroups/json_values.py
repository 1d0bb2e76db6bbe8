"""JSON that others wrote, and the values in it: every part has bounds, and every fault is a ``ValueError``.

Called wherever bytes of a cluster, a checkpoint or a file become values: metadata entries, offsets, reports, histories. Python's parser alone
accepts ``Infinity``, raises ``RecursionError`` for deep nesting, and takes numbers of any size and text that no broker stores. Source: RFC 8259;
Kafka's protocol, whose offsets are whole numbers of 64 bits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, TypeVar

#: The largest offset, and the largest time in milliseconds.
MAX_INT64 = 2**63 - 1
#: Kafka counts partitions with 32 bits.
MAX_INT32 = 2**31 - 1
#: A time in milliseconds that is one in microseconds too, also with a duration added: Spark and Arrow count those with 64 bits.
MAX_TIME_MS = 2**62 // 1_000
#: Far more than this library and Spark write, and few enough to print what was read.
MAX_DEPTH = 64

_T = TypeVar("_T")


def read_json(text: str) -> Any:
    """The value of a whole JSON document.

    Raises:
        ValueError: it is none, it holds ``Infinity`` or ``NaN``, or it is nested deeper than :data:`MAX_DEPTH`.

    >>> read_json('{"next": 7}')
    {'next': 7}
    >>> read_json('{"next": Infinity}')
    Traceback (most recent call last):
    ValueError: Infinity is not a JSON number
    """
    try:
        return _not_deep(_DECODER.decode(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json_prefix(text: str) -> Any:
    """The value of the JSON document with which a text begins; raises as :func:`read_json` does.

    >>> read_json_prefix('{"next": 7}\\0rest')
    {'next': 7}
    """
    try:
        return _not_deep(_DECODER.raw_decode(text)[0])
    except RecursionError:
        raise ValueError("nested too deeply") from None


def whole(value: Any, *, least: int = 0, most: int = MAX_INT64) -> int:
    """A whole number within bounds.

    Args:
        value: of a JSON document.
        least: the smallest number allowed.
        most: the largest number allowed.

    Raises:
        ValueError: it is not a whole number, or out of bounds.

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
    """``None`` for JSON's null, else as :func:`whole`."""
    return None if value is None else whole(value, least=least, most=most)


def time_ms(value: Any) -> int:
    """A time in milliseconds since the epoch that fits microseconds; raises as :func:`whole` does."""
    return whole(value, least=-MAX_TIME_MS, most=MAX_TIME_MS)


def time_ms_or_none(value: Any) -> int | None:
    """``None`` for JSON's null, else as :func:`time_ms`."""
    return None if value is None else time_ms(value)


def partition_number(key: Any) -> int:
    """A partition out of the key of a JSON object, where numbers are text.

    Raises:
        ValueError: it is none.

    >>> partition_number("12")
    12
    """
    if not (isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= len(str(MAX_INT32))):
        raise ValueError(f"{_shown(key)} is not a partition")
    return whole(int(key), most=MAX_INT32)


def string(value: Any, *, most: int = 4_096) -> str:
    """Text of at most so many characters that can be stored as UTF-8.

    Raises:
        ValueError: it is none.

    >>> string("\\ud800")
    Traceback (most recent call last):
    UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed
    """
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{_shown(value)} is not a text of at most {most} characters")
    value.encode()
    return value


def flag(value: Any) -> bool:
    """True or false; raises ``ValueError`` for anything else."""
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def items(value: Any) -> Iterable[tuple[str, Any]]:
    """The names and values of a JSON object; raises ``ValueError`` for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is not an object")
    return value.items()


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_finite)


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
