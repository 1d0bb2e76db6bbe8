"""Creates the arguments of ``sg`` functions from the values of a processor file.

Called by ``reading``, which checks the values without loading a function, by ``streamgroups_spark.processors.building``, and by
workers, which compare the code of functions. The keyword ``x-value`` of the schema names the rule for an argument. Source: SEMANTICS P1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from streamgroups.decoding.formats import Avro, Json, Protobuf
from streamgroups.errors import FunctionFailed, InvalidOption
from streamgroups.event_time.window_shapes import hopping, session, tumbling
from streamgroups.processors.processor import FunctionCall, Reference, Step, UserFunction
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


class NothingLoaded:
    """Stands for functions, registries and files, which a check does not load. See :class:`Loading`."""

    def function(self, reference: Reference) -> Any:
        """Returns nothing."""
        return None

    def registry(self, connection: str) -> Any:
        """Returns the name of the connection."""
        return connection

    def content(self, path: str) -> bytes:
        """Returns nothing."""
        return b""


class _Names(NothingLoaded):
    """Collects the functions that values name."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def function(self, reference: Reference) -> Any:
        if isinstance(reference, str):
            self.found.append(reference)


def functions_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """Returns the functions that steps name as ``module:name``, each once.

    Args:
        steps: the steps, which the schema accepts.

    >>> functions_of([UserFunction("flights:enrich"), FunctionCall("stateful", {"function": "flights:counted"})])
    ('flights:enrich', 'flights:counted')
    """
    names = _Names()
    for step in steps:
        if isinstance(step, UserFunction):
            names.function(step.reference)
        elif isinstance(step, FunctionCall):
            # A step with an invalid argument does not start.
            with suppress(InvalidOption):
                arguments_of(step.name, step.arguments, names)
    return tuple(dict.fromkeys(names.found))


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
