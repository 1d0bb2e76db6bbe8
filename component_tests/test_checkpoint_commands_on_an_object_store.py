"""C1, C5: a Spark checkpoint on S3 is shown, verified and copied, between S3 and a directory too."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from component_tests.object_store import BUCKET, ObjectStore
from streamgroups_cli import main
from unit_tests.spark_checkpoints import content, golden

OLD, NEW = f"s3a://{BUCKET}/old", f"s3a://{BUCKET}/new"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        for name, value in found.storage_options.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        yield found


def test_C1_C5_on_an_object_store(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["streamgroups", "checkpoint", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        result = capsys.readouterr()
        assert not ended.value.code, result.err
        return result.out

    written = content(golden("4.2-ids", tmp_path / "local"))
    for name, data in written.items():
        urlopen(Request(f"{store.url}/{BUCKET}/old/{name}", data, method="PUT")).close()
    assert [it["batch"] for it in json.loads(run("show", OLD, "-o", "json"))["batches"]] == [15]
    assert json.loads(run("verify", OLD, "-o", "json"))["restorable_batches"] == [11, 12, 13, 14, 15]
    run("copy", OLD, NEW, "--batch", "13", "--allow-running", "--execute")
    assert json.loads(run("verify", NEW, "-o", "json"))["restorable_batches"] == [13]
    run("copy", NEW, str(tmp_path / "back"), "--allow-running", "--execute")
    back = content(tmp_path / "back")
    assert {n: it for n, it in back.items() if n != "metadata"} == {n: written[n] for n in back if n != "metadata"}
    assert json.loads(run("verify", str(tmp_path / "back"), "-o", "json"))["problems"] == []
