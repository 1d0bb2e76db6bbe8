"""P4, X9: dead letters in PostgreSQL, Delta Lake and Kafka, beside each sink, also after a failure between both commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.dead_letters import checked, flights, forget_last_commit, letters_in, run, without_topic_id
from integration_tests.tiers import LONG
from streamgroups.dlq.letter import LETTER
from streamgroups.errors import SinkRejected
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.reading import read_committed

N = 40
#: A failure after both checks, and between both commits.
_KILLED = "the driver was killed"


def fail_once(armed: str) -> None:
    """Fails once, after the number of calls in a file."""
    path = Path(armed)
    if not path.exists():
        return
    calls = int(path.read_text())
    if calls:
        path.write_text(str(calls - 1))
        return
    path.unlink()
    raise SinkRejected(_KILLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailsAfterCommit(sg.PostgresSink):
    """Fails once after it has committed dead letters."""

    armed: str

    def discard(self, stage: Any) -> None:
        sg.PostgresSink.discard(self, stage)
        fail_once(self.armed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailsBeforeCommit(sg.PostgresSink):
    """Fails once before it commits output."""

    armed: str

    @contextmanager
    def open(self, group_id: str) -> Iterator[Any]:
        with sg.PostgresSink.open(self, group_id) as ledger:
            yield _Ledger(ledger, self.armed)


class _Ledger:
    def __init__(self, ledger: Any, armed: str) -> None:
        self.positions, self._ledger, self._armed = ledger.positions, ledger, armed

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._ledger.transaction() as transaction:
            yield _Transaction(transaction, self._armed)


class _Transaction:
    def __init__(self, transaction: Any, armed: str) -> None:
        self._of, self._armed = transaction, armed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def of(self, group_id: str) -> _Transaction:
        return _Transaction(self._of.of(group_id), self._armed)

    def write(self, output: Any) -> None:
        fail_once(self._armed)
        self._of.write(output)


@pytest.mark.parametrize(
    ("sink", "dead_letters"),
    [
        pytest.param("postgres", "postgres", marks=LONG),
        pytest.param("kafka", "postgres", marks=LONG),
        pytest.param("postgres", "kafka", marks=LONG),
        pytest.param("postgres", "delta", marks=LONG),
    ],
)
def test_P4_X9_each_record_is_in_one_of_both(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    postgres: str,
    tmp_path: Path,
    sink: str,
    dead_letters: str,
) -> None:
    topic, board, dead = new_topic(2), new_topic(2), new_topic(1)
    checkpoint, armed, uri = tmp_path / "checkpoint", tmp_path / "armed", str(tmp_path / "letters")
    table, letter_table = f"board_{board[2:]}", f"letters_{board[2:]}"
    producer = ordered_producer(bootstrap)
    for n in range(N):
        producer.produce(topic, key=f"k{n}", value=f"{n}!" if n % 5 == 0 else str(n), partition=n % 2)
    assert producer.flush(30) == 0
    to: dict[str, Any] = {
        "kafka": sg.KafkaSink(bootstrap_servers=bootstrap, topic=board),
        "postgres": FailsBeforeCommit(conninfo=postgres, table=table, armed=str(armed)),
    }
    letters_to: dict[str, Any] = {
        "kafka": sg.KafkaSink(bootstrap_servers=bootstrap, topic=dead),
        "postgres": FailsAfterCommit(
            conninfo=postgres, table=letter_table, armed=str(armed) if sink == "kafka" else "/nowhere/armed"
        ),
        "delta": sg.DeltaSink(uri=uri),
    }

    def run_again() -> None:
        rows = checked(flights(spark, bootstrap, topic, group, maxOffsetsPerTrigger="20"))
        rows = rows.select("key", F.col("value").cast("string").alias("value"), "dead_letter")
        run(
            sg.exactly_once(
                rows, sink=to[sink], dead_letters=letters_to[dead_letters], checkpoint=str(checkpoint)
            ).queryName("departures")
        )

    def query_table(name: str, columns: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres) as connection:
            return connection.execute(f"SELECT {columns} FROM {name}").fetchall()

    def output() -> list[str]:
        if sink == "kafka":
            return [it.value.decode() for it in read_committed(bootstrap, board)]
        return [value for (value,) in query_table(table, "value")]

    def letters() -> list[tuple[Any, ...]]:
        if dead_letters == "kafka":
            return [(it.id, it.value, it.query, it.attempt) for it in letters_in(bootstrap, dead)]
        if dead_letters == "postgres":
            return query_table(letter_table, "id, value, query, attempt")
        found = DeltaTable(uri).to_pyarrow_table()
        assert found.schema.names == list(LETTER)
        return [(it["id"], it["value"], it["query"], it["attempt"]) for it in found.to_pylist()]

    # The sink of dead letters checks its table first, and removes a stage.
    armed.write_text("1" if sink == "kafka" else "0")
    with pytest.raises(StreamingQueryException, match=_KILLED):
        run_again()
    assert not armed.exists()
    run_again()
    forget_last_commit(checkpoint)
    run_again()
    assert sorted(map(int, output())) == [n for n in range(N) if n % 5]
    expected = [(f"{group}/{topic}/{n % 2}/{n // 2}/check", f"{n}!".encode(), "departures", 1) for n in range(0, N, 5)]
    assert sorted((without_topic_id(id_), *rest) for id_, *rest in letters()) == sorted(expected)


@LONG
def test_P4_rows_that_a_table_rejects_are_letters(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, postgres: str, tmp_path: Path
) -> None:
    topic = new_topic(1)
    table, dead = f"board_{topic[2:]}", f"letters_{topic[2:]}"
    producer = ordered_producer(bootstrap)
    for n in range(20):
        values = {3: "long", 7: None, 13: "2"}
        producer.produce(topic, key=f"k{n}", value=values.get(n, str(n)), partition=0)
    assert producer.flush(30) == 0
    with psycopg.connect(postgres) as connection:
        connection.execute(f'CREATE TABLE "{table}_offsets" AS SELECT generate_series(0, 16) AS "offset"')
        connection.execute(f'ALTER TABLE "{table}_offsets" ADD PRIMARY KEY ("offset")')
        connection.execute(
            f"CREATE TABLE \"{table}\" (value varchar(2) NOT NULL UNIQUE CONSTRAINT no_eleven CHECK (value <> '11'),"
            f' topic text, partition int, "offset" bigint REFERENCES "{table}_offsets")'
        )
    rows = flights(spark, bootstrap, topic, group).selectExpr(
        "CAST(value AS STRING) AS value", "topic", "partition", "offset"
    )
    sink = sg.PostgresSink(conninfo=postgres, table=table, isolate_violations=True)
    letters = sg.PostgresSink(conninfo=postgres, table=dead)
    checkpoint = tmp_path / "checkpoint"

    def run_limited(most: int) -> None:
        limited = sg.DeadLetters(sink=letters, max_per_batch=most)
        run(sg.exactly_once(rows, sink=sink, dead_letters=limited, checkpoint=str(checkpoint)).queryName("board"))

    with pytest.raises(StreamingQueryException, match=r"has 7 dead letters of 20 records \(sink: 7\)"):
        run_limited(6)
    run_limited(7)
    forget_last_commit(checkpoint)
    run_limited(7)
    with psycopg.connect(postgres) as connection:
        written = connection.execute(f'SELECT "offset" FROM "{table}" ORDER BY 1').fetchall()
        found = connection.execute(f'SELECT "offset", step, error, details, query FROM "{dead}" ORDER BY 1').fetchall()
    assert [n for (n,) in written] == [n for n in range(20) if n not in (3, 7, 11, 13, 17, 18, 19)]
    (too_long, missing, checked, repeated, *without_parent) = found
    assert too_long[:2] == (3, "sink")
    assert "The value of column 'value' was rejected by PostgreSQL" in too_long[2]
    assert json.loads(too_long[3]["record"])["value"] == "long"
    assert missing[:2] == (7, "sink")
    assert checked[:2] == (11, "sink")
    assert 'violates check constraint "no_eleven"' in checked[2]
    assert repeated[:2] == (13, "sink")
    assert "unique constraint" in repeated[2]
    assert json.loads(repeated[3]["record"])["value"] == "2"
    assert [it[0] for it in without_parent] == [17, 18, 19]
    assert all("foreign key constraint" in it[2] for it in without_parent)
    assert {it[4] for it in found} == {"board"}
