"""Applies a codec to each value of an Arrow array: each value is decoded, or has a problem.

Called by the codecs. An array of records is built at once. If one of them does not fit the type, each is built alone, to
find it. Source: SEMANTICS P4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from streamgroups.decoding.value_errors import CannotDecode, Kind, Problem, shortened
from streamgroups.errors import StreamGroupsError

#: The type of a problem in the result of a codec.
PROBLEM = pa.struct(
    [("error_class", pa.string()), ("error", pa.string()), ("details", pa.map_(pa.string(), pa.string()))]
)


def apply(values: pa.Array, one: Callable[[Any], Any], type_: pa.DataType, otherwise: Kind) -> pa.Array:
    """Returns an array of structs with the fields ``result`` and ``problem``. A null value has neither.

    Args:
        values: the values.
        one: decodes or encodes one value. It raises :class:`CannotDecode`, or any other error, for a bad one.
        type_: the type of the results.
        otherwise: the class of errors that are no ``CannotDecode``.

    Raises:
        StreamGroupsError: if ``one`` raises it: such an error is no problem of the value.
    """
    results: list[Any] = []
    problems: list[Problem | None] = []
    for value in values:
        result, problem = None, None
        try:
            plain = _plain(value, otherwise)
            result = None if plain is None else one(plain)
        except CannotDecode as e:
            problem = e.problem
        except StreamGroupsError:
            raise
        except Exception as e:
            problem = Problem(otherwise, _text(e))
        results.append(result)
        problems.append(problem)
    return _result(_array(results, problems, type_), problems, type_)


def _plain(value: pa.Scalar, otherwise: Kind) -> Any:
    try:
        return value.as_py(maps_as_pydicts="strict")
    except UnicodeDecodeError:
        # Spark's CAST(binary AS STRING) keeps all bytes.
        raise CannotDecode(Kind.NOT_UTF8, "A text in the value is not valid UTF-8.") from None
    except (KeyError, ValueError):
        # Spark's from_json returns such maps. Arrow raises KeyError for a map, and ValueError for a map in a struct.
        raise CannotDecode(otherwise, "A map in the value has a key twice.") from None


def with_numbers(values: pa.Array) -> pa.Array:
    """Returns values with days and microseconds instead of dates and times, which Python has to the year 9999 only."""
    type_ = _with_numbers(values.type)
    return values if type_ == values.type else values.cast(type_)


def _with_numbers(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_struct(type_):
        return pa.struct([it.with_type(_with_numbers(it.type)) for it in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_with_numbers(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(_with_numbers(type_.key_type), type_.item_field.with_type(_with_numbers(type_.item_type)))
    return type_


def _array(results: list[Any], problems: list[Problem | None], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(results, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    for at, result in enumerate(results):
        try:
            pa.array([result], type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            results[at], problems[at] = None, Problem(Kind.OUT_OF_RANGE, _text(e))
    return pa.array(results, type_)


def _result(array: pa.Array, problems: list[Problem | None], type_: pa.DataType) -> pa.Array:
    if any(problems):
        cells = [
            None
            if it is None
            else {"error_class": it.kind.value, "error": it.text, "details": list(it.details.items())}
            for it in problems
        ]
        problem = pa.array(cells, PROBLEM)
    else:
        problem = pa.nulls(len(problems), PROBLEM)
    return pa.StructArray.from_arrays(
        [array, problem], fields=[pa.field("result", type_), pa.field("problem", PROBLEM)]
    )


def _text(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    return shortened(f"{type(error).__name__}: {text}")
