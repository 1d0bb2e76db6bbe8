"""A processor: what runs, independent of where and how often.

Created by ``reading``. ``streamgroups_spark.processors`` builds the query of it. Source: SEMANTICS P1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from streamgroups.coordination.reset_protocol import members_group_of
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.groups.added_partitions import OnAddedPartitions
from streamgroups.processors.schema import STATEFUL, default_of

#: The instance of a processor that is run without one.
DEFAULT_INSTANCE = "local"
#: A dot separates the instance from the name, so neither contains one.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

#: A function: ``module:name`` in a file, and possibly the function itself in Python.
Reference: TypeAlias = "str | Callable[..., Any]"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A step that calls an ``sg`` function.

    Args:
        name: the function, such as ``windows``.
        arguments: its arguments as in the file.
        line: the line in the file; 0 without a file.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0

    @property
    def state_name(self) -> str | None:
        """The name of its state; ``None`` if it keeps none."""
        if self.name not in STATEFUL:
            return None
        return str(self.arguments.get("name", default_of(self.name, "name")))


@dataclass(frozen=True, slots=True)
class Sql:
    """A step of SQL over the rows of the step before, whose name is ``input``."""

    text: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A step that calls a function of the user with the DataFrame."""

    reference: Reference
    line: int = 0


Step: TypeAlias = FunctionCall | Sql | UserFunction


