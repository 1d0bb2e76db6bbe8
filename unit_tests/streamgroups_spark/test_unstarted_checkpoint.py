"""A7: what a kill before the first batch leaves in a checkpoint is cleared, and nothing else is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from streamgroups_spark.bridge.unstarted_checkpoint import clear_unstarted

LEFT_OVER = ".0.7f8e0b0e-5a3f-4c55-9d7c-0c9a9a3a6b1d.tmp"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for directory in ("offsets", "commits"):
        (tmp_path / directory).mkdir()
    (tmp_path / "metadata").write_text('{"id":"5f2c"}')
    (tmp_path / "offsets" / LEFT_OVER).write_text("v1\n{")
    (tmp_path / "offsets" / f".{LEFT_OVER}.crc").write_bytes(b"crc")
    return tmp_path


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_what_a_kill_has_left_goes_and_is_logged(
    checkpoint: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        removed = clear_unstarted(f"{scheme}{checkpoint}")
    assert {Path(path).name for path in removed} == {LEFT_OVER, f".{LEFT_OVER}.crc"}
    assert not list((checkpoint / "offsets").iterdir())
    assert (checkpoint / "metadata").exists(), "the id of the query stays"
    assert LEFT_OVER in caplog.text


@pytest.mark.parametrize(
    "other",
    [
        "offsets/0",
        "offsets/.1.7f8e0b0e-5a3f-4c55-9d7c-0c9a9a3a6b1d.tmp",
        "commits/0",
        "state/0/_metadata/v2/1",
        "sources/0/0",
    ],
)
def test_a_checkpoint_in_which_anything_has_happened_stays_as_it_is(checkpoint: Path, other: str) -> None:
    (checkpoint / other).parent.mkdir(parents=True, exist_ok=True)
    (checkpoint / other).write_text("v1")
    assert clear_unstarted(str(checkpoint)) == ()
    assert (checkpoint / "offsets" / LEFT_OVER).exists()
    assert (checkpoint / other).exists()


def test_a_new_checkpoint_and_one_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert clear_unstarted(str(tmp_path / "new")) == ()
    assert not caplog.text
    assert clear_unstarted("nowhere://checkpoint") == ()
    assert "could not be checked" in caplog.text
