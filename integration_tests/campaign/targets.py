"""The outputs of campaigns, and their independent readers, which use no code of this library. Used by
``integration_tests.campaign``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import unquote

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.campaign.windows import PARTITIONS
from streamgroups_testkit.reading import read_committed, wait_until_no_transaction_is_open

#: Returns (partition, value) of the whole output, in the order of its commits within a partition.
ReadBack = Callable[[], list[tuple[int, str]]]
Result = TypeVar("Result")
_ATTEMPTS, _PAUSE_S = 20, 0.5


def patiently(read: Callable[[], Result]) -> Result:
    """Reads again after an error of the cluster: a killed node has left it, or a new topic is not known to all nodes."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(KafkaException):
            return read()
        time.sleep(_PAUSE_S)
    return read()


def all_advance(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Whether the committed offsets of all partitions are after earlier ones.

    >>> all_advance({0: 5}, {0: 6, 1: 1, 2: 1, 3: 1}), all_advance({}, {0: 6, 1: 1, 2: 1})
    (True, False)
    """
    return all(after.get(p, 0) > before.get(p, 0) for p in range(PARTITIONS))


def create(bootstrap: str, topic: str, config: Mapping[str, str] = MappingProxyType({})) -> None:
    """Creates a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def created() -> None:
        # With the default of the cluster: one copy on each of its nodes.
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, config=dict(config))])[topic].result(30)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    # Nodes of a new cluster join it one after the other.
    patiently(created)


@contextmanager
def target(sink: str, bootstrap: str, directory: Path) -> Iterator[tuple[str, ReadBack]]:
    """The output of a campaign, and its independent reader, which uses no code of this library."""
    if sink == "kafka":
        topic = f"out-{uuid.uuid4().hex[:8]}"
        create(bootstrap, topic)

        def records() -> list[tuple[int, str]]:
            wait_until_no_transaction_is_open(bootstrap, topic)
            return [(m.partition, m.value.decode().rstrip(".")) for m in read_committed(bootstrap, topic)]

        yield topic, records
    elif sink == "postgres":
        import psycopg

        from streamgroups_testkit.postgres import PostgresServer

        with PostgresServer() as server, server.database() as conninfo:

            def rows() -> list[tuple[int, str]]:
                with psycopg.connect(conninfo) as db:
                    if db.execute("SELECT to_regclass('board')").fetchone() == (None,):
                        return []
                    found = db.execute(
                        'SELECT "partition", rtrim(value, \'.\') FROM board ORDER BY "partition", xmin::text::bigint, "offset"'
                    )
                    return [(int(p), str(v)) for p, v in found.fetchall()]

            yield conninfo, rows
    elif sink == "none":
        # The instances of a campaign record what they receive.
        yield "", list
    else:
        path = directory / "board"
        yield str(path), lambda: delta_rows(path)


def delta_rows(path: Path) -> list[tuple[int, str]]:
    """The rows of a table in the order of its commits, by its log. Rows of one commit are in the order of their offsets."""
    import pyarrow.parquet as pq

    found: list[tuple[int, int, int, str]] = []
    for version, log in enumerate(sorted((path / "_delta_log").glob("*.json"))):
        for action in map(json.loads, log.read_text().splitlines()):
            assert "remove" not in action, "the sink appends"
            if "add" in action:
                rows = pq.read_table(path / unquote(action["add"]["path"])).to_pylist()
                found += [(row["partition"], version, row["offset"], row["value"].rstrip(".")) for row in rows]
    return [(partition, value) for partition, _, _, value in sorted(found)]
