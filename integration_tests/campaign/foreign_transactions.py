"""Aborted and hanging transactions of another producer on the input of a campaign. Used by ``campaign.cluster_faults``.

The queries read committed records only. So no record of these transactions may be in the output: their values begin with a word, and
those of the campaign are numbers. Source: KIP-98; SEMANTICS S4.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from functools import partial

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from integration_tests.campaign.targets import patiently
from integration_tests.campaign.windows import PARTITIONS
from streamgroups_testkit.waits import wait_until

#: How long a transaction hangs: its timeout, after which the broker aborts it.
HANGING_S = 15
#: The timeout of a transaction that its producer aborts.
_ABORT_S = 60
#: The shortest time for which the last stable offset must stay.
MIN_HANGING_S = 10.0
#: The records of a transaction in each partition.
N_RECORDS = 20
_ABORTED, _HANGING = "aborted", "hanging"


def foreign_values(values: Iterable[str]) -> list[str]:
    """The values that are not a number of the campaign's producer.

    >>> foreign_values(["7", "aborted-3", "12"])
    ['aborted-3']
    """
    return [it for it in values if not it.isdigit()]


class ForeignTransactions:
    """Transactions on a topic that are never committed.

    Args:
        bootstrap: the broker.
        topic: the topic.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._n = 0
        #: The number of their records that the brokers have acknowledged.
        self.n_aborted = 0
        #: How long the last stable offsets stayed, in seconds.
        self.hung_s = 0.0

    def abort(self) -> None:
        """Writes records to all partitions in a transaction, and aborts it.

        Raises:
            AssertionError: if the brokers did not acknowledge the records.
        """
        producer = self._begun(_ABORT_S)
        self.n_aborted += self._write(producer, _ABORTED)
        producer.abort_transaction(30)

    def hang(self) -> None:
        """Writes records to all partitions in a transaction that stays open until its timeout.

        Raises:
            AssertionError: if the brokers did not acknowledge the records, the last stable offsets did not stay, or the transaction is
                open too long.
        """
        producer = self._begun(HANGING_S)
        self.n_aborted += self._write(producer, _HANGING)
        stable, began_s = self._ends(IsolationLevel.READ_COMMITTED), time.monotonic()
        assert all(n < self._ends(IsolationLevel.READ_UNCOMMITTED)[p] for p, n in stable.items()), (
            "no transaction is open"
        )
        wait_until(
            lambda: self._ends(IsolationLevel.READ_COMMITTED) != stable, "the open transaction was aborted", 60, 0.5
        )
        took_s = time.monotonic() - began_s
        assert took_s >= MIN_HANGING_S, f"the transaction was open for {took_s:.1f} s only"
        self.hung_s += took_s
        # The transaction of this client is aborted, so the client has nothing to send.
        producer.purge()

    def _begun(self, timeout_s: int) -> Producer:
        self._n += 1
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"foreign-{uuid.uuid4().hex[:8]}",
                "transaction.timeout.ms": timeout_s * 1_000,
                # The messages of a transaction have the same limit.
                "message.timeout.ms": timeout_s * 1_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        return producer

    def _write(self, producer: Producer, word: str) -> int:
        n_acknowledged = 0

        def delivered(error: object, _: object) -> None:
            nonlocal n_acknowledged
            n_acknowledged += error is None

        for i in range(N_RECORDS * PARTITIONS):
            p = i % PARTITIONS
            producer.produce(self._topic, f"{word}-{self._n}-{i}", f"{p}-{word}", p, on_delivery=delivered)
        producer.flush(30)
        assert n_acknowledged == N_RECORDS * PARTITIONS, f"{n_acknowledged} records of a transaction were acknowledged"
        return n_acknowledged

    def _ends(self, level: IsolationLevel) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        requested = {TopicPartition(self._topic, p): latest for p in range(PARTITIONS)}

        def found() -> dict[int, int]:
            offsets = admin.list_offsets(requested, isolation_level=level)
            return {tp.partition: it.result(30).offset for tp, it in offsets.items()}

        return patiently(partial(found))
