"""X2, X3: one pass over the log returns the same transaction identifiers as deltalake, and reads few files."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction

import streamgroups as sg
from streamgroups.checkpoints.restart import OnRestart
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.ledgers.compare_and_swap import CommitGroups
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_sinks.delta.identifiers import Identifiers
from streamgroups_sinks.delta.store import Store

GROUP = "billing"
TOPIC = TopicIdentity("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ")
#: The last one is never committed.
APPLICATIONS = [f"app-{n}" for n in range(9)]


class Reads:
    """The files that are read, and the lookups of deltalake."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.lookups = 0

    def clear(self) -> None:
        self.files.clear()
        self.lookups = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()
    read_text, read_parquet, lookup = Store.read_text, Store.read_parquet, DeltaTable.transaction_version

    def counted_text(self: Store, path: str) -> str:
        counted.files[Path(path).name] += 1
        return read_text(self, path)

    def counted_parquet(self: Store, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        counted.files[Path(path).name] += 1
        return read_parquet(self, path, columns)

    def counted_lookup(self: DeltaTable, app_id: str) -> int | None:
        counted.lookups += 1
        return lookup(self, app_id)

    monkeypatch.setattr(Store, "read_text", counted_text)
    monkeypatch.setattr(Store, "read_parquet", counted_parquet)
    monkeypatch.setattr(DeltaTable, "transaction_version", counted_lookup)
    return counted


def _created(uri: Path, checkpoint_interval: int = 100) -> str:
    columns = Schema.from_arrow(pa.schema([("n", pa.int64())]))
    DeltaTable.create(str(uri), columns, configuration={"delta.checkpointInterval": str(checkpoint_interval)})
    return str(uri)


def _commit(uri: str, identifiers: dict[str, int]) -> None:
    table = DeltaTable(uri)
    transactions = [Transaction(app_id, version) for app_id, version in identifiers.items()]
    properties = CommitProperties(app_transactions=transactions)
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=properties)


def _expected(table: DeltaTable, app_ids: Sequence[str]) -> dict[str, int]:
    found = {app_id: table.transaction_version(app_id) for app_id in app_ids}
    return {app_id: version for app_id, version in found.items() if version is not None}


def _log(uri: str, name: str) -> Path:
    return Path(uri, "_delta_log", name)


def _history(uri: str, chance: random.Random, n_commits: int) -> Iterator[DeltaTable]:
    """Random commits, with compacted files, and checkpoints that other writers create."""
    for version in range(1, n_commits + 1):
        chosen = chance.sample(APPLICATIONS[:-1], chance.choice([0, 1, 1, 2, 4]))
        _commit(uri, {app_id: chance.randrange(2**62) for app_id in chosen})
        if chance.random() < 0.1:
            DeltaTable(uri).create_checkpoint()
        if version > 4 and chance.random() < 0.1:
            DeltaTable(uri).compact_logs(version - 3, version)
        yield DeltaTable(uri)


