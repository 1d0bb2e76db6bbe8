"""``streamgroups topics create`` and ``produce``."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamgroups.errors import BrokerUnreachable, NotAuthorized, RecordRejected, StreamGroupsError
from streamgroups.fakes import FakeAdmin
from streamgroups.fakes.cluster import FakeCluster
from streamgroups.partitions import TopicPartition
from streamgroups.record_lines import NewRecord
from streamgroups_cli.topics import producing
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class FakeWriter:
    """Writes to a cluster in memory. Rejects the value ``too large``."""

    def __init__(self, cluster: FakeCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.written: Counter[int] = Counter()
        self.records: list[NewRecord] = []

    def write(self, record: NewRecord) -> None:
        if record.value == b"too large":
            raise RecordRejected("The record is too large.", remedy="Write a smaller one.")
        tp = TopicPartition(self._topic, record.partition or 0)
        self._cluster.produce(tp, key=record.key, value=record.value, headers=record.headers)
        self.records.append(record)
        self.written[tp.partition] += 1

    def flush(self) -> None: ...


@pytest.fixture
def writers(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[FakeWriter]:
    opened: list[FakeWriter] = []

    def open_writer(_config: object, topic: str, _timeout_s: float) -> FakeWriter:
        opened.append(FakeWriter(cli.cluster, topic))
        return opened[-1]

    monkeypatch.setattr(producing, "open_writer", open_writer)
    cli.cluster.create_topic("flights", 2)
    return opened


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    return lambda text: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_create(cli: CommandLine) -> None:
    result = cli("topics", "create", "flights", "airports", "--partitions", "4", "--config", "retention.ms=-1")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "TOPIC     PARTITIONS  REPLICAS  RESULT",
        "flights            4         1  created",
        "airports           4         1  created",
    ]
    assert dict(cli.cluster.topics()) == {"flights": 4, "airports": 4}


class Rejecting(FakeAdmin):
    """Rejects topic ``b``."""

    error: StreamGroupsError = NotAuthorized("Topic 'b' could not be created: not authorized.", remedy="Grant Create.")

    def create_topic(self, name: str, *numbers: Any, **settings: Any) -> bool:
        if name == "b":
            raise self.error
        return super().create_topic(name, *numbers, **settings)


def test_O2_topics_that_were_created_before_an_error_are_reported(cli: CommandLine) -> None:
    cli.admin = Rejecting(cli.cluster)
    result = cli("topics", "create", "a", "b", "c", "-o", "json")
    assert (result.code, dict(cli.cluster.topics())) == (4, {"a": 1, "c": 1})
    assert [(it["topic"], it["result"]) for it in json.loads(result.out)["topics"]] == [
        ("a", "created"),
        ("b", "failed"),
        ("c", "created"),
    ]
    error = json.loads(result.err)["error"]
    assert error["message"] == "Created: 'a', 'c'. Not created: 'b'. Topic 'b' could not be created: not authorized."
    assert error["remedy"] == "Grant Create. Then repeat the command for: b."
    result = cli("topics", "create", "b", "a", "--if-not-exists")
    assert (result.code, result.out, "Error: Topic 'b' could not be created" in result.err) == (1, "", True)


def test_O2_no_topic_is_created_after_an_error_of_the_connection(cli: CommandLine) -> None:
    cli.admin = Rejecting(cli.cluster)
    cli.admin.error = BrokerUnreachable("No broker responded.")
    result = cli("topics", "create", "a", "b", "c")
    assert (result.code, dict(cli.cluster.topics())) == (4, {"a": 1})
    assert "Created: 'a'. Not created: 'b', 'c'. No broker responded. Then repeat the command for: b c." in result.err


class Raced(FakeAdmin):
    """Another operator creates topic ``b`` between the check and the creation."""

    def create_topic(self, name: str, *numbers: Any, **settings: Any) -> bool:
        if name == "b" and name not in dict(self.cluster.topics()):
            self.cluster.create_topic("b", 4)
        return super().create_topic(name, *numbers, **settings)

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster


@pytest.mark.parametrize("option", [[], ["--if-not-exists"]])
def test_O2_a_topic_of_another_operator_is_checked_as_an_existing_one(cli: CommandLine, option: list[str]) -> None:
    cli.admin = Raced(cli.cluster)
    alone = cli("topics", "create", "b", "--partitions", "8", *option)
    assert (alone.code, alone.out) == (3, "")
    assert "Error: Topic 'b' exists already, with 4 partitions and 1 replica" in alone.err
    cli.cluster.delete_topic("b")
    partly = cli("topics", "create", "a", "b", "--partitions", "8", *option)
    assert (partly.code, "b               4         1  failed" in partly.out) == (4, True)
    assert "Created: 'a'. Not created: 'b'. Topic 'b' exists already, with 4 partitions and 1 replica" in partly.err
    assert "Nothing was changed" not in partly.err


def test_O2_a_topic_of_another_operator_is_accepted_with_the_same_numbers(cli: CommandLine) -> None:
    cli.admin = Raced(cli.cluster)
    result = cli("topics", "create", "a", "b", "--partitions", "4", "--if-not-exists", "-o", "json")
    assert (result.code, [it["result"] for it in json.loads(result.out)["topics"]]) == (0, ["created", "exists"])


def test_an_existing_topic_is_explained_before_any_is_created(cli: CommandLine) -> None:
    cli.cluster.create_topic("flights", 2)
    rejected = cli("topics", "create", "airports", "flights", "--partitions", "4")
    assert (rejected.code, dict(cli.cluster.topics())) == (3, {"flights": 2})
    assert "Topic 'flights' exists already, with 2 partitions and 1 replica. Nothing was changed." in rejected.err
    assert "accept it with --if-not-exists" in rejected.err


def test_an_existing_topic_is_accepted_with_the_same_numbers(cli: CommandLine) -> None:
    cli.cluster.create_topic("flights", 2)
    command = ["topics", "create", "flights", "--if-not-exists", "-o", "json"]
    accepted = json.loads(cli(*command, "--partitions", "2", "--replication-factor", "1").out)
    assert accepted["topics"] == [{"topic": "flights", "partitions": 2, "replicas": 1, "result": "exists"}]
    assert cli(*command).code == 0
    for different in (["--partitions", "3"], ["--replication-factor", "2"], ["--config", "retention.ms=5"]):
        rejected = cli(*command, *different)
        assert (rejected.code, dict(cli.cluster.topics())) == (3, {"flights": 2})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flights", "--config", "retention.ms"], "A --config option is not NAME=VALUE"),
        (["flights", "--partitions", "0"], "--partitions"),
        (["flights", "--replication-factor", "9"], "could not be created"),
    ],
)
def test_a_wrong_topic_is_not_created(cli: CommandLine, arguments: list[str], message: str) -> None:
    rejected = cli("topics", "create", *arguments)
    assert (rejected.code, dict(cli.cluster.topics())) == (2, {})
    assert message in rejected.err


def test_produce_writes_a_record_for_each_line(
    cli: CommandLine, writers: list[FakeWriter], type_in: Callable[[bytes], None]
) -> None:
    type_in(b"BOS\r\n\nNYC")
    result = cli("topics", "produce", "flights", "--rate", "1000")
    assert (result.code, result.err) == (0, "3 records were written to 'flights' (by partition: 0: 3).\n")
    assert [(r.key, r.value) for r in writers[0].records] == [(None, b"BOS"), (None, b""), (None, b"NYC")]


def test_produce_with_keys(cli: CommandLine, writers: list[FakeWriter], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"BOS\tlate\nNYC\t\xff\n")
    assert cli("topics", "produce", "flights", str(file), "--key-separator", "\\t").code == 0
    assert [(r.key, r.value) for r in writers[0].records] == [(b"BOS", b"late"), (b"NYC", b"\xff")]


@pytest.mark.parametrize("is_file", [True, False])
def test_a_byte_order_mark_belongs_to_no_record(
    cli: CommandLine, writers: list[FakeWriter], type_in: Callable[[bytes], None], tmp_path: Path, is_file: bool
) -> None:
    file = tmp_path / "lines"
    for line, options in ((b"a:1", ["--key-separator", ":"]), (b'{"key": "a", "value": "1"}', ["--json"])):
        file.write_bytes(b"\xef\xbb\xbf" + line + b"\n" + line + b"\n")
        type_in(file.read_bytes())
        assert cli("topics", "produce", "flights", *([str(file)] if is_file else []), *options).code == 0
        assert [(r.key, r.value) for r in writers[-1].records] == [(b"a", b"1")] * 2


def test_produce_json(cli: CommandLine, writers: list[FakeWriter], type_in: Callable[[bytes], None]) -> None:
    type_in(b'{"key": "BOS", "value": {"delay": 5}, "partition": 1, "headers": {"a": "b"}}\n\n{"timestamp": 7}\n')
    assert (
        "2 records were written to 'flights' (by partition: 0: 1, 1: 1)"
        in cli("topics", "produce", "flights", "--json").err
    )
    assert writers[0].records == [
        NewRecord(b"BOS", b'{"delay":5}', (("a", b"b"),), 1),
        NewRecord(None, None, timestamp_ms=7),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"valeu": 2}', "the field 'valeu' is unknown."),
        ('{"value": 2, "partition": 2}', "partition 2 of topic 'flights' does not exist."),
    ],
)
def test_a_file_with_an_invalid_line_writes_nothing(
    cli: CommandLine, writers: list[FakeWriter], tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "lines.json"
    file.write_text(f'{{"value": 1}}\n{line}\n')
    rejected = cli("topics", "produce", "flights", str(file), "--json")
    assert (rejected.code, writers) == (2, [])
    assert f"{file}, line 2: {message}" in rejected.err


def test_an_invalid_line_of_standard_input_ends_it(
    cli: CommandLine, writers: list[FakeWriter], type_in: Callable[[bytes], None]
) -> None:
    type_in(b"a:1\nb:2\nc3\nd:4\n")
    partly = cli("topics", "produce", "flights", "--key-separator", ":")
    assert (partly.code, len(writers[0].records)) == (4, 2)
    assert "2 records were written to 'flights'. Then: Standard input, line 3: the key separator ':' is" in partly.err
    type_in(b"too large\n")
    assert (cli("topics", "produce", "flights").code, len(writers[1].records)) == (1, 0)
    type_in(b'{"partition": 2}\n')
    rejected = cli("topics", "produce", "flights", "--json")
    assert rejected.code == 2
    assert "line 1: partition 2 of topic 'flights' does not exist. It has 2 partitions, from 0." in rejected.err


def test_O2_ctrl_c_reports_the_written_records(
    cli: CommandLine, writers: list[FakeWriter], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = FakeWriter.write

    def interrupt(writer: FakeWriter, record: NewRecord) -> None:
        if record.value == b"NYC":
            raise KeyboardInterrupt
        write(writer, record)

    monkeypatch.setattr(FakeWriter, "write", interrupt)
    file = tmp_path / "lines"
    file.write_text("BOS\nNYC\nLAX\n")
    result = cli("topics", "produce", "flights", str(file))
    assert (result.code, len(writers[0].records)) == (130, 1)
    assert result.err == (
        "1 record was written to 'flights' (by partition: 0: 1). The command was interrupted. "
        "A repeated input writes the first records again.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["flihgts"], 1, "Create it with: streamgroups topics create flihgts --partitions 4."),
        (["flights", "--json", "--key-separator", ":"], 2, "exclude each other"),
        (["flights", "--key-separator", ""], 2, "is empty"),
        (["flights", "--rate", "0"], 2, "It must be at least 0.001."),
        (["flights", "nowhere.txt"], 2, "nowhere.txt cannot be read: No such file or directory."),
    ],
)
def test_wrong_arguments_write_nothing(
    cli: CommandLine,
    writers: list[FakeWriter],
    type_in: Callable[[bytes], None],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    type_in(b"a\n")
    rejected = cli("topics", "produce", *arguments)
    assert (rejected.code, writers) == (code, [])
    assert message in rejected.err
