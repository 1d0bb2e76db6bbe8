"""Observes the committed offsets of a group and its output while a campaign runs. Uses no code of the tested library.

One thread reads the committed offsets and then how far the output is written, every few seconds. The output is read with
uncommitted records: an open transaction of one member hides later committed output of another one, and the independent reader at the end
decides what is visible. So a position is ahead of the output only if its records were never sent.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from integration_tests.history.events import HighWater, Position
from integration_tests.history.outputs_read import TopicOffset, now_ms, text_of
from streamgroups.partitions import TopicPartition

#: Returns the next offset of each partition of the input in the output, or ``None`` if the output cannot be read now.
HighWaterReader: TypeAlias = Callable[[], Mapping[int, int] | None]
_INTERVAL_S = 2.0


class Observer:
    """Records positions and outputs until the end of its block.

    Args:
        record: stores events.
        group: the group.
        topic: its topic.
        positions: returns the committed offsets.
        high_water: reads the output; ``None`` if its rows are not records of the input.
    """

    def __init__(
        self,
        record: Callable[..., None],
        group: str,
        topic: str,
        positions: Callable[[], Mapping[TopicPartition, int]],
        high_water: HighWaterReader | None,
    ) -> None:
        self._record, self._group, self._topic = record, group, topic
        self._positions, self._high_water = positions, high_water
        self._stopped, self._failure = threading.Event(), list[Exception]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)
        if self._failure:
            raise AssertionError("the observer has failed") from self._failure[0]

    def observe(self) -> None:
        """Records the committed offsets, and then the output.

        Raises:
            KafkaException: if the cluster does not answer.
        """
        offsets = dict(self._positions())
        self._record(Position(now_ms(), "observer", self._group, offsets))
        begun_ms, found = now_ms(), None if self._high_water is None else self._high_water()
        if found is not None:
            of_topic = {TopicPartition(self._topic, p): n for p, n in found.items()}
            self._record(HighWater(begun_ms, "observer", of_topic))

    def finish(self) -> None:
        """Observes once more, after the members have left, and closes the reader of the output.

        Raises the errors of :meth:`observe`.
        """
        self.observe()
        if isinstance(self._high_water, KafkaHighWater):
            self._high_water.close()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_INTERVAL_S):
                # The group has no coordinator while a broker is killed, and no stable offsets while a transaction has some.
                with suppress(KafkaException):
                    self.observe()
        except Exception as e:
            self._failure.append(e)


class KafkaHighWater:
    """Reads a topic from its beginning, with uncommitted records.

    Args:
        bootstrap: the broker.
        topic: the topic.
        partitions: the number of its partitions.
        places: the places of all acknowledged records, by value.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, places: Mapping[str, TopicOffset]) -> None:
        self._places, self._found, self._unknown = places, dict[int, int](), set[str]()
        #: The end offsets that the consumer has reached. Its position does not count the markers of transactions.
        self._reached: dict[int | None, int | None] = {}
        self._partitions = [KafkaPartition(topic, p, 0) for p in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._consumer.assign(self._partitions)

    def __call__(self) -> Mapping[int, int] | None:
        """See :data:`HighWaterReader`. ``None`` if the end of the topic was not reached within some seconds."""
        ends = {it.partition: self._consumer.get_watermark_offsets(it, timeout=5)[1] for it in self._partitions}
        deadline_s = time.monotonic() + 10
        while any((self._reached.get(p) or 0) < end for p, end in ends.items()):
            if time.monotonic() > deadline_s:
                return None
            for message in self._consumer.consume(500, timeout=0.2):
                self._receive(message)
        # The producer stores a record shortly after the query can have read it.
        time.sleep(0.2)
        for value in [it for it in self._unknown if it in self._places]:
            tp, offset = self._places[value]
            self._found[tp.partition] = max(self._found.get(tp.partition, 0), offset + 1)
            self._unknown.discard(value)
        return dict(self._found)

    def close(self) -> None:
        """Closes the client."""
        self._consumer.close()

    def _receive(self, message: Message) -> None:
        error, value = message.error(), message.value()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._reached[message.partition()] = message.offset()
        elif error is None and value is not None:
            self._unknown.add(text_of(value))


def postgres_high_water(conninfo: str) -> Mapping[int, int] | None:
    """The output in the table ``board``. See :data:`HighWaterReader`. ``None`` while the server recovers from a crash."""
    import psycopg

    try:
        with psycopg.connect(conninfo) as db:
            return dict(db.execute('SELECT "partition", max("offset") + 1 FROM board GROUP BY 1').fetchall())
    except psycopg.errors.UndefinedTable:
        return {}
    except psycopg.OperationalError:
        return None


class DeltaHighWater:
    """Reads the log of a table, and the files that its commits add.

    Args:
        path: the table.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._found = path, set[str](), dict[int, int]()

    def __call__(self) -> Mapping[int, int] | None:
        """See :data:`HighWaterReader`."""
        import pyarrow.parquet as pq

        for log in sorted((self._path / "_delta_log").glob("*.json")):
            for action in () if log.name in self._read else map(json.loads, log.read_text().splitlines()):
                if "add" in action:
                    table: Any = pq.read_table(
                        self._path / unquote(action["add"]["path"]), columns=["partition", "offset"]
                    )
                    for row in table.group_by("partition").aggregate([("offset", "max")]).to_pylist():
                        n = row["offset_max"] + 1
                        self._found[row["partition"]] = max(self._found.get(row["partition"], 0), n)
            self._read.add(log.name)
        return dict(self._found)
