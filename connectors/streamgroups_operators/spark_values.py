"""Values for Arrow's aggregates, so that their results are those of Spark SQL.

Called by ``aggregates``. Arrow's sums wrap around, its ``min`` and ``max`` ignore NaN, and it has none for durations. A
column is changed only if its values need it: a check of their bounds is much cheaper than the aggregation. Source: Spark's
``Sum`` with ``spark.sql.ansi.enabled``; Spark's documentation, "NaN Semantics"; Arrow's ``hash_sum`` and ``hash_min_max``.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import AggregateOverflow

_MAX_INT64 = 2**63 - 1
#: Decimals of Arrow have 128 bits, and a sum of values below this one needs no more.
_MAX_DECIMAL = 9e37


def exact(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the arguments of a sum in a type that can store it. :func:`narrowed` converts the sum.

    >>> exact(pa.chunked_array([[2**63 - 1, 1]])).type == pa.decimal128(38, 0), exact(pa.chunked_array([[5, 1]])).type
    (True, DataType(int64))
    """
    of = values.type
    if pa.types.is_floating(of) or not len(values):
        return values
    bounds = pc.min_max(values)
    if not bounds["min"].is_valid:
        return values
    largest = max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py()))
    if pa.types.is_integer(of):
        return values if largest * len(values) <= _MAX_INT64 else values.cast(pa.decimal128(38, 0))
    unscaled = float(largest) * 10.0**of.scale
    return values if unscaled * len(values) < _MAX_DECIMAL else values.cast(pa.decimal256(76, of.scale))


def narrowed(sums: pa.ChunkedArray, of: pa.DataType, call: str) -> pa.ChunkedArray:
    """Returns sums in their type.

    Args:
        sums: the sums of values of :func:`exact`.
        of: their type.
        call: the call of the user, for the error.

    Raises:
        AggregateOverflow: if a sum has no value of the type.

    >>> narrowed(pa.chunked_array([[2**63]], pa.decimal128(38, 0)), pa.int64(), "sum(n)")
    Traceback (most recent call last):
    streamgroups.errors.AggregateOverflow: [ARITHMETIC_OVERFLOW] The result of sum(n) in a window exceeds int64. Cast the argument \
to a type with more digits, such as decimal(28, 0) or double, or filter out records with such values.
    """
    try:
        return sums.cast(of)
    except pa.ArrowInvalid:
        raise AggregateOverflow(
            f"[ARITHMETIC_OVERFLOW] The result of {call} in a window exceeds {of}.",
            remedy="Cast the argument to a type with more digits, such as decimal(28, 0) or double, or filter out records with "
            "such values.",
        ) from None


def comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the arguments of ``min`` and ``max`` in a type for which Arrow has them."""
    return values.cast(pa.int64()) if pa.types.is_duration(values.type) else values


def has_nan(values: pa.ChunkedArray) -> bool:
    """Returns whether Arrow's ``min`` and ``max`` differ from Spark's, which order NaN after all other numbers."""
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def without_nan(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Returns numbers with null instead of NaN, and which of them were NaN."""
    is_nan = pc.fill_null(pc.is_nan(values), False)
    return pc.if_else(is_nan, pa.scalar(None, values.type), values), is_nan


def with_nan(found: Mapping[str, pa.ChunkedArray], name: str, how: str) -> pa.ChunkedArray:
    """Returns the result of ``min`` or ``max`` of values of :func:`without_nan`.

    Args:
        found: the results, and whether a value was NaN (the name with ``_nan``).
        name: the name of the result.
        how: ``min`` or ``max``.
    """
    others, any_nan = found[name], found[f"{name}_nan"]
    is_nan = any_nan if how == "max" else pc.and_(any_nan, pc.is_null(others))
    return pc.if_else(is_nan, pa.scalar(float("nan"), others.type), others)
