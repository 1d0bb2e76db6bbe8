"""A user without permission for a transactional id or a topic gets an error that names the permission, and no partial
output is visible.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.secured_brokers import LOGIN, Listeners
from integration_tests.test_kafka_sink_is_exactly_once import run
from integration_tests.test_one_transaction_of_many_processes import assert_values
from integration_tests.transaction_process import config_of, encoded
from streamgroups.errors import NotAuthorized, UnknownTopic
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, read_committed


@pytest.fixture(scope="module")
def listeners(secured: Listeners) -> Listeners:
    """A broker with a topic, and a user ann without permissions for it."""
    admin = AdminClient({"bootstrap.servers": secured.plain})
    admin.create_topics([NewTopic("target", 1, 1)])["target"].result(30)
    return secured


def test_each_missing_permission_is_named(listeners: Listeners) -> None:
    ann = ClientConfig.from_options({"bootstrap.servers": listeners.login, **LOGIN})
    with closing(Transactions(ann, "x")) as anns, closing(Transactions(config_of(listeners.plain), "x")) as somebodys:
        with pytest.raises(NotAuthorized, match=r"transactional id 'x'.*Grant Write on TransactionalId 'x'"):
            anns.begin()
        transaction = somebodys.begin()
        with closing(TransactionWriter(ann, transaction)) as writer:
            with pytest.raises(NotAuthorized, match="TransactionalId"):
                writer.write("target", encoded(transaction, "target", [(0, "never")]))
            listeners.allow("ann", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")
            listeners.allow("ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "target")
            with pytest.raises(NotAuthorized, match=r"topic 'target'.*Grant Write on Topic 'target'"):
                writer.write("target", encoded(transaction, "target", [(0, "never")]))
        somebodys.abort(transaction)
        listeners.allow("ann", AclOperation.WRITE, ResourceType.TOPIC, "target")
        with closing(TransactionWriter(ann, transaction := anns.begin())) as writer:
            writer.write("target", encoded(transaction, "target", [(0, "ann's")]))
        anns.commit(transaction)
    assert_values(listeners.plain, "target", {0: ["ann's"]})


@pytest.mark.long
def test_a_query_without_permissions_names_them_and_resumes_once_it_has_them(
    listeners: Listeners, spark: SparkSession, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": listeners.plain})
    for made in admin.create_topics([NewTopic("departures", 1, 1), NewTopic("reports", 1, 1)]).values():
        made.result(30)
    produce(listeners.plain, "departures", 50, partitions=1)
    options = {"kafka.bootstrap.servers": listeners.plain, "subscribe": "departures", "group.id": "board-writers"}
    records = spark.readStream.format("streamgroups").options(**options, startingOffsets="earliest").load()
    sink = sg.KafkaSink(
        bootstrap_servers=listeners.login, topic="reports", transactional_id="board-writer", settings=LOGIN
    )

    def write() -> None:
        run(sg.exactly_once(records.select("value"), sink=sink, checkpoint=str(tmp_path / "checkpoint")))

    # Kafka hides a topic that a user may not describe.
    with pytest.raises(UnknownTopic, match=r"Topic 'reports' does not exist.*Grant Write on Topic 'reports'"):
        write()
    listeners.allow("ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "reports")
    with pytest.raises(
        NotAuthorized, match=r"transactional id 'board-writer'.*Grant Write on TransactionalId 'board-w"
    ):
        write()
    listeners.allow("ann", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "board-writer")
    with pytest.raises(StreamingQueryException, match=r"topic 'reports'.*Grant"):
        write()
    listeners.allow("ann", AclOperation.WRITE, ResourceType.TOPIC, "reports")
    with pytest.raises(StreamingQueryException, match=r"group 'board-writers'.*Grant Read"):
        write()
    assert not read_committed(listeners.plain, "reports")
    assert not any(committed_offsets(listeners.plain, "board-writers", "departures").values())
    listeners.allow("ann", AclOperation.READ, ResourceType.GROUP, "board-writers")
    with pytest.raises(StreamingQueryException, match=r"topic 'departures'.*Grant Read"):
        write()
    listeners.allow("ann", AclOperation.READ, ResourceType.TOPIC, "departures")
    write()
    assert len(read_committed(listeners.plain, "reports")) == 50
