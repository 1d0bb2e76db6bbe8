"""Opens cursors for the commands.

The commands under ``cursors`` and the process of an instance use it. Tests replace it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups.errors import InvalidOption

if TYPE_CHECKING:
    from streamgroups_kafka.client.config import ClientConfig
    from streamgroups_kafka.cursors.group_cursors import GroupCursors


def open_cursors(bootstrap_servers: str, settings: dict[str, str], key: bytes) -> GroupCursors:
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
