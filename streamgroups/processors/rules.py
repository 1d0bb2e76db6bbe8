"""The rules between the fields of a processor, and between several processors.

Called by ``reading`` for one file, and by ``streamgroups processors explain`` and instances for several (:func:`conflicts`).
Source: SEMANTICS P1, S9; the rules of the functions that the steps call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from streamgroups.dlq.limits import keeps_letters
from streamgroups.errors import InvalidOption
from streamgroups.option_values import repeated_names
from streamgroups.processors.client_options import assigns_ranges
from streamgroups.processors.problems import Problem, is_secret
from streamgroups.processors.processor import (
    DEFAULT_INSTANCE,
    FunctionCall,
    Processor,
    Sink,
    SinkKind,
)
from streamgroups.query.subscription_options import topic_pattern

#: Returns the line of a field, by its keys and indexes.
Lines: TypeAlias = "Callable[..., int]"

_LETTERS_ALWAYS = ("decode", "encode", "safely")
_SPLITTING = ("minPartitions", "maxRecordsPerPartition")
_OF_CONNECTION = "It belongs to the connection: 'streamgroups connections set' stores it there."
#: Options that a processor or its connection sets, each with its remedy.
_SET = {
    "kafka.bootstrap.servers": _OF_CONNECTION,
    "kafka.client.id": "Each run has a name of its own, which shows whether an earlier run has ended. Remove the option.",
    "kafka.group.id": "The group is '<instance>.<name>'. Remove the option.",
}
_SOURCES = ("subscribe", "subscribePattern", "read_repartitioned")


def broken_rules(processor: Processor, line: Lines) -> Iterator[Problem]:
    """Yields the problems of a processor whose values are valid one by one.

    Args:
        processor: the processor.
        line: returns the line of a field: ``line("source", "subscribe")``.
    """
    for rule in (
        _name,
        _source,
        _repeated,
        _topics,
        _sink,
        _letters,
        _repartition,
        _states,
        _times,
        _membership,
        _replicas,
    ):
        yield from rule(processor, line)


def _name(processor: Processor, line: Lines) -> Iterator[Problem]:
    if processor.name.lower().startswith("streamgroups"):
        what = f"The name '{processor.name}' begins with 'streamgroups'."
        yield Problem(line("name"), "name", what, "These names are reserved for metadata groups. Use another name.")


def _source(processor: Processor, line: Lines) -> Iterator[Problem]:
    options = processor.source.options
    given = [it for it in _SOURCES if it in options or (it == "read_repartitioned" and processor.source.repartitioned)]
    if len(given) != 1:
        what = f"{' and '.join(map(repr, given))} exclude each other." if given else "No topics to read are set."
        yield Problem(line("source"), "source", what, f"Set exactly one of {', '.join(_SOURCES)}.")
    for name in options:
        if name.lower() in _SET or is_secret(name):
            what = f"Option '{name}' is not allowed in a processor."
            yield Problem(line("source", name), f"source.{name}", what, _SET.get(name.lower(), _OF_CONNECTION))
    pattern = options.get("subscribePattern")
    if pattern is not None and not _is_pattern(pattern):
        what = "The value is not a regular expression."
        yield Problem(
            line("source", "subscribePattern"), "source.subscribePattern", what, "Correct it, as in '^flights-'."
        )


def _repeated(processor: Processor, line: Lines) -> Iterator[Problem]:
    """Rejects an option that is given twice: clients of Kafka and Spark ignore the case of names."""
    given: dict[tuple[str, ...], Mapping[str, Any]] = {("source",): processor.source.options}
    for key, sink in (("sink", processor.sink), ("dead_letters", processor.dead_letters)):
        if sink is not None:
            given[key, "options"] = sink.arguments.get("options", {})
    for keys, options in given.items():
        for first, name in repeated_names(options):
            what = f"Option '{name}' is given twice: it is also in line {line(*keys, first)}, as '{first}'."
            yield Problem(line(*keys, name), ".".join((*keys, name)), what, "Remove one of them.")


def _times(processor: Processor, line: Lines) -> Iterator[Problem]:
    """Rejects a delay of the watermark for windows by the clock."""
    for number, step in enumerate(processor.steps):
        if not isinstance(step, FunctionCall) or step.arguments.get("boundary") != "processingTime":
            continue
        if "watermark_delay" in step.arguments:
            field = f"steps[{number}].{step.name}.watermark_delay"
            what = "Windows with boundary: processingTime have no watermark."
            yield Problem(line("steps", number, step.name, "watermark_delay"), field, what, "Remove one of them.")


def _is_pattern(text: str) -> bool:
    try:
        topic_pattern(text)
    except InvalidOption:
        return False
    return True


def _topics(processor: Processor, line: Lines) -> Iterator[Problem]:
    """Rejects a topic that is both read and written, and dead letters in the output."""
    outputs = [("sink", processor.sink), ("dead_letters", processor.dead_letters)]
    pattern = processor.source.options.get("subscribePattern")
    if pattern is not None and not _is_pattern(pattern):
        return
    key = "subscribe" if pattern is None else "subscribePattern"
    for field, sink in outputs:
        topic = None if sink is None or sink.kind is not SinkKind.KAFKA else sink.arguments.get("topic")
        if sink is None or not isinstance(topic, str) or sink.connection != processor.source.connection:
            continue
        if processor.source.reads(topic):
            what = f"Topic '{topic}' is also read: source.{key}, line {line('source', key)}."
            yield Problem(
                line(field, "topic"),
                f"{field}.topic",
                what,
                "Write to another topic: the processor would read its own output.",
            )
    sink, letters = processor.sink, processor.dead_letters
    if (
        sink
        and letters
        and (sink.connection, sink.place) == (letters.connection, letters.place)
        and "topic" in letters.arguments
    ):
        what = f"Topic '{letters.place}' is also the topic of the output: sink.topic, line {line('sink', 'topic')}."
        yield Problem(line("dead_letters", "topic"), "dead_letters.topic", what, "Use separate topics.")
    if sink and letters and sink.kind is letters.kind and _table(sink) and _table(sink) == _table(letters):
        what = f"Table '{letters.place}' is also the table of the output, line {line('sink')}."
        yield Problem(line("dead_letters"), "dead_letters", what, "Use separate tables.")


def _table(sink: Sink) -> tuple[str | None, Any] | None:
    name = sink.arguments.get("table") or sink.arguments.get("uri")
    return None if name is None else (sink.connection, name)


def _sink(processor: Processor, line: Lines) -> Iterator[Problem]:
    sink = processor.sink
    if sink is None:
        return
    if sink.kind is SinkKind.SPARK and sink.arguments.get("delivery") == "exactly-once":
        what = f"The format '{sink.place}' of Spark is not exactly once."
        remedy = "Remove 'delivery', or use a connection to Kafka (topic), PostgreSQL (table) or Delta Lake (uri)."
        yield Problem(line("sink", "delivery"), "sink.delivery", what, remedy)
    if sink.arguments.get("mode") == "upsert" and not sink.arguments.get("key"):
        yield Problem(
            line("sink", "mode"), "sink.mode", "The mode is 'upsert', but the key is missing.", "Add 'key: [COLUMN]'."
        )
    if sink.arguments.get("key") and sink.arguments.get("mode") != "upsert":
        yield Problem(
            line("sink", "key"),
            "sink.key",
            "The key has no effect without upsert.",
            "Add 'mode: upsert', or remove the key.",
        )


def _letters(processor: Processor, line: Lines) -> Iterator[Problem]:
    letters, sink = processor.dead_letters, processor.sink
    if letters is None:
        if sink is None or sink.kind is SinkKind.SPARK:
            return
        for number, step in enumerate(processor.steps):
            if isinstance(step, FunctionCall) and (
                step.name in _LETTERS_ALWAYS or step.arguments.get("dead_letters") is True
            ):
                what = f"The step '{step.name}' can have dead letters, but the key 'dead_letters' is missing."
                remedy = (
                    f"Add 'dead_letters: {{connection: {processor.source.connection}, topic: {processor.name}.dlq}}'."
                )
                yield Problem(line("steps", number), f"steps[{number}]", what, remedy)
                return
        return
    if letters.arguments.get("delivery") == "at-least-once" or (sink is not None and not sink.exactly_once):
        what = "Dead letters need delivery 'exactly-once' in both sinks."
        yield Problem(line("dead_letters"), "dead_letters", what, "Remove 'delivery', or remove 'dead_letters'.")
    if letters.kind is SinkKind.KAFKA and "topic" not in letters.arguments:
        yield Problem(line("dead_letters"), "dead_letters", "Key 'topic' is missing.", "Add 'topic: ...'.")
    mode, key, marker = (letters.arguments.get(name) for name in ("mode", "key", "delete_marker"))
    if not keeps_letters(mode or "append", key or (), marker):
        what = "With this mode a dead letter replaces or deletes others."
        yield Problem(
            line("dead_letters", "mode"),
            "dead_letters.mode",
            what,
            "Remove 'mode', or use 'upsert' with a key that contains 'id', as in 'key: [id]'.",
        )
    known = letters.connection and processor.source.connection
    if letters.kind is SinkKind.KAFKA and known and letters.connection != processor.source.connection:
        what = f"Dead letters in Kafka need the cluster of the source, connection '{processor.source.connection}'."
        yield Problem(
            line("dead_letters", "connection"), "dead_letters.connection", what, "Use this connection, or a table."
        )


def _repartition(processor: Processor, line: Lines) -> Iterator[Problem]:
    for number, step in enumerate(processor.steps):
        if isinstance(step, FunctionCall) and step.name == "repartition":
            field = f"steps[{number}].repartition"
            if step is not processor.steps[-1]:
                yield Problem(
                    step.line,
                    field,
                    "The step 'repartition' is not the last one.",
                    "A second processor reads its topic: source.read_repartitioned.",
                )
            if processor.sink is not None:
                yield Problem(
                    line("sink"), "sink", "The step 'repartition' is the output of the processor.", "Remove the sink."
                )
            topic = step.arguments.get("topic")
            if isinstance(topic, str) and processor.source.reads(topic):
                what = f"Topic '{topic}' is also read: source, line {line('source')}."
                yield Problem(step.line, f"{field}.topic", what, "Write to another topic.")


def _states(processor: Processor, line: Lines) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, step in enumerate(processor.steps):
        if not isinstance(step, FunctionCall) or step.state_name is None:
            continue
        if step.state_name in seen:
            what = f"State '{step.state_name}' is also that of steps[{seen[step.state_name]}]."
            yield Problem(
                line("steps", number), f"steps[{number}].{step.name}.name", what, "Add 'name: ...' with another name."
            )
        seen.setdefault(step.state_name, number)
        for option in _SPLITTING:
            if option in processor.source.options:
                what = f"'{option}' divides a partition among tasks, but the step '{step.name}' keeps state for each partition."
                yield Problem(line("source", option), f"source.{option}", what, "Remove the option.")
        if step.name == "join" and processor.membership == "shared" and not assigns_ranges(processor.source.options):
            what = "A join over a shared stream needs the assignor 'range' of the consumer protocol."
            remedy = "Add 'kafka.group.protocol: consumer' and 'kafka.group.remote.assignor: range' to the source."
            yield Problem(step.line, f"steps[{number}].join", what, remedy)


def _membership(processor: Processor, line: Lines) -> Iterator[Problem]:
    exclusive = processor.membership == "exclusive"
    if processor.checkpoint is not None and not exclusive:
        remedy = "Add 'membership: exclusive' to the source, or remove 'checkpoint': positions are those of the group."
        yield Problem(
            line("checkpoint"), "checkpoint", "A lasting checkpoint needs one owner of all partitions.", remedy
        )
    for number, step in enumerate(processor.steps):
        if not isinstance(step, FunctionCall):
            continue
        field = f"steps[{number}].{step.name}"
        if step.name == "with_event_time" and not exclusive:
            remedy = "Add 'membership: exclusive' to the source, or use the argument 'watermark_delay' of windows."
            yield Problem(step.line, field, "The step 'with_event_time' is for streams of one member.", remedy)
        if (
            step.name == "windows"
            and step.arguments.get("time") == "query"
            and not (exclusive and processor.checkpoint)
        ):
            remedy = "Remove 'time', or set 'membership: exclusive' and 'checkpoint' on shared storage."
            yield Problem(
                step.line, f"{field}.time", "Windows of the whole query keep state in a checkpoint of Spark.", remedy
            )


def _replicas(processor: Processor, line: Lines) -> Iterator[Problem]:
    if processor.replicas == 1:
        return
    reasons = []
    if processor.membership == "exclusive":
        reasons.append(f"source.membership is 'exclusive', line {line('source', 'membership')}")
    if processor.checkpoint is not None:
        reasons.append(f"it has a checkpoint, line {line('checkpoint')}")
    reasons += [
        f"the state of steps[{number}] (windows with time: query) cannot be shared, line {step.line}"
        for number, step in enumerate(processor.steps)
        if isinstance(step, FunctionCall) and step.arguments.get("time") == "query"
    ]
    if reasons:
        what = f"There are {processor.replicas} replicas, but {'; '.join(reasons)}."
        yield Problem(line("replicas"), "replicas", what, "Set 'replicas: 1'.")


def conflicts(processors: Sequence[Processor], instance: str = DEFAULT_INSTANCE) -> tuple[Problem, ...]:
    """Returns the problems of processors that run in one instance.

    Args:
        processors: the processors.
        instance: the instance.

    >>> one = Processor("late", source=None, file="a.yaml")
    >>> print(conflicts([one, Processor("late", source=None, file="b.yaml")])[0])
    b.yaml: name: Group 'local.late' is also that of a.yaml. Each of both would get a part of the records. Rename one of them.
    """
    found = []
    by_group: dict[str, Processor] = {}
    for it in processors:
        group_id = it.group_id(instance)
        if group_id in by_group:
            first = by_group[group_id].file or f"processor '{by_group[group_id].name}'"
            what = f"Group '{group_id}' is also that of {first}. Each of both would get a part of the records."
            found.append(Problem(it.lines.get("name", 0), "name", what, "Rename one of them.", it.file))
        by_group.setdefault(group_id, it)
    return tuple(found)


def warnings(processors: Iterable[Processor], instance: str = DEFAULT_INSTANCE) -> tuple[str, ...]:
    """Returns what is possible, and often a mistake: one table, or one place of states, of several processors.

    Args:
        processors: the processors of an instance.
        instance: the instance.
    """
    tables: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    states: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for it in processors:
        if it.sink is not None and _table(it.sink) and it.sink.arguments.get("mode", "append") == "append":
            tables[_table(it.sink) or ()].append(it.group_id(instance))
        for step in it.states:
            states[(it.group_id(instance), it.state_location, step.state_name)].append(it.file or it.name)
    return (
        *(
            f"Table '{table}' of connection '{connection}' receives appended rows of the groups {', '.join(groups)}. A reset of one "
            "of them writes its rows again."
            for (connection, table), groups in tables.items()
            if len(groups) > 1
        ),
        *(
            f"State '{name}' of group '{group}' belongs to {' and '.join(files)}: one of them overwrites the other."
            for (group, _, name), files in states.items()
            if len(files) > 1
        ),
    )
