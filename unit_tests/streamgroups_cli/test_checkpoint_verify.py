"""C5: ``streamgroups checkpoint verify`` finds each file that is missing or truncated, of each state store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from unit_tests.cli_runner import CommandLine
from unit_tests.spark_checkpoints import NAMES, aged, batches, golden, stateless, write

KAFKA = {n: f'{{"flights":{{"0":{n}}}}}' for n in range(4, 9)}


def verified(cli: CommandLine, checkpoint: Path) -> tuple[int, Any]:
    result = cli("checkpoint", "verify", str(checkpoint), "-o", "json")
    assert result.err == ""
    return result.code, json.loads(result.out)


@pytest.mark.parametrize("name", NAMES)
def test_C5_a_checkpoint_without_a_problem(cli: CommandLine, name: str, tmp_path: Path) -> None:
    code, found = verified(cli, golden(name, tmp_path))
    assert (code, found["problems"]) == (0, [])
    # Spark needs the offsets of the batch before, too.
    first, *restorable = batches(tmp_path)
    assert found["restorable_batches"] == restorable == list(range(first + 1, first + 6))
    result = cli("checkpoint", "verify", str(tmp_path))
    assert (
        result.out == f"{found['files']} files, 0 problems. Batches that can be restored: {first + 1} to {first + 5}\n"
    )


#: The stores of a join of two streams.
JOIN_STORES = [f"{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")]


def join_without_metadata(directory: Path) -> Path:
    """Returns a checkpoint of the form that a join has before Spark 3.5: named stores, and no metadata of the operator."""
    golden("4.0-hdfs", directory)
    shutil.rmtree(directory / "state/0/_metadata")
    for partition in ("0", "1"):
        store = directory / "state/0" / partition
        files = [it for it in store.iterdir() if it.is_file()]
        for name in JOIN_STORES:
            (store / name).mkdir()
            for file in files:
                shutil.copy(file, store / name)
        for file in files:
            file.unlink()
    return aged(directory)


def test_C5_the_stores_of_a_join_without_metadata(cli: CommandLine, tmp_path: Path) -> None:
    checkpoint = join_without_metadata(tmp_path / "join")
    code, found = verified(cli, checkpoint)
    assert (code, found["problems"], found["restorable_batches"]) == (0, [], batches(checkpoint)[1:])
    copied = cli("checkpoint", "copy", str(checkpoint), str(tmp_path / "copy"), "--execute")
    assert copied.code == 0, copied.err
    stores = {it.parent.name for it in (tmp_path / "copy/state/0/1").glob("*/*.[ds]*")}
    assert stores == set(JOIN_STORES)
    shutil.rmtree(checkpoint / "state/0/1" / JOIN_STORES[2])
    code, found = verified(cli, aged(checkpoint))
    assert (code, found["restorable_batches"]) == (1, [])
    assert all(JOIN_STORES[2] in it["file"] for it in found["problems"])


@pytest.mark.parametrize("name", ["4.2-hdfs", "4.2-rocksdb", "4.2-ids"])
def test_C5_each_missing_or_truncated_file_is_found(cli: CommandLine, name: str, tmp_path: Path) -> None:
    whole = golden(name, tmp_path / "whole")
    paths = sorted(str(it.relative_to(whole)) for it in whole.rglob("*") if it.is_file())
    needed = [
        it
        for it in paths
        if it.startswith(("state/", "commits/", "offsets/")) and "/_metadata/" not in it and not it.endswith(".crc")
    ]
    # Partition 0 has the same kinds of files.
    needed = [it for it in needed if not it.startswith("state/0/0/")]
    assert len(needed) > 15
    for number, path in enumerate(needed):
        for is_truncated in (False, True)[: 1 if number % 4 else 2]:
            broken = shutil.copytree(whole, tmp_path / "broken")
            if is_truncated:
                (broken / path).write_bytes((broken / path).read_bytes()[:-30])
            else:
                (broken / path).unlink()
            code, found = verified(cli, broken)
            shutil.rmtree(broken)
            if not is_truncated and path in ("offsets/10", "commits/10", "commits/15"):
                # A shorter log: Spark deletes the lowest numbers, and runs the last batch again.
                assert code == 0
                continue
            if not is_truncated and name == "4.2-rocksdb" and found["restorable_batches"] == [12, 13, 14, 15]:
                # The state of the first batch only, which Spark deletes next.
                continue
            assert code == 1, (path, is_truncated)
            assert _stem(path) in {_stem(it["file"]) for it in found["problems"]}, (path, is_truncated)


def _stem(path: str) -> str:
    """The path without its suffix: a version exists as a full file or as changes."""
    return path.rpartition(".")[0] if path.startswith("state/") and "/SSTs/" not in path else path


def test_the_batches_of_a_missing_file_are_named(cli: CommandLine, tmp_path: Path) -> None:
    (golden("4.2-hdfs", tmp_path) / "state/0/1/14.delta").unlink()
    code, found = verified(cli, tmp_path)
    assert code == 1
    assert found["problems"] == [{"file": "state/0/1/14.delta", "problem": "does not exist", "batches": [13, 14]}]
    assert found["restorable_batches"] == [11, 12, 15]
    assert "state/0/1/14.delta  does not exist  13 to 14" in cli("checkpoint", "verify", str(tmp_path)).out


def test_a_partition_without_files_is_found(cli: CommandLine, tmp_path: Path) -> None:
    shutil.rmtree(golden("4.2-hdfs", tmp_path) / "state/0/1")
    code, found = verified(cli, tmp_path)
    assert (code, found["restorable_batches"]) == (1, [])


def test_the_state_of_the_first_batches_can_be_deleted(cli: CommandLine, tmp_path: Path) -> None:
    golden("4.2-rocksdb", tmp_path)
    for partition in (0, 1):
        (tmp_path / f"state/0/{partition}/12.zip").unlink()
    code, found = verified(cli, tmp_path)
    assert (code, found["problems"], found["restorable_batches"]) == (0, [], [12, 13, 14, 15])


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        ({"offsets/6": None}, "offsets/6", "does not exist: the log has a gap"),
        ({"commits/6": None}, "commits/6", "does not exist: the log has a gap"),
        ({"commits/7": None, "commits/8": None}, "commits/7", "does not exist: the log has a gap"),
        ({"offsets/8": None}, "offsets/8", "does not exist: the log has a gap"),
        ({"metadata": None}, "metadata", "does not exist: the checkpoint is an incomplete copy"),
        ({"metadata": "{}"}, "metadata", "is damaged"),
        ({"offsets/6": "v1\n{"}, "offsets/6", "is damaged"),
        ({"offsets/6": "v3\n{}\n-"}, "offsets/6", "Version 3 of Spark's offset log is not supported"),
        ({"commits/6": ""}, "commits/6", "is damaged: it begins with '', not with a version"),
        ({"commits/6": "v7\n{}"}, "commits/6", "Version 7 of Spark's commit log is not supported"),
        ({"commits/6": 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":7}}'}, "commits/6", "is damaged"),
        ({"state/0/_metadata/metadata": "v9\n{}"}, "state/0/_metadata/metadata", "operator metadata is not supported"),
        ({"state/0/_metadata/metadata": "v1\n[]"}, "state/0/_metadata/metadata", "is damaged"),
    ],
)
def test_C5_gaps_damage_and_newer_versions_of_the_logs(
    cli: CommandLine, tmp_path: Path, change: dict[str, str | None], path: str, problem: str
) -> None:
    files = {**stateless(KAFKA, committed=8), **{name: text for name, text in change.items() if text is not None}}
    write(tmp_path, {name: text for name, text in files.items() if change.get(name, "") is not None})
    code, found = verified(cli, tmp_path)
    assert code == 1
    assert [it["problem"] for it in found["problems"] if it["file"] == path and problem in it["problem"]]


def test_a_newer_offset_of_our_source_is_found(cli: CommandLine, tmp_path: Path) -> None:
    own = {n: f'{{"version":9,"n":{n},"ranges":{{}},"resting":{{}}}}' for n in (1, 2)}
    write(tmp_path, stateless(own, committed=2))
    code, found = verified(cli, tmp_path)
    assert (code, [it["file"] for it in found["problems"]]) == (1, ["offsets/1", "offsets/2"])
    assert "was written by a newer streamgroups" in found["problems"][0]["problem"]


@pytest.mark.parametrize("damage", [b"", b"PK\3\4", b"LZ4Block" + b"\xff" * 40, b"\0" * 100])
@pytest.mark.parametrize("name", ["4.2-rocksdb", "4.2-ids"])
def test_state_files_with_any_content_are_problems(cli: CommandLine, tmp_path: Path, name: str, damage: bytes) -> None:
    golden(name, tmp_path)
    damaged = next(it for it in sorted((tmp_path / "state/0/1").iterdir()) if it.name.startswith("16"))
    damaged.write_bytes(damage)
    aged(tmp_path)
    code, found = verified(cli, tmp_path)
    assert (code, found["restorable_batches"]) == (1, [11, 12, 13, 14])
    assert f"state/0/1/{damaged.name}" in {it["file"] for it in found["problems"]}


def test_any_number_can_be_the_name_of_a_file(cli: CommandLine, tmp_path: Path) -> None:
    huge = 10**17
    files = stateless({1: "-", huge - 1: "-", huge: "-"}, committed=huge)
    operator = '{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},"stateStoreInfo":[%s]}'
    store = '{"storeName":"default","numColsPrefixKey":0,"numPartitions":%d}'
    write(tmp_path, {**files, "state/0/_metadata/metadata": "v1\n" + operator % (store % 1), "state/0/0/2.delta": "x"})
    code, found = verified(cli, tmp_path)
    assert code == 1
    assert f"state/0/0/{huge + 1}.delta" in {it["file"] for it in found["problems"]}
    write(tmp_path, {"state/0/_metadata/metadata": "v1\n" + operator % (store % 2**31)})
    code, found = verified(cli, tmp_path)
    assert "state/0/_metadata/metadata" in {it["file"] for it in found["problems"]}


def test_the_number_of_partitions_is_that_of_the_batch(cli: CommandLine, tmp_path: Path) -> None:
    """Spark 4.2 can change it between two batches."""
    metadata = (golden("4.2-hdfs", tmp_path) / "state/0/_metadata/metadata").read_text()
    changed = metadata.replace("v1\n", "v2\n").replace('"numPartitions":2', '"numPartitions":3')
    log = (tmp_path / "offsets" / "15").read_text().replace('partitions":"2"', 'partitions":"3"')
    write(tmp_path, {"state/0/_metadata/v2/15": changed, "offsets/15": log})
    shutil.copytree(tmp_path / "state/0/1", tmp_path / "state/0/2")
    for path in (tmp_path / "state/0/2").glob("1[2345].*"):
        path.unlink()
    code, found = verified(cli, tmp_path)
    assert (code, found["problems"]) == (0, [])
    (tmp_path / "state/0/2/16.snapshot").unlink()
    code, found = verified(cli, tmp_path)
    assert (code, found["restorable_batches"]) == (1, [11, 12, 13, 14])


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
@pytest.mark.parametrize("store", ["hdfs", "ids"])
def test_C5_each_truncated_file_of_other_codecs_is_found(
    cli: CommandLine, tmp_path: Path, store: str, codec: str
) -> None:
    whole = golden(f"compressed/4.2-{store}-{codec}", tmp_path)
    code, found = verified(cli, whole)
    assert (code, found["problems"], found["unverified"]) == (0, [], [])
    assert found["restorable_batches"] == [3, 4, 5, 6, 7, 8]
    changes = sorted(it for it in (whole / "state/0/1").iterdir() if it.suffix in (".delta", ".snapshot", ".changelog"))
    assert len(changes) == (10 if store == "hdfs" else 9)
    needed = set()
    for path in changes:
        content = path.read_bytes()
        for end in (1, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:end])
            code, found = verified(cli, whole)
            problems = {it["file"] for it in found["problems"]}
            assert (code, problems) in ((0, set()), (1, {str(path.relative_to(whole))})), path
            needed |= problems
        path.write_bytes(content)
    assert len(needed) >= 7


def test_C5_files_whose_end_is_not_marked_are_listed(cli: CommandLine, tmp_path: Path) -> None:
    golden("compressed/4.2-hdfs-lzf", tmp_path)
    code, found = verified(cli, tmp_path)
    assert (code, found["problems"]) == (0, [])
    assert {it["file"] for it in found["unverified"]} >= {f"state/0/1/{n}.delta" for n in (4, 5, 6, 7, 8)}
    reason = "its compression (lzf) does not mark the end of a file"
    assert {it["reason"] for it in found["unverified"]} == {reason}
    out = cli("checkpoint", "verify", str(tmp_path)).out
    assert f"0 problems, {len(found['unverified'])} not verified. Batches that can be restored: 3 to 8" in out
    assert "state/0/1/8.delta" in out
    assert f"is not verified: {reason}" in out
    # A checksum contains the size.
    for path in (tmp_path / "state").rglob("*.*"):
        write(tmp_path, {f"{path.relative_to(tmp_path)}.crc": _checksum(path)})
    code, found = verified(cli, tmp_path)
    assert (code, found["problems"], found["unverified"]) == (0, [], [])
    path = tmp_path / "state/0/1/8.delta"
    path.write_bytes(path.read_bytes()[:-1])
    code, found = verified(cli, tmp_path)
    assert (code, [it["file"] for it in found["problems"]]) == (1, ["state/0/1/8.delta"])


def test_C5_a_snappy_file_whose_last_block_is_full_is_listed(cli: CommandLine, tmp_path: Path) -> None:
    path = golden("compressed/4.2-hdfs-snappy", tmp_path) / "state/0/1/8.delta"
    block = pa.compress(b"\xff" * 32_768, codec="snappy", asbytes=True)
    path.write_bytes(path.read_bytes()[:16] + 2 * (len(block).to_bytes(4, "big") + block))
    code, found = verified(cli, tmp_path)
    assert (code, found["problems"]) == (0, [])
    reason = "its last block is full, so blocks after it can be missing"
    assert found["unverified"] == [{"file": "state/0/1/8.delta", "reason": reason, "batches": [7]}]


@pytest.mark.parametrize("damage", [b"", b"LZ4Block", b"\0" * 100])
@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_a_file_of_another_codec_is_damaged(cli: CommandLine, tmp_path: Path, codec: str, damage: bytes) -> None:
    path = golden(f"compressed/4.2-ids-{codec}", tmp_path) / "state/0/1"
    [damaged] = path.glob("9_*.changelog")
    damaged.write_bytes(damage)
    code, found = verified(cli, tmp_path)
    assert (code, {it["file"] for it in found["problems"]}) == (1, {str(damaged.relative_to(tmp_path))})


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_a_copy_reads_the_lineage_of_other_codecs(cli: CommandLine, tmp_path: Path, codec: str) -> None:
    old, new = golden(f"compressed/4.2-ids-{codec}", tmp_path / "old"), tmp_path / "new"
    copied = cli("checkpoint", "copy", str(old), str(new), "--batch", "6", "--execute")
    assert copied.code == 0, copied.err
    code, found = verified(cli, new)
    assert (code, found["problems"], found["restorable_batches"]) == (0, [], [6])


def _checksum(path: Path) -> str:
    return json.dumps({"algorithm": "CRC32C", "value": 7, "mainFileSize": path.stat().st_size, "timestampMs": 1})


@pytest.mark.parametrize("size_bytes", [1, 20, 21, 30])
def test_a_state_file_that_ends_after_any_byte_is_truncated(cli: CommandLine, tmp_path: Path, size_bytes: int) -> None:
    path = golden("4.2-hdfs", tmp_path) / "state/0/1/16.snapshot"
    path.write_bytes(path.read_bytes()[:size_bytes])
    code, found = verified(cli, tmp_path)
    assert (code, [it["batches"] for it in found["problems"]]) == (1, [[15]])
