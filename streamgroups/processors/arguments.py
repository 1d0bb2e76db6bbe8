"""Creates the arguments of ``sg`` functions from the values of a processor file.

Called by ``reading``, which checks the values without loading a function, and by ``streamgroups_spark.processors.building``. The
keyword ``x-value`` of the schema names the rule for an argument. Source: SEMANTICS P1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from streamgroups.decoding.formats import Avro, Json, Protobuf
from streamgroups.errors import FunctionFailed
from streamgroups.event_time.window_shapes import hopping, session, tumbling
from streamgroups.processors.processor import Reference
from streamgroups.processors.schema import definition

_CONSTRUCTORS: Mapping[str, Callable[..., Any]] = {
    "tumbling": tumbling,
    "hopping": hopping,
    "session": session,
    "json": Json,
    "avro": Avro,
    "protobuf": Protobuf,
}


class Loading(Protocol):
    """Loads what values name."""

    def function(self, reference: Reference) -> Any:
        """Returns the function or class of ``module:name``."""

    def registry(self, connection: str) -> Any:
        """Returns the schema registry of a connection."""

    def content(self, path: str) -> bytes:
        """Returns the content of a file."""


def arguments_of(name: str, given: Mapping[str, Any], loading: Loading) -> dict[str, Any]:
    """Returns the arguments of a function or a sink.

    Args:
        name: the definition in the schema, such as ``windows`` or ``postgres_sink``.
        given: the values, which the schema accepts.
        loading: loads functions, registries and files.

    Raises:
        InvalidOption: if a value is invalid.
        FunctionFailed: if a function that returns an aggregate raises an error.

    >>> arguments_of("windows", {"window": {"tumbling": "1 hour"}, "by": ["carrier"]}, None)
    {'window': tumbling('1h'), 'by': ['carrier']}
    """
    return _arguments(definition(name), given, loading)


def _arguments(part: Mapping[str, Any], given: Mapping[str, Any], loading: Loading) -> dict[str, Any]:
    rules = {key: it.get("x-value") for key, it in part["properties"].items()}
    return {key: _value(value, rules.get(key), loading) for key, value in given.items()}


def _value(value: Any, rule: str | None, loading: Loading) -> Any:
    if rule is None:
        return value
    if rule in ("shape", "format"):
        return _constructed(rule, value, loading)
    if rule == "tuple":
        return tuple(value)
    if rule == "function":
        return loading.function(value)
    if rule == "functions":
        return [loading.function(it) for it in (value if isinstance(value, list) else [value])]
    if rule == "aggregates":
        return {key: it if isinstance(it, str) else _aggregate(it["function"], loading) for key, it in value.items()}
    if rule == "migrations":
        return {int(version): loading.function(it) for version, it in value.items()}
    if rule == "registry":
        return loading.registry(value)
    if rule == "file":
        return loading.content(value)
    raise NotImplementedError(rule)


def _aggregate(reference: Reference, loading: Loading) -> Any:
    """The aggregate that a reference names, or that its function returns."""
    found = loading.function(reference)
    if not callable(found):
        return found
    try:
        return found()
    except Exception as e:
        raise FunctionFailed(
            f"Function '{reference}' raised {type(e).__name__}: {e}.",
            remedy="Name a function without arguments that returns an aggregate, or the aggregate itself.",
        ) from e


def _constructed(definition_name: str, value: Mapping[str, Any], loading: Loading) -> Any:
    ((name, given),) = value.items()
    part = definition(definition_name)["properties"][name]
    table = next(it for it in part.get("anyOf", [part]) if it.get("type") == "object")
    if not isinstance(given, Mapping):
        given = {next(iter(table["properties"])): given}
    return _CONSTRUCTORS[name](**_arguments(table, given, loading))
