"""F2: the metadata of committed offsets, as confluent-kafka returns it."""

from __future__ import annotations

from unittest.mock import MagicMock, PropertyMock

import pytest

from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import ToolMark, mark_of
from streamgroups_kafka.client.partition_conversion import metadata_of

MARK = ToolMark(AppliedReset(7, "5f2c"))


def returned(stored: bytes) -> MagicMock:
    """An offset of confluent-kafka, which decodes the bytes when they are read."""
    committed = MagicMock()
    type(committed).metadata = PropertyMock(side_effect=lambda: stored.decode())
    return committed


@pytest.mark.parametrize("behind", [b"", b"abc", b"\xff\xfe", b"kept=none;end;", b"x\xc3", "\u00e9".encode()[:1]])
def test_a_mark_is_read_whatever_is_behind_it_in_memory(behind: bytes) -> None:
    assert mark_of(metadata_of(returned(MARK.encode().encode() + behind))) == MARK


def test_metadata_that_is_no_text_has_no_mark() -> None:
    assert metadata_of(returned(b"\xff\xfe")) == ""
    assert metadata_of(MagicMock(metadata=None)) == ""


def test_a_mark_without_its_end_is_rejected() -> None:
    """Nothing shows that it is complete."""
    assert mark_of(MARK.encode().removesuffix("end;")) is None
