"""The watermark of a group from the replies of the processes of an application. Some of them can be missing.

``streamgroups_spark.event_time.punctuation_source`` requests the watermark of a group from all processes of its session, because
several queries can share the group. A process that does not respond can be one of them: it is starved or stopped, or waits for
a broker. The minimum over the other ones can be too high, and records of its partitions would be late. So the watermark waits
for the reply. A process that reads for another group never reads for this one, and the watermark does not wait for it. Source:
SEMANTICS W2, W10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.event_time.watermark import NOT_YET, Watermark, earliest


def unknown_sources(missing: Collection[str], others: Collection[str]) -> frozenset[str]:
    """Returns the processes without a reply that can read for the group.

    Args:
        missing: the processes that listen, and did not reply.
        others: the processes that have replied to an earlier request that they do not read for the group.

    >>> sorted(unknown_sources({"a", "b"}, {"b", "c"}))
    ['a']
    """
    return frozenset(missing) - frozenset(others)


def reported_watermark(
    replies: Mapping[str, Watermark], unknown: Collection[str], own: Collection[str] | None = None
) -> Watermark:
    """Returns the minimum of the watermarks of a group. ``NotYet`` if a reply is missing: then it is unknown.

    Args:
        replies: the watermark of each process that reads for the group.
        unknown: see :func:`unknown_sources`.
        own: processes that include the source of the stream. A source that has just ended has no reply, and the watermark
            of its partitions is unknown. ``None`` for the stream of another group.

    >>> from streamgroups.event_time.watermark import At
    >>> replies = {"a": At(5), "b": At(3)}
    >>> reported_watermark(replies, ()), reported_watermark(replies, {"c"})
    (At(time_ms=3), NotYet())
    >>> reported_watermark(replies, (), {"a"}), reported_watermark(replies, (), {"c"})
    (At(time_ms=3), NotYet())
    """
    is_without_own = own is not None and replies.keys().isdisjoint(own)
    return NOT_YET if unknown or is_without_own else earliest(*replies.values())
