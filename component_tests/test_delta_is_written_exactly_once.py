"""X2-X4: a Delta table contains every record once, also after kills, conflicts and late writes."""

from __future__ import annotations

import random
import select
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import streamgroups as sg
from component_tests.delta_tables import (
    GROUP,
    SCHEMA,
    DeltaProcess,
    commit,
    open_at,
    partition,
    read_by_hand,
    records,
    stage,
    write_batch,
)
from streamgroups.errors import FencedBatch, LedgerConflict
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import LedgerTransaction
from streamgroups_sinks.delta.ledger import DeltaLedger
from streamgroups_sinks.delta.stages import Staged
from unit_tests.ledger_contract import LedgerContract


class _Words:
    """A ledger whose output is words; see :class:`unit_tests.ledger_contract.Outside`."""

    def __init__(self, uri: Path) -> None:
        self._sink = sg.DeltaSink(uri=str(uri))
        self._n_words = 0

    @property
    def ledger(self) -> _Words:
        return self

    @property
    def visible(self) -> list[str]:
        rows = [row for row in read_by_hand(self._sink.uri) if "word" in row]
        return [row["word"] for row in sorted(rows, key=lambda row: row["n"])]

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        with self._sink.open(GROUP) as ledger:
            return ledger.positions(partitions)

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction[str]]:
        with self._sink.open(GROUP) as ledger, ledger.transaction() as transaction:
            yield _WordTransaction(self, transaction)

    def staged(self, word: str) -> list[Staged]:
        self._n_words += 1
        return stage(self._sink, pa.table({"n": [self._n_words], "word": [word]}))[1]


class _WordTransaction:
    def __init__(self, outside: _Words, transaction: LedgerTransaction[Sequence[Staged]]) -> None:
        self._outside, self._transaction = outside, transaction
        self.positions, self.advance = transaction.positions, transaction.advance
        self.identities = transaction.identities

    def write(self, output: str) -> None:
        self._transaction.write(self._outside.staged(output))

    def of(self, group_id: str) -> _WordTransaction:
        return _WordTransaction(self._outside, self._transaction.of(group_id))


class TestLedger(LedgerContract):
    @pytest.fixture
    def outside(self, tmp_path: Path) -> _Words:
        words = _Words(tmp_path / "words")
        # The columns are created before the transactions begin, as the driver does it.
        words.staged("never committed")
        return words


def _offsets(uri: Path, number: int = 0) -> list[int]:
    return sorted(row["offset"] for row in read_by_hand(uri) if row["partition"] == number)


