"""The JSON Schema of processor files, generated from the signatures and docstrings of the ``sg`` functions.

``python -m streamgroups_spark.processors.vocabulary`` writes it to ``streamgroups/processors/schema.json``, and a test compares
both. An argument with a new type is an error until this module has a rule for it. Source: SEMANTICS P1: a step has the name
and the arguments of its function.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import streamgroups as sg
from streamgroups.event_time.settings import STREAM_TIME_OPTIONS
from streamgroups.instances.entries import MAX_REPLICAS
from streamgroups.query.position_options import ENDING
from streamgroups.query.source_settings import OPTION_NAMES

_STEPS = ("decode", "dedup", "encode", "join", "repartition", "safely", "stateful", "windows", "with_event_time")
_SHAPES, _FORMATS = ("tumbling", "hopping", "session"), {"json": "Json", "avro": "Avro", "protobuf": "Protobuf"}
#: Arguments that the processor or the connection sets.
_SET = {
    "connection",
    "df",
    "spark",
    "options",
    "sink",
    "checkpoint",
    "settings",
    "bootstrap_servers",
    "transactional_id",
    "conninfo",
    "storage_options",
}
_DURATION_OPTIONS = (
    "leaseTimeout",
    "maxTriggerDelay",
    "stateRetention",
    "partitionIdleTimeout",
    "maxDrift",
    "targetBatchTime",
)
#: Options of the source that a processor sets, or that have no meaning in it.
_NO_OPTIONS = {"group.id", "groupIdPrefix", "assign", *ENDING}
#: The bounds of arguments. The functions check them too.
_BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "horizon": {"x-least-ms": 1},
    "expire_after": {"x-least-ms": 1},
    "transaction_timeout": {"x-least-ms": 1},
    "buckets": {"minimum": 1},
    "max_per_batch": {"minimum": 0},
    "max_share": {"minimum": 0, "maximum": 1},
    "share_from_records": {"minimum": 1},
}
_COLUMNS = "a list of columns"
_NAME = "the name of a connection"
_FUNCTION = {
    "type": "string",
    "format": "function",
    "pattern": r"^[\w.]+:[\w.]+$",
    "x-expected": "a function as 'module:name'",
}
_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}, "x-expected": _COLUMNS}
_OPTIONS = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}}
_DURATION = {"type": "string", "format": "duration"}

#: The schema of each annotation.
_ANNOTATIONS: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": "string", "minLength": 1},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "Sequence[str]": _TEXTS,
    "tuple[str, ...]": {**_TEXTS, "x-value": "tuple"},
    "str | Sequence[str]": {"anyOf": [{"type": "string"}, _TEXTS]},
    "StructType | str": {"type": "string", "minLength": 1},
    "str | SparkType": {"type": "string", "minLength": 1},
    "Mapping[str, str]": _OPTIONS,
    "Shape": {"$ref": "#/$defs/shape", "x-value": "shape"},
    "Format": {"$ref": "#/$defs/format", "x-value": "format"},
    "StateFunction": {**_FUNCTION, "x-value": "function"},
    "Callable[[Any], Any]": {**_FUNCTION, "x-value": "function"},
    "Mapping[str, str | PythonAggregate]": {
        "type": "object",
        "x-value": "aggregates",
        "x-expected": "aggregates by the names of their columns, as in {flights: count(*)}",
        "additionalProperties": {
            "anyOf": [
                {"type": "string", "minLength": 1, "x-expected": "an aggregate of SQL, or {function: 'module:name'}"},
                {
                    "type": "object",
                    "properties": {"function": _FUNCTION},
                    "required": ["function"],
                    "additionalProperties": False,
                },
            ]
        },
    },
    "Mapping[int, MigrateFunction]": {
        "type": "object",
        "x-value": "migrations",
        "patternProperties": {"^(0|[1-9][0-9]{0,17})$": _FUNCTION},
        "additionalProperties": False,
    },
    "type[Exception] | Sequence[type[Exception]]": {
        "x-value": "functions",
        "anyOf": [{**_FUNCTION, "x-expected": "a class as 'module:name'"}, {"type": "array", "items": _FUNCTION}],
    },
    "SchemaRegistry": {"type": "string", "minLength": 1, "x-value": "registry", "x-expected": _NAME},
    "bytes": {"type": "string", "minLength": 1, "x-value": "file", "x-expected": "the path of a file"},
}


def processor_schema() -> dict[str, Any]:
    """Returns the JSON Schema of processor files."""
    kafka = _sink("KafkaSink", "kafka_sink")
    spark = _object(
        {
            "format": {"enum": ["console", "noop"], "type": "string"},
            "delivery": {"enum": ["exactly-once", "at-least-once"], "type": "string"},
            "options": _OPTIONS,
        },
        required=["format"],
        chosen_by="format",
    )
    sinks = {
        "postgres_sink": _sink("PostgresSink", "postgres_sink", chosen_by="table"),
        "delta_sink": _sink("DeltaSink", "delta_sink", chosen_by="uri"),
        "kafka_sink": kafka,
    }
    letters = {f"{name}_of_letters": _with_limits(part) for name, part in sinks.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A processor of streamgroups",
        **_object(_keys(), required=["name", "source"]),
        "$defs": {
            **{name: _of_function(getattr(sg, name)) for name in _STEPS},
            "step": _one_of(
                {
                    **{name: {"$ref": f"#/$defs/{name}"} for name in _STEPS},
                    "sql": {"type": "string", "minLength": 1, "x-expected": "a SELECT with FROM input"},
                    "function": _FUNCTION,
                },
                "one step, as in '- decode: {format: {json: ...}}'",
                noun="Step",
            ),
            "shape": _one_of(
                {it: _called(getattr(sg.shapes, it)) for it in _SHAPES}, "windows, as in {tumbling: 1 hour}"
            ),
            "format": _one_of(
                {it: _called(getattr(sg.schemas, name)) for it, name in _FORMATS.items()},
                "a format, as in {json: 'carrier string, delay int'}",
            ),
            "source": _source(),
            **sinks,
            "spark_sink": spark,
            **letters,
            "read_repartitioned": _of_function(sg.read_repartitioned),
        },
    }


def _keys() -> dict[str, Any]:
    return {
        "name": {
            "type": "string",
            "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
            "description": "The name of the processor. Its group is <instance>.<name>.",
            "x-expected": "a name of letters, digits, '_' and '-'",
        },
        "source": {"$ref": "#/$defs/source"},
        "steps": {
            "type": "array",
            "items": {"$ref": "#/$defs/step"},
            "description": "The steps, in order.",
            "x-expected": "a list of steps, each with '- '",
        },
        "sink": {"anyOf": [{"$ref": f"#/$defs/{it}_sink"} for it in ("spark", "postgres", "delta", "kafka")]},
        "dead_letters": {"anyOf": [{"$ref": f"#/$defs/{it}_sink_of_letters"} for it in ("postgres", "delta", "kafka")]},
        "replicas": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_REPLICAS,
            "default": 1,
            "description": "The number of members of the group that run at once.",
        },
        "checkpoint": {
            "type": "string",
            "minLength": 1,
            "description": "A lasting checkpoint on shared storage, for Spark's operators with state.",
        },
        "trigger": {
            **_one_of(
                {"processingTime": {**_DURATION, "x-least-ms": 0}, "availableNow": {"type": "boolean", "enum": [True]}},
                "a trigger, as in {processingTime: 10 seconds}",
            ),
            "description": "The trigger of Spark. Default: a batch starts when the one before has ended.",
        },
    }


def _source() -> dict[str, Any]:
    option: dict[str, Any] = {"type": ["string", "integer", "number", "boolean"]}
    properties: dict[str, Any] = {name: dict(option) for name in OPTION_NAMES if name not in _NO_OPTIONS}
    properties |= {name: dict(_DURATION) for name in _DURATION_OPTIONS}
    properties["leaseTimeout"]["x-words"] = ["off"]
    # "none" removes an option of event time.
    for name in set(STREAM_TIME_OPTIONS) & set(_DURATION_OPTIONS):
        properties[name]["x-words"] = ["none"]
    properties["membership"] = {"type": "string", "enum": ["shared", "exclusive"]}
    properties["connection"] = {"type": "string", "minLength": 1, "x-expected": _NAME}
    properties["read_repartitioned"] = {"$ref": "#/$defs/read_repartitioned"}
    return {**_object(properties, required=["connection"], noun="Option"), "patternProperties": {r"^kafka\.": option}}


def _sink(name: str, _: str, *, chosen_by: str | None = None) -> dict[str, Any]:
    found = _of_function(getattr(sg, name), chosen_by=chosen_by)
    properties = {"connection": {"type": "string", "minLength": 1, "x-expected": _NAME}, **found["properties"]}
    if "delivery" not in properties:
        properties["delivery"] = {"type": "string", "enum": ["exactly-once"]}
    required = ["connection", *(it for it in found.get("required", ()) if it != "connection")]
    return {**found, "properties": properties, "required": required}


def _with_limits(part: Mapping[str, Any]) -> dict[str, Any]:
    limits = _of_function(sg.DeadLetters)["properties"]
    return {**part, "properties": {**part["properties"], **limits}}


def _object(
    properties: Mapping[str, Any],
    *,
    required: list[str] | None = None,
    noun: str | None = None,
    chosen_by: str | None = None,
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"x-noun": noun} if noun else {}),
        **({"x-chosen-by": chosen_by} if chosen_by else {}),
    }


def _one_of(alternatives: Mapping[str, Any], expected: str, *, noun: str | None = None) -> dict[str, Any]:
    """A table with exactly one of the keys."""
    return {**_object(alternatives, noun=noun), "minProperties": 1, "maxProperties": 1, "x-expected": expected}


def _called(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a constructor: a table of them, or only the first one."""
    arguments = _of_function(function)
    first = next(iter(arguments["properties"].values()))
    others = [name for name in arguments.get("required", ()) if name != next(iter(arguments["properties"]))]
    return arguments if others or first.get("x-value") else {"anyOf": [first, arguments]}


