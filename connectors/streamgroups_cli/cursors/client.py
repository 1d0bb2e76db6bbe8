"""The interface of the cursors that the commands call, and its connection.

The commands under ``cursors`` and the process of an instance use it. Tests replace it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from streamgroups.cursors.starting_position import CursorType
from streamgroups.errors import InvalidOption
from streamgroups.message import Message

if TYPE_CHECKING:
    from streamgroups_kafka.client.config import ClientConfig


class Cursors(Protocol):
    """A part of :class:`streamgroups_kafka.cursors.group_cursors.GroupCursors`."""

    def create_group_cursor(
        self,
        stream: str,
        group_name: str,
        instance_name: str,
        type: CursorType | str,
        time: str | None = None,
        commit_on_get: bool = True,
        timeout_ms: int = 30_000,
    ) -> str: ...
    def create_cursor(
        self, stream: str, partition: int, type: CursorType | str, offset: int | None = None, time: str | None = None
    ) -> str: ...
    def get_messages(self, cursor: str, limit: int | None = None) -> tuple[list[Message], str]: ...
    def consumer_heartbeat(self, cursor: str) -> str: ...
    def consumer_commit(self, cursor: str) -> str: ...
    def leave_group(self, cursor: str) -> None: ...


def open_cursors(bootstrap_servers: str, settings: dict[str, str], key: bytes) -> AbstractContextManager[Cursors]:
    """Opens cursors on a real cluster. The end of the ``with`` block closes them."""
    from streamgroups_kafka.cursors.group_cursors import GroupCursors

    return GroupCursors(bootstrap_servers, settings, signing_key=key)


def settings_of(config: ClientConfig) -> tuple[str, dict[str, str]]:
    """Returns the servers and the other settings of a connection, as arguments of :func:`open_cursors`.

    Raises:
        InvalidOption: if the settings contain a group.
    """
    if config.group_id is not None:
        raise InvalidOption("Setting 'group.id' is not permitted here.", remedy="Set the group with --group.")
    settings = dict(config.properties)
    # An instance has its own name as its client id.
    settings.pop("client.id", None)
    return settings.pop("bootstrap.servers"), settings
