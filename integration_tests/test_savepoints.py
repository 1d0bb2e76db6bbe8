"""C2, C3, C4: savepoints of running queries, restored into forks, into the same group, and on other numbers of members.

The rows of a fork are compared with a plain program over all records (``Records.results``). ``test-long`` kills the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.killed_commands import CREATE_POINTS, RESTORE_POINTS, is_killed, run_command
from integration_tests.savepoint_commands import SavepointCommands
from integration_tests.state_query import counts
from integration_tests.test_state_follows_its_partition import PARTITIONS, Records, Result, Runs, current, read_rows
from integration_tests.tiers import LONG
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS, retention_ms="-1")


@pytest.fixture
def records(bootstrap: str, topic: str) -> Records:
    return Records(bootstrap, topic)


class Savepoints:
    """The queries of a group, and savepoints of it."""

    def __init__(self, spark: SparkSession, bootstrap: str, group: str, topic: str, directory: Path) -> None:
        self._spark, self._bootstrap, self._topic, self._directory = spark, bootstrap, topic, directory
        self.group, self.to, self.states = group, str(directory / "savepoints"), directory / "states"
        self.commands = SavepointCommands(bootstrap, directory / "savepoints", self.states)
        self.runs = self.of(group)

    def of(self, group: str) -> Runs:
        """Runs queries of a group. Its output has its name."""
        options = shared_options(self._bootstrap, group, self._topic, "consumer")
        more = {"maxOffsetsPerTrigger": "300", "stateLocation": str(self.states)}
        return Runs(self._spark, self._directory / group, options | more)

    def create(self) -> str:
        """Creates a savepoint. Returns its id."""
        return self.commands.create(self.group)

    def positions(self, id_: str) -> list[int]:
        """The offsets of a savepoint."""
        found = {tp.partition: offset for tp, offset in self.commands.positions(id_).items()}
        return [found.get(partition, 0) for partition in range(PARTITIONS)]

    def restore(self, id_: str, *arguments: str) -> Any:
        """Restores a savepoint."""
        return self.commands.restore(id_, *arguments)

    def all_is_committed(self, records: Records) -> bool:
        return committed_offsets(self._bootstrap, self.group, self._topic) == records.ends


@pytest.fixture
def savepoints(spark: SparkSession, bootstrap: str, group: str, topic: str, tmp_path: Path) -> Savepoints:
    return Savepoints(spark, bootstrap, group, topic, tmp_path)


def changed_since(records: Records, positions: list[int]) -> Mapping[tuple[int, str], Result]:
    """The results that differ from those of the records before these positions."""
    whole, before = records.results(), records.results(positions)
    return {place: result for place, result in whole.items() if before.get(place) != result}


@LONG
def test_C3_C4_savepoints_of_two_running_queries_continue_in_forks(savepoints: Savepoints, records: Records) -> None:
    queries = [savepoints.runs.start(name) for name in ("one", "two")]
    made: list[str] = []
    try:
        for _ in range(2):
            records.write(250)
            made.append(savepoints.create() if made else _first(savepoints))
        records.end()
        wait_until(lambda: savepoints.all_is_committed(records), "all is committed")
    finally:
        for query in queries:
            query.stop()
    assert current(read_rows(savepoints.runs.output)) == records.results()
    # As retention does later.
    for file in (savepoints.states / savepoints.group).rglob("*.state"):
        file.unlink()
    for number, id_ in enumerate(made):
        fork = savepoints.of(f"{savepoints.group}-{number}")
        savepoints.restore(id_, "--group", f"{savepoints.group}-{number}")
        fork.run("fork")
        assert current(read_rows(fork.output)) == changed_since(records, savepoints.positions(id_)), id_


def _first(savepoints: Savepoints) -> str:
    """The first savepoint, once the queries have committed a batch of each partition."""

    def has_begun() -> bool:
        committed = committed_offsets(savepoints._bootstrap, savepoints.group, savepoints._topic)
        return len(committed) == PARTITIONS and min(committed.values()) > 0

    wait_until(has_begun, "each partition has a committed batch")
    return savepoints.create()


def test_C3_a_running_query_returns_to_its_savepoint(savepoints: Savepoints, records: Records) -> None:
    records.write(300)
    query = savepoints.runs.start("live")
    try:
        id_ = _first(savepoints)
        positions = savepoints.positions(id_)
        records.write(200)
        wait_until(lambda: savepoints.all_is_committed(records), "all is committed")
        moves = savepoints.restore(id_, "--accept-repeated-output")["moves"]
        assert [it["to_offset"] for it in moves] == positions
        records.end()
        wait_until(lambda: savepoints.all_is_committed(records), "all is committed again")
    finally:
        query.stop()
    assert current(read_rows(savepoints.runs.output)) == records.results()


@LONG
def test_C3_a_command_that_is_killed_leaves_no_savepoint_or_a_whole_one(
    savepoints: Savepoints, records: Records, bootstrap: str, topic: str
) -> None:
    records.write(300)
    savepoints.runs.run("first")
    location = ("--state-location", str(savepoints.states), "-b", bootstrap)
    create = ("savepoint", "create", savepoints.group, "--to", savepoints.to, *location)
    for name, point in CREATE_POINTS.items():
        status = "complete" if name == "after-record" else "incomplete"
        before = {it["id"] for it in savepoints.commands.run("list", savepoints.to)["savepoints"]}
        assert is_killed(run_command(point, *create))
        new = [it for it in savepoints.commands.run("list", savepoints.to)["savepoints"] if it["id"] not in before]
        # Before the first file there is no directory either.
        assert [it["status"] for it in new] in ([status], []), name
        for it in new:
            rejected = streamgroups(
                "savepoint", "restore", savepoints.to, it["id"], "--group", "x", *location, "--execute"
            )
            assert (rejected.returncode != 0) == (status == "incomplete") or it["status"] == "complete"
    id_ = savepoints.create()
    records.write(100)
    records.end()
    for name, point in RESTORE_POINTS.items():
        group = f"{savepoints.group}-{name}"
        restore = ("savepoint", "restore", savepoints.to, id_, "--group", group, *location, "--execute")
        assert is_killed(run_command(point, *restore))
        if name != "after-commit":
            assert committed_offsets(bootstrap, group, topic) == {}
            savepoints.restore(id_, "--group", group)
        fork = savepoints.of(group)
        fork.run("fork")
        assert current(read_rows(fork.output)) == changed_since(records, savepoints.positions(id_)), name


@LONG
@pytest.mark.parametrize("kind", ["postgres", "delta"])
def test_C3_X2_a_table_and_its_ledger_return_to_a_savepoint(
    kind: str,
    request: pytest.FixtureRequest,
    savepoints: Savepoints,
    records: Records,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Output after the savepoint is written again by its key. The ledger follows the group back."""
    sink: Any
    if kind == "postgres":
        sink = sg.PostgresSink(
            conninfo=request.getfixturevalue("postgres"), table="board", mode="upsert", key=("start", "key")
        )
    else:
        sink = sg.DeltaSink(uri=str(tmp_path / "board"), mode="upsert", key=("start", "key"))

    def run(name: str) -> None:
        rows = counts(spark, savepoints.runs.options).select(
            F.unix_millis("window_start").alias("start"), "key", "n", "total"
        )
        writer = sg.exactly_once(rows, sink=sink, checkpoint=str(tmp_path / name))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert savepoints.all_is_committed(records)

    def table() -> dict[tuple[int, str], Result]:
        if kind == "postgres":
            with psycopg.connect(sink.conninfo) as connection:
                found = connection.execute("SELECT start, key, n, total FROM board").fetchall()
        else:
            found = [tuple(row.values()) for row in DeltaTable(sink.uri).to_pyarrow_table().to_pylist()]
        return {(start, key): (n, total) for start, key, n, total in found}

    records.write(300)
    run("one")
    id_ = savepoints.create()
    records.write(200)
    run("two")
    savepoints.restore(id_, "--accept-repeated-output")
    records.end()
    run("three")
    assert table() == records.results()


@LONG
def test_C3_a_fork_is_promoted_by_its_state(savepoints: Savepoints, records: Records) -> None:
    """The group keeps its offsets, and continues with the state of the fork. The records in between have no output again."""
    records.write(300)
    savepoints.runs.run("first")
    fork = savepoints.of(f"{savepoints.group}-fork")
    savepoints.restore(savepoints.create(), "--group", f"{savepoints.group}-fork")
    records.write(200)
    fork.run("shadow")
    main, savepoints.group = savepoints.group, f"{savepoints.group}-fork"
    promoted = savepoints.create()
    savepoints.group = main
    records.write(150)
    savepoints.runs.run("second")
    savepoints.restore(promoted, "--state-only", "--group", main)
    records.end()
    before = len(read_rows(savepoints.runs.output))
    savepoints.runs.run("third")
    assert current(read_rows(savepoints.runs.output)) == records.results()
    # Windows that were closed before the promotion are not written again.
    closed = set(records.results([650] * PARTITIONS))
    again = {(row["start"], row["key"]) for row in read_rows(savepoints.runs.output, "third")}
    assert not {place for place in again & closed if changed_since(records, [650] * PARTITIONS).get(place) is None}
    assert len(read_rows(savepoints.runs.output)) > before
