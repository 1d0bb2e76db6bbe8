"""Whether a column can be encoded with a schema, before the query starts.

Called by ``decoding.python_values`` on the driver.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, DayTimeIntervalType, MapType, StructType

from streamgroups.errors import InvalidOption

#: Types of columns that a schema with a wider type accepts.
_WIDER = {
    "tinyint": ("int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def check_encodable(given: DataType, expected: DataType, path: str = "") -> None:
    """Checks that a column has the fields of a schema, by their names, and their types.

    Args:
        given: the type of the column.
        expected: the type of the schema.
        path: the name of the field, for errors.

    Raises:
        InvalidOption: for the first difference.

    >>> given = StructType().add("b", "integer").add("a", "string")
    >>> check_encodable(given, StructType().add("a", "string").add("b", "long"))
    >>> check_encodable(given, StructType().add("a", "integer").add("b", "long"))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Field 'a' of the column has the type string, but the schema requires int. Cast it.
    """
    if isinstance(expected, StructType) and isinstance(given, StructType):
        _check_struct(given, expected, path)
    elif isinstance(expected, ArrayType) and isinstance(given, ArrayType):
        check_encodable(given.elementType, expected.elementType, path)
    elif isinstance(expected, MapType) and isinstance(given, MapType):
        check_encodable(given.keyType, expected.keyType, path)
        check_encodable(given.valueType, expected.valueType, path)
    elif not (isinstance(given, DayTimeIntervalType) and isinstance(expected, DayTimeIntervalType)):
        here, there = given.simpleString(), expected.simpleString()
        if here != there and there not in _WIDER.get(here, ()):
            raise InvalidOption(
                f"Field '{path}' of the column has the type {here}, but the schema requires {there}.", remedy="Cast it."
            )


def _check_struct(given: StructType, expected: StructType, path: str) -> None:
    missing = sorted(set(expected.names) - set(given.names))
    if missing:
        raise InvalidOption(
            f"The column has no field '{_at(path, missing[0])}', which the schema has.",
            remedy="Add the field to the column, or remove it from the schema.",
        )
    more_names = sorted(set(given.names) - set(expected.names))
    if more_names:
        raise InvalidOption(
            f"The column has a field '{_at(path, more_names[0])}', which the schema does not have.",
            remedy="Remove the field from the column, or add it to the schema.",
        )
    for field in expected.fields:
        check_encodable(given[field.name].dataType, field.dataType, _at(path, field.name))


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
