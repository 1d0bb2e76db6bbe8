"""The start of a Kafka sink: aborts what a killed run has left open, and checks the permissions.

Called by ``sinks.exactly_once`` and ``sinks.batch_write``. Source: KIP-98 (``InitProducerId`` fences an earlier producer); SEMANTICS X3.
"""

from __future__ import annotations

import uuid
from contextlib import closing

from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_spark.sinks.batch_info import query_id_of
from streamgroups_spark.sinks.kafka import transactional_id_of
from streamgroups_spark.sinks.sink_options import SinkOptions


def fence_killed_run(options: SinkOptions, group_id: str, checkpoint: str, *, is_alone: bool) -> None:
    """Aborts the open transaction of a killed run, and checks that the user may write.

    Otherwise the source would wait until the transaction times out. An exclusive query does nothing while the group has a
    member, because a rejected query must not disturb it. A checkpoint without an id is new or was lost. Only its generation
    then fences an earlier run, and the check uses a new id.

    Args:
        options: the options of the sink.
        group_id: the group of its no-data batches.
        checkpoint: the checkpoint of the query.
        is_alone: whether the query is the only one of its group.

    Raises:
        SinkUnreachable: if the checkpoint cannot be read. Otherwise the first batch would fail.
        InvalidOption: if the broker does not allow the transaction timeout.
        StreamGroupsError: if the cluster does not respond, or this user is not authorized to use the id.
    """
    query_id = query_id_of(checkpoint)
    if is_alone:
        cluster = KafkaCluster(options.client, read_committed=True, request_subscriptions=False)
        if cluster.describe(group_id).members:
            return
    transactional_id = options.transactional_id
    if transactional_id is None:
        transactional_id = transactional_id_of(group_id, query_id or f"new-{uuid.uuid4()}")
    check_transactions(options, transactional_id)


def check_transactions(options: SinkOptions, transactional_id: str) -> None:
    """Checks that the broker accepts transactions with this id, and aborts an open one.

    Called by ``sinks.batch_write`` too.

    Raises:
        InvalidOption: if the broker does not allow the transaction timeout.
        StreamGroupsError: if the cluster does not respond, or this user is not authorized to use the id.
    """
    with closing(
        Transactions(options.client, transactional_id, timeout_ms=options.transaction_timeout_ms)
    ) as transactions:
        transactions.abort(transactions.begin())
