"""X2, X3: what Kafka's own client and the broker do if requests and responses are lost or repeated.

The campaigns inject these faults with the same proxy. So these tests verify that they really happen, with a client that shares no
code with this library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from integration_tests.protocol_proxy import ProtocolProxy
from integration_tests.protocol_rules import Action, ApiKey, Rule
from streamgroups_testkit.reading import read_committed
from streamgroups_testkit.waits import wait_until

RECORDS = 50


def write(producer: Producer, topic: str) -> None:
    """Writes the records, and waits until all of them are acknowledged."""
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, _: Message) -> None:
        errors.extend([] if error is None else [error])

    for n in range(RECORDS):
        producer.produce(topic, str(n), partition=0, on_delivery=report)
    assert (producer.flush(60), errors) == (0, [])


def values(bootstrap: str, topic: str) -> Counter[str]:
    return Counter(message.value.decode() for message in read_committed(bootstrap, topic))


@pytest.mark.parametrize("key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.END_TXN])
@pytest.mark.parametrize("action", Action)
def test_a_transaction_commits_exactly_once(
    bootstrap: str, new_topic: Callable[..., str], key: ApiKey, action: Action
) -> None:
    topic = new_topic(1)
    with ProtocolProxy(bootstrap) as proxy, proxy.rules.applying(Rule(action, key, delay_ms=500)) as applied:
        # Without a response, the client waits for the timeout of the socket.
        timeouts = {"socket.timeout.ms": 2_000, "transaction.timeout.ms": 60_000}
        producer = Producer(
            {"bootstrap.servers": proxy.bootstrap, "transactional.id": topic, "log_level": 0, **timeouts}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        write(producer, topic)
        producer.commit_transaction(60)
        # The response to the copy of a request can arrive after the end of the transaction.
        wait_until(lambda: applied.done == 1, "the rule is done", 10)
        # The client sends a lost request again.
        is_repeated = action in (Action.LOSE, Action.DROP, Action.CUT)
        assert proxy.rules.requests[key] > is_repeated
    assert values(bootstrap, topic) == Counter(str(n) for n in range(RECORDS))


@pytest.mark.parametrize(("is_idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_duplicated_batch_is_written_once_if_the_producer_is_idempotent(
    bootstrap: str, new_topic: Callable[..., str], is_idempotent: bool, copies: int
) -> None:
    topic = new_topic(1)
    rule = Rule(Action.DUPLICATE, ApiKey.PRODUCE, count=None)
    with ProtocolProxy(bootstrap) as proxy, proxy.rules.applying(rule) as applied:
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": is_idempotent, "acks": "all"})
        write(producer, topic)
        write(producer, topic)
        wait_until(lambda: applied.done >= 1, "the broker has responded to the copy of a batch", 10)
    assert values(bootstrap, topic) == Counter({str(n): 2 * copies for n in range(RECORDS)})
