"""Watermarks imported from another group: a slow reference stream follows a fast one, and does not hold back a join.

``streamgroups_spark.event_time.with_event_time`` validates the imports of a process here, and ``punctuation_source``
follows them. :mod:`streamgroups.event_time.imported_watermark` has the rules for groups of other applications. Source:
SEMANTICS W10; StreamInsight's ``AdvanceTimeImportSettings``. If a stream both generates and imports a watermark, the
later one counts, and an earlier one has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import TimeSettings


def check_imports(stream: str, streams: Mapping[str, TimeSettings]) -> None:
    """Validates that a stream has a watermark, as far as the streams of its process show it.

    Streams that it does not import from are not checked, because they can belong to other queries. A group that is not
    among the streams can belong to another application.

    Args:
        stream: its name.
        streams: the event-time settings of each stream of the process, by its name.

    Raises:
        InvalidOption: if a stream on the import path imports from itself, or if all streams on it belong to this process
            and none generates a watermark.

    >>> from streamgroups.event_time.strategy import Generation
    >>> prices, trades = TimeSettings(import_from="trades"), TimeSettings(Generation())
    >>> check_imports("prices", {"prices": prices, "trades": trades})
    >>> check_imports("prices", {"prices": prices})
    >>> check_imports("prices", {"prices": prices, "trades": TimeSettings(import_from="prices")})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Stream 'prices' has no watermark: it imports event time along prices <- trades, and no stream of \
these generates a watermark. Set 'emitEvery', 'watermarkDelay' or 'watermarkHeader' for one of them.
    """
    way = way_of(stream, streams)
    for name in way:
        if streams[name].import_from == name:
            raise InvalidOption(
                f"Option 'importFrom' of stream '{name}' names the same stream.",
                remedy="Name another group, or set 'emitEvery' or 'watermarkDelay' to generate a watermark.",
            )
    last = streams[way[-1]].import_from
    is_whole = last is None or last in streams
    if is_whole and not any(streams[name].has_own_watermark for name in way):
        raise no_watermark(way)


def no_watermark(way: list[str]) -> InvalidOption:
    """Returns the error of a stream that imports its watermark along streams that do not generate one.

    Args:
        way: the stream, the stream it imports from, and so on.
    """
    return InvalidOption(
        f"Stream '{way[0]}' has no watermark: it imports event time along {' <- '.join(way)}, and no stream of these generates a watermark.",
        remedy="Set 'emitEvery', 'watermarkDelay' or 'watermarkHeader' for one of them.",
    )


def way_of(stream: str, streams: Mapping[str, TimeSettings]) -> list[str]:
    """Returns a stream, the stream it imports from, and so on. A cycle is followed once.

    >>> way_of("prices", {"prices": TimeSettings(import_from="trades"), "trades": TimeSettings(import_from="prices")})
    ['prices', 'trades']
    """
    way = [stream]
    while (source := streams[way[-1]].import_from) in streams and source is not None and source not in way:
        way.append(source)
    return way