@pytest.mark.parametrize("seed", range(6))
def test_identifiers_are_those_of_deltalake(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    uri = _created(tmp_path / "t", chance.choice([3, 7, 100]))
    shared = Identifiers(Store(uri, {}))
    for newest in _history(uri, chance, 25):
        older = DeltaTable(uri, chance.randrange(newest.version() + 1))
        for table in (newest, *([older] if chance.random() < 0.2 else [])):
            # One request continues the pass of the one before.
            for identifiers in (Identifiers(Store(uri, {})), shared):
                for n_requested in (1, 3, 9):
                    requested = chance.sample(APPLICATIONS, n_requested)
                    assert identifiers.versions_in(table, requested) == _expected(table, requested)


@pytest.mark.parametrize("seed", range(3))
def test_identifiers_survive_the_cleanup_of_the_log(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    uri = _created(tmp_path / "t", 7)
    shared = Identifiers(Store(uri, {}))
    for table in _history(uri, chance, 20):
        for version in chance.sample(range(table.version() + 1), 2):
            if _log(uri, f"{version:020}.json").exists() and version < _last_checkpoint(uri):
                _log(uri, f"{version:020}.json").unlink()
        for identifiers in (Identifiers(Store(uri, {})), shared):
            assert identifiers.versions_in(table, APPLICATIONS) == _expected(table, APPLICATIONS)


def _last_checkpoint(uri: str) -> int:
    checkpoints = sorted(_log(uri, ".").glob("*.checkpoint.parquet"))
    return int(checkpoints[-1].name.split(".")[0]) if checkpoints else 0


def test_a_checkpoint_of_several_files_is_read(tmp_path: Path, reads: Reads) -> None:
    uri = _created(tmp_path / "t")
    for version in range(1, 7):
        _commit(uri, {f"app-{version % 4}": version})
    DeltaTable(uri).create_checkpoint()
    whole = _log(uri, f"{6:020}.checkpoint.parquet")
    rows = pq.read_table(whole)
    for part in (1, 2):
        piece = rows.slice(0, 4) if part == 1 else rows.slice(4)
        pq.write_table(piece, _log(uri, f"{6:020}.checkpoint.{part:010}.{2:010}.parquet"))
    whole.unlink()
    _log(uri, "_last_checkpoint").write_text(f'{{"version": 6, "size": {len(rows)}, "parts": 2}}')
    table = DeltaTable(uri)
    expected = _expected(table, APPLICATIONS)
    reads.clear()
    assert (
        Identifiers(Store(uri, {})).versions_in(table, APPLICATIONS)
        == expected
        == {
            "app-0": 4,
            "app-1": 5,
            "app-2": 6,
            "app-3": 3,
        }
    )
    assert (sum(reads.files.values()), reads.lookups) == (4, 0)


@pytest.mark.parametrize(
    "text",
    ['{"version": 6, "size": 9, "v2Checkpoint": {"path": "x"}}', '{"version": 9}', '{"version": 3}', "{", "[]"],
    ids=["sidecars", "newer", "missing", "cut off", "no object"],
)
def test_deltalake_searches_a_log_with_an_unknown_last_checkpoint(tmp_path: Path, reads: Reads, text: str) -> None:
    uri = _created(tmp_path / "t")
    for version in range(1, 7):
        _commit(uri, {f"app-{version % 4}": version})
    table = DeltaTable(uri)
    expected = _expected(table, APPLICATIONS)
    _log(uri, "_last_checkpoint").write_text(text)
    identifiers = Identifiers(Store(uri, {}))
    reads.clear()
    assert identifiers.versions_in(table, APPLICATIONS) == expected
    assert 0 < reads.lookups < len(APPLICATIONS)
    # The next version begins a new pass.
    _log(uri, "_last_checkpoint").unlink()
    _commit(uri, {"app-8": 1})
    reads.clear()
    assert identifiers.versions_in(DeltaTable(uri), APPLICATIONS) == expected | {"app-8": 1}
    assert reads.lookups == 0


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_of_the_store_hides_no_identifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    uri = _created(tmp_path / "t")
    for version in range(1, 4):
        _commit(uri, {f"app-{version}": version})
    identifiers, table = Identifiers(Store(uri, {})), DeltaTable(uri)
    paths = [f"_delta_log/{3:020}.json", "_delta_log/_last_checkpoint", f"_delta_log/{1:020}.json"]
    _fails(monkeypatch, identifiers, table, paths[failing])
    assert identifiers.versions_in(table, APPLICATIONS) == {"app-1": 1, "app-2": 2, "app-3": 3}
    _commit(uri, {"app-3": 4})
    newer = DeltaTable(uri)
    _fails(monkeypatch, identifiers, newer, f"_delta_log/{4:020}.json")
    assert identifiers.versions_in(newer, APPLICATIONS) == {"app-1": 1, "app-2": 2, "app-3": 4}


def _fails(monkeypatch: pytest.MonkeyPatch, identifiers: Identifiers, table: DeltaTable, path: str) -> None:
    """The store does not respond to the read of a file."""
    read_text = Store.read_text

    def unreachable(self: Store, of: str) -> str:
        if of == path:
            raise OSError("Generic S3 error: timed out")
        return read_text(self, of)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "read_text", unreachable)
        for _ in range(2):
            with pytest.raises(OSError, match="timed out"):
                identifiers.versions_in(table, APPLICATIONS)


def test_a_recreated_table_has_no_identifiers_of_the_earlier_one(tmp_path: Path) -> None:
    uri = _created(tmp_path / "t")
    _commit(uri, {"app-0": 7})
    identifiers = Identifiers(Store(uri, {}))
    assert identifiers.versions_in(DeltaTable(uri), APPLICATIONS) == {"app-0": 7}
    Path(uri).rename(tmp_path / "earlier")
    _created(Path(uri))
    for version in range(2):
        _commit(uri, {"app-1": version})
    assert identifiers.versions_in(DeltaTable(uri), APPLICATIONS) == {"app-1": 1}


def test_a_batch_reads_the_log_once_whatever_its_number_of_partitions(tmp_path: Path, reads: Reads) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    partitions = [TopicPartition("flights", n) for n in range(100)]
    identities = {GROUP: dict.fromkeys(partitions, TOPIC)}
    owned = {tp: Owned(0, Origin.STARTING, identity=TOPIC, epoch=3) for tp in partitions}
    with sink.open(GROUP) as ledger:
        taken = take_over_partitions(ledger, owned, OnRestart.FAIL, group_id=GROUP, is_owner=lambda _: True)
    for at in range(50):
        ranges = {GROUP: [OffsetRange(tp, at, at + 1) for tp in partitions]}
        reads.clear()
        with sink.open(GROUP) as ledger:
            verdict = commit_batch(ledger, ranges, None, identities=identities, epochs={GROUP: taken.epochs})
        assert isinstance(verdict, CommitGroups)
    # Each commit of the log once, and the search for a checkpoint.
    assert set(reads.files.values()) == {1}
    assert (len(reads.files), reads.lookups) == (DeltaTable(sink.uri).version() + 1, 0)


def test_positions_of_the_last_commit_need_no_older_one(tmp_path: Path, reads: Reads) -> None:
    uri = _created(tmp_path / "t")
    for version in range(5):
        _commit(uri, {"app-0": version, "app-1": version})
    reads.clear()
    assert Identifiers(Store(uri, {})).versions_in(DeltaTable(uri), ["app-0", "app-1"]) == {"app-0": 4, "app-1": 4}
    assert list(reads.files) == [f"{5:020}.json"]


def test_identifiers_are_found_beside_texts_with_separators_of_lines(tmp_path: Path, reads: Reads) -> None:
    uri = _created(tmp_path / "t")
    app_id = "a\u2028b\u2029c\x85d"
    _commit(uri, {app_id: 7})
    table = DeltaTable(uri)
    reads.clear()
    assert Identifiers(Store(uri, {})).versions_in(table, [app_id]) == {app_id: 7}
    assert reads.lookups == 0


def test_a_concurrent_commit_needs_only_its_own_file(tmp_path: Path, reads: Reads) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"))
    partition = TopicPartition("flights", 0)
    for at in range(3):
        with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
            transaction.advance({partition: at})
    with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
        assert transaction.positions([partition, TopicPartition("flights", 1)]) == {partition: 2}
        transaction.advance({partition: 3})
        _commit(sink.uri, {"another writer": 1})
        reads.clear()
    assert reads.files == {f"{4:020}.json": 1}
    with sink.open(GROUP) as ledger:
        assert ledger.positions([partition]) == {partition: 3}
