"""The reports of tasks are in the user's process. Without it a batch is not without states: the query starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import StateMissing, StreamGroupsError
from streamgroups.supervision.policy import NEVER_PASS
from streamgroups_spark.bridge.rpc import USER, SessionServer
from streamgroups_spark.bridge.task_reports import request_reports
from streamgroups_spark.messages.query import ReportedStates
from streamgroups_spark.session import new_session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return new_session()


def test_a_killed_process_is_no_batch_without_states(session: str) -> None:
    with pytest.raises(StreamGroupsError, match=r"does not run any more.* batch 7") as rejected:
        request_reports(session, "run", 7)
    assert type(rejected.value) not in NEVER_PASS
    assert StateMissing in NEVER_PASS


def test_the_reports_are_those_of_the_users_process(session: str) -> None:
    server = SessionServer(session, USER, lambda _: ReportedStates(()))
    try:
        assert request_reports(session, "run", 7) == []
    finally:
        server.close()
