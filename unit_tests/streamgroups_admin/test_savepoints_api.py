"""C1, C3: ``sg.savepoints`` does what the commands do, and records and compares the output and the checkpoint of a group."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import streamgroups as sg
from streamgroups.errors import CheckpointRejected, GroupRejected, InvalidOption, SavepointDamaged, UnknownSavepoint
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.threads import in_threads
from streamgroups_admin.checkpoints import copying
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.savepoints import api
from unit_tests.cli_runner import CommandLine
from unit_tests.cli_states import NOW_MS, P0, P1
from unit_tests.spark_checkpoints import aged, content, stateless, write

Savepoints = sg.savepoints.Savepoints


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """A group at the offsets 20 and 7, and Python programs that connect to its cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli = CommandLine(monkeypatch, capsys)
    cli.clock.now_ms = NOW_MS
    cli.cluster.create_topic("flights", 2)
    for tp in (P0, P1):
        cli.cluster.produce(tp, 30, timestamp_ms=NOW_MS)
    commit(cli, {P0: 20, P1: 7})

    @contextmanager
    def connected(config: Any, timeout_s: float) -> Iterator[Cluster]:
        yield Cluster(config, cli.admin, cli.admin, {}, cli.clock)

    monkeypatch.setattr(api, "connected", connected)
    return cli


@pytest.fixture
def savepoints(cli: CommandLine, tmp_path: Path) -> api.Savepoints:
    return Savepoints(str(tmp_path / "savepoints"), bootstrap_servers="broker:9092")


def commit(cli: CommandLine, next_offsets: Mapping[TopicPartition, int], group_id: str = "board") -> None:
    cli.cluster.commit(group_id, next_offsets, CommitMark(True).encode())


def committed(cli: CommandLine, group_id: str = "board") -> dict[TopicPartition, int]:
    return {tp: it.next_offset for tp, it in cli.admin.committed_offsets([group_id])[group_id].items()}


class Sink:
    """A sink with a ledger."""

    output = "postgres:board (ledger streamgroups_ledger)"

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self.stored = positions

    @contextmanager
    def open(self, group_id: str) -> Iterator[Sink]:
        yield self

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.stored[tp] for tp in partitions if tp in self.stored}


class Versioned:
    """A table whose versions have positions."""

    output = "delta:/data/board"

    def __init__(self, *versions: Mapping[TopicPartition, int]) -> None:
        self.versions = versions

    def read_ledger(
        self, group_id: str, partitions: Collection[TopicPartition], version: int | None = None
    ) -> tuple[dict[TopicPartition, int], int]:
        chosen = len(self.versions) - 1 if version is None else version
        return {tp: n for tp, n in self.versions[chosen].items() if tp in partitions}, chosen


def test_C1_methods_and_commands_show_the_same_savepoint(cli: CommandLine, savepoints: api.Savepoints) -> None:
    made = savepoints.create("board")
    shown = json.loads(cli("savepoint", "show", savepoints.location, made.id, "-o", "json").out)
    assert shown["savepoint"]["id"] == made.id
    assert {it["partition"]: it["offset"] for it in shown["positions"]} == {0: 20, 1: 7}
    assert (shown["output"], shown["checkpoint"]) == (None, None)
    assert savepoints.get(made.id) == made
    assert [(it.id, it.status, it.record) for it in savepoints.list()] == [(made.id, "complete", made)]
    assert savepoints.verify(made.id) == ()


def test_C3_a_restore_can_be_planned_and_applied(cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path) -> None:
    id_ = savepoints.create("board").id
    commit(cli, {P0: 25, P1: 7})
    plan = savepoints.restore(id_, dry_run=True)
    assert [(it.from_offset, it.to_offset) for it in plan.moves] == [(25, 20), (7, 7)]
    assert (plan.is_applied, "writes it again" in plan.effects[0]) == (False, True)
    with pytest.raises(GroupRejected, match="The output of 5 offsets would be written again"):
        savepoints.restore(id_)
    assert committed(cli) == {P0: 25, P1: 7}
    done = savepoints.restore(id_, accept_repeated_output=True, undo_file=tmp_path / "undo.json")
    assert (done.is_applied, committed(cli)) == (True, {P0: 20, P1: 7})
    assert (tmp_path / "undo.json").exists()
    fork = savepoints.restore(id_, group="next")
    assert (fork.group_id, committed(cli, "next")) == ("next", {P0: 20, P1: 7})
    assert cli("groups", "undo", "next", "--execute").code == 0