def _of_function(function: Callable[..., Any], *, chosen_by: str | None = None) -> dict[str, Any]:
    """The arguments of a function as a table."""
    meanings = dict(_meanings(inspect.getdoc(function) or ""))
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in _SET or (name == "dead_letters" and parameter.annotation != "bool"):
            continue
        properties[name] = _argument(f"{function.__name__}.{name}", parameter, meanings.get(name, ""))
        properties[name] |= _BOUNDS.get(name, {})
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    return _object(properties, required=required, noun="Argument", chosen_by=chosen_by)


def _argument(name: str, parameter: inspect.Parameter, meaning: str) -> dict[str, Any]:
    annotation = str(parameter.annotation).removesuffix(" | None")
    if found := re.fullmatch(r"Literal\[(.*)\]", annotation):
        part: dict[str, Any] = {"type": "string", "enum": [it.strip(" '\"") for it in found[1].split(",")]}
    elif annotation in _ANNOTATIONS:
        part = dict(_ANNOTATIONS[annotation])
    else:
        raise NotImplementedError(f"{name} has the type {annotation}, for which this module has no rule.")
    if annotation == "str" and meaning.startswith("a duration"):
        part = dict(_DURATION)
    if isinstance(parameter.default, (str, bool, int, float)):
        part["default"] = parameter.default
    return {**part, **({"description": meaning} if meaning else {})}


def _meanings(text: str) -> Iterator[tuple[str, str]]:
    """The first sentences about each argument, from the section ``Args`` of a docstring."""
    section = re.search(r"^Args:\n(.*?)(?:\n\n\S|\Z)", text, re.DOTALL | re.MULTILINE)
    for found in re.finditer(
        r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] + "\n" if section else "", re.DOTALL | re.MULTILINE
    ):
        words = re.sub(r":(?:func|class|attr):`~?([\w.]+)`", r"\1", " ".join(found[2].split()))
        yield found[1], words.replace("``", "")


def main() -> None:
    """Writes the schema."""
    path = Path(__file__).parents[3] / "streamgroups" / "processors" / "schema.json"
    path.write_text(json.dumps(processor_schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
