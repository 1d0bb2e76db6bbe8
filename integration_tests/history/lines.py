"""The lines of a history: events as JSON. A line has exactly the fields of its event. Used by
:mod:`~integration_tests.history.files`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from integration_tests.history.events import (
    EVENTS,
    Acknowledged,
    Commit,
    Event,
    Offsets,
    Reset,
    UnknownWritten,
    Workload,
    Written,
    name_of,
)
from streamgroups.errors import InvalidOption
from streamgroups.json_values import (
    MAX_INT32,
    MAX_INT64,
    elements,
    flag,
    items,
    partition_number,
    read_json,
    string,
    whole,
    whole_or_none,
)
from streamgroups.partitions import OffsetRange, TopicPartition

_PHASES = {
    Commit: ("begun", "accepted", "rejected", "unchanged", "unknown"),
    Reset: ("requested", "applied"),
}


def _partition(value: Any) -> TopicPartition:
    topic, partition = elements(value)
    return TopicPartition(string(topic), whole(partition, most=MAX_INT32))


def _offsets(value: Any) -> Offsets:
    return {
        TopicPartition(string(topic), partition_number(p)): whole(n)
        for topic, by_partition in items(value)
        for p, n in items(by_partition)
    }


def _range(value: Any) -> OffsetRange:
    topic, partition, next_offset, end_offset = elements(value)
    return OffsetRange(_partition([topic, partition]), whole(next_offset), whole(end_offset))


_READERS: Mapping[Any, Callable[[Any], Any]] = {
    int: lambda it: whole(it, least=-MAX_INT64),
    int | None: lambda it: whole_or_none(it, least=-MAX_INT64),
    bool: flag,
    str: lambda it: string(it, most=1 << 20),
    TopicPartition: _partition,
    Offsets: _offsets,
    tuple[int, ...]: lambda it: tuple(whole(n, least=-MAX_INT64) for n in elements(it)),
    tuple[str, ...]: lambda it: tuple(string(text) for text in elements(it)),
    tuple[OffsetRange, ...]: lambda it: tuple(_range(r) for r in elements(it)),
}


#: How each field of an event is parsed.
_FIELDS = {
    event_class: {it.name: _READERS[get_type_hints(event_class)[it.name]] for it in fields(event_class)}
    for event_class in EVENTS.values()
}


def to_line(event: Event) -> str:
    """The event as one line of JSON, without the line feed.

    >>> from integration_tests.history.events import Position
    >>> to_line(Position(17, "observer", "g", {TopicPartition("t", 0): 5}))
    '{"event":"position","time_ms":17,"process":"observer","group":"g","offsets":{"t":{"0":5}}}'
    """
    values = {name: _plain(getattr(event, name)) for name in _FIELDS[type(event)]}
    return json.dumps({"event": name_of(type(event)), **values}, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, TopicPartition):
        return [value.topic, value.partition]
    if isinstance(value, OffsetRange):
        return [value.topic_partition.topic, value.topic_partition.partition, value.next_offset, value.end_offset]
    if isinstance(value, Mapping):
        by_topic: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for tp, n in sorted(value.items()):
            by_topic[tp.topic][str(tp.partition)] = n
        return by_topic
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def parse(line: str) -> Event:
    """Parses one line.

    Raises:
        ValueError: if it is not a line of a history, or has other fields than its event.

    >>> from integration_tests.history.events import Reset
    >>> event = Reset(17, "injector", "g", 1, {TopicPartition("t", 0): 5}, "requested")
    >>> parse(to_line(event)) == event
    True
    """
    try:
        raw = dict(items(read_json(line)))
        event_class = EVENTS[string(raw.pop("event"))]
        readers = _FIELDS[event_class]
        if raw.keys() != readers.keys():
            raise ValueError(f"the fields {sorted(raw.keys() ^ readers.keys())} are missing or unknown")
        event = event_class(**{name: read(raw[name]) for name, read in readers.items()})
    except InvalidOption as e:
        raise ValueError(e.what) from e
    except KeyError as e:
        raise ValueError(f"{e} is missing or unknown") from e
    _check(event)
    return event


def _check(event: Event) -> None:
    """Rejects values that the types of their fields do not exclude."""
    if isinstance(event, Commit | Reset) and event.phase not in _PHASES[type(event)]:
        raise ValueError(f"'{event.phase}' is not a phase")
    if isinstance(event, Written | UnknownWritten) and event.sink not in ("output", "letters"):
        raise ValueError(f"'{event.sink}' is not a sink")
    if isinstance(event, Acknowledged) and len(event.offsets) != len(event.times_ms):
        raise ValueError("the numbers of offsets and of times differ")
    if isinstance(event, Acknowledged | Written) and any(n < 0 for n in event.offsets):
        raise ValueError("an offset is negative")
    if isinstance(event, Workload) and not {*event.recorded} <= EVENTS.keys():
        raise ValueError(f"{sorted({*event.recorded} - EVENTS.keys())} are not events")
