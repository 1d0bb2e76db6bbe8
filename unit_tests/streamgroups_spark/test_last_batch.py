"""S2: how a stopping query determines whether its last batch is done."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamgroups.errors import StreamGroupsError
from streamgroups_spark.bridge.rpc import USER, SessionServer
from streamgroups_spark.messages.query import FinishedRequest
from streamgroups_spark.source.last_batch import LastBatch

END: Mapping[str, Any] = {"version": 1, "n": 3}
IDS = frozenset((11, 1))


@pytest.fixture
def session() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """By which the batch is done."""
    for log, content in (("offsets", 'v1\n{}\n{"n":3,"version":1}'), ("commits", "v1\n{}")):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").write_text(content)
    return str(tmp_path)


@pytest.mark.parametrize("done", [True, False])
def test_the_process_that_started_the_query_has_the_first_word(session: str, checkpoint: str, done: bool) -> None:
    with closing(SessionServer(session, USER, lambda request: done if request == FinishedRequest(IDS, END) else None)):
        assert LastBatch(session, IDS, checkpoint).has_finished(END) is done


def test_if_it_has_no_record_the_checkpoint_decides(session: str, checkpoint: str) -> None:
    def fail(_: object) -> None:
        raise StreamGroupsError("The JVM is gone.")

    assert LastBatch(session, IDS, checkpoint).has_finished(END)
    with closing(SessionServer(session, USER, lambda _: None)):
        assert LastBatch(session, IDS, checkpoint).has_finished(END)
        assert not LastBatch(session, IDS, checkpoint).has_finished({**END, "n": 4})
    with closing(SessionServer(session, USER, fail)):
        assert LastBatch(session, IDS, checkpoint).has_finished(END)


def test_without_a_record_the_batch_counts_as_not_done(session: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not LastBatch(session, IDS, None).has_finished(END)
    assert "The checkpoint is not available" in caplog.text
