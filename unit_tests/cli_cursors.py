"""Cursors in memory for tests of the command line: the real tokens and sessions, on a :class:`FakeCluster`."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.cursors.cursor_tokens import Cursor, GroupCursor, PartitionCursor, decode, encode
from streamgroups.cursors.starting_position import CursorType, position_of
from streamgroups.errors import StreamGroupsError
from streamgroups.fakes import FakeAdmin, FakeCluster, FakeGroup, FakeMember, FakeRecords
from streamgroups.groups.membership import Origin, Owned
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.positions import AtOffset, TrimHorizon
from streamgroups_cli.cursors import instance_process
from streamgroups_cli.cursors.instance_process import InstanceServer, Job
from streamgroups_kafka.cursors.instance_session import InstanceSession, Outside
from streamgroups_kafka.cursors.position_checks import TopicIds

SESSION = "5e55"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class FakeCursors:
    """See :class:`streamgroups_kafka.cursors.group_cursors.GroupCursors`."""

    def __init__(self, cluster: FakeCluster, key: bytes) -> None:
        self._cluster, self._key = cluster, key
        self._session: InstanceSession | None = None

    def __enter__(self) -> FakeCursors:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.end("Closed.")
            self._session.wait_until_left(10)

    def create_cursor(
        self, stream: str, partition: int, type: CursorType | str, offset: int | None = None, time: str | None = None
    ) -> str:
        tp = TopicPartition(stream, partition)
        position = position_of(type, offset=offset, time=time, of_group=False)
        (beginning,) = self._cluster.beginning_offsets([tp]).values()
        return self._token(
            PartitionCursor(stream, partition, position.next_offset if isinstance(position, AtOffset) else beginning)
        )

    def create_group_cursor(
        self,
        stream: str,
        group_name: str,
        instance_name: str,
        type: CursorType | str,
        time: str | None = None,
        commit_on_get: bool = True,
        lease_timeout_ms: int = 30_000,
    ) -> str:
        assert position_of(type, time=time, of_group=True) == TrimHorizon()
        if stream not in self._cluster.topics():
            raise StreamGroupsError(f"There is no '{stream}'.")
        group = FakeGroup(self._cluster, group_name)
        self._session = InstanceSession(
            GroupCursor(stream, group_name, instance_name, SESSION),
            lambda record: FakeMember(
                group,
                instance_name,
                topics=lambda: [stream],
                first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
                record=record,
            ),
            Outside(
                self._cluster,
                AdminMetadataStore(FakeAdmin(self._cluster)),
                FakeRecords(self._cluster),
                now_ms,
                now_ms,
                TopicIds(self._cluster, now_ms),
            ),
            lease_timeout_ms=lease_timeout_ms,
            commit_on_get=commit_on_get,
            commit_timeout_ms=200,
            wait_timeout_ms=0,
        )
        self._session.join(1_000, lambda: False)
        group.settle()
        return self._token(self._session.identity)

    def get_messages(self, cursor: str, limit: int | None = None) -> tuple[list[Message], str]:
        claims = decode(cursor, self._key, now_ms())
        if isinstance(claims, PartitionCursor):
            tp = TopicPartition(claims.stream, claims.partition)
            batch = FakeRecords(self._cluster).read({tp: claims.next_offset}, limit or 10_000)
            return list(batch.messages), self._token(replace(claims, next_offset=batch.reached[tp]))
        messages, after = self._live.get(claims, limit or 10_000)
        return list(messages), self._token(after)

    def consumer_heartbeat(self, cursor: str) -> str:
        self._live.heartbeat()
        return self._token(self._of_group(cursor))

    def consumer_commit(self, cursor: str) -> str:
        return self._token(self._live.commit(self._of_group(cursor)))

    def leave_group(self, cursor: str) -> None:
        self._of_group(cursor)
        self._live.end("It left.")
        self._live.wait_until_left(10)

    @property
    def _live(self) -> InstanceSession:
        assert self._session is not None
        return self._session

    def _of_group(self, cursor: str) -> GroupCursor:
        claims = decode(cursor, self._key, now_ms())
        assert isinstance(claims, GroupCursor)
        return claims

    def _token(self, cursor: Cursor) -> str:
        return encode(cursor, self._key, now_ms())


class Instances:
    """Replaces :func:`instance_process.launch`: threads of this process with real sockets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: list[Job] = []
        self.servers: list[InstanceServer] = []
        self._threads: list[threading.Thread] = []
        made = self.servers

        class RecordedServer(InstanceServer):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                made.append(self)

        monkeypatch.setattr(instance_process, "_POLL_S", 0.01)
        monkeypatch.setattr(instance_process, "InstanceServer", RecordedServer)
        monkeypatch.setattr(instance_process, "launch", self._launch)

    def join(self) -> None:
        """Waits until all have ended."""
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def close(self) -> None:
        for server in self.servers:
            server.end()
        self.join()

    def _launch(self, job: Job) -> str:
        self.jobs.append(job)
        result: list[str | Exception] = []
        spoken = threading.Event()

        def ready(cursor: str) -> None:
            result.append(cursor)
            spoken.set()

        def work() -> None:
            try:
                instance_process.run(job, ready)
            except Exception as e:
                result.append(e)
                spoken.set()

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()
        assert spoken.wait(10)
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]
