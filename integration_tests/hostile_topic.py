"""Queries over a topic of a fuzzer, with kills: each record has its right result or exactly one dead letter.

Run as ``python -m integration_tests.hostile_topic kafka postgres delta --records 1000000 --kills 3``; ``test_hostile_topic``
runs shorter ones. 1 % of the records are hostile (``hostile_records``). A query (``hostile_query``) decodes them by a real schema
registry, calls a function, and writes rows or windows exactly once, with dead letters. This program kills it with ``kill -9``
and starts it again. A query that ends otherwise fails the run. At the end independent readers (``hostile_targets``) read the
output, and a plain program (``hostile_judge``) computes what it must be. Source: SEMANTICS P4, X1, X9, W7.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from integration_tests.hostile_avro import SchemaIds, register
from integration_tests.hostile_judge import counts, differences, expected
from integration_tests.hostile_records import PARTITIONS, HostileRecord, hostile_records
from integration_tests.hostile_targets import create, results
from integration_tests.programs import running
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until

SINKS, SHAPES = ("kafka", "postgres", "delta"), ("rows", "windows")
_MAX_MESSAGE_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class HostileTopic:
    """A topic that is written, and from which its records can be generated again.

    Args:
        bootstrap: the broker.
        registry: the URL of the schema registry.
        name: the topic.
        count: the number of records, without those that close the windows.
        seed: the seed of the records.
        ids: the ids of the schemas.
    """

    bootstrap: str
    registry: str
    name: str
    count: int
    seed: int
    ids: SchemaIds

    def records(self) -> Iterable[HostileRecord]:
        """Generates the records."""
        return hostile_records(self.count, self.seed, self.ids)

    @property
    def total(self) -> int:
        """The number of all records."""
        return self.count + PARTITIONS


def write_topic(bootstrap: str, registry: str, count: int, seed: int) -> HostileTopic:
    """Registers the schemas, and writes a topic.

    Raises:
        AssertionError: if the broker rejects a record.
    """
    topic = HostileTopic(bootstrap, registry, f"hostile-{uuid.uuid4().hex[:8]}", count, seed, register(registry))
    limits = {
        "retention.ms": "-1",
        # Records with other years do not start segments.
        "segment.ms": str(2**63 - 1),
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "max.message.bytes": str(_MAX_MESSAGE_BYTES),
    }
    create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic.name, PARTITIONS, limits)
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.max.bytes": _MAX_MESSAGE_BYTES,
        }
    )
    for record in topic.records():
        while True:
            try:
                producer.produce(
                    topic.name,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=report,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failures, failures[:3]
    return topic


def config_of(topic: HostileTopic, sink: str, shape: str, directory: Path, **more: Any) -> dict[str, Any]:
    """Creates the output of a query, and returns its configuration.

    Args:
        topic: its input.
        sink: one of ``SINKS``.
        shape: one of ``SHAPES``.
        directory: the directory of its checkpoint, its states, and its tables of Delta Lake.
        more: additional options of the source, and ``postgres``, the connection string.
    """
    name = f"{sink}_{shape}_{uuid.uuid4().hex[:8]}"
    options_of: Callable[[str, str, str], Mapping[str, str]] = exclusive_options if sink == "delta" else shared_options
    options = {
        **options_of(topic.bootstrap, name, topic.name),
        "includeHeaders": "true",
        "stateLocation": str(directory / "states"),
        "maxOffsetsPerTrigger": str(more.pop("per_batch")),
    }
    names = {"board": f"board_{name}", "dead": f"dead_{name}"}
    config = {
        "bootstrap": topic.bootstrap,
        "registry": topic.registry,
        "sink": sink,
        "shape": shape,
        "options": options,
        "checkpoint": str(directory / f"checkpoint-{name}"),
        **(names if sink != "delta" else {it: str(directory / table) for it, table in names.items()}),
        **more,
    }
    create(config)
    return config


def run_with_kills(topic: HostileTopic, config: dict[str, Any], kills: int, log: Path, timeout_s: float) -> None:
    """Runs a query until it has read the topic, and kills it at random places.

    Raises:
        AssertionError: if the query ends by itself, or does not read to the end.
    """
    chance = random.Random(f"{topic.seed} {config['sink']} {config['shape']}")
    group = config["options"]["group.id"]
    places = [int((n + chance.random()) / (kills + 1) * topic.total) for n in range(kills)]
    for place in (*places, topic.total):
        with running("hostile_query", config, log) as query:

            def has_read(place: int = place) -> bool:
                query.check()
                return sum(committed_offsets(topic.bootstrap, group, topic.name).values()) >= max(1, place)

            wait_until(has_read, f"{place} records are committed; see {log}", timeout_s)


def judged(topic: HostileTopic, config: dict[str, Any]) -> tuple[list[str], Counter[str]]:
    """Returns the differences of an output from the right one, and the counts of the right one."""
    right, kinds = expected(topic.records(), config["sink"], config["shape"])
    return differences(right, results(config), kinds), counts(right)


def main() -> int:
    from streamgroups_testkit.apicurio import ApicurioRegistry
    from streamgroups_testkit.broker import BROKER_PROPERTIES
    from streamgroups_testkit.postgres import PostgresServer

    parser = argparse.ArgumentParser(prog="python -m integration_tests.hostile_topic", description=__doc__)
    parser.add_argument("sinks", nargs="+", choices=SINKS)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES, help="rows, or windows")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=3, help="of each query")
    parser.add_argument("--seed", type=int, default=1, help="of the records and the kills")
    parser.add_argument(
        "--timeout", type=float, default=1_800, help="seconds for each run of a query between two kills"
    )
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="hostile-"))
    wrong = 0
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-broker-")))
        kafka = stack.enter_context(EmbeddedKafka(data_dir=data_dir, properties=BROKER_PROPERTIES))
        registry = stack.enter_context(ApicurioRegistry())
        postgres = stack.enter_context(stack.enter_context(PostgresServer()).database())
        topic = write_topic(kafka.bootstrap_servers, registry.url, given.records, given.seed)
        kinds = Counter(it.kind for it in topic.records() if it.kind)
        print(
            f"seed {given.seed}: {topic.total:,} records, {kinds.total():,} of {len(kinds)} hostile kinds", flush=True
        )
        for sink in given.sinks:
            for shape in given.shapes:
                began_s = time.monotonic()
                config = config_of(topic, sink, shape, directory, postgres=postgres, per_batch=50_000)
                run_with_kills(topic, config, given.kills, directory / f"{sink}-{shape}.log", given.timeout)
                took_s = time.monotonic() - began_s
                found, right = judged(topic, config)
                wrong += len(found)
                print(f"{sink}, {shape}: {took_s:.0f} s, {given.kills} kills, {len(found)} differences, {dict(right)}")
                for difference in found[:20]:
                    print(f"  {difference}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
