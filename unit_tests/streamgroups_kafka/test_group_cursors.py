"""Arguments that GroupCursors rejects before it sends a request, and instances that join while it is closed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.positions import TrimHorizon
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors.group_cursors import GroupCursors
from streamgroups_kafka.cursors.instance_session import InstanceSession
from streamgroups_kafka.cursors.instances import InstanceRequest, Instances
from unit_tests.streamgroups_kafka.test_cursor_instance import World


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"kafka.group.id": "billing"}, {}, r"Leave out 'group\.id'"),
        ({"client.id": "worker-1"}, {}, r"'client\.id'"),
        ({"sasl.pasword": "hunter2"}, {}, r"sasl\.pasword"),
        ({}, {"signing_key": b"short"}, "5 bytes; at least 16"),
    ],
)
def test_invalid_settings_are_rejected_and_secrets_are_not_shown(
    settings: dict[str, str], more: dict[str, bytes], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message) as rejection:
        GroupCursors("localhost:9092", settings, signing_key=more.get("signing_key"))
    assert "hunter2" not in str(rejection.value)
    assert "short'" not in str(rejection.value)


class Joining:
    """Instances on a group in memory. Another thread creates one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.joins, self.closes = threading.Event(), threading.Event()
        self.session: InstanceSession | None = None
        config = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})
        cluster: Any = self.world.cluster
        unused: Any = None
        self.instances = Instances(
            config, cluster, self.world.metadata_store, unused, unused, self.world.clock, unused, join_timeout_ms=60_000
        )
        monkeypatch.setattr(self.instances, "_admit", lambda _: {})
        monkeypatch.setattr(self.instances, "_join", self.join)
        self.errors: list[StreamGroupsError] = []
        self.thread = threading.Thread(target=self.create)

    def join(self, request: InstanceRequest, _: object) -> InstanceSession:
        stops = self.instances._whether_pointless(request, [])
        assert not stops()
        self.session = self.world.join(request.instance)
        self.joins.set()
        assert self.closes.wait(10)
        assert stops(), "a member that is closed does not wait for its first assignment"
        return self.session

    def create(self) -> None:
        try:
            self.instances.create(InstanceRequest("flights", "billing", "a", TrimHorizon(), True, 30_000))
        except StreamGroupsError as e:
            self.errors.append(e)


def test_an_instance_that_joins_while_its_cursors_are_closed_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    joining = Joining(monkeypatch)
    joining.thread.start()
    assert joining.joins.wait(10)
    closer = threading.Thread(target=joining.instances.close)
    closer.start()
    assert joining.instances._closing.wait(10)
    joining.closes.set()
    closer.join(10)
    assert not closer.is_alive()
    assert joining.session is not None
    assert joining.session.has_departed, "close() returns after the instance has left"
    joining.thread.join(10)
    assert [it.what for it in joining.errors] == ["These GroupCursors are closed."]
    assert joining.world.group.owners() == {}
    joining.create()
    assert len(joining.errors) == 2
