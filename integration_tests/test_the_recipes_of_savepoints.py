"""C3: the recipes of ``docs/savepoint-recipes.rst`` work as the page prints them, with random records in between.

The programs of the page run in the session of the test, which stops them when they have read all records.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from integration_tests.command_line import streamgroups
from integration_tests.savepoint_operators import END_MS, MINUTE_MS, PARTITIONS, SECOND_MS, RandomRecords, Record
from integration_tests.tiers import LONG
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.times import utc
from streamgroups_operators.savepoints.directory import SavepointDirectory
from streamgroups_testkit.reading import wait_until_group_is_empty
from unit_tests.documents import ROOT, Block, blocks

PAGE = ROOT / "docs" / "savepoint-recipes.rst"
#: The id of the savepoints, and the time T, on the page.
ID, TIME = "20241123T040759Z-5f2c9a01", "2024-11-23T04:05:00"
GROUPS = {"board", "board-next", "board-8", "sums", "means"}
#: The program that a reader returns from.
WRONG = ('"carrier", "n")', '"carrier", (minutes["n"] + 1_000).alias("n"))')
Windows = dict[tuple[int, str], int]


class Flights(RandomRecords):
    """Flights of some hours, and their number in windows by a plain program."""

    max_step_ms: ClassVar[int] = 6 * SECOND_MS
    max_delay_ms: ClassVar[int] = MINUTE_MS

    has_ended = False

    def end(self) -> None:
        """Writes records that close all windows, also in a topic with more partitions."""
        self.has_ended = True
        for tp in self.written:
            for number in range(16):
                self._send(tp, Record(END_MS, f"{tp.partition}-end-{number}"))
        assert self._producer.flush(30) == 0

    def windows(self, size_ms: int = MINUTE_MS, delay_ms: int = 30 * SECOND_MS) -> Windows:
        """The number of records in each closed window of a carrier."""
        found: Windows = {}
        for records in self.written.values():
            watermark_ms, counts = 0, Counter[tuple[int, str]]()
            for record in records:
                start_ms = record.time_ms // size_ms * size_ms
                if start_ms + size_ms > watermark_ms:
                    counts[start_ms, str(record.key)] += 1
                watermark_ms = max(watermark_ms, record.time_ms - delay_ms)
            found |= {it: n for it, n in counts.items() if it[0] + size_ms <= watermark_ms}
        return found

    def means(self) -> dict[str, tuple[int, float]]:
        """The number of records of each carrier, and the mean of their offsets."""
        offsets: dict[str, list[int]] = {}
        for records in self.written.values():
            for offset, record in enumerate(records):
                offsets.setdefault(str(record.key), []).append(offset)
        return {key: (len(it), sum(it) / len(it)) for key, it in offsets.items()}


def section(title: str) -> Iterator[Block]:
    """The blocks of a section of the page."""
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    starts = [
        number for number, line in enumerate(lines, 1) if line and set(lines[min(number, len(lines) - 1)]) == {"-"}
    ]
    first = lines.index(title) + 1
    end = next((number for number in starts if number > first), len(lines))
    return (it for it in blocks(PAGE, "python", "console") if first < it.line < end)


class Reader:
    """A reader of the page, whose programs end when they have read all records.

    Args:
        spark: the session.
        bootstrap: the broker.
        names: the names of topics and groups begin with this text.
        directory: an empty directory.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, names: str, directory: Path, flights: Flights) -> None:
        self._spark, self._bootstrap, self._names, self.directory = spark, bootstrap, names, directory
        self._flights, self._programs = flights, {it.caption: it.code for it in blocks(PAGE)}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._id = ID
        self.time_ms = 0

    def follow(self, title: str) -> None:
        """Runs the commands of a section, with new records before each program."""
        for block in section(title):
            if block.language == "console":
                for command in _commands(block):
                    self.run(command)

    def run(self, command: str) -> None:
        """Runs a command of the page."""
        program, *arguments = shlex.split(command)
        here = [self._here(it) for it in arguments]
        if program == "streamgroups":
            self._streamgroups(here)
        elif program == "python":
            if not self._flights.has_ended:
                self._flights.write(40)
            self.python(*here)
        else:
            # A program has ended already.
            assert program == "kill"

    def python(self, name: str, *arguments: str) -> None:
        """Runs a program until it has read all records."""
        if name == "compare.py":
            self._run_beside()
        (self.directory / "airport.py").write_text(self._adapted(self._programs["airport.py"]))
        code = self._programs["board.py"].replace(*WRONG) if name == "wrong.py" else self._programs[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(self.directory))
            patch.delitem(sys.modules, "airport", raising=False)
            patch.setattr(sys, "argv", [name, *arguments])
            exec(compile(self._adapted(code), name, "exec"), {"__name__": "__main__"})
        for query in self._spark.streams.active:
            query.processAllAvailable()
            query.stop()
            wait_until_group_is_empty(self._admin, arguments[0] if len(arguments) == 3 else f"{self._names}-split")

    def _run_beside(self) -> None:
        """The old program reads the records too while the new one runs."""
        self.python("board.py", self._here("board"), f"{self.directory}/board", f"{self.directory}/checkpoints/board")

    def _streamgroups(self, arguments: list[str]) -> None:
        if "--state-only" in arguments:
            self._run_beside()
        done = streamgroups(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        if arguments[:2] == ["savepoint", "create"]:
            found = re.search(r"The savepoint is \S*/(\S+)", done.stderr + done.stdout)
            assert found is not None, done
            self._id = found.group(1)
            watermark_ms = self.savepoint.operators[0].watermark_ms
            self.time_ms = 0 if watermark_ms is None else watermark_ms // (5 * MINUTE_MS) * 5 * MINUTE_MS

    @property
    def savepoint(self) -> CommitRecord:
        """The last savepoint."""
        return SavepointDirectory(str(self.directory / "savepoints"), self._id).read()

    def _here(self, argument: str) -> str:
        if argument in GROUPS:
            return f"{self._names}-{argument}"
        if argument == "flights":
            return self._flights.names[0]
        return self._adapted(argument)

    def _adapted(self, text: str) -> str:
        time = (utc(self.time_ms) or "")[: len(TIME)]
        for printed, actual in (
            ("localhost:9092", self._bootstrap),
            ("/data/", f"{self.directory}/"),
            ('"flights', f'"{self._flights.names[0]}'),
            ("split-flights", f"{self._names}-split"),
            (ID, self._id),
            (TIME, time),
            (TIME.replace("T", " "), time.replace("T", " ")),
            (".start().awaitTermination()", ".start()"),
        ):
            text = text.replace(printed, actual)
        return text

    def table(self, name: str, *columns: str) -> dict[Any, Any]:
        """The rows of a Delta table, by its first columns."""
        rows = DeltaTable(str(self.directory / name)).to_pyarrow_table().to_pylist()
        return {tuple(row[it] for it in columns[:-1]): row[columns[-1]] for row in rows}

    def windows(self, name: str) -> Windows:
        """The rows of a table of windows."""
        found = self.table(name, "window_start", "carrier", "n")
        return {(int(start.timestamp() * 1_000), carrier): n for (start, carrier), n in found.items()}


def _commands(block: Block) -> list[str]:
    lines = block.code.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.fixture
def flights(bootstrap: str, new_topic: Callable[..., str]) -> Flights:
    return Flights(bootstrap, [new_topic(PARTITIONS, retention_ms="-1")], seed=7)


@pytest.fixture
def reader(spark: SparkSession, bootstrap: str, group: str, flights: Flights, tmp_path: Path) -> Reader:
    return Reader(spark, bootstrap, group, tmp_path, flights)


def test_each_section_with_programs_has_a_test() -> None:
    text = PAGE.read_text(encoding="utf-8")
    titles = set(re.findall(r"^(.+)\n-+$", text, re.MULTILINE))
    code = Path(__file__).read_text(encoding="utf-8")
    assert {it for it in titles if list(section(it))} == set(re.findall(r'\.follow\("(.+)"\)', code))


@LONG
def test_C3_upgrade_without_a_change_of_the_state(reader: Reader, flights: Flights) -> None:
    reader.follow("Upgrade without a change of the state")
    flights.end()
    reader.run("python board2.py board /data/board /data/checkpoints/board")
    assert reader.windows("board") == flights.windows()
    # The old version has written rows without the new column.
    rows = reader.table("board", "window_start", "carrier", "n", "is_busy")
    assert {None, False} <= set(rows.values())
    assert all(is_busy in (None, n > 9) for (_, _, n), is_busy in rows.items())


@LONG
def test_C3_return_to_yesterday(reader: Reader, flights: Flights) -> None:
    reader.follow("Return to yesterday")
    flights.end()
    reader.run("python board.py board /data/board /data/checkpoints/board")
    assert reader.windows("board") == flights.windows()


@LONG
def test_C3_new_version_of_a_function(reader: Reader, flights: Flights) -> None:
    reader.follow("New version of a function")
    reader.run("python means.py means /data/means /data/checkpoints/means")
    found = {carrier: (n, mean) for (carrier, n), mean in reader.table("means", "carrier", "n", "mean").items()}
    assert found == {carrier: (n, pytest.approx(mean)) for carrier, (n, mean) in flights.means().items()}


@LONG
def test_C3_changed_windows(reader: Reader, flights: Flights) -> None:
    # Several windows of both sizes are closed before.
    flights.write(150)
    reader.follow("Changed windows")
    flights.end()
    reader.run("python five.py board /data/board-five /data/checkpoints/five")
    old = {it: n for it, n in reader.windows("board").items() if it[0] < reader.time_ms}
    assert old == {it: n for it, n in flights.windows().items() if it[0] < reader.time_ms}
    expected = {it: n for it, n in flights.windows(5 * MINUTE_MS).items() if it[0] >= reader.time_ms}
    assert reader.windows("board-five") == expected
    assert min(len(old), len(expected)) > 20


@LONG
def test_C3_more_partitions(reader: Reader, flights: Flights) -> None:
    reader.follow("More partitions")
    # The order of records of different partitions is undefined in a batch.
    reader.run("python split.py /data/checkpoints/split")
    flights.end()
    reader.run("python split.py /data/checkpoints/split")
    reader.run("python board8.py board-8 /data/board-8 /data/checkpoints/board-8")
    assert reader.windows("board-8") == flights.windows(delay_ms=60 * MINUTE_MS)


@LONG
def test_C3_shadow_and_promotion(reader: Reader, flights: Flights) -> None:
    reader.follow("Shadow and promotion")
    flights.end()
    reader.run("python board2.py board /data/board /data/checkpoints/board")
    assert reader.windows("board") == flights.windows()
