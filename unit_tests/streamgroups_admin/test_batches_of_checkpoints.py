"""A checkpoint of another source can contain anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups_admin.checkpoints.batches import _operator
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles


@pytest.mark.parametrize(
    ("metadata", "shown"),
    [
        ('v1\n{"operatorInfo":{"operatorName":"dedupe"},"stateStoreInfo":[]}', "3 (dedupe)"),
        ("v1\n" + "[" * 100_000, "3"),
        ("v1\n7", "3"),
        ("", "3"),
    ],
)
def test_the_name_of_an_operator_is_shown_if_it_can_be_read(tmp_path: Path, metadata: str, shown: str) -> None:
    directory = tmp_path / "state" / "3" / "_metadata"
    directory.mkdir(parents=True)
    (directory / "metadata").write_text(metadata)
    assert _operator(CheckpointFiles(str(tmp_path)), 3) == shown
