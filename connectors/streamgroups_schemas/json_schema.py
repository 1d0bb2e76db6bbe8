"""Validates JSON values in Arrow arrays with a JSON Schema, by jsonschema-rs.

Created by ``streamgroups_spark.decoding`` and pickled into tasks. Source: JSON Schema, drafts 4 to 2020-12; "$schema"
determines the draft.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import jsonschema_rs
import pyarrow as pa

from streamgroups.decoding.value_errors import CannotDecode, Kind
from streamgroups.errors import InvalidOption
from streamgroups.json_values import STRICT
from streamgroups_schemas.results import apply

#: The number of violations that a letter describes.
_MAX_SHOWN = 3
_NOT_SPACE = re.compile(r"[^ \t\r\n]")
#: Half of a surrogate pair, or a pair. In UTF-8 it needs an escape sequence.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@lru_cache(maxsize=100)
def validator(schema: str) -> Any:
    """Returns the validator of a schema.

    Raises:
        InvalidOption: if the schema is invalid, or refers to another document.
    """
    try:
        document = json.loads(schema)
        if not isinstance(document, (dict, bool)):
            raise ValueError("it is no object")
        return jsonschema_rs.validator_for(document, retriever=_reject)
    except (ValueError, RecursionError) as e:
        text = " ".join(str(getattr(e, "message", e)).split())
        raise InvalidOption(f"The JSON Schema is invalid: {text}.", remedy="Correct it.") from None


def validate_json(values: pa.Array, schema: str) -> pa.Array:
    """Validates values.

    Args:
        values: JSON, binary or string.
        schema: the JSON Schema.

    Returns:
        Structs with the fields ``result``, always true, and ``problem``; see
        :func:`~streamgroups_schemas.results.apply`.

    >>> found = validate_json(pa.array(['{"delay": -5}']), '{"properties": {"delay": {"minimum": 0}}}')
    >>> found[0].as_py()["problem"]["error"]
    'delay: -5 is less than the minimum of 0.'
    """
    judge = validator(schema)

    def one(value: bytes | str) -> bool:
        document = _document(value)
        if judge.is_valid(document):
            return True
        errors = list(judge.iter_errors(document))
        shown = "; ".join(f"{_path(it.instance_path)}: {it.message}" for it in errors[:_MAX_SHOWN])
        more = f"; and {len(errors) - _MAX_SHOWN} more" if len(errors) > _MAX_SHOWN else ""
        raise CannotDecode(Kind.INVALID, f"{shown}{more}.", path=_path(errors[0].instance_path))

    return apply(values, one, pa.bool_(), Kind.INVALID)


def _document(value: bytes | str) -> Any:
    """Parses a value as RFC 8259 requires: UTF-8 without a byte order mark, and finite numbers.

    Raises:
        CannotDecode: if it is not one JSON document.
    """
    try:
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise CannotDecode(Kind.NOT_UTF8, "The value is not valid UTF-8.") from None
    begin = _NOT_SPACE.search(text)
    if begin is None:
        raise CannotDecode(Kind.EMPTY, "The value is empty.")
    try:
        document, end = STRICT.raw_decode(text, begin.start())
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CannotDecode(Kind.NOT_UTF8, "A text in the value has half of a surrogate pair.") from None
    except (ValueError, RecursionError) as e:
        raise CannotDecode(Kind.MALFORMED, f"The value is not JSON: {e}.") from None
    if _NOT_SPACE.search(text, end):
        raise CannotDecode(Kind.TRAILING, "More text follows the JSON document.")
    return document


def _path(parts: list[str | int]) -> str:
    return ".".join(str(it) for it in parts) or "(root)"


def _reject(uri: str) -> Any:
    raise ValueError(f"it refers to '{uri}', and no other document is loaded")