def test_a_batch_that_is_committed_again_is_written_once(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    assert open_at(sink) == 0
    _, staged = stage(sink, records(0, 3), records(3, 5))
    ranges = [OffsetRange(partition(0), 0, 5)]
    assert [commit(sink, ranges, staged) for _ in range(2)] == ["CommitGroups", "AlreadyDone"]
    # With a new checkpoint the batch is read and staged again.
    assert write_batch(sink, 0, 5) == "AlreadyDone"
    assert _offsets(tmp_path / "t") == [0, 1, 2, 3, 4]


def test_a_zombie_is_rejected(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink)
    _, late = stage(sink, records(0, 5))
    write_batch(sink, 0, 7)
    with pytest.raises(FencedBatch, match=r"flights-0\[0,5\) is before the ledger position \(ledger position: 7\)"):
        commit(sink, [OffsetRange(partition(0), 0, 5)], late)
    assert _offsets(tmp_path / "t") == list(range(7))


def test_a_transaction_that_is_overtaken_writes_nothing(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink)
    _, staged = stage(sink, records(0, 5))

    def slow() -> None:
        with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
            assert transaction.positions([partition(0)]) == {partition(0): 0}
            write_batch(sink, 0, 5)
            transaction.write(staged)
            transaction.advance({partition(0): 5})

    with pytest.raises(LedgerConflict, match="flights-0"):
        slow()
    assert _offsets(tmp_path / "t") == list(range(5))


def test_a_requested_setting_is_checked_though_it_does_not_change(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink)

    def slow() -> None:
        with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
            transaction.positions([partition(0), partition(1)])
            write_batch(sink, 0, 5)
            transaction.advance({partition(1): 7})

    with pytest.raises(LedgerConflict, match="flights-0"):
        slow()
    with sink.open(GROUP) as ledger:
        assert ledger.positions([partition(0), partition(1)]) == {partition(0): 5}


def test_another_partition_s_commits_in_between_do_no_harm(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink)
    open_at(sink, number=1)
    _, staged = stage(sink, records(0, 5))
    with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
        transaction.positions([partition(0)])
        write_batch(sink, 0, 3, number=1)
        transaction.write(staged)
        transaction.advance({partition(0): 5})
    assert (_offsets(tmp_path / "t"), _offsets(tmp_path / "t", 1)) == ([0, 1, 2, 3, 4], [0, 1, 2])


def test_a_commit_that_is_always_overtaken_fails_in_time(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink)
    _, staged = stage(sink, records(0, 5))
    hasty = DeltaLedger(sink._target, GROUP, retry_timeout_s=0)

    def slow() -> None:
        with hasty.transaction() as transaction:
            open_at(sink, number=1)
            transaction.write(staged)
            transaction.advance({partition(0): 5})

    with pytest.raises(LedgerConflict, match=r"Other writers commit to table .* faster than group 'billing'"):
        slow()
    assert _offsets(tmp_path / "t") == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_commit_that_fails_after_it_was_done_is_not_done_twice(
    tmp_path: Path, mode: Literal["append", "upsert"]
) -> None:
    uri = tmp_path / "t"
    DeltaTable.create(uri, SCHEMA, configuration={"delta.checkpointInterval": "1"})
    sink = sg.DeltaSink(uri=str(uri), mode=mode, key=("offset",) if mode == "upsert" else ())
    open_at(sink)
    _, staged = stage(sink, records(0, 5))
    # deltalake writes a checkpoint after the commit; a directory at its path makes this fail.
    version = DeltaTable(uri).version() + 1
    (uri / f"_delta_log/{version:020}.checkpoint.parquet/x").mkdir(parents=True)
    with sink.open(GROUP) as ledger, pytest.raises(LedgerConflict):
        commit_batch(ledger, {GROUP: [OffsetRange(partition(0), 0, 5)]}, staged)
    assert commit(sink, [OffsetRange(partition(0), 0, 5)], staged) == "AlreadyDone"
    assert (_offsets(uri), DeltaTable(uri).version()) == ([0, 1, 2, 3, 4], version)


def test_positions_stay_when_the_log_becomes_a_checkpoint(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink, 7, number=1)
    open_at(sink)
    for begin in range(0, 9, 3):
        write_batch(sink, begin, begin + 3)
    DeltaTable(sink.uri).create_checkpoint()
    for entry in sorted((tmp_path / "t/_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    assert (open_at(sink), open_at(sink, number=1)) == (9, 7)
    assert write_batch(sink, 9, 12) == "CommitGroups"
    assert DeltaTable(sink.uri).to_pyarrow_table().num_rows == 12


def test_groups_and_topics_with_odd_names_do_not_share_positions(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    names = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("ä", "c")]
    for position, (group, topic) in enumerate(names):
        with sink.open(group) as ledger, ledger.transaction() as transaction:
            transaction.advance({TopicPartition(topic, 0): position})
    found: list[int] = []
    for group, topic in names:
        with sink.open(group) as ledger:
            found += ledger.positions([TopicPartition(topic, 0)]).values()
    assert found == [0, 1, 2, 3]


def test_of_processes_that_race_for_a_position_one_wins(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    open_at(sg.DeltaSink(uri=str(uri)))
    with ExitStack() as stack:
        racers = [stack.enter_context(DeltaProcess(uri)) for _ in range(3)]
        begin = 0
        for turn in range(8):
            # The ranges of the processes are equal in even turns, and have different ends in odd ones.
            ends = [begin + 10 + i * (turn % 2) for i in range(3)]
            for racer, end in zip(racers, ends, strict=True):
                racer.send("stage", 0, begin, end)
                assert racer.answer() == "staged"
            for racer, end in zip(racers, ends, strict=True):
                racer.send("commit", 0, begin, end)
            result = [racer.answer() for racer in racers]
            lost = "FencedBatch" if turn % 2 else "AlreadyDone"
            assert sorted(result) == sorted(["CommitGroups", lost, lost])
            begin = ends[result.index("CommitGroups")]
    assert _offsets(uri) == list(range(begin))


def test_members_with_partitions_of_their_own_all_get_through(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    with ExitStack() as stack:
        # The table does not exist: all processes create it concurrently.
        members = [stack.enter_context(DeltaProcess(uri)) for _ in range(3)]
        for number, member in enumerate(members):
            member.send("continue", number, 120, 10)
        for member in members:
            result = [member.answer() for _ in range(25)]
            assert result == ["staged", "CommitGroups"] * 12 + ["reached"]
    assert [_offsets(uri, number) for number in range(3)] == [list(range(120))] * 3


def test_a_process_that_is_killed_with_a_staged_batch_leaves_nothing_to_be_seen(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    sink = sg.DeltaSink(uri=str(uri))
    open_at(sink)
    with DeltaProcess(uri) as process:
        process.send("stage", 0, 0, 10)
        assert process.answer() == "staged"
        process.kill()
    assert (_offsets(uri), open_at(sink)) == ([], 0)
    assert write_batch(sink, 0, 10) == "CommitGroups"
    orphans = DeltaTable(sink.uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert len(orphans) == 1
    assert _offsets(uri) == list(range(10))


def test_processes_that_are_killed_while_they_commit_lose_and_repeat_nothing(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    chance = random.Random(6)
    end, kills = 100_000, 0
    while kills < 6:
        with ExitStack() as stack:
            members = [stack.enter_context(DeltaProcess(uri)) for _ in range(2)]
            for number, member in enumerate(members):
                member.send("continue", number, end, 10)
            for member in members:
                for _ in range(chance.randrange(5)):
                    assert [member.answer(), member.answer()] == ["staged", "CommitGroups"]
                assert member.answer() == "staged"
                # A commit takes some ten milliseconds, so the kill hits a random point of it.
                select.select([], [], [], chance.uniform(0, 0.03))
                member.kill()
                kills += 1
    sink = sg.DeltaSink(uri=str(uri))
    for number in range(2):
        position = open_at(sink, number=number)
        assert position > 0
        assert _offsets(uri, number) == list(range(position))


def test_nothing_is_written_for_a_batch_without_output(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    open_at(sink)
    with sink.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [OffsetRange(partition(0), 0, 5)]}, None)
    begun, staged = stage(sink, records(5, 5))
    assert [len(part.files) for part in staged] == [0]
    assert commit(sink, [OffsetRange(partition(0), 5, 8)], staged) == "CommitGroups"
    assert (open_at(sink), _offsets(tmp_path / "t")) == (8, [])
    sink.discard(begun)


def test_output_without_positions_is_a_mistake(tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    _, staged = stage(sink, records(0, 5))

    def write() -> None:
        with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
            transaction.write(staged)

    with pytest.raises(ValueError, match="with the positions it reaches"):
        write()
    assert _offsets(tmp_path / "t") == []
