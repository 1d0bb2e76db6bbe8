"""C3, C4, S10: a savepoint continues in a changed program, on other numbers of members, and as a promoted shadow.

The rows are compared with a plain program over all records.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.savepoint_groups import ExactGroup, Group, create, groups, savepoint_commands
from integration_tests.savepoint_operators import Chain, Dedup, FirstOfChain, Join, Operator
from integration_tests.test_stateful_functions import PARTITIONS, Records, add
from integration_tests.tiers import LONG
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed, wait_until_no_transaction_is_open
from streamgroups_testkit.waits import wait_until

__all__ = ["create", "groups"]


@pytest.fixture
def exact_groups(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> Callable[[Operator, str], ExactGroup]:
    """Opens a group of an operator, with a topic for its rows."""
    commands = savepoint_commands(bootstrap, tmp_path)
    return lambda operator, suffix: ExactGroup(
        spark, f"{group}{suffix}", operator, tmp_path, commands, new_topic(PARTITIONS)
    )


@LONG
def test_C3_both_operators_of_a_chain_are_renamed_in_a_fork_and_in_place(
    create: Callable[[type[Operator]], Operator], groups: Callable[[Operator, str], Group]
) -> None:
    operator = create(Chain)
    renamed = operator.changed(Chain, steps=("tens", "tops"))
    group, fork, changed = groups(operator, ""), groups(renamed, "-fork"), groups(renamed, "")
    operator.write(150)
    with group.running() as query:
        wait_until(group.has_begun, "each partition has a committed batch")
        id_ = group.commands.create(group.name)
        operator.write(150)
        group.wait(query, first := operator.expected())
    expected = group.commands.record(id_)
    rename = ("--rename", "small=tens", "--rename", "peaks=tops")
    group.commands.restore(id_, "--group", fork.name, *rename)
    group.commands.restore(id_, *rename, "--accept-repeated-output")
    operator.write(50)
    with fork.running() as query:
        fork.wait(query, operator.expected_after(expected))
    # The checkpoint names the old program.
    with pytest.raises(StreamingQueryException, match="belongs to another program"), changed.running() as query:
        query.awaitTermination(60)
    with changed.running(onOtherProgram="continue") as query:
        changed.wait(query, operator.expected_after(expected))
        # A savepoint of the changed program has its operators only.
        assert [it.name for it in group.commands.record(group.commands.create(group.name)).operators] == [
            "tens",
            "tops",
        ]
        operator.end()
        changed.wait(query, operator.expected_after(expected))
    assert first.total() > 50


@LONG
def test_C3_an_operator_is_removed(
    create: Callable[[type[Operator]], Operator], groups: Callable[[Operator, str], Group]
) -> None:
    operator = create(Chain)
    shorter = operator.changed(FirstOfChain)
    group, changed = groups(operator, ""), groups(shorter, "")
    operator.write(150)
    with group.running() as query:
        wait_until(group.has_begun, "each partition has a committed batch")
        group.wait(query, operator.expected())
    before = group.commands.record(group.commands.create(group.name, "--require-stopped"))
    group.commands.restore(before.id, "--without", "peaks")
    operator.write(150)
    operator.end()
    with changed.running("changed") as query:
        changed.wait(query, shorter.expected_after(before))
        after = group.commands.record(group.commands.create(group.name))
    assert [it.name for it in after.operators] == ["small"]


@LONG
def test_C4_another_number_of_members_continues(
    create: Callable[[type[Operator]], Operator],
    exact_groups: Callable[[Operator, str], ExactGroup],
    admin: AdminClient,
) -> None:
    """One member, then two, then one, each time from a savepoint of the members before."""
    operator = create(Chain)
    source = exact_groups(operator, "")
    operator.write(100)
    with source.running() as query:
        wait_until(source.has_begun, "each partition has a committed batch")
        operator.write(50)
        source.wait(query, operator.expected())
        savepoint = source.commands.record(source.commands.create(source.name))
    for members in (2, 1):
        target = exact_groups(operator, f"-{members}")
        target.commands.restore(savepoint.id, "--group", target.name)
        operator.write(100)
        with ExitStack() as running:
            queries = [running.enter_context(target.running(f"member-{number}")) for number in range(members)]
            wait_until(partial(_is_shared, admin, target.name, members), f"{members} members own partitions")
            operator.write(100)
            target.wait(queries[0], operator.expected_after(savepoint))
            savepoint = target.commands.record(target.commands.create(target.name))
    assert savepoint.group_id.endswith("-1")


def _is_shared(admin: AdminClient, group: str, members: int) -> bool:
    described = admin.describe_consumer_groups([group])[group].result(30)
    return sum(bool(member.assignment.topic_partitions) for member in described.members) == members


@contextmanager
def under_load(operator: Operator) -> Iterator[None]:
    """Writes records all the time, until the block ends."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.3):
            operator.write(3)

    load = threading.Thread(target=write)
    load.start()
    try:
        yield
    finally:
        ended.set()
        load.join()


