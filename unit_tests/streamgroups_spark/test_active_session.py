"""The active session of PySpark is one variable of the process, and threads start queries at the same time."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from streamgroups_spark.internals.private_spark import active_in_thread


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """The active session of the process."""
    session = MagicMock()
    monkeypatch.setattr(SparkSession, "_activeSession", session)
    monkeypatch.setattr(SparkSession, "_get_j_spark_session_class", MagicMock())
    return session


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_blocks_of_several_threads_end_in_any_order(before: MagicMock, order: tuple[int, ...]) -> None:
    sessions, blocks = [MagicMock() for _ in order], [ExitStack() for _ in order]
    for session, block in zip(sessions, blocks, strict=True):
        block.enter_context(active_in_thread(session))
        assert SparkSession._activeSession is session
    for ended, number in enumerate(order, 1):
        blocks[number].close()
        others = [session for i, session in enumerate(sessions) if i not in order[:ended]]
        assert SparkSession._activeSession is [before, *others][-1]


def test_a_block_that_fails_restores_the_session(before: MagicMock) -> None:
    with pytest.raises(KeyError), active_in_thread(MagicMock()), active_in_thread(MagicMock()):
        raise KeyError
    assert SparkSession._activeSession is before
