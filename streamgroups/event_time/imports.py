"""Watermarks imported from another stream: a slow reference stream follows a fast one, and does not hold back a join.

``streamgroups_spark.event_time.with_event_time`` validates imports here, and ``punctuation_source`` follows them.
Source: SEMANTICS W10; StreamInsight's ``AdvanceTimeImportSettings``. If a stream both generates and imports a watermark,
the later one counts, and an earlier one has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import TimeSettings


def check_imports(stream: str, streams: Mapping[str, TimeSettings]) -> None:
    """Validates that a stream has a watermark.

    Streams that it does not import from are not checked, because they can belong to other queries.

    Args:
        stream: its name.
        streams: the event-time settings of each stream, by its name.

    Raises:
        InvalidOption: if a stream on the import path imports from a missing stream or from itself, or if no stream on
            it generates a watermark.

    >>> from streamgroups.event_time.strategy import Generation
    >>> prices, trades = TimeSettings(import_from="trades"), TimeSettings(Generation())
    >>> check_imports("prices", {"prices": prices, "trades": trades})
    >>> check_imports("prices", {"prices": prices, "orders": trades})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'importFrom' of stream 'prices' is 'trades', which is not a stream of this query. \
Allowed values: orders, prices.
    """
    way = way_of(stream, streams)
    for name in way:
        source = streams[name].import_from
        if source == name:
            raise InvalidOption(
                f"Option 'importFrom' of stream '{name}' names the same stream.",
                remedy="Name another stream, or set 'emitEvery' or 'watermarkDelay' to generate a watermark.",
            )
        if source is not None and source not in streams:
            raise InvalidOption(
                f"Option 'importFrom' of stream '{name}' is '{source}', which is not a stream of this query.",
                remedy=f"Allowed values: {', '.join(sorted(streams))}.",
            )
    if all(streams[name].generation is None for name in way):
        raise InvalidOption(
            f"Stream '{stream}' has no watermark: it imports event time along {' <- '.join(way)}, and no stream of these generates a watermark.",
            remedy="Set 'emitEvery' or 'watermarkDelay' for one of them.",
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
