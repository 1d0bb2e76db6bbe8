"""P2: a placed replica waits for the end of its earlier run, and a run in the foreground is rejected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroups.errors import BrokerUnreachable, GroupRejected, NotAuthorized
from streamgroups.processors.processor import Processor
from streamgroups.processors.reading import processor_of
from streamgroups.supervision.failure_causes import Failure
from streamgroups.supervision.policy import RestartPolicy
from streamgroups_spark.ops.supervise import SupervisedRun
from streamgroups_spark.processors import running
from streamgroups_spark.source.source_options import parse

DECLARED = processor_of(
    {"name": "late", "source": {"connection": "prod", "subscribe": "flights"}, "sink": {"format": "noop"}}
)
EARLIER = SimpleNamespace(client_id="streamgroups-board.late-0-host-7-abcd", host="/127.0.0.1")
#: The other member of the group.
OTHER = SimpleNamespace(client_id="streamgroups-board.late-1-host-8-abcd", host="/127.0.0.1")
UNREACHABLE = BrokerUnreachable("No broker responds.", remedy="Check the brokers.")


class Cluster:
    """Returns members, or raises errors, in the order of the requests."""

    def __init__(self, *found: Any) -> None:
        self._found: Iterator[Any] = iter(found)
        self.requests = self.logins = 0

    def check_reachable(self) -> None:
        self.logins += 1

    def describe(self, group_id: str) -> Any:
        assert group_id == "board.late"
        self.requests += 1
        found = next(self._found)
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(members=found)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    def run_with(cluster: Cluster, **more: Any) -> SupervisedRun:
        monkeypatch.setattr(running, "cluster_of", lambda _: cluster)
        monkeypatch.setattr(running, "parse", lambda given, streaming: given)
        monkeypatch.setattr(
            running, "supervise", lambda start, policy, stop, on_failure: SupervisedRun(stop.is_set(), 0)
        )
        monkeypatch.setattr(running, "_AGAIN_S", 0.001)
        monkeypatch.setattr(running, "REMOVED_WITHIN_S", 0.01)
        monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path))
        return running.run_processor(DECLARED, None, instance="board", **more)  # type: ignore[arg-type]

    return run_with


def test_a_run_has_its_name_with_any_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Its name shows later runs whether it has ended."""
    file = tmp_path / "config.toml"
    file.write_text('[connections.prod]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={"client.id"="shared"}')
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(file))
    started: list[Processor] = []

    def build(named: Processor, *_: Any, **__: Any) -> Any:
        started.append(named)
        return None, SimpleNamespace(start=lambda: None)

    def start_once(start: Any, **_: Any) -> SupervisedRun:
        start()
        return SupervisedRun(False, 0)

    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path))
    monkeypatch.setattr(running, "cluster_of", lambda _: Cluster([]))
    monkeypatch.setattr(running, "processor", build)
    monkeypatch.setattr(running, "reject_same_topic", lambda *_: None)
    monkeypatch.setattr(running, "session_active", lambda _: nullcontext())
    monkeypatch.setattr(running, "supervise", start_once)
    running.run_processor(DECLARED, None, instance="board")  # type: ignore[arg-type]
    client = parse(started[0].source_options("board"), streaming=True).client
    assert str(client.get("client.id")).startswith("streamgroups-board.late-0-")


def test_a_placed_replica_waits_as_long_as_its_earlier_run_lives(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(*[[EARLIER, OTHER]] * 100, [OTHER])
    assert run(cluster, is_placed=True) == SupervisedRun(False, 0)
    assert (cluster.requests, cluster.logins) == (101, 1)
    assert caplog.text.count("Member 0 of group board.late is still in it") == 1


def test_a_placed_replica_waits_for_the_brokers(run: Any) -> None:
    waits: list[Failure] = []
    cluster = Cluster(UNREACHABLE, [EARLIER], UNREACHABLE, [])
    assert run(cluster, is_placed=True, waits=waits.append) == SupervisedRun(False, 0)
    assert [it.code for it in waits] == ["broker_unreachable", None, "broker_unreachable"]
    assert EARLIER.client_id in waits[1].what
    with pytest.raises(NotAuthorized):
        run(Cluster(NotAuthorized("No.", remedy="Log in.")), is_placed=True)


def test_a_rejected_login_ends_a_placed_replica(run: Any) -> None:
    """A request about a group only times out then."""

    class Rejecting(Cluster):
        def check_reachable(self) -> None:
            raise NotAuthorized("No.", remedy="Log in.")

    with pytest.raises(NotAuthorized):
        run(Rejecting(UNREACHABLE), is_placed=True)


def test_an_outage_ends_a_placed_replica_when_supervision_ends(run: Any) -> None:
    class Unreachable(Cluster):
        def check_reachable(self) -> None:
            self.logins += 1
            raise UNREACHABLE

    cluster = Unreachable()
    with pytest.raises(BrokerUnreachable):
        run(cluster, is_placed=True, policy=RestartPolicy(give_up_after_ms=20))
    assert cluster.logins > 1


def test_a_placed_replica_that_waits_can_be_stopped(run: Any) -> None:
    stop = threading.Event()

    class Stopping(Cluster):
        def describe(self, group_id: str) -> Any:
            stop.set()
            return SimpleNamespace(members=[EARLIER])

    assert run(Stopping(), is_placed=True, stop=stop) == SupervisedRun(True, 0)


def test_a_run_in_the_foreground_is_rejected_after_a_while(run: Any) -> None:
    assert run(Cluster([EARLIER], [])) == SupervisedRun(False, 0)
    with pytest.raises(
        GroupRejected, match=r"Member 0 of group 'board.late' runs already: streamgroups-board.late-0-host-7"
    ):
        run(Cluster(*[[EARLIER]] * 1_000))
    with pytest.raises(BrokerUnreachable):
        run(Cluster(UNREACHABLE))
