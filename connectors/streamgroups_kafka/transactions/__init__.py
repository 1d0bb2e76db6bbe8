"""Kafka transactions that span a micro-batch.

librdkafka cannot share a transaction between processes. So ``streamgroups_kafka`` implements Kafka's protocol for
transactions (``kafka.protocol``):

.. code-block:: mermaid

    sequenceDiagram
        participant Driver
        participant Task
        participant Broker
        Driver->>Broker: InitProducerId: new epoch, earlier runs are fenced
        Driver->>Task: producer id and epoch
        Task->>Broker: DescribeTransactions
        Task->>Broker: AddPartitionsToTxn, Produce
        Task-->>Driver: partitions and sequence numbers
        Driver->>Broker: AddOffsetsToTxn, TxnOffsetCommit (generation)
        Driver->>Broker: EndTxn

The driver calls ``Transactions.begin``, ``commit_offsets`` and ``commit``; tasks call ``TransactionWriter.write`` with
output partitions of their own. The transactional id belongs to one run at a time. An exclusive query uses the id of its
group, with any checkpoint. A shared query adds the id of its checkpoint, because other members of its group write at
the same time. Spark writes this id (``metadata``) before the first batch.

Two mechanisms fence zombies:

* **Producer epoch.** Each batch has its own epoch, so a late write of a slow task or of a replaced run is rejected.
* **Generation.** ``ConsumerGroupMetadata`` contains the consumer group metadata (``Consumer.consumer_group_metadata()``). A fenced
  member cannot commit its offsets, and without the offsets the transaction does not commit. The broker checks the
  generation and not the partitions. So the caller checks that the member still owns them when it takes the metadata.

The offsets of the group have two writers: the sink in its transaction, and the member. The member commits positions
without output, and after a pause its current positions, to verify that it is still in the group. A commit of the member
after that of the sink would move the committed offsets back. So the source returns no group metadata to a sink while a
commit of the member is in progress. From then on the member commits nothing of that batch
(``MemberState.snapshot_to_commit``).

A task can send a record batch repeatedly, because the broker deduplicates it by its sequence number. One record batch
of each partition is in flight at a time. ``streamgroups_kafka/transactions/transaction_errors`` maps each error to an action:
retry, abort, stop because a newer run exists, or fail. If the response to a commit is lost and a retry does not clarify
it, the sink raises ``SinkUnreachable``. The stable offsets of the group show whether the batch is committed.

The requests are those of KIP-98 (Produce up to version 11, TxnOffsetCommit and EndTxn up to 4), which brokers 3.0 and
newer support. The second part of KIP-890 is not used (Produce 12, TxnOffsetCommit and EndTxn 5, with
``transaction.version`` 2 in the cluster). With it, clients omit the two requests that add partitions and offsets, and
get a new epoch with each EndTxn.
"""
