"""The end of a batch removes the files of a stage that no version of the table contains, and only these."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import streamgroups as sg
from streamgroups.partitions import TopicPartition

#: ``str.splitlines`` splits at each of them. Of these, JSON escapes only those below U+0020.
_SEPARATORS = "a\u2028b\u2029c\x85d\x1ce\x0bf"


@pytest.mark.parametrize("partition_by", [(), ("airport",)])
def test_an_unused_attempt_is_removed_whatever_the_texts_of_the_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, partition_by: tuple[str, ...]
) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "t"), partition_by=partition_by)
    rows = pa.table({"airport": [_SEPARATORS], "n": [1]})
    with sink.open("board") as ledger:
        begun = sink.begin(rows.schema, "token")
        used, _ = (sink.write(begun, iter(rows.to_batches()), attempt) for attempt in range(2))
        with ledger.transaction() as transaction:
            transaction.write([used])
            transaction.advance({TopicPartition("flights", 0): 1})
    sink.discard(begun)
    left = [str(path.relative_to(sink.uri)) for path in Path(sink.uri).glob("batch-*/*")]
    assert left == [file.path for file in used.files]
    assert not caplog.messages