@LONG
@pytest.mark.parametrize("kind", [Dedup, Join, Chain])
def test_C3_a_shadow_is_promoted_under_load(
    kind: type[Operator],
    create: Callable[[type[Operator]], Operator],
    exact_groups: Callable[[Operator, str], ExactGroup],
) -> None:
    """Records are written all the time. The main group has each row once, first by the old program and then by the new one."""
    operator = create(kind)
    main, shadow = exact_groups(operator, ""), exact_groups(operator, "-shadow")
    operator.write(50)
    with under_load(operator):
        with main.running("old"):
            wait_until(main.has_begun, "each partition has a committed batch")
            first = main.commands.record(main.commands.create(main.name))
            main.commands.restore(first.id, "--group", shadow.name)
            with shadow.running():
                wait_until(lambda: _is_after(shadow, first.positions), "the shadow has read each partition")
            promoted = main.commands.record(main.commands.create(shadow.name))
            wait_until(lambda: _is_after(main, promoted.positions), "the main group is after the savepoint")
        before = main.positions()
        main.commands.restore(promoted.id, "--state-only", "--group", main.name)
        with main.running("new"):
            wait_until(lambda: _is_after(main, before), "the new program has read each partition")
    operator.end()
    with main.running("new") as query:
        main.wait(query, operator.expected())
    shadowed = operator.expected({tp: it.next_offset for tp, it in promoted.positions.items()})
    shadow.check(shadowed - operator.expected({tp: it.next_offset for tp, it in first.positions.items()}))


def _is_after(group: Group, positions: Any) -> bool:
    offsets = {tp: getattr(it, "next_offset", it) for tp, it in positions.items()}
    committed = group.positions()
    return all(committed.get(tp, 0) > offset for tp, offset in offsets.items())


