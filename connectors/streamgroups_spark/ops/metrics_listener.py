"""``sg.reports.MetricsListener``: exports metrics of the streaming queries of an application to Prometheus.

Added by users with ``spark.streams.addListener``. It exports the metrics of ``streamgroups metrics`` for the groups of
queries. Spark calls it on the thread of its listener bus, which all other listeners share. It therefore only records
events there, and calls neither Spark nor Kafka. Metrics are computed when Prometheus scrapes them. If the user
configures a cluster, a thread of ``ops.cluster_poller`` polls it. Source: Spark's ``StreamingQueryListener``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.monitoring.member_metrics import flight_metrics, state_metrics, unreadable_metrics, waiting_metrics
from streamgroups.monitoring.metrics import (
    QUERY_GROUP_LABELS,
    gap_metrics,
    group_metrics,
    output_metrics,
    partition_metrics,
    query_group,
    query_metrics,
)
from streamgroups.monitoring.queries import Queries
from streamgroups.monitoring.query_progress import cause_of, read_progress, read_time_ms
from streamgroups.option_values import folded, without_prefix
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_spark.bridge.rpc import request_all
from streamgroups_spark.bridge.user_process import OUTPUT, UNREADABLE
from streamgroups_spark.messages.batch import Figures, FiguresRequest
from streamgroups_spark.ops.cluster_poller import ClusterPoller, connector
from streamgroups_spark.ops.processor_names import PROCESSORS
from streamgroups_spark.session import SESSION

logger = logging.getLogger(__name__)

#: Prometheus waits 10 s for all metrics of the application. Those of a stopped process are not worth the others.
_FIGURES_TIMEOUT_S = 2.0


class MetricsListener(StreamingQueryListener):
    """Exports metrics of the streaming queries of a Spark application to Prometheus.

    ``docs/metrics.rst`` lists the metrics.

    Args:
        registry: the registry of the metrics. Default: the default registry of Prometheus, or a separate one if a port
            is given.
        port: the port for Prometheus. 0 selects a free one. Default: no server, for programs that serve the registry
            themselves.
        host: the address of the server.
        bootstrap_servers: the cluster to poll for facts that Spark does not have: members and state of the groups,
            committed offsets, earliest offsets, timestamps. Default: no connection to Kafka.
        settings: more client settings for this connection, by Java's or librdkafka's names.
        interval_s: the seconds between two polls.
        window_s: the period of offset samples, in seconds, from which lag states are determined. At least half of it
            must be sampled.

    Raises:
        InvalidOption: if the port is in use, a setting is invalid, or the registry already contains these metrics.

    Example::

        metrics = sg.reports.MetricsListener(port=9309)
        spark.streams.addListener(metrics)
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        bootstrap_servers: str | None = None,
        settings: Mapping[str, str] | None = None,
        interval_s: float = 15.0,
        window_s: float = 300.0,
    ) -> None:
        if min(interval_s, window_s) <= 0:
            raise InvalidOption(
                "interval_s and window_s must be greater than 0.", remedy="Leave them out: the defaults are 15 and 300."
            )
        if settings and bootstrap_servers is None:
            raise InvalidOption(
                "Settings for a cluster require bootstrap_servers.",
                remedy="Pass bootstrap_servers, or remove the settings.",
            )
        window_ms = round(window_s * 1000)
        self._recorded = _RecordedQueries(window_ms)
        self._polls: ClusterPoller | None = None
        if bootstrap_servers is not None:
            given = folded((name, str(it)) for name, it in without_prefix((settings or {}).items()))
            config = ClientConfig.from_options({**given, "bootstrap.servers": bootstrap_servers})
            self._polls = ClusterPoller(connector(config, window_ms=window_ms), interval_s=interval_s)
        self._registry = registry or (REGISTRY if port is None else CollectorRegistry())
        self._collector = _QueryCollector(self._recorded, self._polls)
        self._server: Any = None
        self._closed = False
        try:
            self._registry.register(self._collector)
        except ValueError:
            raise InvalidOption(
                "The registry already contains these metrics.",
                remedy="Add one MetricsListener to all sessions, or pass a separate registry to each.",
            ) from None
        if port is not None:
            try:
                self._server, self._server_thread = start_http_server(port, host, self._registry)
            except (OSError, OverflowError) as e:
                self.close()
                raise InvalidOption(
                    f"Metrics cannot be served at {host}:{port}: {getattr(e, 'strerror', None) or e}.",
                    remedy="Choose another port; 0 selects a free one.",
                ) from None
        if self._polls is not None:
            self._polls.start()

    @property
    def address(self) -> str | None:
        """The address of the server for Prometheus, as ``host:port``. ``None`` without a server."""
        return None if self._server is None else "{}:{}".format(*self._server.server_address[:2])

    def close(self) -> None:
        """Stops the server and the polls, and removes the metrics from the registry. Idempotent.

        Remove the listener from its sessions first (``spark.streams.removeListener``). A program that exits need not
        call this.
        """
        if self._closed:
            return
        self._closed = True
        self._registry.unregister(self._collector)
        if self._polls is not None:
            self._polls.stop()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server_thread.join()

    def __enter__(self) -> MetricsListener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- called by Spark ---------------------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Records that a query was started."""
        self._record(lambda queries, now_ms: queries.started(str(event.id), str(event.runId), event.name, now_ms))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Records the progress of a batch."""
        self._record(lambda queries, now_ms: queries.progressed(read_progress(event.progress.json), now_ms))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Records that no records were available."""
        self._record(
            lambda queries, now_ms: queries.idle(str(event.id), str(event.runId), read_time_ms(event.timestamp), now_ms)
        )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Removes a query, and counts it if it failed."""
        self._record(
            lambda queries, _: queries.terminated(
                str(event.id), str(event.runId), cause_of(event.exception, event.errorClassOnException)
            )
        )

    def _set_spark_session(self, session: Any) -> None:
        """Rejects a session of Spark Connect. Only such a session calls this method when the listener is added."""
        raise InvalidOption(
            "MetricsListener was added to a Spark Connect session, which streamgroups does not support.",
            remedy="Add it on the driver, to a session that was created without remote().",
        )

    def _record(self, change: Callable[[Queries, int], None]) -> None:
        group_ids = self._recorded.record(change)
        if self._polls is not None:
            self._polls.poll_soon(group_ids)


