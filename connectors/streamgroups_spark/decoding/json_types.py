"""Types of JSON values: their parts, and tests of all parts of one kind.

Called by ``json_values`` and ``json_exact`` on the driver. Source: the types of Spark's ``from_json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

Kinds = tuple[type[DataType], ...]
#: A name that producers hardly write with escape sequences, and that is no regular expression.
_USUAL_NAME = re.compile(r"[A-Za-z0-9_ -]+")


def has(type_: DataType, kinds: Kinds) -> bool:
    """Returns whether a type has parts of these kinds, or is one itself.

    >>> from pyspark.sql.types import LongType, StringType
    >>> has(ArrayType(StringType()), (StringType,)), has(ArrayType(StringType()), (LongType,))
    (True, False)
    """
    return any(isinstance(it, kinds) for it in _parts(type_))


def replaced(type_: DataType, one: Callable[[DataType], DataType]) -> DataType:
    """Returns a type with other scalars. Each part can be null, as in the result of ``from_json``.

    Args:
        type_: the type.
        one: returns the new type of a scalar.
    """
    if isinstance(type_, StructType):
        return replaced_fields(type_, one)
    if isinstance(type_, ArrayType):
        return ArrayType(replaced(type_.elementType, one))
    if isinstance(type_, MapType):
        return MapType(type_.keyType, replaced(type_.valueType, one))
    return one(type_)


def replaced_fields(schema: StructType, one: Callable[[DataType], DataType]) -> StructType:
    """Returns a schema with other scalars: see :func:`replaced`."""
    return StructType([StructField(it.name, replaced(it.dataType, one), metadata=it.metadata) for it in schema.fields])


def only(schema: StructType, kinds: Kinds) -> StructType:
    """Returns a schema without the fields that neither have nor are parts of these kinds.

    >>> from pyspark.sql.types import LongType, StringType
    >>> only(StructType().add("a", LongType()).add("b", StructType().add("c", StringType())), (StringType,)).simpleString()
    'struct<b:struct<c:string>>'
    """
    return StructType([StructField(it.name, _only(it.dataType, kinds)) for it in schema if has(it.dataType, kinds)])


def any_part(value: Column, type_: DataType, kinds: Kinds, test: Callable[[Column], Column]) -> Column:
    """Returns whether a part of these kinds passes a test; null passes none.

    Args:
        value: the value.
        type_: its type.
        kinds: the kinds of parts.
        test: returns the test of one part.
    """
    tests = list(_tests(value, type_, kinds, test))
    found = tests[0] if tests else F.lit(False)
    for it in tests[1:]:
        found = found | it
    return found


def pattern_at(type_: DataType, kinds: Kinds, value: str) -> str:
    """Returns a regular expression that finds values of such parts in JSON: perhaps also other ones, but none less.

    Args:
        type_: the type.
        kinds: the kinds of parts.
        value: a regular expression for the beginning of their values.

    >>> from pyspark.sql.types import StringType
    >>> print(pattern_at(StructType().add("fare", StringType()), (StringType,), "-0"))
    "(?:fare)"\\s*:\\s*(?:-0)|\\\\u00[2-7]
    """
    names = list(dict.fromkeys(_names(type_, kinds, None)))
    if all(it is not None and _USUAL_NAME.fullmatch(it) for it in names):
        keys = "|".join(re.escape(str(it)) for it in names)
        # A name can be written with escape sequences.
        return rf'"(?:{keys})"\s*:\s*(?:{value})|\\u00[2-7]'
    return rf"[:,\[]\s*(?:{value})"


def merged(value: Column, other: Column, type_: DataType, kinds: Kinds, part: Callable[[Column], Column]) -> Column:
    """Returns a value with the parts of these kinds of another value, which has the same form.

    Args:
        value: the value.
        other: the other value.
        type_: the type of the result.
        kinds: the kinds of parts.
        part: returns the new part for one of the other value.
    """
    if isinstance(type_, kinds):
        return part(other).cast(type_)
    if not has(type_, kinds):
        return value
    if isinstance(type_, StructType):
        fields = (merged(value[it.name], other[it.name], it.dataType, kinds, part).alias(it.name) for it in type_)
        return F.when(value.isNotNull(), F.struct(*fields))
    assert isinstance(type_, (ArrayType, MapType))
    inner = _inner(type_)
    if isinstance(type_, ArrayType):
        return F.zip_with(value, other, lambda a, b: merged(a, b, inner, kinds, part))
    return F.map_zip_with(value, other, lambda _, a, b: merged(a, b, inner, kinds, part))


def _only(type_: DataType, kinds: Kinds) -> DataType:
    if isinstance(type_, StructType):
        return only(type_, kinds)
    if isinstance(type_, ArrayType):
        return ArrayType(_only(type_.elementType, kinds))
    return MapType(type_.keyType, _only(type_.valueType, kinds)) if isinstance(type_, MapType) else type_


def _parts(type_: DataType) -> Iterator[DataType]:
    yield type_
    if isinstance(type_, StructType):
        for it in type_.fields:
            yield from _parts(it.dataType)
    elif isinstance(type_, (ArrayType, MapType)):
        yield from _parts(_inner(type_))


def _inner(type_: ArrayType | MapType) -> DataType:
    return type_.elementType if isinstance(type_, ArrayType) else type_.valueType


def _tests(value: Column, type_: DataType, kinds: Kinds, test: Callable[[Column], Column]) -> Iterator[Column]:
    if isinstance(type_, kinds):
        yield F.coalesce(test(value), F.lit(False))
    if isinstance(type_, StructType):
        for it in type_.fields:
            yield from _tests(value[it.name], it.dataType, kinds, test)
    elif isinstance(type_, (ArrayType, MapType)) and has(_inner(type_), kinds):
        inner = _inner(type_)
        items = value if isinstance(type_, ArrayType) else F.map_values(value)
        yield F.coalesce(F.exists(items, lambda it: any_part(it, inner, kinds, test)), F.lit(False))


def _names(type_: DataType, kinds: Kinds, name: str | None) -> Iterator[str | None]:
    """The names of the fields of these kinds; ``None`` for elements of a list or a map."""
    if isinstance(type_, kinds):
        yield name
    if isinstance(type_, StructType):
        for it in type_.fields:
            yield from _names(it.dataType, kinds, it.name)
    elif isinstance(type_, (ArrayType, MapType)):
        yield from _names(_inner(type_), kinds, None)
