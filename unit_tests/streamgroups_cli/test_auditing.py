"""``groups audit``: finds planted ranges, names what is unknown, and returns an exit code for each."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.dlq.record_headers import to_headers
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.groups.unused_groups import OFFSETS_TOPIC, partition_of_group
from streamgroups.partitions import TopicPartition
from streamgroups_cli.groups import auditing
from unit_tests.cli_runner import CommandLine, Result

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    cli.cluster.create_topic("flights", 2)
    cli.cluster.create_topic("letters", 1)
    cli.cluster.create_topic(OFFSETS_TOPIC, 3)
    return cli


def store(cli: CommandLine, tp: TopicPartition, offset: int, metadata: str, time_ms: int, group: str = "board") -> None:
    """Writes a record of ``__consumer_offsets``, as a broker does."""
    name, topic, text = group.encode(), tp.topic.encode(), metadata.encode()
    key = struct.pack(f">hh{len(name)}sh{len(topic)}si", 1, len(name), name, len(topic), topic, tp.partition)
    value = struct.pack(f">hqih{len(text)}sq", 3, offset, -1, len(text), text, time_ms)
    to = TopicPartition(OFFSETS_TOPIC, partition_of_group(group, 3))
    cli.cluster.produce(to, value=value, key=key, timestamp_ms=time_ms)


def mark(
    began: int | None, epoch: int = 1, *, form: str = "none -> kafka:out", reset: AppliedReset | None = None
) -> str:
    with_reset = {} if reset is None else {"reset": reset}
    return CommitMark(False, True, epoch=epoch, form=form, from_offset=began, **with_reset).encode()


def audited(cli: CommandLine, *options: str) -> tuple[Result, dict[str, Any]]:
    result = cli("groups", "audit", "board", "-o", "json", *options)
    return result, json.loads(result.out)


def ranges(document: Mapping[str, Any]) -> list[tuple[int, int, int, str]]:
    return [(it["partition"], it["from_offset"], it["to_offset"], it["verdict"]) for it in document["ranges"]]


def test_O6_a_correct_group_has_no_finding(cli: CommandLine) -> None:
    store(cli, P0, 10, mark(0), 1_000)
    store(cli, P1, 7, mark(0), 1_000)
    store(cli, P0, 25, mark(10, 2), 2_000)
    store(cli, P0, 99, mark(0), 3_000, group="board-2")
    result, document = audited(cli)
    assert (result.code, ranges(document)) == (0, [])
    assert (document["output_evidence"], document["complete"], document["findings"]) == ("transaction", True, False)
    assert document["totals"]["once"] == 32
    assert [it["once_offsets"] for it in document["partitions"]] == [25, 7]
    assert "the verdicts apply to the output too" in result.err
    assert cli.config is not None
    assert cli.config.isolation_level == "read_committed"


def test_O6_planted_ranges_are_findings(cli: CommandLine) -> None:
    store(cli, P0, 10, mark(0), 1_000)
    store(cli, P0, 20, "", 2_000)
    store(cli, P0, 30, mark(20, 2), 3_000)
    store(cli, P1, 10, mark(0), 1_000)
    store(cli, P1, 15, mark(6, 2), 2_000)
    result, document = audited(cli)
    assert (result.code, document["findings"]) == (5, True)
    assert ranges(document) == [(0, 10, 20, "missing"), (1, 6, 10, "double")]
    assert "another client has set the position" in document["ranges"][0]["detail"]
    assert document["ranges"][1]["detail"] == (
        "committed at 1970-01-01T00:00:01.000Z and at 1970-01-01T00:00:02.000Z, without a reset between both"
    )
    table = cli("groups", "audit", "board")
    assert table.code == 5
    assert "MISSING-OFFSETS" in table.out
    assert "Group 'board', offsets: 31 once, 10 missing, 4 double." in table.err
    result, document = audited(cli, "--other-consumers")
    assert (result.code, ranges(document)[0]) == (5, (0, 10, 20, "unknown"))


def test_O6_resets_and_gaps_are_reasons(cli: CommandLine) -> None:
    reset = AppliedReset(1, "a1")
    store(cli, P0, 10, mark(0), 1_000)
    store(cli, P0, 4, ToolMark(reset).encode(), 2_000)
    store(cli, P0, 12, mark(4, 2, reset=reset), 3_000)
    store(cli, P0, 30, mark(20, 2, reset=reset), 4_000)
    cli.cluster.commit(gaps_group_of("board"), {P0: 20}, Gaps().plus(Gap(12, 20, Cause.EXPIRED, 3_500)).encode())
    result, document = audited(cli)
    assert (result.code, ranges(document)) == (0, [(0, 4, 10, "repeated"), (0, 12, 20, "gap")])
    assert document["ranges"][0]["detail"] == "reset a1"


@pytest.mark.parametrize(
    "entry", ["by hand", '{"v":1,"gaps":[[10,20,"moved",1,null,null]],"dropped":{},"dropped_offsets":0}']
)
def test_G17_offsets_are_not_missing_if_a_recorded_gap_cannot_be_read(cli: CommandLine, entry: str) -> None:
    store(cli, P0, 10, mark(0), 1_000)
    store(cli, P0, 30, mark(20, 2), 2_000)
    cli.cluster.commit(gaps_group_of("board"), {P0: 20}, entry)
    result, document = audited(cli)
    assert (result.code, ranges(document)) == (4, [(0, 10, 20, "unknown")])
    assert document["ranges"][0]["detail"] == "a recorded gap that cannot be read can be the reason"


def test_O6_a_window_without_evidence_is_not_complete(cli: CommandLine) -> None:
    """It is 1,000 s after the epoch. Compaction has removed the commits before 10."""
    store(cli, P0, 20, mark(10), 500_000)
    store(cli, P0, 30, mark(10), 900_000)
    result, document = audited(cli, "--since", "10m")
    assert (result.code, document["complete"], document["since"]) == (4, False, "1970-01-01T00:06:40.000Z")
    assert "nothing is known about the offsets before them" in result.err
    result, document = audited(cli, "--since", "1970-01-01T00:15:00")
    assert (result.code, document["complete"], document["totals"]["once"]) == (0, True, 10)
    assert audited(cli)[0].code == 0
    assert cli("groups", "audit", "board", "--since", "yesterday").code == 2
    # An empty window has no finding, so a wrong year would seem to be a correct group.
    assert cli("groups", "audit", "board", "--since", "2099-01-01T00:00:00").code == 2


def test_O6_dead_letters_are_counted(cli: CommandLine) -> None:
    store(cli, P0, 10, mark(0), 1_000)
    for offset in (3, 5, 5):
        letter = DeadLetter(
            id=f"board/flights/0/{offset}/decode",
            group_id="board",
            query="q",
            failed_at_ms=0,
            attempt=1,
            step="decode",
            error_class="E",
            error="",
            origin=Origin(P0, offset),
        )
        headers = tuple((name, value) for name, value in to_headers(letter))
        cli.cluster.produce(TopicPartition("letters", 0), value=b"", headers=headers)
    cli.cluster.produce(TopicPartition("letters", 0), value=b"no letter")
    result, document = audited(cli, "--dlq", "letters")
    assert (result.code, ranges(document)) == (5, [(0, 5, 6, "double")])
    assert document["partitions"][0]["dead_letters"] == 3
    missing = cli("groups", "audit", "board", "--dlq", "absent")
    assert (missing.code, "'absent' does not exist" in missing.err) == (1, True)


@pytest.mark.parametrize("options", [("--postgres", "dbname=x"), ("--delta", "/out", "--delta-connection", "lake")])
def test_O6_a_ledger_is_compared(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    given: list[tuple[str, ...]] = []

    def ledger(*arguments: str) -> auditing.ReadLedger:
        given.append(arguments)

        def read(group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            assert group_id == "board"
            return {P0: 10, TopicPartition("streamgroups.epoch.flights", 0): 1}

        return read

    monkeypatch.setattr(auditing, "postgres_ledger", ledger)
    monkeypatch.setattr(auditing, "delta_ledger", ledger)
    store(cli, P0, 14, mark(0, form="none -> postgres:out"), 1_000)
    result, document = audited(cli)
    assert (result.code, document["output_evidence"]) == (0, "ledger not compared")
    result, document = audited(cli, *options)
    assert (result.code, document["output_evidence"], ranges(document)) == (5, "ledger", [(0, 10, 14, "missing")])
    assert given == [("dbname=x", "streamgroups_ledger") if "--postgres" in options else ("/out", "lake")]
    if "--postgres" in options:
        assert audited(cli, *options, "--ledger-table", "positions")[0].code == 5
        assert given[-1] == ("dbname=x", "positions")


@pytest.mark.parametrize(
    "options", [("--postgres", "x=1", "--delta", "/out"), ("--delta-connection", "lake"), ("--ledger-table", "t")]
)
def test_contradictions_are_usage_errors(cli: CommandLine, options: tuple[str, ...]) -> None:
    assert cli("groups", "audit", "board", *options).code == 2


def test_O6_output_that_is_written_at_least_once_is_named(cli: CommandLine) -> None:
    store(cli, P0, 14, mark(0, form="none"), 1_000)
    result, document = audited(cli)
    assert (result.code, document["output_evidence"]) == (0, "commits only")
    assert "can have written its output several times" in result.err


def test_a_group_without_commits_is_unknown(cli: CommandLine) -> None:
    result = cli("groups", "audit", "boart")
    assert (result.code, "'boart' does not exist" in result.err) == (1, True)
