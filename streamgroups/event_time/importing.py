"""Time that comes from another stream: a slow reference stream follows a fast one, and does not hold a join back.

Called by :mod:`streamgroups.event_time.source_time` for one source, and where the streams of a query are put together. Source:
SEMANTICS W10; StreamInsight's ``AdvanceTimeImportSettings``. A stream that generates time and imports it too asserts whatever asserts more: both are
assertions, and one that asserts less takes nothing back.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.event_time.watermark import Watermark, latest


def check_imports(import_from: Mapping[str, str | None], generating: Mapping[str, bool]) -> None:
    """Sees that time reaches every stream.

    Args:
        import_from: for each stream, the one whose time it imports.
        generating: for each stream, whether it asserts time of its own.

    Raises:
        InvalidOption: if a stream imports from one that there is not, or from itself, or if no stream on the way generates time.

    >>> check_imports({"prices": "trades", "trades": None}, {"prices": False, "trades": True})
    >>> check_imports({"prices": "trade", "trades": None}, {"prices": False, "trades": True})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'importFrom' of stream 'prices' is 'trade', which is no stream of this query. \
Streams are prices, trades.
    """
    for stream, source in import_from.items():
        if source is not None and source not in import_from:
            raise InvalidOption(
                f"Option 'importFrom' of stream '{stream}' is '{source}', which is no stream of this query.",
                remedy=f"Streams are {', '.join(sorted(import_from))}.",
            )
        if source == stream:
            raise InvalidOption(
                f"Option 'importFrom' of stream '{stream}' names the stream itself.",
                remedy="Name another stream, or give 'every' or 'delay' to generate time.",
            )
        way = _way(stream, import_from)
        if not any(generating[name] for name in way):
            raise InvalidOption(
                f"No time reaches stream '{stream}': it imports along {' <- '.join(way)}, and none of these generates any.",
                remedy="Give one of them 'every' or 'delay'.",
            )


def with_imports(generated: Mapping[str, Watermark], import_from: Mapping[str, str | None]) -> dict[str, Watermark]:
    """The watermark of each stream of a query, imports followed.

    Args:
        generated: what each stream asserts by itself.
        import_from: for each stream, the one whose time it imports.

    >>> from streamgroups.event_time.watermark import At, NotYet
    >>> with_imports({"prices": NotYet(), "trades": At(7)}, {"prices": "trades", "trades": None})
    {'prices': At(time_ms=7), 'trades': At(time_ms=7)}
    """
    return {stream: latest(*(generated[name] for name in _way(stream, import_from))) for stream in generated}


def _way(stream: str, import_from: Mapping[str, str | None]) -> list[str]:
    """A stream, the one it imports from, and so on; a circle is walked once."""
    way = [stream]
    while (source := import_from[way[-1]]) is not None and source not in way:
        way.append(source)
    return way
