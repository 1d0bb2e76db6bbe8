"""P5: ``streamgroups dlq`` on a broker: a letter is sent once, also if a redrive is killed and another one is a zombie."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from integration_tests.command_line import streamgroups
from streamgroups.dlq.letter import DeadLetter, Origin, letter_id
from streamgroups.dlq.record_headers import to_headers
from streamgroups.dlq.redrive import plan_redrive, redriven_topic, transactions
from streamgroups.dlq.stored_letters import StoredLetter
from streamgroups.errors import FencedMember, RecordRejected
from streamgroups.partitions import TopicPartition
from streamgroups.times import utc
from streamgroups_cli.exits import ExitCode
from streamgroups_kafka.client.properties_file import command_config
from streamgroups_kafka.dlq.redriving import KafkaRedrive, open_redrive
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_spark.sinks.letters.of_batch import as_rows, letter_schema, letter_table
from streamgroups_testkit.reading import read_committed

PARKED = 5


def letters(topic: str, count: int) -> list[DeadLetter]:
    """Letters of a topic. The record of the last one has failed too often."""
    origins = [Origin(TopicPartition(topic, it % 2), it, 1_700_000_000_000 + it) for it in range(count)]
    return [
        DeadLetter(
            id=letter_id("board", "decode", origin),
            group_id="board",
            query="prices",
            failed_at_ms=1_700_000_000_000,
            attempt=PARKED if origin.offset == count - 1 else 1,
            step="decode",
            error_class="ValueError",
            error="no JSON",
            origin=origin,
            key=f"key-{origin.offset}".encode(),
            value=b"\xff%d" % origin.offset,
            headers=(("trace", b"\x00"), ("empty", None)),
        )
        for origin in origins
    ]


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(2)


@pytest.fixture
def dlq(bootstrap: str, topic: str, new_topic: Callable[..., str]) -> str:
    """A queue with six letters, which a transaction has written, and one of an aborted transaction."""
    dlq = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-of-{dlq}"})
    producer.init_transactions(30)
    for batch, end in (
        (letters(topic, 6), producer.commit_transaction),
        (letters(topic, 8)[6:7], producer.abort_transaction),
    ):
        producer.begin_transaction()
        for it in batch:
            producer.produce(dlq, key=it.key, value=it.value, headers=list(to_headers(it)), partition=0)
        producer.flush(30)
        end(30)
    return dlq


@pytest.fixture
def killed(bootstrap: str, topic: str, dlq: str) -> Iterator[KafkaRedrive]:
    """A redrive that has sent one letter, and was paused in the transaction of the second one."""
    stored = [StoredLetter(TopicPartition(dlq, 0), i, None, it) for i, it in enumerate(letters(topic, 6))]
    [[first], [second], *_] = transactions(plan_redrive(stored, ()), (), most=1)
    with open_redrive(command_config(bootstrap, None, {}), dlq, timeout_s=30) as redrive:
        redrive.send([first])
        redrive.begin([second])
        redrive._producer.flush(30)
        yield redrive


def run(bootstrap: str, command: str, dlq: str, *arguments: str) -> tuple[int, Sequence[dict[str, object]], str]:
    """Returns the exit code, the letters and the messages of a command."""
    result = streamgroups("dlq", command, dlq, *arguments, "-o", "json", "-b", bootstrap)
    document = json.loads(result.stdout) if result.stdout else {}
    return result.returncode, document.get("letters", document.get("partitions", ())), result.stderr


def test_P5_each_letter_is_sent_once_after_a_kill_and_purged(
    bootstrap: str, topic: str, dlq: str, killed: KafkaRedrive
) -> None:
    sent, parked = letters(topic, 6)[:5], letters(topic, 6)[5]
    _, listed, _ = run(bootstrap, "list", dlq)
    assert [(it["id"], it["state"]) for it in listed] == [
        (it.id, "redriven" if it is sent[0] else "waiting") for it in sent
    ] + [(parked.id, "parked")]

    code, plan, messages = run(bootstrap, "redrive", dlq, "--source", topic, "--execute")
    assert (code, "4 letters redriven." in messages) == (0, True)
    assert [it["to"] for it in plan] == [topic] * 4 + [None]

    assert sorted(it.value for it in read_committed(bootstrap, topic)) == [it.value for it in sent]
    tail = ("topics", "tail", topic, "-o", "json", "-b", bootstrap, "--kafka", "isolation.level=read_committed")
    records = {it["key"]: it for it in map(json.loads, streamgroups(*tail).stdout.splitlines())}
    for letter in sent:
        assert letter.key is not None
        assert letter.origin is not None
        record = records[letter.key.decode()]
        assert record["time"] == utc(letter.origin.timestamp_ms)
        assert record["headers"] == [
            ["trace", "0x00"],
            ["empty", None],
            ["streamgroups.dlq.attempt", "1"],
            ["streamgroups.dlq.redriven_from", letter.id],
        ]
    with pytest.raises(FencedMember, match="Another redrive"):
        killed.commit([])
    assert "There is nothing to do." in run(bootstrap, "redrive", dlq, "--source", topic, "--execute")[2]

    code, [partition], messages = run(bootstrap, "purge", dlq, "--execute")
    assert (code, partition["deleted"], "5 letters deleted." in messages) == (0, 5, True)
    assert [it["id"] for it in run(bootstrap, "list", dlq)[1]] == [parked.id]
    assert len(read_committed(bootstrap, redriven_topic(dlq))) == 5


def test_P5_a_record_that_the_broker_rejects_sends_nothing_of_its_transaction(
    bootstrap: str, topic: str, dlq: str
) -> None:
    large = b"x" * 2_000_000
    [small, *_] = letters(topic, 6)
    stored = [StoredLetter(TopicPartition(dlq, 0), 0, None, small)]
    [[record]] = transactions(plan_redrive(stored, ()), ())
    config = command_config(bootstrap, None, {})
    with (
        open_redrive(config, dlq, timeout_s=30) as redrive,
        pytest.raises(RecordRejected, match=f"The record of the letter '{small.id}' could not be sent"),
    ):
        redrive.send([record, replace(record, value=large)])
    assert not read_committed(bootstrap, topic)
    with open_redrive(config, dlq, timeout_s=30) as redrive:
        redrive.send([record])
    assert [it.value for it in read_committed(bootstrap, topic)] == [small.value]


def test_P5_a_topic_of_ids_that_is_not_compacted_is_rejected_before_anything_is_sent(
    bootstrap: str, topic: str, dlq: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(redriven_topic(dlq), 1)])[redriven_topic(dlq)].result(30)
    code, _, messages = run(bootstrap, "redrive", dlq, "--source", topic, "--execute")
    assert (code, "cleanup.policy=delete" in messages) == (ExitCode.USAGE, True)
    assert not read_committed(bootstrap, topic)
    compacted = ConfigResource(
        ResourceType.TOPIC,
        redriven_topic(dlq),
        incremental_configs=[ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([compacted])[compacted].result(30)
    assert "5 letters redriven." in run(bootstrap, "redrive", dlq, "--source", topic, "--execute")[2]


def test_P5_each_letter_of_a_table_is_sent_once_and_purged(bootstrap: str, topic: str, postgres: str) -> None:
    sink = letter_table(PostgresSink(conninfo=postgres, table=f"letters of {topic}"))
    stage = sink.begin(letter_schema(), uuid.uuid4().hex)
    output = sink.write(stage, iter([as_rows(letters(topic, 4))]), 0)
    with sink.open("board") as ledger, ledger.transaction() as transaction:
        transaction.write([output])

    def run_on(table: str, command: str, *arguments: str) -> tuple[int, Sequence[dict[str, object]], str]:
        return run(bootstrap, command, table, "--postgres", postgres, *arguments)

    code, _, messages = run_on(sink.table, "redrive", "--source", topic, "--execute")
    assert (code, "3 letters redriven." in messages) == (0, True)
    assert "There is nothing to do." in run_on(f"public.{sink.table}", "redrive", "--source", topic, "--execute")[2]
    assert sorted(it.value for it in read_committed(bootstrap, topic)) == [it.value for it in letters(topic, 3)]
    assert "3 letters deleted." in run_on(sink.table, "purge", "--execute")[2]
    assert [(it["id"], it["state"]) for it in run_on(sink.table, "list")[1]] == [(letters(topic, 4)[3].id, "parked")]
