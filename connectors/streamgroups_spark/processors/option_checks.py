"""The options of a processor's source whose values are invalid, before the processor runs or is stored.

Called by ``yaml_text`` after a file was read. Neither Spark nor a Kafka client is imported, and the connection is not read: what
librdkafka rejects in combination with the connection is an error of the start. Source: SEMANTICS P1, S4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamgroups.errors import InvalidOption
from streamgroups.option_values import own_and_kafkas
from streamgroups.processors.problems import Problem
from streamgroups.processors.processor import Processor
from streamgroups.query.source_settings import OPTION_NAMES, source_settings
from streamgroups.query.subscription_options import SUBSCRIBING
from streamgroups_kafka.client.java_settings import translate

#: Settings that are complete only together with those of the connection.
_OF_LOGIN = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


def invalid_options(processor: Processor) -> Iterator[Problem]:
    """Yields a problem for each option of the source with an invalid value, or one for options that contradict each other.

    Args:
        processor: a processor without other problems.

    >>> from streamgroups.processors.processor import Source
    >>> print(next(invalid_options(Processor("late", Source("prod", {"subscribe": "t", "onRestart": "chekpoint"})))))
    source.onRestart: Option 'onRestart' is 'chekpoint'. Allowed values: checkpoint, group, fail.
    """
    given = {name: it for name, it in processor.source.options.items() if not name.lower().startswith(_OF_LOGIN)}
    together = [*_problems(processor, given, "")]
    if together:
        # The parsers report the first one only.
        alone = [problem for name, value in given.items() for problem in _problems(processor, {name: value}, name)]
        yield from alone or together


def _problems(processor: Processor, options: Mapping[str, str], name: str) -> Iterator[Problem]:
    try:
        known, kafka = own_and_kafkas(
            options, OPTION_NAMES, unknown="is unknown", no_path=lambda _: InvalidOption("A topic has no path.")
        )
        others = {"group.id": processor.group_id()}
        if known.keys().isdisjoint(SUBSCRIBING):
            others["subscribe"] = "input"
        source_settings({**others, **known}, streaming=True)
        translate({"bootstrap.servers": "localhost:9092", **kafka})
    except InvalidOption as e:
        field = f"source.{name}" if name else "source"
        yield Problem(processor.lines.get(field, 0), field, e.what, e.remedy, processor.file)
