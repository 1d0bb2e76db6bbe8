"""Parses the options for starting and ending positions, which are those of Spark's ``kafka`` source.

Called by ``streamgroups_spark.source.source_options``. Spark's precedence applies: a timestamp for all partitions, then
timestamps by partition, then offsets. Source: SEMANTICS S4.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.json_values import items, partition_number, read_unique_json, whole
from streamgroups.option_values import shown_value
from streamgroups.partitions import TopicPartition
from streamgroups.positions import (
    AtOffset,
    AtTime,
    Latest,
    Position,
    Positions,
    TrimHorizon,
    WhenNoRecordMatches,
    check_time_ms,
    parse_time_ms,
)

STARTING = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_WORDS: dict[str, Position] = {"earliest": TrimHorizon(), "latest": Latest()}
#: The numbers of the earliest and the latest offset in Spark's JSON.
_SPECIAL: dict[int, Position] = {-2: TrimHorizon(), -1: Latest()}


def starting_positions(known: Mapping[str, str], *, streaming: bool) -> Positions:
    """The positions at which a new group, or a batch read, starts.

    Args:
        known: options under their canonical names.
        streaming: selects the default, as in Spark: ``latest`` for streams, ``earliest`` for batches.

    Raises:
        InvalidOption: if an option is malformed or contradicts another one.

    >>> starting_positions({"startingOffsets": "earliest"}, streaming=True).default
    TrimHorizon()
    """
    strategy = _strategy(known)
    if "startingTimestamp" in known:
        time_ms = parse_time_ms(known["startingTimestamp"], option="startingTimestamp")
        return Positions(AtTime(time_ms), when_no_record_matches=strategy)
    if "startingOffsetsByTimestamp" in known:
        times = _times(known, "startingOffsetsByTimestamp")
        return Positions(None, {tp: AtTime(ms) for tp, ms in times.items()}, strategy)
    default: Position = Latest() if streaming else TrimHorizon()
    positions = _offsets(known, "startingOffsets", default)
    if not streaming and Latest() in (positions.default, *positions.by_partition.values()):
        raise InvalidOption(
            "Option 'startingOffsets' contains the latest offsets, so a batch query reads no records.",
            remedy="Start at the earliest offset, at an offset or at a time.",
        )
    return positions


def ending_positions(known: Mapping[str, str]) -> Positions:
    """The positions at which a batch read ends. A time after the last record means the end, as in Spark.

    Raises:
        InvalidOption: if an option is malformed.
    """
    at_end = WhenNoRecordMatches.LATEST
    if "endingTimestamp" in known:
        time_ms = parse_time_ms(known["endingTimestamp"], option="endingTimestamp")
        return Positions(AtTime(time_ms), when_no_record_matches=at_end)
    if "endingOffsetsByTimestamp" in known:
        times = _times(known, "endingOffsetsByTimestamp")
        return Positions(None, {tp: AtTime(ms) for tp, ms in times.items()}, at_end)
    positions = _offsets(known, "endingOffsets", Latest())
    if TrimHorizon() in (positions.default, *positions.by_partition.values()):
        raise InvalidOption(
            "Option 'endingOffsets' contains the earliest offsets, so a batch query reads no records.",
            remedy="End at the latest offset, at an offset or at a time.",
        )
    return positions


def _strategy(known: Mapping[str, str]) -> WhenNoRecordMatches:
    value = known.get("startingOffsetsByTimestampStrategy", "error")
    try:
        return WhenNoRecordMatches(value.strip().lower())
    except ValueError:
        raise InvalidOption(
            f"Option 'startingOffsetsByTimestampStrategy' is '{value}'.", remedy="Allowed values: error, latest."
        ) from None


def _offsets(known: Mapping[str, str], name: str, default: Position) -> Positions:
    value = known.get(name)
    if value is None:
        return Positions(default)
    word = _WORDS.get(value.strip().lower())
    if word is not None:
        return Positions(word)
    numbers = _by_partition(known, name, least=-2)
    return Positions(None, {tp: _SPECIAL.get(n, AtOffset(n)) for tp, n in numbers.items()})


def _times(known: Mapping[str, str], name: str) -> dict[TopicPartition, int]:
    times = _by_partition(known, name)
    return {tp: check_time_ms(time_ms, option=name, of=str(tp)) for tp, time_ms in times.items()}


def _by_partition(known: Mapping[str, str], name: str, *, least: int = 0) -> dict[TopicPartition, int]:
    value = known[name]
    try:
        found = {
            TopicPartition(topic, partition_number(partition)): whole(number, least=least)
            for topic, by_partition in items(read_unique_json(value))
            for partition, number in items(by_partition)
        }
        if not found:
            raise ValueError("it has no partition")
    except ValueError as e:
        words = "earliest, latest or " if name.endswith("Offsets") else ""
        raise InvalidOption(
            f"Option '{name}' is '{shown_value(value)}', which is invalid: {e}.",
            remedy=f'Set {words}a number for each partition, such as {{"flights":{{"0":5}}}}.',
        ) from None
    return found
