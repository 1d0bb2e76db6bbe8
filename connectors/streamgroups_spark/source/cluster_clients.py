"""Creates the clients of the cluster that the options of a source name.

Called by ``source.readers`` before it imports the rest of a running query, and by ``sinks.exactly_once``.
"""

from __future__ import annotations

from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_spark.source.source_options import SourceOptions


def cluster_of(options: SourceOptions) -> KafkaCluster:
    """Returns the cluster of a source.

    Args:
        options: the options of the source.

    Raises:
        InvalidOption: if librdkafka rejects the configuration.
    """
    return KafkaCluster(
        options.client,
        read_committed=options.client.isolation_level == "read_committed",
        attempts=options.attempts,
        retry_interval_ms=options.retry_interval_ms,
    )