def test_C3_a_savepoint_is_deleted(savepoints: api.Savepoints) -> None:
    id_ = savepoints.create("board").id
    savepoints.delete(id_)
    assert savepoints.list() == ()
    with pytest.raises(UnknownSavepoint, match="does not exist"):
        savepoints.delete(id_)


def test_C3_the_record_has_the_positions_of_the_ledger(cli: CommandLine, savepoints: api.Savepoints) -> None:
    made = savepoints.create("board", sink=Sink({P0: 22, P1: 7}))
    shown = json.loads(cli("savepoint", "show", savepoints.location, made.id, "-o", "json").out)
    assert shown["output"] == {"output": Sink.output, "table_version": None, "positions": 2}
    assert [(it["offset"], it["ledger"]) for it in shown["positions"]] == [(20, 22), (7, 7)]
    assert "ledger" in cli("savepoint", "show", savepoints.location, made.id).out.lower()
    plan = savepoints.restore(made.id, dry_run=True)
    assert "it had the output of 2 more offsets (flights-0: 22 instead of 20)" in " ".join(plan.effects)
    # The group is at the offsets of the savepoint, and its output is ahead of them.
    with pytest.raises(GroupRejected, match="The output of 2 offsets would be written again"):
        savepoints.restore(made.id)
    from_command = cli("savepoint", "restore", savepoints.location, made.id)
    assert "disagree: it had the output of 2 more offsets" in from_command.err


def test_C3_a_restore_in_place_rejects_an_output_that_lacks_rows(cli: CommandLine, savepoints: api.Savepoints) -> None:
    id_ = savepoints.create("board", sink=Sink({P0: 20, P1: 7})).id
    with pytest.raises(
        GroupRejected, match=r"output of 8 offsets before the savepoint is missing \(flights-0: 12"
    ) as e:
        savepoints.restore(id_, sink=Sink({P0: 12, P1: 7}))
    assert "Restore a copy of the output of the savepoint or of a later time" in str(e.value)
    other = Sink({P0: 20, P1: 7})
    other.output = "postgres:other (ledger streamgroups_ledger)"
    with pytest.raises(GroupRejected, match="and the sink is 'postgres:other"):
        savepoints.restore(id_, sink=other)
    assert savepoints.restore(id_, sink=Sink({P0: 25, P1: 7})).is_applied
    # A fork has its own output.
    assert savepoints.restore(id_, sink=Sink({P0: 12}), group="next").is_applied


def test_C3_the_version_of_a_table_is_that_of_the_committed_offsets(savepoints: api.Savepoints) -> None:
    sink = Versioned({P0: 10}, {P0: 20}, {P0: 25}, {P0: 25, P1: 9})
    output = savepoints.create("board", sink=sink).output
    assert output is not None
    assert (output.table_version, output.positions) == (1, {P0: 20})
    id_ = savepoints.list()[0].id
    effects = savepoints.restore(id_, dry_run=True, sink=sink).effects
    assert "restore version 1 of 'delta:/data/board' before its queries start" in effects[0]
    with pytest.raises(
        GroupRejected, match=r"its version is 0, and that of the savepoint is 1.*version 1 of the table, or"
    ):
        savepoints.restore(id_, sink=Versioned({P0: 20}))
    # No version has exactly these offsets: two members have written in another order.
    for versions in ([{P0: 21, P1: 5}, {P0: 21, P1: 7}], [{P0: 20, P1: 5}, {P0: 21, P1: 7}]):
        mixed = savepoints.create("board", sink=Versioned(*versions)).output
        assert mixed is not None
        assert mixed.table_version == 1


def test_C3_the_table_of_positions_of_foreach_batch_is_a_ledger(savepoints: api.Savepoints) -> None:
    class Row(NamedTuple):
        next_offset: int

    class Positions:
        def read(self) -> dict[tuple[str, int], Row]:
            return {("flights", 0): Row(20), ("other", 0): Row(3)}

    output = savepoints.create("board", sink=Positions()).output
    assert output is not None
    assert (output.name, output.positions) == ("ledger:Positions", {P0: 20})


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        (Sink({}), "has no position of group 'board'; no savepoint was created"),
        (Versioned({}), "has no position of group 'board'"),
        (object(), "object has no ledger. Pass a PostgresSink"),
    ],
)
def test_C3_a_sink_without_positions_is_rejected(savepoints: api.Savepoints, sink: Any, error: str) -> None:
    with pytest.raises(InvalidOption, match=error):
        savepoints.create("board", sink=sink)
    assert [it.status for it in savepoints.list()] in ([], ["incomplete"])