class SinkKind(Enum):
    """The kinds of sinks. Their values are those of the kinds of connections, except for Spark's own formats."""

    KAFKA = "kafka"
    POSTGRES = "postgres"
    DELTA = "delta"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Source:
    """The input of a processor.

    Args:
        connection: the name of a Kafka connection.
        options: the options of the source, as texts.
        repartitioned: the arguments of ``sg.read_repartitioned``; ``None`` if it reads other topics.
    """

    connection: str
    options: Mapping[str, str] = field(default_factory=dict)
    repartitioned: Mapping[str, Any] | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it names."""
        if self.repartitioned is not None:
            return (str(self.repartitioned["topic"]),)
        return tuple(filter(None, (it.strip() for it in self.options.get("subscribe", "").split(","))))

    @property
    def has_watermark(self) -> bool:
        """Whether its options set the watermark of a step that needs one.

        >>> Source("prod", {"watermarkDelay": "10m"}).has_watermark, Source("prod").has_watermark
        (True, False)
        """
        return not self.options.keys().isdisjoint(("watermarkDelay", "watermarkHeader"))

    def reads(self, topic: str) -> bool:
        """Returns whether it reads a topic.

        >>> Source("prod", {"subscribePattern": "^fl"}).reads("flights"), Source("prod", {"subscribe": "a, b"}).reads("b")
        (True, True)
        """
        pattern = self.options.get("subscribePattern")
        return topic in self.topics or (pattern is not None and re.search(pattern.strip(), topic) is not None)


@dataclass(frozen=True, slots=True)
class Sink:
    """An output of a processor: its sink, or that of its dead letters.

    Args:
        kind: the kind of the sink.
        connection: the name of its connection; ``None`` for a format of Spark.
        arguments: the arguments of ``sg.KafkaSink``, ``sg.PostgresSink`` or ``sg.DeltaSink``, or ``format`` and ``options``.
    """

    kind: SinkKind
    connection: str | None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exactly_once(self) -> bool:
        """Whether it writes each record once."""
        return self.kind is not SinkKind.SPARK and self.arguments.get("delivery") != "at-least-once"

    @property
    def place(self) -> str:
        """The topic, table or format, for texts."""
        names = {SinkKind.KAFKA: "topic", SinkKind.POSTGRES: "table", SinkKind.DELTA: "uri", SinkKind.SPARK: "format"}
        return str(self.arguments.get(names[self.kind], "the column 'topic'"))


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor: one source connection, steps, and at most one sink connection (SEMANTICS P1).

    Args:
        name: its name in the instance.
        source: what it reads.
        steps: the steps, in order.
        sink: what it writes; ``None``: it can only be previewed, or its last step is ``repartition``.
        dead_letters: where dead letters are written.
        letter_limits: the limits of ``sg.DeadLetters``.
        replicas: the number of members of its group that run at once.
        checkpoint: a lasting checkpoint on shared storage, for Spark's operators with state. ``None``: each run has a
            checkpoint of its own, because positions are the group's.
        trigger: Spark's ``trigger``, as its arguments. Empty: a batch starts when the one before has ended.
        file: the file that declares it; empty for a Python object.
        lines: the line of each field in the file, such as ``sink.connection``, for errors.

    >>> flights = Processor("late-flights", Source("prod", {"subscribe": "flights"}))
    >>> flights.group_id("board"), flights.transactional_id("board", 1)
    ('board.late-flights', 'streamgroups-board.late-flights-1.streamgroups')
    """

    name: str
    source: Source
    steps: tuple[Step, ...] = ()
    sink: Sink | None = None
    dead_letters: Sink | None = None
    letter_limits: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    checkpoint: str | None = None
    trigger: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def group_id(self, instance: str = DEFAULT_INSTANCE) -> str:
        """Returns the consumer group: ``<instance>.<name>``."""
        return f"{instance}.{self.name}"

    def source_options(self, instance: str = DEFAULT_INSTANCE) -> dict[str, str]:
        """Returns the options of its source with the connection and the group.

        >>> Processor("flights", Source("prod", {"subscribe": "flights"})).source_options("board")
        {'connection': 'prod', 'group.id': 'board.flights', 'subscribe': 'flights'}
        """
        return {"connection": self.source.connection, "group.id": self.group_id(instance), **self.source.options}

    def query_name(self, instance: str = DEFAULT_INSTANCE, member: int = 0) -> str:
        """Returns the name of the query of a member. No name of a processor contains ``/``, so no two members have one name.

        >>> Processor("late", Source("prod", {}), replicas=2).query_name("board", 1)
        'board.late/1'
        """
        group_id = self.group_id(instance)
        return group_id if self.replicas == 1 else f"{group_id}/{member}"

    def transactional_id(self, instance: str = DEFAULT_INSTANCE, member: int = 0, part: str = "") -> str:
        """Returns the transactional id of a member: it fences the killed run of the same member, with any checkpoint.

        The id of an exclusive query contains its group, which can have any name except that of a metadata group. This id ends as
        one, so both differ.

        Args:
            instance: the instance.
            member: the number of the member.
            part: distinguishes the transactions of one query, such as ``-letters``.
        """
        return "streamgroups-" + members_group_of(f"{self.group_id(instance)}-{member}{part}")

    def check_member(self, member: int) -> None:
        """Rejects a member outside the replicas.

        Args:
            member: the number of the member, from 0.

        Raises:
            InvalidOption: if there is no such member.
        """
        if not 0 <= member < self.replicas:
            raise InvalidOption(
                f"Processor '{self.name}' has no member {member}.",
                remedy=f"Its members are 0 to {self.replicas - 1}. Set 'replicas' for more.",
            )

    @property
    def spark_trigger(self) -> dict[str, Any]:
        """The trigger as Spark reads it, which accepts only some forms of durations.

        Raises:
            InvalidOption: if the duration is negative.

        >>> Processor("late", Source("prod"), trigger={"processingTime": "100ms"}).spark_trigger
        {'processingTime': '100 milliseconds'}
        """
        interval = self.trigger.get("processingTime")
        if interval is None:
            return dict(self.trigger)
        return {"processingTime": f"{parse_duration_ms(str(interval), option='processingTime')} milliseconds"}

    @property
    def membership(self) -> str:
        """``shared`` or ``exclusive``."""
        return self.source.options.get("membership", "shared").strip().lower()

    @property
    def undoes_resets(self) -> bool:
        """Whether the positions of its checkpoint replace those of a reset group (SEMANTICS F2). That of one run has none.

        >>> Processor("late", Source("prod", {"membership": "exclusive"}), checkpoint="s3://b/late").undoes_resets
        True
        """
        policy = self.source.options.get("onRestart", "checkpoint" if self.membership == "exclusive" else "group")
        return self.checkpoint is not None and policy.lower() == "checkpoint"

    @property
    def accepts_added(self) -> bool:
        """Whether it reads partitions that were added to a topic, though its state follows its partition (SEMANTICS C4).

        >>> Processor("late", Source("prod", {"onAddedPartitions": "continue"})).accepts_added
        True
        """
        return self.source.options.get("onAddedPartitions", "").strip().lower() == OnAddedPartitions.CONTINUE.value

    @property
    def state_location(self) -> str | None:
        """The option ``stateLocation`` of the source; ``None``: a directory of the machine that runs it."""
        return self.source.options.get("stateLocation")

    @property
    def delivery(self) -> str:
        """``exactly-once`` or ``at-least-once``. The topic of ``repartition`` is written exactly once."""
        return (
            "exactly-once"
            if self.repartition is not None or (self.sink and self.sink.exactly_once)
            else "at-least-once"
        )

    @property
    def repartition(self) -> FunctionCall | None:
        """The last step, if it writes a repartitioned topic."""
        last = self.steps[-1] if self.steps else None
        return last if isinstance(last, FunctionCall) and last.name == "repartition" else None

    @property
    def states(self) -> tuple[FunctionCall, ...]:
        """The steps whose state follows its partition."""
        return tuple(it for it in self.steps if isinstance(it, FunctionCall) and it.state_name is not None)

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of all connections, each once."""
        sinks = (it.connection for it in (self.sink, self.dead_letters) if it is not None)
        found = (self.source.connection, *sinks, *(name for _, name in registries(self.steps)))
        return tuple(dict.fromkeys(it for it in found if it is not None))

    @property
    def document(self) -> dict[str, Any]:
        """The processor as values of JSON, which :func:`~streamgroups.processors.reading.processor_of` reads.

        A function that is no text has no such form, and is shown by its name.
        """
        letters = {**_document(self.dead_letters), **self.letter_limits} if self.dead_letters else None
        source: dict[str, Any] = {"connection": self.source.connection, **self.source.options}
        if self.source.repartitioned is not None:
            source["read_repartitioned"] = dict(self.source.repartitioned)
        found: dict[str, Any] = {
            "name": self.name,
            "source": source,
            "steps": [_step(it) for it in self.steps],
            "sink": _document(self.sink) if self.sink else None,
            "dead_letters": letters,
            "replicas": self.replicas,
            "checkpoint": self.checkpoint,
            "trigger": dict(self.trigger),
        }
        return {key: it for key, it in found.items() if it not in (None, [], {})}


def registries(steps: tuple[Step, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the connections of schema registries that steps name, each with its field."""
    found = []
    for number, step in enumerate(steps):
        if not isinstance(step, FunctionCall) or not isinstance(step.arguments.get("format"), Mapping):
            continue
        for kind, settings in step.arguments["format"].items():
            if isinstance(settings, Mapping) and isinstance(settings.get("registry"), str):
                found.append((f"steps[{number}].{step.name}.format.{kind}.registry", str(settings["registry"])))
    return tuple(found)


def _document(sink: Sink) -> dict[str, Any]:
    return {**({} if sink.connection is None else {"connection": sink.connection}), **sink.arguments}


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, Sql):
        return {"sql": step.text}
    if isinstance(step, UserFunction):
        given = step.reference
        return {"function": given if isinstance(given, str) else f"{given.__module__}:{given.__qualname__}"}
    return {step.name: dict(step.arguments)}
