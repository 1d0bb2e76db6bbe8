"""``sg.write(df, sink=...)``: writes a batch DataFrame to Kafka in one transaction.

Called by users on the driver, also in ``foreachBatch``. Spark calls a Python writer without a shuffle before it, but in a
transaction only one task may write to a partition. This function adds the shuffle of ``sg.exactly_once``, and
``sinks.kafka_batch`` writes. Source: SEMANTICS X1; KIP-98.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_spark.internals.active_session import session_active
from streamgroups_spark.session import parallelism_of, require_registered
from streamgroups_spark.sinks.exactly_once import KafkaSink, disjoint
from streamgroups_spark.sinks.kafka_batch import new_transactional_id
from streamgroups_spark.sinks.killed_runs import check_transactions
from streamgroups_spark.sinks.sink_options import TASKS, Delivery, check_output_schema, parse_sink


def write(df: DataFrame, *, sink: KafkaSink) -> None:
    """Writes a batch DataFrame to Kafka, and returns when all rows are committed.

    The rows are one Kafka transaction: readers of committed records see all of them or none. A second call writes them
    again (SEMANTICS X1).

    Args:
        df: a batch DataFrame with the columns of Spark's Kafka sink, also the argument of a function of
            ``foreachBatch``.
        sink: the topics. Without ``transaction_timeout`` the broker aborts the transaction after 15 minutes.

    Raises:
        InvalidOption: if ``df`` is a stream, a column is missing or of a wrong type, ``sink`` is another sink, or the broker
            does not allow its transaction timeout.
        UnknownTopic: if the topic does not exist.
        StreamGroupsError: if the cluster does not respond or rejects a request.

    Example::

        delays = sg.KafkaSink(bootstrap_servers="localhost:9092", topic="delays")
        sg.write(airports.select("key", "value"), sink=delays)
    """
    require_registered("sg.write", df)
    _check(df, sink)
    given = {**sink.options, TASKS: str(parallelism_of(df.sparkSession))}
    options = parse_sink(given, streaming=False)
    check_output_schema(df.schema, options)
    if options.delivery is Delivery.EXACTLY_ONCE:
        cluster = KafkaCluster(options.client, read_committed=True, request_subscriptions=False)
        df = disjoint(df, options, cluster.topics(), with_letters=False)
        # An error here is raised as it is. Spark would print the traceback of a planning process, and raise another one.
        transactional_id = options.transactional_id or new_transactional_id()
        check_transactions(options, transactional_id)
        given = {**given, "kafka.transactional.id": transactional_id}
    with session_active(df.sparkSession):
        df.write.format("streamgroups").options(**given).mode("append").save()


def _check(df: DataFrame, sink: object) -> None:
    if not isinstance(sink, KafkaSink):
        raise InvalidOption(
            f"'sink' is {type(sink).__name__}, but sg.write writes to Kafka only.",
            remedy="Pass sg.KafkaSink. For other systems use df.write with their own formats, such as jdbc or delta.",
        )
    if df.isStreaming:
        raise InvalidOption(
            "The DataFrame is a stream.", remedy="Use sg.exactly_once(df, sink=..., checkpoint=...).start()."
        )
    if COLUMN in df.columns:
        raise InvalidOption(
            f"The rows have the column '{COLUMN}', and a batch write has no sink of dead letters.",
            remedy=f"Write df.where('{COLUMN} IS NULL').drop('{COLUMN}'), and the other rows with a second call whose "
            "column 'value' contains the reason.",
        )
