"""The Prometheus metrics of the processors of an instance, from its topic.

``streamgroups metrics --instance`` exports them beside those of :mod:`streamgroups.monitoring.metrics`. Workers write the progress
of their queries into the topic. A processor without a running replica has no lag, watermark, rate or duration. Source:
SEMANTICS O3, P2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from streamgroups.groups.lag import maximum, total
from streamgroups.instances.entries import Observed, Progress, group_of
from streamgroups.instances.overview import ReplicaView
from streamgroups.monitoring.metrics import MS_PER_S

_STATES = ("defined", *(it.value for it in Observed))
_OF_BATCHES: Mapping[str, tuple[str, Callable[[list[Progress]], float | None]]] = {
    "lag_records": (
        "Available records that the running replicas have not read.",
        lambda found: total([it.lag for it in found]),
    ),
    "watermark_timestamp_seconds": (
        "Earliest event-time watermark of the running replicas.",
        lambda found: min((it.watermark_ms / MS_PER_S for it in found if it.watermark_ms is not None), default=None),
    ),
    "processed_rows_per_second": (
        "Processing rate of the last batches of the running replicas.",
        lambda found: sum(it.rows_per_s for it in found),
    ),
    "batch_duration_seconds": (
        "Longest duration of the last batch of a running replica.",
        lambda found: _seconds(maximum([it.duration_ms for it in found])),
    ),
}


def processor_metrics(instance: str, replicas: Iterable[ReplicaView]) -> Iterator[Metric]:
    """Yields the metrics of the processors of an instance. Their label ``processor`` is ``<instance>.<name>``.

    Args:
        instance: the name of the instance.
        replicas: the replicas of its processors.

    >>> from streamgroups.instances.entries import Replica
    >>> running = ReplicaView(Replica("late", 0), "running", progress=Progress(7, 200, 30))
    >>> [float(it.value) for metric in processor_metrics("board", [running]) for it in metric.samples if it.value]
    [1.0, 30.0, 200.0]
    """
    by_processor: dict[str, list[ReplicaView]] = {}
    for view in replicas:
        by_processor.setdefault(group_of(instance, view.replica.processor), []).append(view)
    states = GaugeMetricFamily(
        "streamgroups_processor_replicas", "Replicas of the processor by state.", labels=["processor", "state"]
    )
    for processor, views in by_processor.items():
        counted = Counter(it.state for it in views)
        for state in _STATES:
            states.add_metric([processor, state], counted[state])
    yield states
    for name, (text, value_of) in _OF_BATCHES.items():
        gauge = GaugeMetricFamily(f"streamgroups_processor_{name}", text, labels=["processor"])
        for processor, views in by_processor.items():
            found = [it.progress for it in views if it.progress is not None]
            value = value_of(found) if found else None
            if value is not None:
                gauge.add_metric([processor], value)
        yield gauge


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / MS_PER_S
