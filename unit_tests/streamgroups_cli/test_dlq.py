"""P4, P5: ``streamgroups dlq``: what it prints, what it sends, and how it ends."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from streamgroups.dlq.letter import DeadLetter, Origin, letter_id
from streamgroups.dlq.record_headers import to_headers
from streamgroups.dlq.redrive import RedrivenRecord, redriven_topic
from streamgroups.errors import BrokerUnreachable, FencedMember, InvalidOption, NotAuthorized, StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.dlq import queue as queues
from streamgroups_cli.exits import ExitCode
from unit_tests.cli_runner import CommandLine

DLQ = "orders.dlq"
HOUR_MS = 3_600_000


@dataclass
class FakeRedrives:
    """Redrives of the cluster in memory. A transaction fails with the next of ``failures``, unless it is ``None``."""

    cli: CommandLine
    failures: list[StreamGroupsError | None] = field(default_factory=list)
    timeouts: list[str] = field(default_factory=list)

    @contextmanager
    def open(self, _cluster: Cluster, dlq: str, timeout: str) -> Iterator[FakeRedrives]:
        self.timeouts.append(timeout)
        if redriven_topic(dlq) not in self.cli.cluster.topics():
            self.cli.cluster.create_topic(redriven_topic(dlq), 1)
        yield self

    def send(self, records: Sequence[RedrivenRecord]) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        cluster = self.cli.cluster
        for it in records:
            cluster.produce(
                TopicPartition(it.topic, 0),
                key=it.key,
                value=it.value,
                headers=it.headers,
                timestamp_ms=it.timestamp_ms,
            )
            cluster.produce(TopicPartition(redriven_topic(DLQ), 0), key=it.letter_id.encode(), value=b"{}")


def letter(offset: int, *, attempt: int = 1, error_class: str = "ValueError", step: str = "decode") -> DeadLetter:
    origin = Origin(TopicPartition("orders", offset % 2), offset, 1_000 * offset or 1)
    return DeadLetter(
        id=letter_id("board", step, origin),
        group_id="board",
        query="prices",
        failed_at_ms=offset * HOUR_MS,
        attempt=attempt,
        step=step,
        error_class=error_class,
        error="no JSON: " + "x" * 100,
        details={"at": "prices.py:7 in priced"},
        origin=origin,
        key=b"k",
        value=f"{{{offset}".encode() if offset != 3 else b"\xff",
        headers=(("trace", b"1"),),
    )


LETTERS = [letter(0), letter(1, error_class="KeyError"), letter(2, attempt=5), letter(3, step="sink")]


@pytest.fixture
def dlq(cli: CommandLine) -> CommandLine:
    cli.cluster.create_topic("orders", 2)
    cli.cluster.create_topic(DLQ, 2)
    reads(cli, "board", "orders")
    for it in LETTERS:
        put(cli, it)
    return cli


def reads(cli: CommandLine, group_id: str, topic: str) -> None:
    cli.admin.alter_offsets(group_id, {TopicPartition(topic, 0): Committed(0)})


def put(cli: CommandLine, letter: DeadLetter, partition: int = 0) -> None:
    cli.cluster.produce(
        TopicPartition(DLQ, partition), key=letter.key, value=letter.value, headers=to_headers(letter), timestamp_ms=5
    )


@pytest.fixture
def redrives(dlq: CommandLine, monkeypatch: pytest.MonkeyPatch) -> FakeRedrives:
    redrives = FakeRedrives(dlq)
    monkeypatch.setattr(queues, "open_redrive", redrives.open)
    return redrives


def ids(result: str) -> list[str]:
    return [it["id"] for it in json.loads(result)["letters"]]


def sent(cli: CommandLine, topic: str) -> list[bytes | None]:
    return [it.value for it in cli.admin.read({TopicPartition(topic, 0): 0}, None)]


# ---- list, show, stats -----------------------------------------------------------------------------------------------


def test_P4_list_is_a_table_with_the_newest_letter_last(dlq: CommandLine) -> None:
    result = dlq("dlq", "list", DLQ)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["FAILED-AT", "STATE", "ATTEMPT", "STEP", "ERROR-CLASS", "ERROR", "ID"]
    assert [line.split()[-1] for line in lines[1:]] == [it.id for it in LETTERS]
    assert [line.split()[1] for line in lines[1:]] == ["waiting", "waiting", "parked", "waiting"]
    assert "…" in lines[1]


def test_P4_list_as_json_yaml_and_csv(dlq: CommandLine) -> None:
    document = json.loads(dlq("dlq", "list", DLQ, "-o", "json").out)
    assert (document["schema_version"], document["dlq"], document["count"]) == (1, DLQ, 4)
    assert document["letters"][1] == {
        "id": "board/orders/1/1/decode",
        "group": "board",
        "query": "prices",
        "failed_at": "1970-01-01T01:00:00.000Z",
        "attempt": 1,
        "step": "decode",
        "error_class": "KeyError",
        "error": "no JSON: " + "x" * 100,
        "details": {"at": "prices.py:7 in priced"},
        "topic": "orders",
        "partition": 1,
        "offset": 1,
        "timestamp": "1970-01-01T00:00:01.000Z",
        "headers": [{"name": "trace", "value": "1"}],
        "key": "k",
        "value": "{1",
        "state": "waiting",
        "dlq_partition": 0,
        "dlq_offset": 1,
    }
    assert document["letters"][3]["value_base64"] == "/w=="
    assert yaml.safe_load(dlq("dlq", "list", DLQ, "-o", "yaml").out) == document
    rows = list(csv.DictReader(io.StringIO(dlq("dlq", "list", DLQ, "-o", "csv").out)))
    assert rows[0]["error"] == LETTERS[0].error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--error", "KeyError"], [1]),
        (["--step", "sink", "--step", "decode", "--error", "ValueError"], [0, 2, 3]),
        (["--query", "prices", "--group", "board"], [0, 1, 2, 3]),
        (["--group", "other"], []),
        (["--source", "orders:1"], [1, 3]),
        (["--since", "1970-01-01T01:00:00Z", "--until", "1970-01-01T03:00:00Z"], [1, 2]),
        (["--id", LETTERS[2].id], [2]),
        (["--state", "parked"], [2]),
        (["--state", "waiting", "--max-attempts", "9"], [0, 1, 2, 3]),
        (["--limit", "2"], [2, 3]),
        (["-n", "1"], [3]),
    ],
)
def test_P4_list_selects(dlq: CommandLine, options: list[str], expected: list[int]) -> None:
    result = dlq("dlq", "list", DLQ, "-o", "json", *options)
    assert ids(result.out) == [LETTERS[it].id for it in expected]
    assert ("of 4 letters" in result.err) == ("--limit" in options or "-n" in options)


def test_P4_list_shows_the_newest_letters_of_all_partitions(dlq: CommandLine) -> None:
    """The partitions are read one after the other."""
    for it in (letter(0, step="old"), letter(3, step="equal")):
        put(dlq, it, 1)
    assert ids(dlq("dlq", "list", DLQ, "-o", "json", "-n", "1").out) == [letter(3, step="equal").id]
    newest = [letter(it).id for it in (1, 2)] + [letter(3, step=it).id for it in ("sink", "equal")]
    result = dlq("dlq", "list", DLQ, "-o", "json", "-n", "4")
    assert (ids(result.out), "4 of 6 letters. --limit 6 lists all." in result.err) == (newest, True)


@pytest.mark.parametrize("options", [["--since", "yesterday"], ["--source", "orders:x"], ["--state", "dead"]])
def test_P4_a_malformed_selection_is_a_usage_error(dlq: CommandLine, options: list[str]) -> None:
    assert dlq("dlq", "list", DLQ, *options).code == ExitCode.USAGE


@pytest.mark.parametrize("command", ["list", "stats", "export", "redrive", "purge"])
def test_P4_an_unknown_queue_is_an_error(dlq: CommandLine, command: str) -> None:
    result = dlq("dlq", command, "orders.dql")
    assert (result.code, "'orders.dql' does not exist" in result.err) == (ExitCode.ERROR, True)


def test_P4_foreign_records_are_reported(dlq: CommandLine) -> None:
    dlq.cluster.produce(TopicPartition(DLQ, 1), value=b"hello")
    dlq.cluster.produce(TopicPartition(DLQ, 1), headers=(("streamgroups.dlq.id", b"x"),))
    result = dlq("dlq", "list", DLQ, "-o", "json")
    assert len(ids(result.out)) == 4
    assert "2 records of 'orders.dlq' are no dead letter of this library, such as orders.dlq-1@0." in result.err


def test_P4_aborted_letters_do_not_exist(dlq: CommandLine) -> None:
    cluster = dlq.cluster = dlq.admin.cluster = dlq.cluster.reading_committed()
    transaction = cluster.begin_transaction()
    cluster.produce(TopicPartition(DLQ, 1), headers=to_headers(letter(8)), transaction=transaction)
    assert letter(8).id not in ids(dlq("dlq", "list", DLQ, "-o", "json").out)
    transaction.abort()
    assert letter(8).id not in ids(dlq("dlq", "list", DLQ, "-o", "json").out)


def test_P4_a_given_isolation_level_is_used(dlq: CommandLine) -> None:
    for level in ("read_committed", "read_uncommitted"):
        result = dlq("dlq", "list", DLQ, "--kafka", f"kafka.Isolation.Level={level}")
        assert result.code == 0, result.err
        assert dlq.config is not None
        assert dlq.config.get("isolation.level") == level


def test_P4_show_contains_everything(dlq: CommandLine) -> None:
    result = dlq("dlq", "show", DLQ, LETTERS[1].id, LETTERS[3].id)
    assert result.code == 0
    for text in (
        f"Letter {LETTERS[1].id}",
        "KeyError: no JSON",
        "prices.py:7 in priced",
        "orders-1@1",
        "orders.dlq-0@1",
        "header trace",
        "{1",
        "0xff",
    ):
        assert text in result.out
    assert "0x7b31" in dlq("dlq", "show", DLQ, LETTERS[1].id, "--show", "hex", "--max-attempts", "2").out
    rows = list(csv.reader(io.StringIO(dlq("dlq", "show", DLQ, LETTERS[1].id, "-o", "csv").out)))
    assert [LETTERS[1].id, "state", "waiting"] in rows
    assert ids(dlq("dlq", "show", DLQ, LETTERS[1].id, "-o", "json").out) == [LETTERS[1].id]


def test_P4_show_of_an_unknown_letter(dlq: CommandLine) -> None:
    result = dlq("dlq", "show", DLQ, "x", LETTERS[0].id)
    assert (result.code, "contains no letter x" in result.err) == (ExitCode.USAGE, True)
    assert LETTERS[0].id in result.out


def test_G17_redriven_ids_that_cannot_be_read_are_not_missing(dlq: CommandLine) -> None:
    dlq.cluster.rejections[redriven_topic(DLQ)] = NotAuthorized("It is denied.", remedy="Grant Read.")
    result = dlq("dlq", "list", DLQ)
    assert (result.code, "ids cannot be read. It is denied. Grant Read." in result.err) == (0, True)


def test_P4_stats_count_by_fields(dlq: CommandLine) -> None:
    [first, *_] = counts = json.loads(dlq("dlq", "stats", DLQ, "-o", "json").out)["counts"]
    assert len(counts) == 3
    assert first == {
        "step": "decode",
        "error": "ValueError",
        "topic": "orders",
        "letters": 2,
        "waiting": 1,
        "redriven": 0,
        "parked": 1,
        "no_record": 0,
        "first": "1970-01-01T00:00:00.000Z",
        "last": "1970-01-01T02:00:00.000Z",
    }
    by = ["--by", "hour", "--by", "group", "--by", "query", "--by", "attempt"]
    rows = json.loads(dlq("dlq", "stats", DLQ, "-o", "json", *by, "--max-attempts", "1", "--step", "sink").out)[
        "counts"
    ]
    assert [(row["hour"], row["attempt"], row["parked"]) for row in rows] == [("1970-01-01T03:00:00.000Z", 1, 1)]
    assert dlq("dlq", "stats", DLQ, "--group", "other").out.startswith("STEP")
    put(dlq, replace(letter(9, step="sink"), origin=None, details={"output_topic": "board"}))
    counts = json.loads(dlq("dlq", "stats", DLQ, "-o", "json", "--by", "output_topic").out)["counts"]
    assert [(row["output_topic"], row["letters"]) for row in counts] == [(None, 4), ("board", 1)]


# ---- redrive ---------------------------------------------------------------------------------------------------------


def test_P5_without_execute_nothing_is_sent(redrives: FakeRedrives) -> None:
    cli = redrives.cli
    for options in ([], ["--dry-run"]):
        result = cli("dlq", "redrive", DLQ, *options)
        assert result.code == 0
        assert "Nothing was changed: this is the plan." in result.err
        assert "1 records are parked" in result.err
        assert "Each group that reads these topics receives the records again" in result.err
    assert not redrives.timeouts
    plan = json.loads(cli("dlq", "redrive", DLQ, "-o", "json").out)
    assert (plan["dry_run"], plan["redriven_before"]) == (True, 0)
    assert plan["letters"][2] == {
        "id": LETTERS[2].id,
        "attempt": 5,
        "state": "parked",
        "to": None,
        "repaired": None,
    }


def test_P5_a_letter_is_redriven_once(redrives: FakeRedrives) -> None:
    cli = redrives.cli
    cli.cluster.create_topic("orders.retry")
    arguments = ["dlq", "redrive", DLQ, "--to", "orders.retry", "--execute"]
    result = cli(*arguments, "--error", "KeyError", "--timeout", "7s")
    assert (result.code, "1 letter redriven." in result.err) == (0, True)
    assert redrives.timeouts == ["7s"]
    assert "3 letters redriven." in cli(*arguments, "--include-parked").err
    assert sent(cli, "orders.retry") == [b"{1", b"{0", b"{2", b"\xff"]
    again = cli(*arguments, "--include-parked")
    assert (again.code, "There is nothing to do." in again.err) == (0, True)
    assert "4 letters are already redriven" in again.err
    assert len(sent(cli, "orders.retry")) == 4
    states = {it["state"] for it in json.loads(cli("dlq", "list", DLQ, "-o", "json").out)["letters"]}
    assert states == {"redriven"}


def test_P5_letters_that_cannot_be_written_unchanged_are_named(redrives: FakeRedrives) -> None:
    cli = redrives.cli
    early = letter(8)
    assert early.origin is not None
    put(cli, replace(early, origin=replace(early.origin, timestamp_ms=0)))
    result = cli("dlq", "redrive", DLQ, "--execute")
    assert "3 letters redriven." in result.err
    assert "1 letters are left out, because librdkafka cannot write their timestamp" in result.err
    assert early.id in result.err
    assert "name a topic that their group does not read" not in result.err


@pytest.mark.parametrize("topic", ["payments", DLQ, redriven_topic(DLQ), "__consumer_offsets"])
@pytest.mark.parametrize("group_id", ["board", "unknown", "", "x" * 300])
def test_P5_a_forged_letter_does_not_choose_the_topic(redrives: FakeRedrives, topic: str, group_id: str) -> None:
    cli = redrives.cli
    for name in {"payments", redriven_topic(DLQ), "__consumer_offsets"}:
        cli.cluster.create_topic(name, 1)
    before = sent(cli, topic)
    forged = replace(letter(9), id="forged", group_id=group_id, origin=Origin(TopicPartition(topic, 0), 9))
    put(cli, forged)
    result = cli("dlq", "redrive", DLQ, "--execute")
    assert "3 letters redriven." in result.err, "the others are not held up"
    assert "1 letters name a topic that their group does not read" in result.err
    assert len(sent(cli, topic)) == len(before) + (1 if topic == DLQ else 3 if topic == redriven_topic(DLQ) else 0)
    named = cli("dlq", "redrive", DLQ, "--source", topic, "--execute")
    assert ("1 letter redriven." in named.err) == (topic == "payments")


@pytest.mark.parametrize("partly", [True, False])
def test_G17_letters_of_a_group_that_this_user_may_not_describe_are_named(redrives: FakeRedrives, partly: bool) -> None:
    """Any client can write a letter with any group. So it does not hold up the others."""
    cli = redrives.cli
    origin = Origin(TopicPartition("orders", 0), 9)
    put(cli, replace(letter(9), id="denied", group_id="billing", origin=origin))
    put(cli, replace(letter(9), id="denied, and parked", group_id="stock", attempt=5, origin=origin))
    cli.admin.denied |= {"billing", "stock"}
    arguments = ["dlq", "redrive", DLQ, *([] if partly else ["--group", "billing"])]
    plan = cli(*arguments)
    expected = "1 letters are left out: this user may not describe their groups ('billing')"
    assert (plan.code, f"Warning: {expected}" in plan.err) == (0, True)
    result = cli(*arguments, "--execute")
    assert result.code == (ExitCode.PARTLY_DONE if partly else ExitCode.ERROR)
    assert f"Error: {expected}" in result.err
    assert "Grant Describe on Group 'billing': kafka-acls.sh" in result.err
    assert ("3 letters redriven." in result.err) == partly
    assert "does not read" not in result.err
    named = cli(*arguments, "--source", "orders", "--execute")
    assert (named.code, "1 letter redriven." in named.err) == (0, True)
    assert b"{9" in sent(cli, "orders")


def test_G17_nothing_is_sent_while_the_offsets_of_a_group_are_unknown(
    redrives: FakeRedrives, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, committed_offsets = redrives.cli, redrives.cli.admin.committed_offsets
    put(cli, replace(letter(9), group_id="billing"))
    reads(cli, "billing", "orders")
    error: StreamGroupsError = BrokerUnreachable("The offsets could not be read.", remedy="Try again.")

    def fail(group_ids: Collection[str]) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        if "billing" in group_ids:
            raise error
        return committed_offsets(group_ids)

    monkeypatch.setattr(cli.admin, "committed_offsets", fail)
    result = cli("dlq", "redrive", DLQ, "--execute", "-o", "json")
    reported = json.loads(result.err.splitlines()[-1])["error"]
    assert (result.code, reported["retriable"], sent(cli, "orders")) == (ExitCode.ERROR, True, [])
    assert reported["message"] == "The offsets could not be read. Nothing was sent."
    assert reported["remedy"] == "Try again. Or name the topics of the letters with --source."
    # The group of a letter that is redriven already, or that is named with --source, is not requested.
    assert (
        "1 letter redriven."
        in cli("dlq", "redrive", DLQ, "--execute", "--source", "orders:1", "--group", "billing").err
    )
    assert cli("dlq", "redrive", DLQ, "--execute").code == 0
    error = InvalidOption("The group id is invalid.")
    put(cli, replace(letter(7), id="invalid", group_id="billing"))
    invalid = cli("dlq", "redrive", DLQ, "--execute")
    assert (invalid.code, "1 letters name a topic that their group does not read" in invalid.err) == (0, True)


def test_P5_a_run_that_fails_after_some_transactions_is_continued(
    redrives: FakeRedrives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgroups.dlq.redrive._TRANSACTION_BYTES", 1)
    redrives.failures = [None, BrokerUnreachable("No broker responded.")]
    cli = redrives.cli
    result = cli("dlq", "redrive", DLQ, "--execute")
    assert result.code == ExitCode.PARTLY_DONE
    assert "1 of 3 letters were redriven. No broker responded." in result.err
    assert "run the command again" in result.err
    assert "2 letters redriven." in cli("dlq", "redrive", DLQ, "--execute").err
    assert sent(cli, "orders") == [b"{0", b"{1", b"\xff"]


def test_P5_a_fenced_run_is_rejected(redrives: FakeRedrives) -> None:
    redrives.failures = [FencedMember("Another redrive has started.")]
    result = redrives.cli("dlq", "redrive", DLQ, "--execute", "-o", "json")
    assert result.code == ExitCode.REJECTED
    assert json.loads(result.err.splitlines()[-1])["error"]["code"] == "fenced_member"


def test_P5_letters_that_another_run_has_sent_meanwhile_are_left_out(
    redrives: FakeRedrives, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = redrives.cli

    @contextmanager
    def open_later(cluster: Cluster, dlq: str, timeout: str) -> Iterator[FakeRedrives]:
        with redrives.open(cluster, dlq, timeout) as running:
            cli.cluster.produce(TopicPartition(redriven_topic(DLQ), 0), key=LETTERS[0].id.encode())
            yield running

    monkeypatch.setattr(queues, "open_redrive", open_later)
    result = cli("dlq", "redrive", DLQ, "--execute")
    assert "2 letters redriven." in result.err
    assert "1 more were redriven by another run meanwhile." in result.err
    assert sent(cli, "orders") == [b"{1", b"\xff"]


def test_P5_an_unknown_target_is_an_error_before_anything_is_sent(redrives: FakeRedrives) -> None:
    result = redrives.cli("dlq", "redrive", DLQ, "--to", "ordres", "--execute")
    assert (result.code, "nothing was sent" in result.err) == (ExitCode.ERROR, True)
    for topic in (DLQ, redriven_topic(DLQ)):
        assert redrives.cli("dlq", "redrive", DLQ, "--to", topic).code == ExitCode.USAGE
    assert not redrives.timeouts


def test_P5_repaired_values_are_sent(redrives: FakeRedrives, tmp_path: Path) -> None:
    cli, file = redrives.cli, tmp_path / "letters.jsonl"
    result = cli("dlq", "export", DLQ, "--file", str(file), "--source", "orders:1", "--max-attempts", "3")
    assert (result.code, f"2 letters are in {file}." in result.err) == (0, True)
    assert cli("dlq", "export", DLQ, "--file", str(file)).code == ExitCode.USAGE
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [it["id"] for it in lines] == [LETTERS[1].id, LETTERS[3].id]
    lines[0]["value"] = {"price": 1}
    file.write_text("\n".join(map(json.dumps, lines)))
    plan = json.loads(cli("dlq", "redrive", DLQ, "--from-file", str(file), "-o", "json").out)["letters"]
    assert [(it["id"], it["repaired"]) for it in plan] == [(LETTERS[1].id, "yes"), (LETTERS[3].id, "no")]
    assert cli("dlq", "redrive", DLQ, "--from-file", str(file), "--execute").code == 0
    assert sent(cli, "orders") == [b'{"price":1}', b"\xff"]
    assert [json.loads(it)["id"] for it in cli("dlq", "export", DLQ).out.splitlines()] == [LETTERS[0].id, LETTERS[2].id]


def test_P5_repaired_values_may_contain_separators_of_lines(redrives: FakeRedrives, tmp_path: Path) -> None:
    cli, file = redrives.cli, tmp_path / "letters.jsonl"
    # Other tools write such characters as they are, and a byte order mark.
    lines = [json.dumps({"id": LETTERS[n].id, "value": f"{n}\u2028\x85"}, ensure_ascii=False) for n in (1, 3)]
    file.write_bytes("\r\n".join([*lines, ""]).encode("utf-8-sig"))
    assert cli("dlq", "redrive", DLQ, "--from-file", str(file), "--execute").code == 0
    assert sent(cli, "orders") == [b"1\xe2\x80\xa8\xc2\x85", b"3\xe2\x80\xa8\xc2\x85"]


def test_P5_an_unchanged_file_sends_no_letter_without_its_record(redrives: FakeRedrives, tmp_path: Path) -> None:
    cli, file = redrives.cli, tmp_path / "letters.jsonl"
    large = replace(letter(4), value=None, details={"value_bytes": "2000000"})
    put(cli, large)
    before = sent(cli, "orders")
    assert "value" not in json.loads(cli("dlq", "show", DLQ, large.id, "-o", "json").out)["letters"][0]
    cli("dlq", "export", DLQ, "--id", large.id, "--file", str(file))
    result = cli("dlq", "redrive", DLQ, "--from-file", str(file), "--execute", "-o", "json")
    [row] = json.loads(result.out)["letters"]
    assert (row["state"], row["to"], row["repaired"]) == ("no-record", None, "no")
    assert "1 letters do not contain their records. Add the missing keys and values" in result.err
    assert sent(cli, "orders") == before
    file.write_text(json.dumps({"id": large.id, "value": None}))
    result = cli("dlq", "redrive", DLQ, "--from-file", str(file), "--execute", "-o", "json")
    [row] = json.loads(result.out)["letters"]
    assert (row["state"], row["to"], row["repaired"]) == ("waiting", "orders", "yes")
    assert sent(cli, "orders") == [*before, None]


def test_P5_a_file_that_cannot_be_read_is_a_usage_error(redrives: FakeRedrives, tmp_path: Path) -> None:
    assert redrives.cli("dlq", "redrive", DLQ, "--from-file", str(tmp_path / "none")).code == ExitCode.USAGE
    file = tmp_path / "letters.jsonl"
    file.write_text('{"id": "x"}')
    result = redrives.cli("dlq", "redrive", DLQ, "--from-file", str(file), "--execute")
    assert (result.code, "contains no letter 'x'" in result.err) == (ExitCode.USAGE, True)
    assert not redrives.timeouts


# ---- purge -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def deleted(dlq: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[Mapping[TopicPartition, int]]:
    calls: list[Mapping[TopicPartition, int]] = []

    def delete(
        _cluster: Cluster, next_offsets: Mapping[TopicPartition, int], _timeout: str
    ) -> dict[TopicPartition, StreamGroupsError]:
        calls.append(next_offsets)
        failed = {tp: BrokerUnreachable(f"{tp} has no leader.") for tp in next_offsets if tp.partition == 1}
        for tp in next_offsets.keys() - failed.keys():
            dlq.cluster.delete_records(tp, next_offsets[tp])
        return failed

    monkeypatch.setattr(queues, "delete_before", delete)
    return calls


def test_P5_purge_deletes_redriven_letters(redrives: FakeRedrives, deleted: list[Mapping[TopicPartition, int]]) -> None:
    cli = redrives.cli
    assert "There is nothing to do." in cli("dlq", "purge", DLQ, "--execute").err
    cli("dlq", "redrive", DLQ, "--execute")
    result = cli("dlq", "purge", DLQ, "-o", "json")
    assert "Nothing was changed: this is the plan." in result.err
    assert "1 letters remain because a letter before them must remain." in result.err
    plan = json.loads(result.out)
    assert (plan["dry_run"], plan["partitions"][0]["deleted"]) == (True, 2)
    assert (plan["partitions"][0]["new_beginning_offset"], plan["partitions"][1]["deleted"]) == (2, 0)
    assert not deleted
    assert "2 letters deleted." in cli("dlq", "purge", DLQ, "--execute").err
    assert deleted == [{TopicPartition(DLQ, 0): 2}]
    assert ids(cli("dlq", "list", DLQ, "-o", "json").out) == [LETTERS[2].id, LETTERS[3].id]


def test_P5_purge_of_letters_that_were_not_redriven(
    dlq: CommandLine, deleted: list[Mapping[TopicPartition, int]]
) -> None:
    result = dlq("dlq", "purge", DLQ, "--include-waiting", "--before", "1970-01-01T02:00:00Z", "--max-attempts", "2")
    assert result.out.splitlines()[1].split() == ["0", "0", "2", "2", "2", "0", "0", "0"]
    put(dlq, letter(4), 1)
    result = dlq("dlq", "purge", DLQ, "--include-waiting", "--execute", "-o", "json")
    assert result.code == ExitCode.PARTLY_DONE
    assert "orders.dlq-1 could not be deleted" in result.err
    result = dlq("dlq", "purge", DLQ, "--include-waiting", "--execute")
    assert (result.code, "has no leader" in result.err) == (ExitCode.ERROR, True)
    assert dlq("dlq", "purge", DLQ, "--before", "soon").code == ExitCode.USAGE