class _RecordedQueries:
    """The state from Spark's events.

    The thread of the listener bus writes it, and the threads of Prometheus requests read it.
    """

    def __init__(self, window_ms: int) -> None:
        self._lock = threading.Lock()
        self._queries = Queries(window_ms=window_ms, processors=PROCESSORS)
        self._errors = 0

    def record(self, change: Callable[[Queries, int], None]) -> frozenset[str]:
        """Records an event. Returns the groups that queries now read for.

        Raises nothing: an exception would only reach Spark's log, and monitoring must not harm the queries.
        """
        with self._lock:
            try:
                change(self._queries, now_ms())
            except Exception:
                self._errors += 1
                logger.warning("An event of a streaming query could not be parsed", exc_info=self._errors == 1)
            return self._queries.group_ids

    def now(self) -> tuple[Queries, int]:
        """Returns a copy of the queries, and the number of events that could not be parsed."""
        with self._lock:
            return self._queries.copy(), self._errors


class _QueryCollector(Collector):
    """Provides the metrics of the queries to Prometheus."""

    def __init__(self, recorded: _RecordedQueries, polls: ClusterPoller | None) -> None:
        self._recorded, self._polls = recorded, polls

    def describe(self) -> Iterator[Metric]:
        """Yields the metrics, so that a registry rejects a second collector of them."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yields the current values of all metrics."""
        recorded, errors = self._recorded.now()
        queries = recorded.watched(now_ms())
        polled = {} if self._polls is None else self._polls.groups
        groups = [query_group(q, g, polled.get(g.group_id)) for q in queries for g in q.groups]
        yield from query_metrics(queries, recorded.failures)
        yield from output_metrics(OUTPUT.letters(), OUTPUT.statements(), queries)
        figures = _figures_of_sources()
        yield from flight_metrics([it.flight for it in figures if it.flight is not None], queries)
        yield from state_metrics([it.states for it in figures if it.states is not None], queries)
        yield from waiting_metrics([it.waiting for it in figures if it.waiting is not None], queries)
        yield from unreadable_metrics(UNREADABLE.all(), queries)
        yield from group_metrics(groups, QUERY_GROUP_LABELS)
        yield from partition_metrics(groups, QUERY_GROUP_LABELS)
        yield from gap_metrics(groups, QUERY_GROUP_LABELS)
        yield CounterMetricFamily(
            "streamgroups_query_event_errors", "Events of queries that could not be parsed.", value=errors
        )
        if self._polls is not None:
            yield from self._polls.metrics()


def _figures_of_sources() -> list[Figures]:
    try:
        return request_all(SESSION, FiguresRequest(), timeout_s=_FIGURES_TIMEOUT_S)
    except (StreamGroupsError, OSError) as e:
        logger.debug("The sources do not report their figures: %s", e)
        return []
