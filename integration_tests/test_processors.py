"""P1: a declared processor has the output of the same program by hand, and a killed run continues in the next one."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.declared_flights import Flights, connections, file_text, flights, write
from integration_tests.programs import Program, running_command
from integration_tests.tiers import LONG
from streamgroups.errors import FunctionFailed, InvalidOption, InvalidProcessor
from streamgroups.processors.reading import processor_of
from streamgroups_spark.processors.building import declared_processor
from streamgroups_spark.processors.previewing import last_ranges, next_ranges, preview
from streamgroups_testkit.reading import committed_messages
from streamgroups_testkit.waits import wait_until

MAIN = (sys.executable, "-c", "from streamgroups_cli import main; main()")
PARTITIONS = 4


class Board:
    """A processor with its topics and its table."""

    def __init__(self, directory: Path, bootstrap: str, conninfo: str, new_topic: Callable[..., str]) -> None:
        self.directory, self.bootstrap, self._conninfo = directory, bootstrap, conninfo
        self.topic, self.letters = new_topic(PARTITIONS), new_topic(2)
        self.instance = f"i-{self.topic}"
        self.file = directory / "late-flights.yaml"
        self.log = directory / "log.txt"

    def declare(self, **more: str) -> Path:
        self.file.write_text(file_text(self.topic, self.letters, **more))
        return self.file

    def write(self, values: Iterator[tuple[int, bytes, bytes]]) -> None:
        write(self.bootstrap, self.topic, values)

    def rows(self) -> list[tuple[int, str, int]]:
        with psycopg.connect(self._conninfo) as connection:
            if connection.execute("SELECT to_regclass('delays')").fetchone() == (None,):
                return []
            found = connection.execute(
                "SELECT extract(epoch FROM window_start)::bigint, carrier, n FROM delays"
            ).fetchall()
        return [(start_s, carrier, n) for start_s, carrier, n in found]

    def has(self, least: int) -> bool:
        return len(self.rows()) >= least

    def letter_origins(self) -> Counter[tuple[bytes, bytes]]:
        """How often each record is a dead letter."""
        found: Counter[tuple[bytes, bytes]] = Counter()
        for message in committed_messages(self.bootstrap, self.letters):
            headers: Any = dict(message.headers() or ())
            found[headers["streamgroups.dlq.partition"], headers["streamgroups.dlq.offset"]] += 1
        return found

    def check(self, expected: Flights) -> None:
        """Each window has its count, and each malformed record is one letter."""
        assert Counter(self.rows()) == Counter(
            (start_s, carrier, n) for (start_s, carrier), n in expected.windows.items()
        )
        letters = self.letter_origins()
        assert (len(letters), set(letters.values())) == (expected.bad, {1})

    def checkpoints(self) -> list[Path]:
        return list((self.directory / "processors").glob("*/runs/*"))


@pytest.fixture
def board(
    tmp_path: Path,
    bootstrap: str,
    postgres: str,
    new_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> Board:
    path = connections(tmp_path, bootstrap, postgres)
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(path))
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path / "processors"))
    return Board(tmp_path, bootstrap, postgres, new_topic)


@pytest.fixture
def registered(spark: SparkSession, board: Board) -> SparkSession:
    """The session with the connections of the test."""
    sg.register(spark)
    return spark


def _run_all(declared: Any, spark: SparkSession, instance: str) -> None:
    _, writer = sg.processor(declared, spark, instance=instance)
    assert writer is not None
    query = writer.start()
    try:
        assert query.awaitTermination(600)
    finally:
        query.stop()


def test_P1_a_declared_processor_is_exactly_once(board: Board, registered: SparkSession, admin: AdminClient) -> None:
    expected = flights(400, seed=7)
    board.write(iter(expected.values))
    file = board.declare(trigger="trigger: {availableNow: true}")
    rows, _ = sg.processor(file, registered, instance=board.instance)
    assert rows.columns == ["window_start", "window_end", "carrier", "n", "pane", "revision", "dead_letter"]
    # Bounded data, without a group.
    declared = declared_processor(file)
    last = last_ranges(declared, 20, instance=board.instance)
    first = next_ranges(declared, 20, instance=board.instance)
    assert {it.next_offset for it in first} == {0}, "the file starts at the earliest offsets"
    shown = preview(declared, registered, last, instance=board.instance)
    assert 4 <= shown.count() <= 20
    groups = {it.group_id for it in admin.list_consumer_groups().result().valid}
    assert not [it for it in groups if it.startswith(board.instance)]
    _run_all(file, registered, board.instance)
    board.check(expected)
    assert not any(map(len, next_ranges(declared, 20, instance=board.instance)))
    # Another run, with a new checkpoint, writes nothing again.
    _run_all(file, registered, board.instance)
    board.check(expected)


def test_P1_a_run_does_not_use_the_default_file_system(board: Board, registered: SparkSession) -> None:
    expected = flights(100, seed=8)
    board.write(iter(expected.values))
    registered.conf.set("fs.defaultFS", "hdfs://localhost:1")
    try:
        _run_all(board.declare(trigger="trigger: {availableNow: true}"), registered, board.instance)
    finally:
        registered.conf.unset("fs.defaultFS")
    board.check(expected)


@LONG
def test_P1_a_repartitioned_topic_is_read_by_another_processor(
    tmp_path: Path,
    bootstrap: str,
    new_topic: Callable[..., str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(connections(tmp_path, bootstrap, "")))
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path / "processors"))
    sg.register(spark)
    topic, output = new_topic(2), new_topic(1)
    between, instance = f"{topic}-by-carrier", f"i-{topic}"
    now, by = {"availableNow": True}, ["carrier"]
    writer = {
        "name": "by-carrier",
        "source": {"connection": "prod", "subscribe": topic, "startingOffsets": "earliest"},
        "steps": [
            {"sql": "SELECT CAST(key AS string) AS carrier, CAST(CAST(value AS string) AS int) AS number FROM input"},
            {"repartition": {"by": by, "topic": between, "partitions": 3}},
        ],
        "trigger": now,
    }
    read = {"topic": between, "by": by, "columns": "carrier string, number int"}
    reader = {
        "name": "copy",
        "source": {"connection": "prod", "read_repartitioned": read},
        "steps": [{"sql": "SELECT carrier AS key, concat(partition, ' ', number) AS value FROM input"}],
        "sink": {"connection": "prod", "topic": output},
        "trigger": now,
    }
    for first in (0, 60):
        # The records of each carrier are in both partitions.
        values = (
            (number // 2 % 2, f"c{number % 7}".encode(), str(number).encode()) for number in range(first, first + 60)
        )
        write(bootstrap, topic, values)
        _run_all(writer, spark, instance)
        _run_all(reader, spark, instance)
    found = [(message.key(), (message.value() or b"").split()) for message in committed_messages(bootstrap, output)]
    assert sorted((key, int(number)) for key, (_, number) in found) == sorted(
        (f"c{number % 7}".encode(), number) for number in range(120)
    )
    partitions = {(key, partition) for key, (partition, _) in found}
    assert len(partitions) == 7, "all records of a carrier are in one partition"


# ---- mistakes that only Spark finds ----------------------------------------------------------------------------------


def _no_frame(_: DataFrame) -> int:
    return 5


def _fails(_: DataFrame) -> DataFrame:
    raise ValueError("no such carrier")


def _other(df: DataFrame) -> DataFrame:
    return df.sparkSession.range(3)


def _steps(*steps: Any) -> dict[str, Any]:
    source = {"connection": "prod", "subscribe": "flights"}
    return {"name": "late", "source": source, "steps": list(steps)}


@pytest.mark.parametrize(
    ("steps", "kind", "expected"),
    [
        (
            [{"sql": "SELECT nothing FROM input"}],
            InvalidOption,
            r"steps\[0\] \(sql\): Spark rejects the SQL: .*Columns of input: key",
        ),
        (
            [{"sql": "SELECT 1 AS one"}],
            InvalidOption,
            r"The SQL does not read the rows of the step before. Write SELECT ... FROM input.",
        ),
        (
            [{"function": "no_such.module:f"}],
            InvalidOption,
            r"steps\[0\] \(function no_such.module:f\): .* cannot be imported by .*python.* on ",
        ),
        (
            [{"function": "json:no_such"}],
            InvalidOption,
            r"Module 'json' has no 'no_such', in the file .*json/__init__.py",
        ),
        ([{"function": "sys:path"}], InvalidOption, r"'sys:path' is no function."),
        ([{"function": _no_frame}], InvalidOption, r"returned int, which is no DataFrame."),
        (
            [{"function": _fails}],
            FunctionFailed,
            r"raised ValueError: no such carrier. Columns of its DataFrame: key, value",
        ),
        ([{"function": _other}], InvalidOption, r"returned a DataFrame that is not derived from its argument."),
        (
            [{"sql": "SELECT key, count(*) AS n FROM input GROUP BY key"}],
            InvalidOption,
            r"uses operators of Spark with state \(Aggregate\).* Use sg.windows, sg.stateful, sg.dedup or sg.join.* 'checkpoint'",
        ),
        (
            [{"windows": {"on": "dep", "window": {"tumbling": "1m"}, "aggregate": {"n": "count(*)"}}}],
            InvalidOption,
            r"steps\[0\] \(windows\): .*dep",
        ),
    ],
    ids=lambda it: None if not isinstance(it, str) else it[:30],
)
def test_P1_a_mistake_in_a_step_names_the_step(
    board: Board, registered: SparkSession, steps: list[Any], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=expected):
        sg.processor(_steps(*steps), registered)


def test_state_of_spark_needs_a_checkpoint_and_one_member(board: Board, registered: SparkSession) -> None:
    document = _steps({"sql": "SELECT key, count(*) AS n FROM input GROUP BY key"})
    document["source"]["membership"] = "exclusive"
    with pytest.raises(InvalidOption, match="Or set 'checkpoint' on shared storage"):
        sg.processor(document, registered)
    rows, writer = sg.processor({**document, "checkpoint": "s3://bucket/late"}, registered)
    assert (rows.columns, writer) == (["key", "n"], None)


def test_the_key_of_the_sink_is_a_column(board: Board, registered: SparkSession) -> None:
    sink = {"connection": "warehouse", "table": "delays", "mode": "upsert", "key": ["carrier"]}
    with pytest.raises(
        InvalidOption, match=r"The key of the sink has the columns carrier, .* Columns of the rows: key, value"
    ):
        sg.processor({**_steps(), "sink": sink}, registered)


def test_the_letters_of_a_step_with_state_are_kept(board: Board, registered: SparkSession) -> None:
    window = {"on": "timestamp", "by": ["key"], "window": {"tumbling": "1m"}, "aggregate": {"n": "count(*)"}}
    step = {"windows": {**window, "dead_letters": True}}
    for text in (
        "SELECT key, n FROM input",
        "SELECT * FROM input\nWHERE n > 2",
        "SELECT * FROM input WHERE(n > 2)",
        "SELECT key, n, dead_letter FROM input WHERE n > 2",
        "SELECT * FROM input WHERE n > 2 AND dead_letter IS NULL",
    ):
        with pytest.raises(
            InvalidOption, match=r"steps\[1\] \(sql\): The step can lose the dead letters of the step 'windows'"
        ):
            sg.processor(_steps(step, {"sql": text}), registered)
    for text in (
        "SELECT key, n, dead_letter FROM input",
        "SELECT i.* FROM input i WHERE i.dead_letter IS NOT NULL OR n > 2",
    ):
        assert "dead_letter" in sg.processor(_steps(step, {"sql": text}), registered)[0].columns


def test_a_watermark_is_the_default(board: Board, registered: SparkSession) -> None:
    step = {"windows": {"on": "timestamp", "by": ["key"], "window": {"tumbling": "1m"}, "aggregate": {"n": "count(*)"}}}
    rows, _ = sg.processor(_steps(step), registered)
    assert rows.columns[:3] == ["window_start", "window_end", "key"]


def test_a_file_with_mistakes_raises_all_of_them(board: Board, registered: SparkSession) -> None:
    board.file.write_text("name: a.b\nsource: {connection: prod}\n")
    with pytest.raises(InvalidProcessor) as raised:
        sg.processor(board.file, registered)
    assert len(str(raised.value).splitlines()) == 2
    with pytest.raises(InvalidOption, match=r"File '.*missing.yaml' cannot be read: No such file"):
        sg.processor(board.directory / "missing.yaml", registered)


# ---- the command -----------------------------------------------------------------------------------------------------


def _command(board: Board, *more: str) -> list[str]:
    settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    return [*MAIN, "processors", "run", str(board.file), "--instance", board.instance, *settings, *more]


def _wait(program: Program, condition: Callable[[], object]) -> None:
    def holds() -> object:
        program.check()
        return condition()

    wait_until(holds, "the processor is ready", 280)


@LONG
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_P1_a_killed_run_continues_in_the_next_one(board: Board, seed: int) -> None:
    expected = flights(12_000, seed)
    values = iter(expected.values)
    board.declare(more=", maxOffsetsPerTrigger: 400", trigger="trigger: {processingTime: 100ms}")
    board.write(itertools.islice(values, 6_000))
    for least in (5, 40):
        with running_command(_command(board), board.log, dict(os.environ)) as program:
            _wait(program, partial(board.has, least))
            program.kill()
        board.write(itertools.islice(values, 3_000))
    board.write(values)
    with running_command(_command(board), board.log, dict(os.environ)) as program:
        _wait(program, partial(board.has, len(expected.windows)))
        assert len(board.checkpoints()) == 2  # the lock and the checkpoint of this run only
        program.terminate()
        program.wait_for_end(60)
    board.check(expected)
    assert board.checkpoints() == []
    assert "was stopped after 0 restarts" in board.log.read_text()


@LONG
@pytest.mark.timeout(1_200)
def test_a_second_run_of_a_member_is_rejected(board: Board) -> None:
    board.declare()
    with running_command(_command(board), board.log, dict(os.environ)) as program:
        _wait(program, lambda: "runs as group" in board.log.read_text())
        board.write(iter(flights(500, seed=1).values))
        _wait(program, partial(board.has, 1))
        log = board.directory / "second.txt"
        with running_command(_command(board), log, dict(os.environ)) as second:
            wait_until(second.has_ended, "the second run ends", 240)
        program.check()
    assert re.search(r"Error: Member 0 of group 'i-.*\.late-flights' runs already: streamgroups-i-", log.read_text())
    # A preview needs no group.
    log = board.directory / "preview.txt"
    with running_command(_command(board, "--preview", "20"), log, dict(os.environ)) as shown:
        shown.wait_for_end(240)
    assert "window_start" in log.read_text()


def test_a_run_without_a_sink_is_rejected(board: Board, registered: SparkSession) -> None:
    from streamgroups_spark.processors.running import run_processor

    with pytest.raises(
        InvalidOption, match=r"Processor 'late' has no sink. Add 'sink', or show its rows with --preview 20."
    ):
        run_processor(processor_of(_steps()), registered)
    with pytest.raises(InvalidOption, match=r"Processor 'late' has no member 1. Its members are 0 to 0."):
        run_processor(processor_of({**_steps(), "sink": {"format": "noop"}}), registered, member=1)
