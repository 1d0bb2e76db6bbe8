"""The explanation of a processor: its steps, its guarantees, the place of its state, and the permissions that it needs.

``streamgroups processors explain`` prints it. Source: SEMANTICS P1; ``docs/security.rst`` ("Required ACLs"); ``docs/postgres.rst``
("Privileges").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.processors.processor import (
    DEFAULT_INSTANCE,
    FunctionCall,
    Processor,
    Sink,
    SinkKind,
    Sql,
    Step,
    UserFunction,
)

_TIMED = ("windows", "join")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a processor.

    Args:
        facts: texts by their subject, such as ``group`` and ``delivery``.
        steps: each step: its number, its function, its main arguments, and the state that it keeps.
        requirements: each permission: the resource and the operation, and what needs it.
    """

    facts: Mapping[str, str]
    steps: tuple[tuple[int, str, str, str], ...]
    requirements: tuple[tuple[str, str, str], ...]

    @property
    def document(self) -> dict[str, Any]:
        """The explanation as a JSON object."""
        return {
            "facts": dict(self.facts),
            "steps": [dict(zip(("number", "step", "arguments", "state"), it, strict=True)) for it in self.steps],
            "requirements": [
                dict(zip(("resource", "permission", "needed_for"), it, strict=True)) for it in self.requirements
            ],
        }


def explained(processor: Processor, instance: str = DEFAULT_INSTANCE, *, state_directory: str = "") -> Explanation:
    """Explains a processor.

    Args:
        processor: the processor.
        instance: its instance.
        state_directory: the local directory of states of a processor without ``stateLocation``.

    >>> from streamgroups.processors.reading import processor_of
    >>> flights = processor_of({"name": "late", "source": {"connection": "prod", "subscribe": "flights"}})
    >>> explained(flights).facts["group"], explained(flights).requirements[0]
    ('local.late', ('Topic flights', 'Read', 'source'))
    """
    location = processor.state_location or state_directory
    return Explanation(
        dict(_facts(processor, instance, location)),
        tuple(_step(number, it, processor) for number, it in enumerate(processor.steps)),
        tuple(_requirements(processor, instance)),
    )


def _facts(processor: Processor, instance: str, location: str) -> Iterator[tuple[str, str]]:
    source = processor.source
    read = ", ".join(source.topics) or f"pattern {source.options.get('subscribePattern', '')}"
    yield "group", processor.group_id(instance)
    yield "reads", f"{read} of connection {source.connection}"
    written = processor.repartition
    if written is not None:
        yield "writes", f"topic {written.arguments['topic']} of connection {source.connection}"
    else:
        yield "writes", _place(processor.sink) if processor.sink else "nothing: it can only be previewed"
    if processor.dead_letters is not None:
        yield "dead letters", f"{_place(processor.dead_letters)}; {_transactions(processor)}"
    yield "delivery", processor.delivery
    members = f"{processor.replicas} member" + ("s" if processor.replicas > 1 else "")
    if processor.membership == "exclusive":
        yield "membership", "exclusive: one member owns all partitions"
    else:
        yield "membership", f"shared: {members} at once (replicas: {processor.replicas})"
    if processor.states:
        yield "state", location + ("" if processor.state_location else ": local, so only this machine can continue it")
    else:
        yield "state", "none"
    lasting = processor.checkpoint
    yield (
        "checkpoint",
        lasting if lasting is not None else "a new one for each run: the positions are those of the group",
    )


def _place(sink: Sink) -> str:
    noun = {SinkKind.KAFKA: "topic", SinkKind.POSTGRES: "table", SinkKind.DELTA: "table", SinkKind.SPARK: "format"}[
        sink.kind
    ]
    return f"{noun} {sink.place}" + ("" if sink.connection is None else f" of connection {sink.connection}")


def _transactions(processor: Processor) -> str:
    sink, letters = processor.sink, processor.dead_letters
    to_topic = sink is None or sink.kind is SinkKind.KAFKA
    assert letters is not None
    together = letters.kind is SinkKind.KAFKA if to_topic else False
    if sink is not None and sink.kind is letters.kind is SinkKind.POSTGRES:
        together = sink.connection == letters.connection
    return "one transaction with the output" if together else "in a transaction before the output"


def _step(number: int, step: Step, processor: Processor) -> tuple[int, str, str, str]:
    if isinstance(step, Sql):
        return number, "sql", " ".join(step.text.split()), ""
    if isinstance(step, UserFunction):
        given = step.reference
        return number, "function", given if isinstance(given, str) else given.__qualname__, ""
    arguments = ", ".join(f"{name}: {_text(value)}" for name, value in step.arguments.items())
    if _has_default_watermark(step, processor):
        arguments += ", watermark without delay, unless a step before sets one"
    return number, step.name, arguments, _state(step)


def _has_default_watermark(step: FunctionCall, processor: Processor) -> bool:
    if step.name not in _TIMED or "on" not in step.arguments or processor.source.has_watermark:
        return False
    return "watermark_delay" not in step.arguments and step.arguments.get("boundary") != "processingTime"


def _state(step: FunctionCall) -> str:
    if step.state_name is None:
        return ""
    if step.arguments.get("time") == "query":
        return "in the checkpoint of Spark"
    return f"'{step.state_name}', follows its partition"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(it)}" for key, it in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(getattr(value, "__qualname__", value))


def _requirements(processor: Processor, instance: str) -> Iterator[tuple[str, str, str]]:
    source, group_id = processor.source, processor.group_id(instance)
    pattern = source.options.get("subscribePattern")
    for topic in source.topics or (f"pattern {pattern}",):
        yield f"Topic {topic}", "Read", "source"
    yield f"Group {group_id}", "Read", "source"
    yield f"Group {group_id}.streamgroups (prefix)", "Read", "resets, gaps and event time"
    yield "Cluster", "Describe (optional)", "tasks of equal bytes"
    if processor.repartition is not None:
        topic = processor.repartition.arguments["topic"]
        yield f"Topic {topic}", "Write, and Create if it does not exist", "repartition"
        yield f"TransactionalId streamgroups-{group_id} (prefix)", "Write", "repartition"
    if processor.sink is not None:
        yield from _of_sink(processor.sink, group_id, "sink")
    if processor.dead_letters is not None:
        yield from _of_sink(processor.dead_letters, group_id, "dead letters")
    if processor.states and processor.state_location:
        yield processor.state_location, "read, write, list and delete", "state"


def _of_sink(sink: Sink, group_id: str, of: str) -> Iterator[tuple[str, str, str]]:
    if sink.kind is SinkKind.KAFKA:
        yield f"Topic {sink.place}", "Write", of
        if sink.exactly_once:
            yield f"TransactionalId streamgroups-{group_id} (prefix)", "Write", of
    elif sink.kind is SinkKind.DELTA:
        yield f"{sink.place} of connection {sink.connection}", "read, write, list and delete", of
    elif sink.kind is SinkKind.POSTGRES:
        arguments = sink.arguments
        upsert = ", SELECT, UPDATE" if arguments.get("mode") == "upsert" else ""
        delete = ", DELETE" if "delete_marker" in arguments else ""
        yield f"table {sink.place}", f"INSERT{upsert}{delete}", of
        yield f"table {arguments.get('ledger_table', 'streamgroups_ledger')}", "SELECT, INSERT, UPDATE", "positions"
        yield f"schema {arguments.get('stage_schema', 'of the table')}", "USAGE, CREATE", "stages, and tables to create"
