"""Which processors have a preview, and the offsets that it reads: the last records of the topics, or the next ones of the group.

Called by ``streamgroups_spark.processors.previewing``. Source: SEMANTICS P1.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.processors.processor import FunctionCall, Processor

#: The values of the arguments of windows that need a stream.
_OF_STREAMS = (("time", "query"), ("boundary", "processingTime"))


def check_previewable(declared: Processor) -> None:
    """Rejects a processor that cannot read bounded data.

    Args:
        declared: the processor.

    Raises:
        InvalidOption: if it reads a repartitioned topic, or the watermarks of producers, or has a step that needs a stream.

    >>> from streamgroups.processors.reading import processor_of
    >>> source = {"connection": "prod", "subscribe": "flights", "watermarkHeader": "watermark"}
    >>> check_previewable(processor_of({"name": "late", "source": source}))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Processor 'late' has no preview: the option 'watermarkHeader' of its source needs a \
stream. Run the processor, or preview one without this option.
    """
    if declared.source.repartitioned is not None:
        raise InvalidOption(
            f"Processor '{declared.name}' reads a repartitioned topic, which is always a stream.",
            remedy="Preview the processor that writes the topic.",
        )
    if "watermarkHeader" in declared.source.options:
        raise _no_preview(declared, "the option 'watermarkHeader' of its source", "option")
    for step in declared.steps:
        if isinstance(step, FunctionCall) and step.name == "join":
            raise _no_preview(declared, "the step 'join'", "step")
        if isinstance(step, FunctionCall) and step.name == "windows":
            for name, value in _OF_STREAMS:
                if step.arguments.get(name) == value:
                    raise _no_preview(declared, f"'{name}: {value}' of the step 'windows'", "argument")


def _no_preview(declared: Processor, what: str, kind: str) -> InvalidOption:
    return InvalidOption(
        f"Processor '{declared.name}' has no preview: {what} needs a stream.",
        remedy=f"Run the processor, or preview one without this {kind}.",
    )


def last_records(bounds: Mapping[TopicPartition, Bounds], records: int) -> list[OffsetRange]:
    """Returns the ranges of the last records, divided among the partitions.

    Args:
        bounds: the bounds of each partition.
        records: how many records are read, as far as offsets are dense.

    >>> flights, delays = TopicPartition("flights", 0), TopicPartition("delays", 0)
    >>> [str(it) for it in last_records({flights: Bounds(3, 9), delays: Bounds(0, 1)}, 4)]
    ['delays-0[0,1)', 'flights-0[6,9)']
    """
    counts = _shares({tp: it.end_offset - it.beginning_offset for tp, it in bounds.items()}, records)
    return [OffsetRange(tp, bounds[tp].end_offset - counts[tp], bounds[tp].end_offset) for tp in sorted(bounds)]


def next_records(
    bounds: Mapping[TopicPartition, Bounds], positions: Mapping[TopicPartition, int], records: int
) -> list[OffsetRange]:
    """Returns the ranges of the next records of a group, divided among the partitions.

    Args:
        bounds: the bounds of each partition.
        positions: the next offset of the group in each partition. It can be outside of the bounds.
        records: how many records are read, as far as offsets are dense.

    >>> flights, delays = TopicPartition("flights", 0), TopicPartition("delays", 0)
    >>> [str(it) for it in next_records({flights: Bounds(3, 9), delays: Bounds(0, 1)}, {flights: 1, delays: 1}, 4)]
    ['delays-0[1,1)', 'flights-0[3,7)']
    """
    starts = {tp: min(max(positions[tp], it.beginning_offset), it.end_offset) for tp, it in bounds.items()}
    counts = _shares({tp: it.end_offset - starts[tp] for tp, it in bounds.items()}, records)
    return [OffsetRange(tp, starts[tp], starts[tp] + counts[tp]) for tp in sorted(bounds)]


def _shares(available: Mapping[TopicPartition, int], records: int) -> dict[TopicPartition, int]:
    """Equal parts of the records. The others share the rest of a partition with fewer records."""
    found, rest = {}, records
    by_size = sorted(available, key=lambda tp: (available[tp], tp))
    for number, tp in enumerate(by_size):
        found[tp] = min(available[tp], rest // (len(by_size) - number))
        rest -= found[tp]
    return found
