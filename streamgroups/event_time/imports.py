"""Time that comes from another stream: a slow reference stream follows a fast one, and does not hold a join back.

Called where the streams of a query are put together, and after each look at them. Source: SEMANTICS W10; StreamInsight's
``AdvanceTimeImportSettings``. A stream that generates time and imports it too asserts whatever asserts more: both are assertions, and one
that asserts less takes nothing back.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime, advance_to
from streamgroups.event_time.watermark import latest


def check_imports(stream: str, streams: Mapping[str, TimeSettings]) -> None:
    """Checks that time reaches a stream. Streams that it does not import from are not looked at: they may be of other queries.

    Args:
        stream: its name.
        streams: how the time of each is made, by its name.

    Raises:
        InvalidOption: if a stream on the way imports from one that there is not, or from itself, or if none of them generates time.

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


def follow_imports(states: Mapping[str, SourceTime], streams: Mapping[str, TimeSettings]) -> dict[str, SourceTime]:
    """The streams of a query after a look at each: those that import time have come as far as those they follow.

    Args:
        states: what is known of each stream, by its name.
        streams: how the time of each is made.

    >>> from streamgroups.event_time.strategy import Generation
    >>> from streamgroups.event_time.watermark import At
    >>> streams = {"prices": TimeSettings(import_from="trades"), "trades": TimeSettings(Generation())}
    >>> follow_imports({"prices": SourceTime(), "trades": SourceTime(At(7))}, streams)["prices"].watermark
    At(time_ms=7)
    """
    return {
        stream: advance_to(state, latest(*(states[name].watermark for name in way_of(stream, streams))))
        for stream, state in states.items()
    }


def way_of(stream: str, streams: Mapping[str, TimeSettings]) -> list[str]:
    """A stream, the one it imports from, and so on, as far as there is one; a circle is walked once.

    >>> way_of("prices", {"prices": TimeSettings(import_from="trades"), "trades": TimeSettings(import_from="prices")})
    ['prices', 'trades']
    """
    way = [stream]
    while (source := streams[way[-1]].import_from) in streams and source is not None and source not in way:
        way.append(source)
    return way
