"""C5: ``streamgroups checkpoint copy``: the copy is complete or recognized as incomplete, and the old checkpoint is only read."""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from streamgroups.checkpoints.spark_kafka import PUNCTUATIONS
from streamgroups.partitions import TopicPartition
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles
from unit_tests.cli_runner import CommandLine, Result
from unit_tests.spark_checkpoints import NAMES, aged, batches, content, golden, stateless, write

KAFKA = {n: f'{{"flights":{{"0":{5 * n}}}}}' for n in range(4, 9)}
OWN = {
    n: f'{{"version":2,"n":{n},"ranges":{{"flights":{{"0":[{n},{n + 1}]}}}},"resting":{{}},"group":"board"}}\n{{"logOffset":3}}'
    for n in (1, 2)
}


def copy(cli: CommandLine, old: Path | str, new: Path | str, *more: str) -> Result:
    return cli("checkpoint", "copy", str(old), str(new), *more)


@pytest.mark.parametrize("position", [1, 2, -1])
@pytest.mark.parametrize("name", NAMES)
def test_C5_a_copy_of_each_batch_can_be_restored(cli: CommandLine, name: str, position: int, tmp_path: Path) -> None:
    old, new = golden(name, tmp_path / "old"), tmp_path / "new"
    before, batch = content(old), batches(old)[position]
    planned = copy(cli, old, new, "--batch", str(batch))
    assert (planned.code, new.exists()) == (0, False)
    assert "Nothing was written: this is the plan. --execute writes the copy." in planned.err
    assert copy(cli, old, new, "--batch", str(batch), "--execute").code == 0
    assert content(old) == before
    found = content(new)
    assert {n: it for n, it in found.items() if n != "metadata"} == {n: before[n] for n in found if n != "metadata"}
    assert json.loads(found["metadata"])["id"] != json.loads(before["metadata"])["id"]
    assert sorted(it for it in found if it.startswith(("offsets/", "commits/"))) == [
        f"commits/{batch}",
        f"offsets/{batch - 1}",
        f"offsets/{batch}",
    ]
    verified = cli("checkpoint", "verify", str(new), "-o", "json")
    assert (verified.code, json.loads(verified.out)["restorable_batches"]) == (0, [batch])
    assert _named_in_zips(new) <= found.keys()
    # It is minimal: each state file is needed.
    state = [it for it in found if it.startswith("state/") and "/_metadata/" not in it and not it.endswith(".crc")]
    for path in state if position == 2 else []:
        (new / path).rename(tmp_path / "moved")
        assert cli("checkpoint", "verify", str(new)).code == 1, path
        (tmp_path / "moved").rename(new / path)
    assert copy(cli, aged(new), tmp_path / "again", "--execute").code == 0


def _named_in_zips(checkpoint: Path) -> set[str]:
    """The files that the full files of RocksDB name."""
    named = set()
    for path in checkpoint.rglob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            metadata = json.loads(archive.read("metadata").decode().partition("\n")[2])
        store = path.parent.relative_to(checkpoint)
        named |= {f"{store}/SSTs/{it['dfsSstFileName']}" for it in metadata["sstFiles"]}
    return named


def test_C5_the_number_of_partitions_is_that_of_the_batch(cli: CommandLine, tmp_path: Path) -> None:
    """Spark's repartition writes it to the log of its batch, and leaves the metadata of the operators as it was."""
    old, new = golden("4.2-hdfs", tmp_path / "old"), tmp_path / "new"
    log = old / "offsets" / "15"
    log.write_text(log.read_text().replace('partitions":"2"', 'partitions":"3"'))
    aged(old)
    shown = json.loads(cli("checkpoint", "show", str(old), "-o", "json").out)
    assert [it["stores"] for it in shown["operators"]] == [[{"store": "default", "partitions": 3}]]
    copied = copy(cli, old, new, "--execute")
    assert (copied.code, "'state/0/2/16.delta' does not exist" in copied.err, new.exists()) == (3, True, False)
    assert copy(cli, old, new, "--batch", "14", "--execute").code == 0
    verified = json.loads(cli("checkpoint", "verify", str(old), "-o", "json").out)
    assert [(it["file"], it["batches"]) for it in verified["problems"]] == [("state/0/2/16.delta", [15])]
    for kind in ("16.snapshot", "16.delta"):
        for source in (old / "state" / "0" / "1").glob(kind):
            (old / "state" / "0" / "2").mkdir(exist_ok=True)
            shutil.copy(source, old / "state" / "0" / "2" / kind)
    assert copy(cli, aged(old), tmp_path / "next", "--execute").code == 0
    assert "state/0/2/16.snapshot" in content(tmp_path / "next")