def test_a_program_without_brokers_is_rejected(savepoints: api.Savepoints) -> None:
    offline = Savepoints(savepoints.location)
    for call in (lambda: offline.create("board"), lambda: offline.restore(savepoints.create("board").id)):
        with pytest.raises(InvalidOption, match="Pass bootstrap_servers="):
            call()


def own(first: int, end: int, group_id: str = "board", resting: int = 7) -> str:
    offset = {
        "version": 2,
        "n": 1,
        "ranges": {"flights": {"0": [first, end]}},
        "resting": {"flights": {"1": resting}},
        "group": group_id,
    }
    return json.dumps(offset)


def checkpoint(directory: Path, *, committed: int = 6, group_id: str = "board") -> Path:
    """A checkpoint whose batch N ends at offset 5 * N; batch 5 has no records."""
    batches = {n: own(5 * (n - 1), 5 * n, group_id) for n in range(1, 8)}
    batches[5] = batches[4]
    return write(directory, stateless(batches, committed=committed))


def test_C3_C5_the_copied_batch_ends_at_the_committed_offsets(
    cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path
) -> None:
    old = checkpoint(tmp_path / "old")
    before = content(old)
    made = savepoints.create("board", checkpoint=str(old))
    assert made.checkpoint is not None
    # The batch without records has the state of the offsets, too.
    assert made.checkpoint.batch_id == 5
    assert sorted(it.path for it in made.checkpoint.files) == ["commits/5", "metadata", "offsets/4", "offsets/5"]
    assert content(old) == before
    shown = json.loads(cli("savepoint", "show", savepoints.location, made.id, "-o", "json").out)
    assert shown["checkpoint"]["checkpoint_batch"] == 5
    shutil.rmtree(old)

    fork = ("savepoint", "restore", savepoints.location, made.id, "--group", "next", "--execute")
    missing = cli(*fork)
    assert (missing.code, "Use --checkpoint: a new checkpointLocation" in missing.err) == (2, True)
    done = cli(*fork, "--checkpoint", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert "it continues after batch 5. Start the query with it." in done.err
    found = content(tmp_path / "new")
    assert sorted(found) == ["commits/5", "metadata", "offsets/4", "offsets/5"]
    assert '"group":"next"' in found["offsets/5"].decode()
    assert json.loads(found["metadata"])["id"] not in before["metadata"].decode()
    assert committed(cli, "next") == {P0: 20, P1: 7}


def test_C3_C5_a_checkpoint_of_several_groups_is_rejected(
    cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path
) -> None:
    joined = {n: f"{own(5 * (n - 1), 5 * n, 'board')}\n{own(0, n, 'prices')}" for n in range(1, 5)}
    old = write(tmp_path / "old", stateless(joined, committed=4))
    with pytest.raises(
        CheckpointRejected, match="also reads with the group prices, and a savepoint has the positions of"
    ):
        savepoints.create("board", checkpoint=str(old))
    assert json.loads(cli("savepoint", "list", savepoints.location, "-o", "json").out)["savepoints"] == []


def test_C3_C5_the_same_group_gets_a_checkpoint_too(savepoints: api.Savepoints, tmp_path: Path) -> None:
    id_ = savepoints.create("board", checkpoint=str(checkpoint(tmp_path / "old"))).id
    savepoints.restore(id_, checkpoint=str(tmp_path / "new"))
    assert '"group":"board"' in content(tmp_path / "new")["offsets/5"].decode().replace('": "', '":"')
    with pytest.raises(CheckpointRejected, match="is not empty"):
        savepoints.restore(id_, checkpoint=str(tmp_path / "new"))
    with pytest.raises(InvalidOption, match="has no checkpoint"):
        savepoints.restore(savepoints.create("board").id, checkpoint=str(tmp_path / "other"))


class Killed(BaseException):
    """The end of a process."""


def test_C3_C5_the_same_command_finishes_a_restore_that_was_killed_anywhere(
    cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_, new = savepoints.create("board", checkpoint=str(checkpoint(tmp_path / "old"))).id, tmp_path / "new"
    synced, alter = CheckpointFiles._sync, cli.admin.alter_offsets
    monkeypatch.setattr(copying, "in_threads", partial(in_threads, n_threads=1))
    for allowed in range(100):
        left = iter(range(allowed))

        def sync(self: CheckpointFiles, path: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                # The file is truncated.
                (new / path).write_bytes((new / path).read_bytes()[:-1])
                raise Killed
            synced(self, path)

        def commit_none(*_: object, **__: object) -> None:
            raise Killed

        monkeypatch.setattr(CheckpointFiles, "_sync", sync)
        monkeypatch.setattr(cli.admin, "alter_offsets", commit_none)
        with pytest.raises(Killed):
            savepoints.restore(id_, group="next", checkpoint=str(new))
        monkeypatch.setattr(CheckpointFiles, "_sync", synced)
        monkeypatch.setattr(cli.admin, "alter_offsets", alter)
        before = content(new)
        is_complete = next(left, None) is not None
        if allowed:
            for other in ({"group": "other"}, {}):
                with pytest.raises(CheckpointRejected, match="is not empty") if len(before) > 1 else nullcontext():
                    savepoints.restore(id_, checkpoint=str(new), dry_run=True, **other)
        savepoints.restore(id_, group="next", checkpoint=str(new))
        assert committed(cli, "next") == {P0: 20, P1: 7}
        found = content(new)
        assert sorted(found) == ["commits/5", "metadata", "offsets/4", "offsets/5"]
        assert cli("checkpoint", "verify", str(new)).code == 0
        if is_complete:
            assert {**found, ".streamgroups-restore": before[".streamgroups-restore"]} == before
            break
        shutil.rmtree(new)
        cli.admin.delete_groups(["next"])
    assert allowed == 6, "the mark and four files, and the end"


def test_C3_C5_a_checkpoint_of_a_killed_restore_is_rejected_as_soon_as_a_query_has_used_it(
    cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_, new = savepoints.create("board", checkpoint=str(checkpoint(tmp_path / "old"))).id, tmp_path / "new"

    def commit_none(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cli.admin, "alter_offsets", commit_none)
        with pytest.raises(Killed):
            savepoints.restore(id_, group="next", checkpoint=str(new))
    (new / "offsets" / "6").write_text("v1")
    before = content(new)
    with pytest.raises(CheckpointRejected, match="is not empty"):
        savepoints.restore(id_, group="next", checkpoint=str(new))
    assert (content(new), committed(cli, "next")) == (before, {})


def test_C3_C5_a_changed_file_of_the_checkpoint_changes_nothing(
    cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path
) -> None:
    id_ = savepoints.create("board", checkpoint=str(checkpoint(tmp_path / "old"))).id
    file = Path(savepoints.location, id_, "checkpoint", "offsets", "5")
    text = file.read_text()
    for damaged in (text.replace("20", "21"), text[:-1], None):
        if damaged is None:
            file.unlink()
        else:
            file.write_text(damaged)
        assert [(it.operator, it.file) for it in savepoints.verify(id_)] == [(None, "checkpoint/offsets/5")]
        with pytest.raises(SavepointDamaged, match="offsets/5"):
            savepoints.restore(id_, group="next", checkpoint=str(tmp_path / "new"))
        assert (committed(cli, "next"), (tmp_path / "new").exists()) == ({}, False)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (
            lambda it: checkpoint(it, group_id="other"),
            "does not have flights-0, flights-1 of group 'board'; its groups: other",
        ),
        (lambda it: checkpoint(it, committed=3), "No committed batch of .* ends at the committed offsets"),
        (lambda it: write(it, stateless({1: own(0, 19), 2: own(19, 25)}, committed=2)), "No committed batch of"),
        (lambda it: aged(it), "does not exist, or is empty"),
    ],
)
def test_C3_C5_another_checkpoint_is_rejected(
    savepoints: api.Savepoints, tmp_path: Path, make: Callable[[Path], Path], error: str
) -> None:
    with pytest.raises((CheckpointRejected, InvalidOption), match=error):
        savepoints.create("board", checkpoint=str(make(tmp_path / "old")))
    assert [it.status for it in savepoints.list()] in ([], ["incomplete"])


def test_C3_C5_a_file_that_spark_deletes_meanwhile_is_a_new_cut(
    cli: CommandLine, savepoints: api.Savepoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark deletes the copied batch after the offsets were read. The group has committed a later one."""
    old = checkpoint(tmp_path / "old")
    real = CheckpointFiles.copy
    done: list[str] = []

    def copy(self: CheckpointFiles, path: str, source: CheckpointFiles) -> None:
        if not done:
            done.append(path)
            commit(cli, {P0: 30, P1: 7})
            (old / "commits" / "5").unlink()
            (old / "offsets" / "4").unlink()
        real(self, path, source)

    monkeypatch.setattr(CheckpointFiles, "copy", copy)
    made: CommitRecord = savepoints.create("board", checkpoint=str(old))
    assert made.checkpoint is not None
    assert (made.checkpoint.batch_id, made.positions[P0].next_offset) == (6, 30)
    assert savepoints.verify(made.id) == ()
    assert sorted(content(Path(savepoints.location, made.id, "checkpoint"))) == sorted(
        it.path for it in made.checkpoint.files
    )
