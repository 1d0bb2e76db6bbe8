"""The cursors that the commands drive: what they need of :class:`streamgroups_kafka.cursors.group_cursors.GroupCursors`, and how it is made.

Used by the commands under ``cursors`` and by an instance's process; tests put others in its place.
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
    """See :class:`streamgroups_kafka.cursors.group_cursors.GroupCursors`, which has more."""

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
    """Cursors on a real cluster; closed at the end of the ``with`` block."""
    from streamgroups_kafka.cursors.group_cursors import GroupCursors

    return GroupCursors(bootstrap_servers, settings, signing_key=key)


def settings_of(config: ClientConfig) -> tuple[str, dict[str, str]]:
    """The servers and the other settings of a connection, as :func:`open_cursors` takes them.

    Raises:
        InvalidOption: if a group is named among them.
    """
    if config.group_id is not None:
        raise InvalidOption("Setting 'group.id' is not permitted here.", remedy="Set the group with --group.")
    settings = dict(config.properties)
    # Instances are called by their own names.
    settings.pop("client.id", None)
    return settings.pop("bootstrap.servers"), settings
