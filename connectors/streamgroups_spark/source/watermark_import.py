"""Assembles the imported watermark of a query, and rejects an import that the query cannot use.

Called by ``source.running_query`` before the first batch. Source: SEMANTICS W10.
"""

from __future__ import annotations

from streamgroups.errors import InvalidOption
from streamgroups.query.available_offsets import Start
from streamgroups.query.imported_time import ImportedTime, StoredWatermarks
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.clock import SteadyClock
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.source.source_options import SourceOptions

#: How long a read of another group is retried.
_RETRY_TIMEOUT_S = 5.0


def imported_time(
    options: SourceOptions, facts: QueryFacts | None, cluster: KafkaCluster, start: Start
) -> ImportedTime | None:
    """Returns the imported watermark of a query; ``None`` if it imports no watermark.

    Args:
        options: the options of the stream.
        facts: the facts about the query; ``None`` if they are unknown.
        cluster: the topics and groups of the cluster.
        start: runs a job in the background.

    Raises:
        InvalidOption: see :func:`import_of`.
    """
    import_from = None if facts is None else import_of(options, facts)
    if facts is None or import_from is None:
        return None
    clock, idle_timeout_ms, generates = SteadyClock(), options.partition_idle_timeout_ms, True
    if facts.time is not None:
        idle_timeout_ms = facts.time.settings.partition_idle_timeout_ms
        generates = facts.time.settings.has_own_watermark
    # A store of its own: a request about another group must not delay those about this one.
    store = KafkaMetadataStore(options.client, retry_timeout_s=_RETRY_TIMEOUT_S)
    reader = StoredWatermarks(cluster, store, clock, idle_timeout_ms)
    return ImportedTime(
        str(options.group_id), import_from, reader.read, reader.close, clock, start, generates=generates
    )


def import_of(options: SourceOptions, facts: QueryFacts) -> str | None:
    """Returns the group whose watermark a query imports; ``None`` if it imports no watermark.

    Args:
        options: the options of the stream.
        facts: the facts about the query.

    Raises:
        InvalidOption: if the stream has the option, and the query has no operator of this library with event time.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "prices", "subscribe": "t", "kafka.bootstrap.servers": "broker:9092", "importFrom": "trades"}
    >>> parsed = parse(options, streaming=True)
    >>> import_of(parsed, QueryFacts(None, frozenset(), stages=frozenset({("windows",)})))
    'trades'
    >>> import_of(parsed, QueryFacts(None, frozenset()))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'importFrom' of group 'prices' has no effect: its query uses neither sg.with_event_time \
nor sg.windows with time='group'. Use one of them, or leave 'importFrom' out.
    """
    if facts.time is not None:
        return facts.time.settings.import_from
    if options.import_from is not None and not facts.stages:
        raise InvalidOption(
            f"Option 'importFrom' of group '{options.group_id}' has no effect: its query uses neither "
            "sg.with_event_time nor sg.windows with time='group'.",
            remedy="Use one of them, or leave 'importFrom' out.",
        )
    return options.import_from