def add_ten_times(state: pa.Table, records: pa.Table, time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
    """As ``add``, with each value ten times as large."""
    values = pc.multiply(records["value"], 10)
    return add(state, records.set_column(records.schema.get_field_index("value"), "value", values), time)


@LONG
@pytest.mark.parametrize("is_behind", [False, True], ids=["stopped", "killed before the commit of the group"])
def test_C2_C3_X2_a_promoted_state_replaces_that_of_a_ledger(
    is_behind: bool,
    spark: SparkSession,
    bootstrap: str,
    group: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Both functions have one version, so only the values distinguish their states. No row is written twice."""
    topic, commands = new_topic(PARTITIONS), savepoint_commands(bootstrap, tmp_path)
    records, shadow = Records(bootstrap, topic), f"{group}-shadow"

    def run(name: str, function: Callable[..., Any]) -> list[dict[str, Any]]:
        """Runs the program to the end of the topic. Returns the rows of its table."""
        options = shared_options(bootstrap, name, topic, "consumer") | {"maxOffsetsPerTrigger": "150"}
        options |= {"stateLocation": str(commands.states)}
        source = spark.readStream.format("streamgroups").options(**options).load()
        values = source.selectExpr("key", "cast(cast(value AS string) AS bigint) AS value", "partition", "offset")
        columns = "n bigint, total bigint"
        totals = sg.stateful(
            values, function, by=["key"], state=columns, output=f"key binary, {columns}", name="totals"
        )
        rows = totals.selectExpr("cast(key AS string) AS key", "n", "total")
        sink = sg.DeltaSink(uri=str(tmp_path / f"table-{name}"))
        checkpoint = str(tmp_path / f"{name}-{function.__name__}-{len(list(tmp_path.iterdir()))}")
        writer = sg.exactly_once(rows, sink=sink, checkpoint=checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        assert committed_offsets(bootstrap, name, topic) == records.ends
        return list(DeltaTable(sink.uri).to_pyarrow_table().to_pylist())

    records.write(100)
    run(shadow, add_ten_times)
    promoted = commands.create(shadow, "--require-stopped")
    run(group, add)
    records.write(20)
    run(group, add)
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    records.write(30)
    before = run(group, add)
    if is_behind:
        admin.alter_consumer_group_offsets([committed])[group].result(30)
    commands.restore(promoted, "--state-only", "--group", group)
    records.write(50)
    rows = run(group, add_ten_times)
    assert [it for it, times in Counter((row["key"], row["n"]) for row in rows).items() if times > 1] == []
    assert len(rows) > len(before)
    newest = {row["key"]: (row["n"], row["total"]) for row in sorted(rows, key=lambda row: int(row["n"]))}
    assert newest == {key: (n, 10 * total) for key, (n, total) in records.totals.items()}


def count_since(state: pa.Table, records: pa.Table, time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
    """As ``add``. ``since`` is the number of records of the key before the second version."""
    known = dict(zip(state["key"].to_pylist(), state["since"].to_pylist(), strict=True))
    sums, _ = add(state.select(["key", "n", "total"]), records, time)
    sums = sums.append_column("since", pa.array([known.get(key, 0) for key in sums["key"].to_pylist()], pa.int64()))
    return sums, sums


def with_since(rows: pa.Table) -> pa.Table:
    return rows.append_column("since", rows["n"])


@LONG
def test_C3_a_new_version_of_a_function_converts_the_state_of_each_key_once(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, commands = new_topic(PARTITIONS), savepoint_commands(bootstrap, tmp_path)
    records = Records(bootstrap, topic)

    def run(name: str, target: str, version: int, count: int) -> dict[str, tuple[int, ...]]:
        """Runs the program to the end of the topic. Returns the newest row of each key, and checks that none is written twice."""
        records.write(count)
        options = shared_options(bootstrap, name, topic, "consumer") | {"maxOffsetsPerTrigger": "150"}
        options |= {"stateLocation": str(commands.states)}
        source = spark.readStream.format("streamgroups").options(**options).load()
        values = source.selectExpr("key", "cast(cast(value AS string) AS bigint) AS value", "partition", "offset")
        columns = "n bigint, total bigint" + (", since bigint" if version == 2 else "")
        more: dict[str, Any] = {"version": 2, "migrate": {1: with_since}} if version == 2 else {}
        rows = sg.stateful(values, count_since if version == 2 else add, by=["key"], state=columns,
                           output=f"key binary, {columns}", name="totals", **more)  # fmt: skip
        out = rows.selectExpr("cast(key AS string) AS key", "* EXCEPT (key)").selectExpr("to_json(struct(*)) AS value")
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=target)
        writer = sg.exactly_once(
            out, sink=sink, checkpoint=str(tmp_path / f"{name}-{len(records.ends)}-{version}-{count}")
        )
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        assert committed_offsets(bootstrap, name, topic) == records.ends
        wait_until_no_transaction_is_open(bootstrap, target)
        found = [json.loads(message.value) for message in read_committed(bootstrap, target)]
        twice = [it for it, times in Counter((row["key"], row["n"]) for row in found).items() if times > 1]
        assert twice == []
        return {row["key"]: tuple(row.values())[1:] for row in sorted(found, key=lambda row: int(row["n"]))}

    first = run(group, new_topic(1), 1, 100)
    id_ = commands.create(group, "--require-stopped")
    fork, target = f"{group}-fork", new_topic(1)
    commands.restore(id_, "--group", fork)
    for count in (70, 30):
        assert run(fork, target, 2, count) == {key: (*sums, first[key][0]) for key, sums in records.totals.items()}
    # A savepoint of the new version continues in the new version.
    last, again = f"{group}-last", new_topic(1)
    commands.restore(commands.create(fork), "--group", last)
    assert run(last, again, 2, 40) == {key: (*sums, first[key][0]) for key, sums in records.totals.items()}
    assert Counter(it[0] for it in first.values()).keys() == {5}
