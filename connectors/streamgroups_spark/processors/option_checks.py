"""The values of a processor that the options of its source reject, before it runs or is stored.

Called by ``yaml_text`` after a file was read. The parser of the source is the only place that knows the permitted values. It reads
no file and no topic here: the connection of the processor is left out. Source: SEMANTICS P1, S4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamgroups.errors import InvalidOption
from streamgroups.processors.problems import Problem
from streamgroups.processors.processor import Processor

_SUBSCRIBING = {"subscribe", "subscribepattern"}
#: Settings that are complete only together with those of the connection.
_OF_LOGIN = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


def invalid_options(processor: Processor) -> Iterator[Problem]:
    """Yields a problem for each option of the source with an invalid value, or one for options that contradict each other.

    Args:
        processor: a processor without other problems.

    >>> from streamgroups.processors.processor import Source
    >>> print(next(invalid_options(Processor("late", Source("prod", {"subscribe": "t", "onRestart": "chekpoint"})))))
    Option 'onRestart' is 'chekpoint'. Did you mean 'checkpoint'?
    """
    given = {name: it for name, it in processor.source.options.items() if not name.lower().startswith(_OF_LOGIN)}
    together = [*_problems(processor, given, "")]
    if together:
        # The parser reports the first one only.
        alone = [problem for name, value in given.items() for problem in _problems(processor, {name: value}, name)]
        yield from alone or together


def _problems(processor: Processor, options: Mapping[str, str], name: str) -> Iterator[Problem]:
    from streamgroups_spark.source.source_options import parse

    base = {"kafka.bootstrap.servers": "localhost:9092", "group.id": processor.group_id()}
    if _SUBSCRIBING.isdisjoint(it.lower() for it in options):
        base["subscribe"] = "input"
    try:
        parse({**base, **options}, streaming=True)
    except InvalidOption as e:
        field = f"source.{name}" if name else "source"
        yield Problem(processor.lines.get(field, 0), field, e.what, e.remedy, processor.file)