def test_C5_the_last_committed_batch_is_the_default(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "old", stateless(KAFKA, committed=7))
    result = copy(cli, tmp_path / "old", tmp_path / "new", "--execute")
    assert sorted(content(tmp_path / "new")) == ["commits/7", "metadata", "offsets/6", "offsets/7"]
    assert "batch 8 is planned and not committed" in result.err
    assert "The copy reads its records again: flights-0[35,40)." in result.err
    assert "'_spark_metadata'" in result.err
    assert "reads the records of batches" not in result.err
    document = json.loads(copy(cli, tmp_path / "old", tmp_path / "other", "--batch", "5", "-o", "json").out)
    assert (document["batch"], document["last_committed_batch"]) == (5, 7)
    assert document["parts"] == [{"batch": 5, "watermark": None, "part": "logs", "files": 3, "bytes": None}]


def test_C5_what_the_copy_repeats_is_in_the_plan(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "old", stateless(KAFKA, committed=7))
    result = copy(cli, tmp_path / "old", tmp_path / "new", "--batch", "5", "--dry-run")
    assert "reads the records of batches 6 to 7 again, possibly in other batches" in result.err


def test_C5_a_copy_that_ends_anywhere_is_recognized(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = golden("4.2-hdfs", tmp_path / "old"), tmp_path / "new"
    before, complete = content(old), 0
    opened = CheckpointFiles._sync
    for allowed in range(100):
        left = iter(range(allowed))

        def sync(self: CheckpointFiles, path: str, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise OSError(28, "No space left on device")
            opened(self, path)

        monkeypatch.setattr(CheckpointFiles, "_sync", sync)
        result = copy(cli, old, new, "--execute")
        if result.code == 0:
            complete = allowed
            break
        assert (result.code, content(old)) == (4, before)
        assert f"is incomplete: {allowed} of" in result.err
        found = content(new)
        if "metadata" in found:
            # All bytes of the last file are written, and only the sync failed.
            assert allowed == len(found) - 1
        else:
            assert cli("checkpoint", "verify", str(new)).code == 1
            assert "it is an incomplete copy" in copy(cli, aged(new), tmp_path / "other").err
            assert "can be an incomplete copy to delete" in copy(cli, old, new, "--execute").err
        shutil.rmtree(new)
    assert complete == len(content(new))


def test_C5_the_last_files_are_the_offsets_before_and_the_metadata(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(CheckpointFiles, "_sync", lambda _self, path: written.append(path))
    assert copy(cli, golden("4.2-ids", tmp_path / "old"), tmp_path / "new", "--execute").code == 0
    assert written[0] == "offsets/15"
    assert written[-2:] == ["offsets/14", "metadata"]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("8", "Batch 8 is planned and not committed: flights-0[35,40). It will run again. Use --batch 7"),
        ("4", "Spark also needs the offsets of batch 3, which no longer exist. Use --batch 5 or a later one."),
    ],
)
def test_C5_batches_that_cannot_be_copied(cli: CommandLine, tmp_path: Path, batch: str, message: str) -> None:
    write(tmp_path / "old", stateless(KAFKA, committed=7))
    result = copy(cli, tmp_path / "old", tmp_path / "new", "--batch", batch, "--execute")
    assert (result.code, (tmp_path / "new").exists(), message in result.err) == (3, False, True), result.err


def test_C5_a_batch_without_its_state_is_rejected(cli: CommandLine, tmp_path: Path) -> None:
    (golden("4.2-hdfs", tmp_path / "old") / "state/0/1/14.delta").unlink()
    result = copy(cli, tmp_path / "old", tmp_path / "new", "--batch", "13", "--execute")
    assert (result.code, (tmp_path / "new").exists()) == (3, False)
    assert "after batch 13 cannot be restored: 'state/0/1/14.delta' does not exist" in result.err
    assert copy(cli, tmp_path / "old", tmp_path / "new", "--batch", "12", "--execute").code == 0


def test_C5_a_running_query_is_rejected(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "old", stateless(KAFKA, committed=7))
    now_s = time.time()
    os.utime(tmp_path / "old" / "offsets" / "8", (now_s, now_s))
    result = copy(cli, tmp_path / "old", tmp_path / "new", "--execute")
    assert (result.code, (tmp_path / "new").exists()) == (3, False)
    assert "ago, so its query may still run. Stop the query" in result.err
    assert copy(cli, tmp_path / "old", tmp_path / "new", "--allow-running", "--execute").code == 0


def test_C5_only_an_empty_directory_elsewhere_is_written(cli: CommandLine, tmp_path: Path) -> None:
    old = write(tmp_path / "old", stateless(KAFKA, committed=7))
    before = content(tmp_path)
    for new in (old, old / "copy", tmp_path):
        assert copy(cli, old, new, "--execute").code == 3
    assert "which is never written" in copy(cli, f"file://{old}", f"{old}/copy").err
    assert "is not empty: it contains old" in copy(cli, old, tmp_path).err
    assert content(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert copy(cli, old, tmp_path / "empty", "--execute").code == 0


@pytest.mark.parametrize(
    ("files", "code", "message"),
    [
        ({"state/0/0/1.delta": "x"}, 2, "is not a checkpoint: it has no directory 'offsets'"),
        ({}, 2, "does not exist, or is empty"),
        (stateless({0: "-"}, committed=-1), 3, "has no committed batch"),
        ({**stateless(KAFKA, committed=7), "offsets/7": "damaged"}, 2, "contains a log that is not one of Spark"),
    ],
)
def test_C5_foreign_directories_are_rejected(
    cli: CommandLine, tmp_path: Path, files: dict[str, str], code: int, message: str
) -> None:
    write(tmp_path / "old", files)
    result = copy(cli, tmp_path / "old", tmp_path / "new", "--execute")
    assert (result.code, (tmp_path / "new").exists(), message in result.err) == (code, False, True), result.err


def test_a_file_that_is_deleted_meanwhile_makes_no_complete_copy(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = golden("4.2-hdfs", tmp_path / "old")
    copied = CheckpointFiles.copy

    def delete_and_copy(self: CheckpointFiles, path: str, source: CheckpointFiles) -> None:
        if path.endswith(".snapshot"):
            (old / path).unlink(missing_ok=True)
        copied(self, path, source)

    monkeypatch.setattr(CheckpointFiles, "copy", delete_and_copy)
    result = copy(cli, old, tmp_path / "new", "--batch", "12", "--execute")
    assert (result.code, (tmp_path / "new" / "metadata").exists()) == (4, False)
    assert "a file of the old checkpoint was deleted meanwhile" in result.err


@pytest.mark.parametrize("failing", ["commits/0", "sources/0/0", "offsets/0", "metadata"])
def test_C5_an_incomplete_copy_of_batch_0_is_recognized(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Spark 4.0 and 4.1 start a checkpoint without 'metadata', and batch 0 has no batch before it."""
    old = write(tmp_path / "old", {**stateless({0: KAFKA[4], 1: KAFKA[5]}, committed=1), "sources/0/0": "v1\n{}"})
    names = {failing: "copy" if failing in content(old) and failing != "metadata" else "write"}

    def fails(self: CheckpointFiles, path: str, *more: object) -> None:
        if path == failing:
            raise OSError(5, "Input/output error")
        original(self, path, *more)  # type: ignore[arg-type]

    original = getattr(CheckpointFiles, names[failing])
    monkeypatch.setattr(CheckpointFiles, names[failing], fails)
    assert copy(cli, old, tmp_path / "new", "--batch", "0", "--execute").code == 4
    found = content(tmp_path / "new")
    assert "metadata" not in found
    if failing != "metadata":
        # Spark reads the last file of the offset log first, and rejects this one.
        assert found["offsets/0"] == b"This copy is incomplete. Delete it, and copy the checkpoint again."
    monkeypatch.undo()
    verified = cli("checkpoint", "verify", str(tmp_path / "new"))
    assert (verified.code, "metadata" in verified.out) == (1, True)


def test_C5_a_complete_copy_of_batch_0(cli: CommandLine, tmp_path: Path) -> None:
    old = write(tmp_path / "old", stateless({0: OWN[1], 1: OWN[2]}, committed=1))
    for new, more in (("same", []), ("shadow", ["--group", "shadow"])):
        assert copy(cli, old, tmp_path / new, "--batch", "0", "--execute", *more).code == 0
        assert sorted(content(tmp_path / new)) == ["commits/0", "metadata", "offsets/0"]
        assert cli("checkpoint", "verify", str(tmp_path / new)).code == 0
    assert (tmp_path / "same/offsets/0").read_bytes() == (old / "offsets/0").read_bytes()
    assert '"group":"shadow"' in (tmp_path / "shadow/offsets/0").read_text()


def test_C5_a_copy_for_another_group(cli: CommandLine, tmp_path: Path) -> None:
    old = write(tmp_path / "old", stateless(OWN, committed=2))
    assert "the copy belongs to group board, as the old query does" in copy(cli, old, tmp_path / "new").err
    result = copy(cli, old, tmp_path / "new", "--group", "shadow", "--execute")
    assert (result.code, "belongs to group" in result.err) == (0, False)
    shown = json.loads(cli("checkpoint", "show", str(tmp_path / "new"), "-o", "json").out)
    assert [it["group"] for it in shown["sources"]] == ["shadow", None]
    assert [(it["start_offset"], it["end_offset"]) for it in shown["partitions"]] == [(2, 3)]
    for group in ("board", "", "x.streamgroups"):
        assert copy(cli, old, tmp_path / "other", "--group", group).code == 2
    kafka = write(tmp_path / "kafka", stateless(KAFKA, committed=7))
    assert "needs a source of format('streamgroups')" in copy(cli, kafka, tmp_path / "other", "--group", "shadow").err


def _with_own_source(checkpoint: Path, numbers: dict[int, int]) -> Path:
    """Replaces the source of batches by one of this library, at these numbers of its offset."""
    for batch, n in numbers.items():
        log = checkpoint / "offsets" / str(batch)
        first, metadata, *_ = log.read_text().split("\n")
        own = f'{{"version":2,"n":{n},"ranges":{{"flights":{{"0":[{n},{n + 1}]}}}},"resting":{{}},"group":"board"}}'
        log.write_text("\n".join([first, metadata, own]))
    return aged(checkpoint)


def test_X4_a_copy_does_not_leave_out_a_no_data_batch(cli: CommandLine, tmp_path: Path) -> None:
    old = _with_own_source(golden("4.2-hdfs", tmp_path / "old"), {13: 1, 14: 2, 15: 2})
    rejected = copy(cli, old, tmp_path / "new", "--batch", "14", "--execute")
    assert (rejected.code, (tmp_path / "new").exists()) == (3, False)
    assert "leaves out no-data batch 15, which is committed" in rejected.err
    assert "Use --batch 15, or a later one." in rejected.err
    assert copy(cli, old, tmp_path / "shadow", "--batch", "14", "--group", "shadow", "--execute").code == 0
    assert copy(cli, old, tmp_path / "last", "--execute").code == 0
    (old / "commits" / "15").unlink()
    rejected = copy(cli, old, tmp_path / "new", "--execute")
    assert "leaves out no-data batch 15, which is planned" in rejected.err
    assert "trigger availableNow" in rejected.err
    # The batch always fails, or the sink is an upsert.
    assert copy(cli, old, tmp_path / "accepted", "--execute", "--accept-repeated-output").code == 0
    # A batch with records changes the positions of the group, which a restart compares.
    _with_own_source(old, {15: 3})
    assert copy(cli, old, tmp_path / "new", "--execute").code == 0


def test_X4_a_copy_does_not_leave_out_a_no_data_batch_after_a_batch_with_records(
    cli: CommandLine, tmp_path: Path
) -> None:
    old = _with_own_source(golden("4.2-hdfs", tmp_path / "old"), {12: 1, 13: 2, 14: 2, 15: 3})
    rejected = copy(cli, old, tmp_path / "new", "--batch", "12", "--execute")
    assert (rejected.code, (tmp_path / "new").exists()) == (3, False)
    assert "leaves out no-data batch 14, which is committed" in rejected.err
    assert "Use --batch 14, or a later one." in rejected.err
    assert copy(cli, old, tmp_path / "new", "--batch", "14", "--execute").code == 0


def test_X4_a_batch_of_another_source_is_no_no_data_batch(cli: CommandLine, tmp_path: Path) -> None:
    old = _with_own_source(golden("4.2-hdfs", tmp_path / "old"), {13: 1, 14: 2, 15: 2})
    for batch in (14, 15):
        log = old / "offsets" / str(batch)
        log.write_text(log.read_text() + f'\n{{"orders":{{"0":{batch}}}}}')
    aged(old)
    assert copy(cli, old, tmp_path / "kafka", "--batch", "14", "--execute").code == 0
    # Punctuations are no records.
    for batch in (14, 15):
        log = old / "offsets" / str(batch)
        punctuations = json.dumps({"kind": PUNCTUATIONS, "group": "board", "time": batch})
        log.write_text(log.read_text().rsplit("\n", 1)[0] + "\n" + punctuations)
    aged(old)
    assert "leaves out no-data batch 15" in copy(cli, old, tmp_path / "new", "--batch", "14").err


def test_C5_a_copy_of_a_query_with_several_groups_keeps_them(cli: CommandLine, tmp_path: Path) -> None:
    trades, prices = (
        f'{{"version":2,"n":1,"ranges":{{"{topic}":{{"0":[1,2]}}}},"resting":{{}},"group":"{topic}"}}'
        for topic in ("trades", "prices")
    )
    joined = f"{trades}\n{prices}"
    old = write(tmp_path / "old", stateless({1: joined, 2: joined}, committed=2))
    rejected = copy(cli, old, tmp_path / "new", "--group", "shadow", "--execute")
    assert (rejected.code, (tmp_path / "new").exists()) == (3, False)
    assert "The query reads with 2 groups (prices, trades)" in rejected.err
    assert copy(cli, old, tmp_path / "new", "--execute").code == 0
    assert (tmp_path / "new/offsets/2").read_bytes() == (old / "offsets/2").read_bytes()


def test_C5_the_punctuations_of_a_copy_belong_to_its_group(cli: CommandLine, tmp_path: Path) -> None:
    time = '{"version":1,"kind":"streamgroups-time","group":"board","watermark":5}'
    old = write(tmp_path / "old", stateless({n: f"{it}\n{time}" for n, it in OWN.items()}, committed=2))
    assert copy(cli, old, tmp_path / "new", "--group", "shadow", "--execute").code == 0
    log = (tmp_path / "new/offsets/2").read_text()
    assert (log.count('"group":"shadow"'), '"group":"board"' in log) == (2, False)


def test_C5_the_schemas_of_operators_are_those_of_the_copy(cli: CommandLine, tmp_path: Path) -> None:
    old = golden("4.2-rocksdb", tmp_path / "old")
    schema = f"file:{old}/state/0/_stateSchema/default/0_4b7c"
    stores = [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2, "stateSchemaFilePaths": [schema]}]
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"}, "stateStoreInfo": stores}
    metadata = "v2\n" + json.dumps({**operator, "operatorPropertiesJson": "{}"})
    write(
        old,
        {
            "state/0/_stateSchema/default/0_4b7c": "v3\n{}",
            "state/0/_stateSchema/default/15_9d1e": "v3\n{}",
            "state/0/_metadata/v2/0": metadata,
            "state/0/_metadata/v2/15": metadata,
        },
    )
    assert copy(cli, old, tmp_path / "new", "--batch", "14", "--execute").code == 0
    found = content(tmp_path / "new")
    assert str(old).encode() not in b"".join(found.values())
    assert f"file:{tmp_path}/new/state/0/_stateSchema/default/0_4b7c".encode() in found["state/0/_metadata/v2/0"]
    # Those of later batches are left out.
    assert {it for it in found if "/v2/" in it or "/_stateSchema/" in it} == {
        "state/0/_metadata/v2/0",
        "state/0/_stateSchema/default/0_4b7c",
    }


def _topic(cli: CommandLine) -> None:
    cli.cluster.create_topic("flights", 2)
    for partition, count in enumerate((60, 4)):
        cli.cluster.produce(TopicPartition("flights", partition), count, timestamp_ms=1_000)
    cli.cluster.delete_records(TopicPartition("flights", 0), 10)
    cli.cluster.produce(TopicPartition("flights", 0), 5, timestamp_ms=500_000)


def _positions(cli: CommandLine, checkpoint: Path) -> dict[int, int]:
    shown = json.loads(cli("checkpoint", "show", str(checkpoint), "-o", "json").out)
    return {it["partition"]: it["end_offset"] for it in shown["partitions"]}


@pytest.mark.parametrize(
    ("target", "positions"),
    [
        (["--to-earliest"], {0: 10, 1: 0}),
        (["--to-latest"], {0: 65, 1: 4}),
        (["--to-offset", "12"], {0: 12, 1: 4}),
        (["--shift-by", "-3"], {0: 32, 1: 0}),
        (["--to-datetime", "1970-01-01T00:01:00Z"], {0: 60, 1: 4}),
        (["--by-duration", "15m"], {0: 60, 1: 4}),
        (["--to-earliest", "--topic", "flights:1"], {0: 35, 1: 0}),
    ],
)
def test_C5_positions_move_by_the_scenarios_of_a_reset(
    cli: CommandLine, tmp_path: Path, target: list[str], positions: dict[int, int]
) -> None:
    _topic(cli)
    lines = {n: f'{{"flights":{{"0":{5 * n},"1":2}}}}\n{{"logOffset":3}}' for n in range(4, 9)}
    old = write(tmp_path / "old", stateless(lines, committed=7))
    before = content(old)
    result = copy(cli, old, tmp_path / "new", *target, "--execute")
    assert (result.code, content(old)) == (0, before), result.err
    assert "TOPIC    PARTITION  FROM-OFFSET  TO-OFFSET  CHANGE" in result.out
    assert _positions(cli, tmp_path / "new") == positions
    assert cli("checkpoint", "verify", str(tmp_path / "new")).code == 0
    # The other source stays.
    assert (tmp_path / "new" / "offsets" / "7").read_text().endswith('\n{"logOffset":3}')


def test_C5_a_state_does_not_move_with_the_positions(cli: CommandLine, tmp_path: Path) -> None:
    _topic(cli)
    old = golden("4.2-hdfs", tmp_path / "old")
    for path in (old / "offsets").iterdir():
        text = path.read_text()
        path.write_text(text[: text.rindex("\n")] + '\n{"flights":{"0":20,"1":2}}')
    shutil.rmtree(old / "sources")
    aged(old)
    rejected = copy(cli, old, tmp_path / "new", "--to-earliest", "--execute")
    assert (rejected.code, (tmp_path / "new").exists()) == (3, False)
    assert (
        "has state (operators 0 (stateStoreSave)), which does not move with the positions. Add --keep-state"
        in rejected.err
    )
    result = copy(cli, old, tmp_path / "new", "--to-earliest", "--keep-state", "--execute")
    assert (result.code, _positions(cli, tmp_path / "new")) == (0, {0: 10, 1: 0})
    assert "Open windows count records twice that are read again, and lack records that are skipped." in result.err
    assert "Rows before the watermark 2013-01-01T00:26:00.000Z are dropped as late." in result.err


def test_targets_that_cannot_be_used(cli: CommandLine, tmp_path: Path) -> None:
    _topic(cli)
    kafka = write(tmp_path / "kafka", stateless(KAFKA, committed=7))
    own = write(tmp_path / "own", stateless(OWN, committed=2))

    def reason(old: Path, *target: str) -> str:
        result = copy(cli, old, tmp_path / "new", *target)
        assert (result.code, result.out) == (2, "")
        return result.err

    assert "--topic and --keep-state need a target. Add one of --to-earliest" in reason(kafka, "--keep-state")
    assert "requires exactly one target" in reason(kafka, "--to-earliest", "--to-latest")
    assert "Use --topic" in reason(kafka, "--to-earliest", "--topic", "gates").replace("use", "Use")
    assert "The group stores the positions: streamgroups groups reset board" in reason(own, "--to-earliest")
