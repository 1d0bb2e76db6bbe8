"""Arguments that GroupCursors rejects before it sends a request, and instances that join while it is closed."""

from __future__ import annotations

import atexit
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from streamgroups.cursors.cursor_tokens import PartitionCursor, encode
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.identity import UNKNOWN
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.positions import TrimHorizon
from streamgroups.retry import comes_true
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors import group_cursors
from streamgroups_kafka.cursors.closing import ClosableMetadataStore, Closed
from streamgroups_kafka.cursors.group_cursors import GroupCursors
from streamgroups_kafka.cursors.instance_session import InstanceSession
from streamgroups_kafka.cursors.instances import InstanceRequest, Instances
from unit_tests.streamgroups_kafka.test_cursor_instance import World
from unit_tests.streamgroups_kafka.test_job_thread import Finalized


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"kafka.group.id": "billing"}, {}, r"'group\.id'"),
        ({"kafka.group.instance.id": "billing-0"}, {}, r"'group\.instance\.id'"),
        ({}, {"groups_per_stream": 0}, "groups_per_stream is 0"),
        ({}, {"join_timeout_ms": -1}, "join_timeout_ms is -1"),
        ({"client.id": "worker-1"}, {}, r"'client\.id'"),
        ({"Client.ID": "worker-1"}, {}, r"'client\.id'"),
        (
            {"client.rack": "a", "kafka.CLIENT.rack": "b"},
            {},
            r"'kafka\.client\.rack' and 'kafka\.CLIENT\.rack' are the same",
        ),
        ({"sasl.pasword": "hunter2"}, {}, r"sasl\.pasword"),
        ({}, {"signing_key": b"short"}, "5 bytes; at least 16"),
    ],
)
def test_invalid_settings_are_rejected_and_secrets_are_not_shown(
    settings: dict[str, str], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message) as rejection:
        GroupCursors("localhost:9092", settings, **more)
    assert "hunter2" not in str(rejection.value)
    assert "short'" not in str(rejection.value)


class Joining:
    """Instances on a group in memory. Another thread creates one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.monkeypatch = World(), monkeypatch
        self.joins, self.closes = threading.Event(), threading.Event()
        self.session: InstanceSession | None = None
        config = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})
        cluster: Any = self.world.cluster
        unused: Any = None
        self.instances = Instances(
            config,
            cluster,
            self.world.metadata_store,
            unused,
            unused,
            self.world.clock,
            self.world.clock,
            unused,
            join_timeout_ms=60_000,
        )
        monkeypatch.setattr(self.instances, "_admit", lambda _: {})
        monkeypatch.setattr(self.instances, "_new_session", self.new_session)
        self.errors: list[StreamGroupsError] = []
        self.thread = threading.Thread(target=self.create)

    def new_session(self, request: InstanceRequest, _: object) -> InstanceSession:
        self.session = session = self.world.new_session(request.instance)
        join = session.join

        def wait(timeout_ms: int, stops: Callable[[], bool]) -> None:
            assert not stops()
            join(timeout_ms, lambda: True)
            self.joins.set()
            assert self.closes.wait(10)
            assert stops(), "a member that is closed does not wait for its first assignment"

        self.monkeypatch.setattr(session, "join", wait)
        return session

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
    assert comes_true(joining.instances._closing.is_set, 10, every_s=0.01)
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


def test_an_instance_whose_join_is_interrupted_has_left_when_its_cursors_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joining = Joining(monkeypatch)

    def new_session(request: InstanceRequest, _: object) -> InstanceSession:
        session = joining.world.new_session(request.instance)
        leave = session._member.close

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(session, "join", interrupt)
        monkeypatch.setattr(session._member, "close", lambda: (time.sleep(0.2), leave()))
        return session

    monkeypatch.setattr(joining.instances, "_new_session", new_session)
    with pytest.raises(KeyboardInterrupt):
        joining.create()
    assert joining.instances.close()
    assert joining.world.sessions[0].has_departed


def test_a_finalizer_closes_cursors_and_does_not_wait_for_instances_that_join(monkeypatch: pytest.MonkeyPatch) -> None:
    joining = Joining(monkeypatch)
    joining.thread.start()
    assert joining.joins.wait(10)
    have_left: list[bool] = []
    gc.collect()
    Finalized(lambda: have_left.append(joining.instances.close()))
    gc.collect()
    assert have_left == [False]
    joining.closes.set()
    joining.thread.join(10)
    assert joining.instances.close()


def test_each_close_waits_and_so_does_the_exit_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    cursors, world, continues = GroupCursors("127.0.0.1:1"), World(), threading.Event()
    session = cursors._instances._sessions["a"] = world.join("a")
    leave, unregister = session._member.close, atexit.unregister
    monkeypatch.setattr(session._member, "close", lambda: (continues.wait(10), leave()))
    have_left: list[bool] = []
    monkeypatch.setattr(atexit, "unregister", lambda _: have_left.append(session.has_departed))
    gc.collect()
    Finalized(cursors.close)
    gc.collect()
    closers = [threading.Thread(target=cursors.close) for _ in range(2)]
    for it in closers:
        it.start()
    closers[1].join(0.1)
    assert all(it.is_alive() for it in closers)
    assert have_left == []
    continues.set()
    for it in closers:
        it.join(10)
    assert have_left == [True, True]
    unregister(cursors.close)


def test_a_forked_process_can_neither_use_nor_close_cursors(monkeypatch: pytest.MonkeyPatch) -> None:
    cursors = GroupCursors("127.0.0.1:1")
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 0)
        cursors.close()
        with pytest.raises(StreamGroupsError, match="belong to another process"):
            cursors.get_group("flights", "billing")
    assert not cursors._closed.is_set()
    cursors.close()


def closed_meanwhile(cursors: GroupCursors) -> None:
    closer = threading.Thread(target=cursors.close)
    closer.start()
    closer.join(10)
    assert not closer.is_alive()


def test_a_read_of_a_partition_whose_cursors_are_closed_meanwhile_names_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = b"k" * 16
    cursors = GroupCursors("127.0.0.1:1", signing_key=key)

    def checked(_: object, cursor: PartitionCursor) -> PartitionCursor:
        closed_meanwhile(cursors)
        return cursor

    monkeypatch.setattr(group_cursors, "checked_cursor", checked)
    token = encode(PartitionCursor("flights", 0, 5, UNKNOWN), key, cursors._clock())
    with pytest.raises(StreamGroupsError, match="These GroupCursors are closed") as error:
        cursors.get_messages(token)
    assert error.value.remedy == "Create new ones."


def test_a_request_to_the_metadata_groups_of_closed_cursors_names_the_reason() -> None:
    cursors, p0 = GroupCursors("127.0.0.1:1"), TopicPartition("flights", 0)
    closed_meanwhile(cursors)
    for request in (
        lambda: cursors._metadata_store.read("billing", [p0]),
        lambda: cursors._metadata_store.write("billing", {p0: Committed(5)}),
    ):
        with pytest.raises(StreamGroupsError, match="These GroupCursors are closed"):
            request()


def test_an_error_of_the_metadata_store_of_open_cursors_is_not_replaced() -> None:
    store: Any = World().metadata_store

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    store.read = store.write = fail
    open_store = ClosableMetadataStore(store, Closed())
    with pytest.raises(RuntimeError, match="a bug"):
        open_store.read("billing", [])
    with pytest.raises(RuntimeError, match="a bug"):
        open_store.write("billing", {})
