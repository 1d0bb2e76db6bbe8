"""Separate processes for tests of transactions: a task that writes, and a driver that is killed.

Run as ``python -m integration_tests.transaction_process '{"do": "write", ...}'``. The transaction is pickled, as for
Spark's workers.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_kafka.write.encoder import EncodedBatch
from streamgroups_kafka.write.record_batches import BatchSettings, encode


def config_of(bootstrap: str) -> ClientConfig:
    """The connection settings."""
    return ClientConfig.from_options({"bootstrap.servers": bootstrap})


def encoded(
    transaction: OpenTransaction,
    topic: str,
    values: Iterable[tuple[int, str]],
    *,
    batch_bytes: int = 1 << 20,
    next_sequences: Mapping[int, int] | None = None,
) -> Sequence[EncodedBatch]:
    """Batches of values, by partition."""
    rows = list(values)
    records = pa.record_batch(
        {"partition": pa.array([p for p, _ in rows], pa.int32()), "value": [value for _, value in rows]}
    )
    return encode(
        records,
        BatchSettings(batch_bytes=batch_bytes),
        topic=topic,
        now_ms=time.time_ns() // 1_000_000,
        producer=transaction.producer,
        next_sequences=next_sequences,
    )


def write(
    bootstrap: str,
    transaction: OpenTransaction,
    topic: str,
    values: Iterable[tuple[int, str]],
    *,
    batch_bytes: int = 1 << 20,
    next_sequences: Mapping[int, int] | None = None,
    more: Iterable[tuple[int, str]] = (),
) -> dict[int, int]:
    """Writes values to partitions as one task does, then additional ones; returns the next sequence numbers."""
    batches = encoded(transaction, topic, values, batch_bytes=batch_bytes, next_sequences=next_sequences)
    sequences = {b.partition: b.next_sequence or 0 for b in batches}
    with closing(TransactionWriter(config_of(bootstrap), transaction)) as writer:
        for part in (batches, encoded(transaction, topic, more, batch_bytes=batch_bytes, next_sequences=sequences)):
            for rejected in writer.write(topic, part):
                raise rejected.error
    return sequences


def start(**requested: Any) -> subprocess.Popen[bytes]:
    """Starts this module in a new process."""
    command = [sys.executable, "-m", "integration_tests.transaction_process", json.dumps(requested)]
    return subprocess.Popen(command)


def packed(transaction: OpenTransaction) -> str:
    """A transaction as text."""
    return base64.b64encode(pickle.dumps(transaction)).decode()


def _main() -> None:
    requested = json.loads(sys.argv[1])
    bootstrap, topic = requested["bootstrap"], requested["topic"]
    if requested["do"] == "write":
        transaction = pickle.loads(base64.b64decode(requested["transaction"]))
        write(
            bootstrap,
            transaction,
            topic,
            [tuple(row) for row in requested["rows"]],
            batch_bytes=requested["batch_bytes"],
        )
    else:
        transaction = Transactions(config_of(bootstrap), requested["transactional_id"]).begin()
        write(bootstrap, transaction, topic, [(0, "of a killed driver")])
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _main()
