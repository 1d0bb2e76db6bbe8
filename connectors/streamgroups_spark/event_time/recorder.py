"""``sg.reports.record_time(query)``: records the event time of a running query for a report.

Called by users on the driver. A thread reads the progress of the query, and requests the watermarks of its sources by
driver RPC (``bridge.rpc``). :mod:`streamgroups_admin.reports.event_time` renders the report. Source: SEMANTICS W1-W3;
Spark's ``StreamingQueryProgress``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pyspark.sql.streaming.query import StreamingQuery

from streamgroups.errors import InvalidOption
from streamgroups.event_time.watermark import NOT_YET
from streamgroups.monitoring.query_progress import QueryProgress, read_progress
from streamgroups_admin.reports.clocks import parse_clock
from streamgroups_admin.reports.event_time import Moment, time_chart, time_page
from streamgroups_admin.reports.html_page import in_frame
from streamgroups_kafka.client.clock import now_ms
from streamgroups_spark.bridge.rpc import request_all
from streamgroups_spark.event_time.explain import check_kept_progress, readers_in
from streamgroups_spark.messages.time import TimeReply, TimeRequest
from streamgroups_spark.session import SESSION

logger = logging.getLogger(__name__)

#: The limit of recorded moments. Only the latest ones of a long query are kept.
_MAX_MOMENTS = 20_000


class TimeRecorder:
    """Records until it is closed or the query ends. Created by :func:`record_time`.

    Args:
        query: a running query.
        interval_s: the seconds between two samples.
        request_source: requests the watermark of a group's stream.
    """

    def __init__(
        self,
        query: StreamingQuery,
        *,
        interval_s: float = 0.5,
        request_source: Callable[[TimeRequest], list[TimeReply]] = lambda question: request_all(SESSION, question),
    ) -> None:
        if interval_s <= 0:
            raise InvalidOption("interval_s must be greater than 0.", remedy="Leave it out: the default is 0.5.")
        self._query, self._interval_s, self._request_source = query, interval_s, request_source
        self._moments: deque[Moment] = deque(maxlen=_MAX_MOMENTS)
        self._next_batch_id = 0
        self._watermark_ms: int | None = None
        self._readers: list[tuple[str, str | None]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamgroups-time-recorder", daemon=True)
        self._thread.start()

    @property
    def moments(self) -> list[Moment]:
        """The recorded moments, in order of time."""
        with self._lock:
            return sorted(self._moments, key=lambda it: it.time_ms)

    def write_html(self, path: str | Path, *, clock: str = "utc") -> None:
        """Writes an HTML page with the recording. It loads no other files, so it can be sent to other people.

        Args:
            path: the file, which is replaced.
            clock: how the page shows times: ``utc``, ``local`` for the time zone of this machine, or ``elapsed`` for the
                seconds since the beginning.

        Raises:
            InvalidOption: if there is no such clock.
            OSError: if the file cannot be written.
        """
        html = time_page(self.moments, title=self._title, clock=parse_clock(clock))
        Path(path).write_text(html, encoding="utf-8")

    def write_svg(self, path: str | Path, *, clock: str = "utc") -> None:
        """Writes the chart as an image, for a README or a ticket. The arguments are those of :meth:`write_html`."""
        image = time_chart(self.moments, parse_clock(clock)).image(self._title)
        Path(path).write_text(image, encoding="utf-8")

    def _repr_html_(self) -> str:
        """A notebook displays the recording so far."""
        moments = self.moments
        return in_frame(time_page(moments, title=self._title), height_px=time_chart(moments).height_px)

    @property
    def _title(self) -> str:
        return f"Event time of {self._query.name or 'the query'}"

    def close(self) -> None:
        """Stops recording. The recorded moments remain."""
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> TimeRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- its own thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_active = True
        while is_active:
            # One more sample after the end contains the last batch.
            is_active = not self._closed.wait(self._interval_s) and self._query.isActive
            try:
                self._poll()
            except Exception as e:
                # A failed sample must never harm the query.
                logger.warning("The event time of query %s could not be sampled: %s", self._query.id, e)

    def _poll(self) -> None:
        for progress in self._query.recentProgress:
            if progress["batchId"] < self._next_batch_id:
                continue
            parsed = read_progress(progress.json)
            self._next_batch_id = parsed.batch_id + 1
            self._watermark_ms = parsed.watermark_ms or self._watermark_ms
            self._readers = readers_in(progress)
            self._add(batch_moment(parsed, self._watermark_ms))
        requests = [TimeRequest(group_id, NOT_YET, cluster_id=cluster_id) for group_id, cluster_id in self._readers]
        replies = [reply for request in requests for reply in self._request_source(request)]
        if replies:
            self._add(source_moment(replies, self._watermark_ms))

    def _add(self, moment: Moment) -> None:
        with self._lock:
            self._moments.append(moment)


def record_time(query: StreamingQuery, *, interval_s: float = 0.5) -> TimeRecorder:
    """Records the event time of a running query: of its partitions, its watermark, late records and closed windows.

    Args:
        query: a running query of this session. Partitions are recorded for streams with :func:`with_event_time`.
        interval_s: the seconds between two samples.

    Returns:
        The recorder. It ends with the query, or when it is closed.

    Raises:
        InvalidOption: if the interval is not greater than 0, or Spark keeps no progress of the query.

    Example::

        with sg.reports.record_time(query) as recorded:
            query.awaitTermination(600)
        recorded.write_html("time.html")
    """
    check_kept_progress(query, "sg.reports.record_time")
    return TimeRecorder(query, interval_s=interval_s)


def batch_moment(progress: QueryProgress, watermark_ms: int | None) -> Moment:
    """Returns the moment of a batch.

    Args:
        progress: its progress from Spark.
        watermark_ms: the watermark of the batch.
    """
    ended_ms = progress.trigger_ms + (progress.duration_ms or 0)
    return Moment(ended_ms, watermark_ms, late=progress.late_records, closed=progress.closed_windows)


def source_moment(replies: list[TimeReply], watermark_ms: int | None) -> Moment:
    """Returns the moment of the event times of all partitions."""
    times = [(tp, partition, it.settings) for it in replies for tp, partition in it.state.partitions.items()]
    return Moment(
        now_ms(),
        watermark_ms,
        {tp: partition.event_time_ms for tp, partition, _ in times},
        frozenset(tp for tp, partition, of in times if partition.is_idle(of.partition_idle_timeout_ms)),
    )
