"""P2: a replica waits for its earlier run, and fails if the cluster of its source can never be read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroups.errors import BrokerUnreachable, NotAuthorized, StreamGroupsError
from streamgroups.processors.processor import Processor, Source
from streamgroups_spark.processors import running

DECLARED = Processor("late", Source("prod", {"subscribe": "flights"}))
#: The client id of a run of member 0 in this group.
EARLIER = SimpleNamespace(client_id="streamgroups-board.late-0-host-7-ab", host="/10.0.0.1")


class Cluster:
    """A cluster whose group has these members, one list for each description."""

    def __init__(self, members: list[list[Any]], error: StreamGroupsError | None = None) -> None:
        self.members, self.error, self.logins = members, error, 0

    def check_reachable(self) -> None:
        self.logins += 1
        if self.error is not None:
            raise self.error

    def describe(self, group_id: str) -> Any:
        assert group_id == "board.late"
        return SimpleNamespace(members=self.members.pop(0))


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster], running._EarlierRun]:
    def create(cluster: Cluster) -> running._EarlierRun:
        monkeypatch.setattr(running, "parse", lambda *_, **__: None)
        monkeypatch.setattr(running, "cluster_of", lambda _: cluster)
        monkeypatch.setattr(running, "_AGAIN_S", 0.001)
        return running._EarlierRun(DECLARED, "board", 0)

    return create


def test_it_waits_until_the_group_has_removed_the_earlier_run(
    earlier: Callable[[Cluster], running._EarlierRun],
) -> None:
    other = SimpleNamespace(client_id="streamgroups-board.late-1-host-8-cd", host="/10.0.0.2")
    cluster = Cluster([[EARLIER, other], [EARLIER], [other]])
    earlier(cluster).wait(threading.Event(), 1)
    assert (cluster.members, cluster.logins) == ([], 1)


def test_a_rejected_login_is_an_error_at_once(earlier: Callable[[Cluster], running._EarlierRun]) -> None:
    with pytest.raises(NotAuthorized):
        earlier(Cluster([], NotAuthorized("The login was rejected."))).wait(threading.Event(), 900_000)


def test_an_outage_ends_with_its_error(earlier: Callable[[Cluster], running._EarlierRun]) -> None:
    cluster = Cluster([], BrokerUnreachable("No broker responded."))
    with pytest.raises(BrokerUnreachable):
        earlier(cluster).wait(threading.Event(), 20)
    assert cluster.logins > 1


def test_a_stopped_replica_does_not_wait(earlier: Callable[[Cluster], running._EarlierRun]) -> None:
    stop = threading.Event()
    stop.set()
    earlier(Cluster([])).wait(stop, 1)
